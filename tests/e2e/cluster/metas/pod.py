# SPDX-License-Identifier: Apache-2.0
"""A pod in which metasim runs: what kubectl shows of it, and what only its node knows, also when that is cut
off."""

import os
import signal
from pathlib import Path

from harness.logs import Event, WitnessFile
from harness.process import signal_pid
from kubelab import Cluster, cgroups
from kubernetes import client


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


class SimPod:
    """A pod by its uid: a later one of the same name is another. `container` is the one with metasim."""

    container: str

    def __init__(self, cluster: Cluster, pod: client.V1Pod, witness_dir: Path) -> None:
        self.cluster = cluster
        self.namespace, self.name, self.uid = pod.metadata.namespace, pod.metadata.name, pod.metadata.uid
        self.node = cluster.node_of(pod)
        self._ip: str | None = pod.status.pod_ip
        self._kept = witness_dir / f"{self.name}.{self.uid}"
        self._witness: WitnessFile | None = None

    def __repr__(self) -> str:
        return f"{self.name} ({self.uid[:8]} on {self.node.name})"

    # --- as kubectl shows it -----------------------------------------------------------------

    def read(self) -> client.V1Pod:
        pod = self.cluster.pod(self.namespace, self.name)
        assert pod.metadata.uid == self.uid, f"{self.name} is another pod by now"
        return pod

    @property
    def ip(self) -> str:
        if self._ip is None:
            self._ip = self.cluster.address(self.read())
        return self._ip

    def labels(self) -> dict[str, str]:
        return self.read().metadata.labels or {}

    def kubelet_restarts(self, container: str | None = None) -> int:
        """What kubectl get pods shows under RESTARTS, of one container."""
        wanted = container or self.container
        status = self.read().status
        everyone = [*(status.init_container_statuses or []), *(status.container_statuses or [])]
        return next(s.restart_count for s in everyone if s.name == wanted)

    # --- as its node knows it ----------------------------------------------------------------

    def processes(self, *needles: str) -> list[int]:
        """Living processes of the pod whose command line has all of these words; as the machine counts."""
        needle = f"pod{self.uid}"
        found = []
        for pid in cgroups.members(self.node.group):
            try:
                if needle not in Path(f"/proc/{pid}/cgroup").read_text() or not _is_running(pid):
                    continue
                words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if all(any(w.endswith(n) for w in words) for n in needles):
                found.append(pid)
        return found

    def program(self, name: str) -> int | None:
        """Of the pod's process that was started as this program."""
        for pid in self.processes():
            try:
                first = Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if first.endswith(f"/{name}"):
                return pid
        return None

    def signal(self, program: str, number: signal.Signals) -> int:
        pid = self.program(program)
        assert pid is not None, f"{self.name} has no {program}"
        signal_pid(pid, number)
        return pid

    @property
    def process(self) -> int | None:
        """That of metasim, as the machine counts."""
        return self.program("metasim")

    # --- where its tasks wait ----------------------------------------------------------------

    def _point(self, point: str) -> Path:
        return self.node.volume(self.uid, "witness") / point

    def hold_at(self, point: str) -> None:
        """From now on its task waits when it comes to a pause point of metasim, also after a restart of its
        container."""
        self._point(point).touch()

    def let_go(self, point: str) -> None:
        self._point(point).unlink()

    # --- what it did -------------------------------------------------------------------------

    @property
    def witness(self) -> WitnessFile:
        """Goes on growing, and stays when the pod is gone: a second name of the file on its node."""
        if self._witness is None:
            volume = self.node.dir / "kubelet/pods" / self.uid / "volumes/kubernetes.io~empty-dir/witness"
            source = volume / self._kept.name
            if not self._kept.exists():
                try:
                    os.link(source, self._kept)
                except FileNotFoundError:
                    return WitnessFile(source)
            self._witness = WitnessFile(self._kept)
        return self._witness

    def _reached(self, kind: str) -> Event | None:
        starts = self.witness.events("start")
        found = self.witness.events(kind, starts[-1].pid) if starts else []
        since = starts[-1].boot_ns if starts else 0
        found = [e for e in found if e.boot_ns >= since]
        return found[-1] if found else None

    @property
    def incarnation(self) -> str | None:
        """Of the newest process; pids repeat themselves from container to container."""
        starts = self.witness.events("start")
        return starts[-1].fields["inc"] if starts else None

    def events(self, kind: str, since_ns: int = 0, incarnation: str | None = None) -> list[Event]:
        return [
            e
            for e in self.witness.events(kind)
            if e.boot_ns > since_ns and (incarnation is None or e.fields["inc"] == incarnation)
        ]

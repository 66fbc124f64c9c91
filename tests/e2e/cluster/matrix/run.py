# SPDX-License-Identifier: Apache-2.0
"""One run of one cell: a release of its own, what is done to its leader, and what that one did."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.waiting import boot_ns
from kubelab import Cluster, Database
from kubelab.fixtures import drop_namespace, make_namespace, save_evidence
from kubernetes import client
from metas import Deployment, Meta
from metas.deployment import merged

from .causes import META, RUN, Cause
from .methods import Method

REPLICAS = 2  # the leader and who takes over
# Pods stay on a node that is not ready for five minutes, as Kubernetes has it; the tests' cluster hurries.
STAY = [
    {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "tolerationSeconds": 300, "effect": effect}
    for state, effect in (("not-ready", "NoExecute"), ("unreachable", "NoExecute"))
]
# A wait in the pool begins up to two seconds after the fault and takes one lease until it fails.
BEYOND_LEASE_S = 3.5


def pids_of(meta: Meta, program: str) -> list[int]:
    """Of the pod's processes that were started as this program; a probe that looks in is none."""
    found = []
    for pid in meta.processes():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if words[0].endswith(f"/{program}") and words[1:2] != ["probe"]:
            found.append(pid)
    return found


class Run:
    def __init__(self, cluster: Cluster, cause: Cause, method: Method, name: str) -> None:
        self.cluster, self.cause, self.method, self.name = cluster, cause, method, name
        self.problem = ""
        self.database = Database(cluster.postgres, "m_" + name.replace("-", "_"))
        self.metas: Deployment
        self.old: Meta
        self.incarnation: str | None = None
        self.watched: dict[int, int] = {}  # descriptor of a process of the old leader -> when it ended, or 0
        self.began_ns = self.ended_ns = self.settled_ns = self.proven_ns = 0
        self._ends: list[Callable[[], None]] = []

    @property
    def _forks(self) -> bool:
        return "--double-fork" in self.cause.flags

    def __str__(self) -> str:
        return f"{self.cause.name} x {self.method.name} ({self.name})"

    # --- making it ---------------------------------------------------------------------------

    def deploy(self, replicas: int) -> None:
        make_namespace(self.cluster, self.name, "restricted")
        self.database.create()
        flags = list(self.cause.flags)
        if self.cause.init:
            flags.append(f"--init={self.method.init_s}s")
        own = {
            "replicas": replicas,
            "flags": flags,
            "tolerations": STAY,
            "terminationGracePeriodSeconds": 2,
        }
        values = merged(self.method.values, own)
        self.metas = Deployment(self.cluster, self.name, self.database, values=values)
        self.metas.install_sql()
        self.metas.install()

    def scale(self, replicas: int) -> None:
        self.metas.values["replicas"] = replicas
        self.cluster.apps.patch_namespaced_stateful_set_scale(
            "meta", self.name, {"spec": {"replicas": replicas}}
        )

    def drop(self) -> None:
        self.cluster.apps.delete_collection_namespaced_stateful_set(self.name)
        drop_namespace(self.cluster, self.name)
        self.database.drop()
        for descriptor in self.watched:
            os.close(descriptor)

    def keep_evidence(self) -> None:
        print(f"{self}: pods, events and logs are kept in {save_evidence(self.cluster, self.name)}")

    # --- is it settled? ----------------------------------------------------------------------

    def is_labelled(self, pods: list[client.V1Pod]) -> bool:
        """By what the API server says, which costs nothing more."""
        ready = [
            pod
            for pod in pods
            if any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions or [])
        ]
        roles = sorted(str((pod.metadata.labels or {}).get("metafence.io/role")) for pod in ready)
        return roles == ["follower"] * (self.metas.values["replicas"] - 1) + ["leader"]

    def looks_settled(self, pods: list[client.V1Pod]) -> bool:
        """By what all of them say, too."""
        return self.is_labelled(pods) and not self.metas.unsettled(True)

    def why_unsettled(self) -> str:
        return f"{self.metas.unsettled(True)}\n{self.metas.describe()}"

    def find_leader(self, pods: list[client.V1Pod]) -> bool:
        """Is the scene set? Then `old` is who will lose its leadership."""
        if not self.cause.init:
            if not self.looks_settled(pods):
                return False
            self.old = self.metas.leaders()[0]
        elif not self._find_promoting(pods):
            return False
        self.incarnation = self.old.incarnation
        return not self._forks or bool(self.old.events("child", 0, self.incarnation))

    def _find_promoting(self, pods: list[client.V1Pod]) -> bool:
        metas = self.metas.adopt([pod for pod in pods if pod.spec.node_name])
        promoting = [m for m in metas if m.promotes]
        others = [m for m in metas if m not in promoting]
        if not promoting and self.looks_settled(pods):  # it was over too soon: once more
            self.database.sql("DELETE FROM election_leader")
        if len(promoting) != 1 or len(others) != REPLICAS - 1 or not all(m.is_follower for m in others):
            return False
        status = promoting[0].status()
        if status is None or status["rule"] != "Promoting" or not status["armed"]:
            return False
        self.old = promoting[0]
        return True

    # --- the fault ---------------------------------------------------------------------------

    def watch(self) -> None:
        """From now on the end of each process of the old leader is seen."""
        assert self.old.ip  # asked while somebody answers
        for pid in pids_of(self.old, META):
            self.watched[os.pidfd_open(pid)] = 0
        assert len(self.watched) == 1 + self._forks, f"{self}: {len(self.watched)} processes"

    def begin(self) -> None:
        self.began_ns = self.began_ns or boot_ns()
        if self.method.kubelet_alone:
            self.send(RUN, signal.SIGSTOP)
        self.cause.begin(self)

    def due_ns(self) -> int:
        return self.began_ns + int((self.method.ttl + BEYOND_LEASE_S) * 1e9)

    def at_end(self, mend: Callable[[], None]) -> None:
        self._ends.append(mend)

    def end(self) -> None:
        """Of what was done to this run alone; a second call does nothing."""
        if self.began_ns and not self.ended_ns:
            self.proven_ns = self._proof()
        while self._ends:
            self._ends.pop()()
        self.ended_ns = self.ended_ns or boot_ns()

    def _proof(self) -> int:
        """When metafence itself had proof of the death: no sooner than it came, and without the delay with
        which we see it. 0 without one."""
        if self.method.name == "permit":
            dead = self.old.run_status()["last_death"]["dead_ns"]
        elif self.method.name == "pidfd":
            fence = (self.old.status() or {}).get("last_fence")
            dead = fence["dead_boot_ns"] if fence and fence["confirmed"] else 0
        else:
            dead = 0
        return dead if dead and dead > self.began_ns else 0

    def send(self, program: str, number: signal.Signals) -> None:
        pids = pids_of(self.old, program)
        assert len(pids) == 1 or (program == META and pids), f"{self}: {program} has the pids {pids}"
        for pid in pids:
            os.kill(pid, number)

    def send_watched(self, number: signal.Signals) -> None:
        for descriptor in self.watched:
            try:
                signal.pidfd_send_signal(descriptor, number)
            except ProcessLookupError:
                continue  # dead, as it should be

    def sessions_of(self, address: str) -> list[tuple[Any, ...]]:
        return self.database.sql(
            "SELECT client_port FROM pg_stat_activity WHERE client_addr = %s::inet", address
        )

    # --- the verdict -------------------------------------------------------------------------

    def _dead_ns(self) -> int | None:
        """Of the last process of the old leader. We see it a moment after metafence, which may by now speak
        of the death of a later one."""
        if not all(self.watched.values()):
            return None
        seen = max(self.watched.values())
        return self.proven_ns if abs(seen - self.proven_ns) < 10**9 else seen

    def judge(self) -> dict[str, Any]:
        """A line of the results. Problems of the run itself, with which it proves nothing, are asserted."""
        verdict = self.metas.verdict()
        assert verdict["ticks"] > 0 and verdict["unknown_ticks"] == 0, f"{self}: the witness saw too little"
        lost = [t for t in verdict["takeovers"] if t["from_inc"] == self.incarnation]
        assert lost, f"{self}: leadership was not lost: {verdict['takeovers']}"
        taken = lost[-1]  # a machine that is too busy moves leadership before the fault
        earliest = (taken["expiry_us"] - verdict["offset_us"]) * 1000
        dead = self._dead_ns()
        return {
            "cause": self.cause.name,
            "method": self.method.name,
            "run": self.name,
            "ttl": self.method.ttl,
            "late_ticks": verdict["late_ticks"] + verdict["twin_ticks"],
            "beyond_lease_ms": max(0.0, -min((t["margin_ms"] for t in verdict["takeovers"]), default=0.0)),
            "margin_ms": None if dead is None else round((earliest - dead) / 1e6, 1),
            "dead_after_s": None if dead is None else round((dead - self.began_ns) / 1e9, 2),
            "acted_margin_ms": round(taken["margin_ms"], 1),
            "takeover": taken["kind"],
            "load": round(os.getloadavg()[0], 1),
            "settled_s": round((self.settled_ns - self.ended_ns) / 1e9, 1) if self.settled_ns else None,
        }

# SPDX-License-Identifier: Apache-2.0
"""Who is measured side by side: metas with metafence, metas with the Go sidecar of peer/, and metas alone.
Each has a Postgres, an API server and ports of its own, so that what it asks for can be counted."""

import fcntl
import os
import shutil
import subprocess
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError

from harness import Cluster, Lab, Pod, wait_for
from harness.fakeapi import NAMESPACE, FakeApi
from harness.paths import Missing
from harness.postgres import DATABASE, PASSWORD, USER
from harness.process import Process
from kube import Kube

HERE = Path(__file__).parent
PEER = HERE / "peer"
NEVER_A_STORM = ["--max-kills=10", "--kill-window=1s"]
BOOKMARK_S = 60.0  # as real API servers send them


def build_peer() -> Path:
    """The sidecar of peer/, as one ships such a program: static and stripped."""
    if "METAFENCE_PEER" in os.environ:
        return Path(os.environ["METAFENCE_PEER"])
    if shutil.which("go") is None:
        raise Missing("go is missing: the sidecar to compare with is built by it")
    made = HERE.parents[1] / "build" / "peer"
    made.parent.mkdir(exist_ok=True)
    argv = ["go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", str(made), "."]
    env = os.environ | {"CGO_ENABLED": "0"}
    with open(made.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in parallel
        done = subprocess.run(argv, cwd=PEER, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        raise Missing(f"the Go sidecar was not built: {done.stderr.strip()[-500:]}")
    return made


@dataclass
class Memory:
    """KiB, of smaps_rollup; peak is the resident set's."""

    rss: int
    pss: int
    private: int
    peak: int

    @staticmethod
    def of(pid: int) -> "Memory":
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
        kib = {words[0].rstrip(":"): int(words[1]) for words in map(str.split, lines)}
        status = Path(f"/proc/{pid}/status").read_text()
        private = kib["Private_Clean"] + kib["Private_Dirty"]
        return Memory(kib["Rss"], kib["Pss"], private, int(status.split("VmHWM:")[1].split()[0]))


def cpu_ns(pid: int) -> int:
    """Time on a core, all threads."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((t / "schedstat").read_text().split()[0]) for t in tasks)


class Alone:
    """Metas without anybody."""

    sidecar = "nobody"

    def __init__(self, name: str, ttl: int = 30, pods: int = 1, **options: Any) -> None:
        self.name = name
        self.lab = Lab("bench")
        self.cluster = self._make(ttl, pods, **options)

    def _make(self, ttl: int, pods: int, **options: Any) -> Cluster:
        return Cluster(self.lab, ttl=ttl, guarded=False, pods=pods, **options)

    def count_statements(self) -> None:
        """From the next start of Postgres on, which this does."""
        with open(self.cluster.postgres.data / "postgresql.conf", "a") as conf:
            conf.write("shared_preload_libraries = 'pg_stat_statements'\n")
        self.cluster.postgres.restart("fast")
        self.cluster.postgres.sql("CREATE EXTENSION pg_stat_statements")

    def statements(self) -> int:
        return int(self.cluster.postgres.sql("SELECT sum(calls)::bigint FROM pg_stat_statements")[0][0])

    def requests(self) -> int:
        return 0

    def start(self) -> None:
        self.cluster.start()

    def restart_dead(self) -> None:
        """Brings back the metas that are dead, as the kubelet does."""
        for pod in self.cluster.pods:
            if not pod.main.alive:
                pod.start()

    def knows_leader(self, pod: Pod) -> bool:
        """The sidecar of that pod knows that its meta leads."""
        return True

    def wait_covered(self) -> None:
        """The first pod leads, and its sidecar would see a loss."""
        pod = self.cluster.pods[0]
        wait_for(f"{self.name} leads", lambda: pod.main.alive and pod.acts_as_leader, 30)

    def sidecars(self, pod: Pod) -> dict[str, int]:
        """Processes of ours in that pod: name -> pid."""
        return {}

    def close(self) -> None:
        self.lab.close()


class Metafence(Alone):
    """`notify` false: polling only. `config`: further sections of the agent's configuration."""

    sidecar = "agent"

    def __init__(self, name: str, notify: bool = True, api: FakeApi | None = None, **options: Any) -> None:
        self.notify, self.shared_api = notify, api
        self.config: dict[str, Any] = options.pop("config", {})
        super().__init__(name, **options)

    def _make(self, ttl: int, pods: int, **options: Any) -> Cluster:
        make = {"ttl": ttl, "pods": pods, "run_flags": NEVER_A_STORM, **options}
        self.kube = Kube(self.lab, lambda **given: Cluster(self.lab, **given), api=self.shared_api, **make)
        self.api = self.kube.api
        for pod in self.kube.pods:
            pod.config["notify"] = self.notify
            pod.config.update(self.config)
        return self.kube.cluster

    def requests(self) -> int:
        return self.api.count()

    def restart_dead(self) -> None:
        pass  # metafence-run does that

    def covers(self) -> bool:
        return self.knows_leader(self.cluster.pods[0])

    def knows_leader(self, pod: Pod) -> bool:
        status = pod.status()
        return (
            status is not None
            and status["rule"] == "Leader"
            and status["engaged"]
            and status["armed"]
            and status["meta"]["pid"] == pod.meta_pid
        )

    def wait_covered(self) -> None:
        wait_for(f"{self.name} leads with a permit", self.covers, 30)

    def sidecars(self, pod: Pod) -> dict[str, int]:
        assert pod.agent is not None
        return {"agent": pod.agent.pid, "metafence-run": pod.main.pid}

    def kill_sidecar(self) -> None:
        self.cluster.pods[0].kill_agent()

    def start_sidecar(self) -> None:
        self.cluster.pods[0].start_agent()

    def is_ready(self) -> bool:
        return answers_200(self.cluster.pods[0].http_port)

    def close(self) -> None:
        if self.shared_api is None:
            self.api.close()
        super().close()


class Peer(Alone):
    """`flags`: further flags of the sidecar."""

    sidecar = "peer"

    def __init__(self, name: str, notify: bool = True, api: FakeApi | None = None, **options: Any) -> None:
        self.notify, self.shared_api = notify, api
        self.flags: list[str] = options.pop("flags", [])
        program = build_peer()
        super().__init__(name, **options)
        # A file of its own: no pages in common with another process.
        self.program = Path(shutil.copy(program, self.lab.dir / "peer"))
        self.api = api or FakeApi(self.lab.port())
        self.token = self.lab.dir / "token"
        self.token.write_text(self.api.token)
        self.processes: dict[str, Process] = {}
        for pod in self.cluster.pods:
            self.api.add_pod(pod.name, pod.uid)
        with self.cluster.postgres.connect() as session:
            session.execute((PEER / "notify.sql").read_text())

    def _argv(self, pod: Pod) -> list[str | Path]:
        p = pod.profile
        ms = sum(in_ms(t) for t in (p.margin, p.kill_budget))
        flags = [f"-id={pod.id}", f"-pod={pod.name}", f"-namespace={NAMESPACE}", f"-server={self.api.url}"]
        flags += [f"-token-file={self.token}", f"-listen=127.0.0.1:{pod.http_port}"]
        flags += [f"-process=--witness={pod.witness.path}", f"-ttl={p.ttl_text}", f"-margin={ms:g}ms"]
        flags += [f"-poll={p.poll}", f"-timeout={p.query_timeout}"]
        flags += ["-channel=peer_leader"] if self.notify else []
        return [self.program, *flags, *self.flags]

    def start_sidecar(self, pod: Pod | None = None) -> None:
        pod = pod or self.cluster.pods[0]
        env = {"PGHOST": "127.0.0.1", "PGPORT": str(pod.proxy.port), "PGUSER": USER, "PGPASSWORD": PASSWORD}
        env |= {"PGDATABASE": DATABASE, "PGSSLMODE": "disable"}
        name = f"{pod.name}/peer"
        self.processes[pod.name] = self.lab.spawn(name, self._argv(pod), pod.dir / "peer.log", env)

    def kill_sidecar(self) -> None:
        self.processes[self.cluster.pods[0].name].kill()

    def start(self) -> None:
        super().start()
        for pod in self.cluster.pods:
            self.start_sidecar(pod)
        self.wait_covered()

    def requests(self) -> int:
        return self.api.count()

    def is_ready(self) -> bool:
        return answers_200(self.cluster.pods[0].http_port)

    def covers(self) -> bool:
        return self.knows_leader(self.cluster.pods[0])

    def knows_leader(self, pod: Pod) -> bool:
        # It looks for the process before it says what it is.
        return answers_200(pod.http_port) and self.api.label(pod.name) == "leader"

    def wait_covered(self) -> None:
        super().wait_covered()
        wait_for(f"the sidecar of {self.name} knows", self.covers, 30)

    def sidecars(self, pod: Pod) -> dict[str, int]:
        return {"peer": self.processes[pod.name].pid}

    def close(self) -> None:
        if self.shared_api is None:
            self.api.close()
        super().close()


def in_ms(text: str) -> float:
    """Of the harness' durations: "300ms", "2s"."""
    return float(text[:-2]) if text.endswith("ms") else 1000 * float(text[:-1])


def answers_200(port: int, path: str = "/readyz") -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=2) as answer:
            return answer.status == 200
    except (URLError, OSError):
        return False

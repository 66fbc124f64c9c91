# SPDX-License-Identifier: Apache-2.0
"""Streaming jobs on compute nodes, and an actor that sees no abort: what rw#27111 is made of. Everything
stands still at metasim's pause points, so that no test depends on who is faster."""

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from computes import Compute, with_registry
from harness import Cluster, Pod, boot_ns, wait_for
from harness.logs import Event, LineFile, WitnessFile
from harness.paths import metafence, metasim
from harness.process import Process

# As computes.WORKERS, with the jobs of the catalog alone.
FLAGS = ["--jobs=0", "--max-heartbeat-interval=3600s", "--reconnect-limit=1s"]
# As an operator does for a release that is not on the list: the stand-in's names of migrations are its own.
VERIFY = """INSERT INTO metafence.verified SELECT v, v, 'test' FROM
 (SELECT metafence.newest_migration('public') AS v) AS m ON CONFLICT DO NOTHING"""
PATIENCE = 60  # for anything that nothing holds up, on a busy machine


@dataclass(frozen=True)
class Job:
    id: int
    fragments: list[int]
    tables: list[int]


@dataclass
class Call:
    """An RPC whose answer is awaited later."""

    words: tuple[str, ...]
    process: Process
    began_ns: int

    def done(self) -> bool:
        return not self.process.alive

    def wait(self, timeout: float = PATIENCE) -> tuple[int, str]:
        """Exit status, and what it printed."""
        status = self.process.wait(timeout)
        return status, self.process.log.read_text()

    def succeeds(self, timeout: float = PATIENCE) -> None:
        status, said = self.wait(timeout)
        assert status == 0, f"{' '.join(self.words)}: exit {status}: {said}"


class Order(Call):
    """A command of ours that takes its time."""

    def said(self) -> str:
        return self.process.log.read_text()


class Point:
    """A pause point of one process: whoever comes there waits until it is released."""

    def __init__(self, folder: Path, name: str) -> None:
        self.path, self.name = folder / name, name
        self.path.touch()

    def release(self) -> None:
        self.path.unlink(missing_ok=True)


def since(witness: WitnessFile, kind: str, at_ns: int, **fields: str) -> list[Event]:
    return [
        e
        for e in witness.events(kind)
        if e.boot_ns > at_ns and all(e.fields.get(k) == v for k, v in fields.items())
    ]


def await_event(
    witness: WitnessFile, kind: str, at_ns: int, timeout: float = PATIENCE, **fields: str
) -> Event:
    """The first such event after that moment."""
    what = f"{witness.path.parent.name}: {kind} {fields or ''}"
    return wait_for(what, lambda: since(witness, kind, at_ns, **fields), timeout)[0]


class Node(Compute):
    """A compute node with pause points; its process is the thing that rw#27111 kills."""

    def __init__(self, cluster: Cluster, name: str, host: str = "127.0.0.1") -> None:
        super().__init__(cluster, name, host)
        self.points = self.dir / "points"
        self.points.mkdir()

    def start(self, *flags: str) -> "Node":
        super().start("--pause-dir", str(self.points), *flags)
        return self

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    def point(self, name: str) -> Point:
        return Point(self.points, name)

    def call(self, *words: str) -> Any:
        where = f"127.0.0.1:{self.listen_port}"
        done = subprocess.run([metasim(), "call", where, *words], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return json.loads(done.stdout)

    def make_busy(self, job: Job) -> Point:
        """Its actor of the job's first fragment is in a chunk and sees nothing until that is released."""
        busy, at = self.point("actor-busy"), boot_ns()
        self.call("update", str(job.fragments[0]))
        await_event(self.witness, "paused", at, at="actor-busy")
        return busy

    def running(self, job: Job) -> int:
        """Actors of the job that have not ended."""
        stats = self.call("stats")
        return sum(int(stats.get(str(f), 0)) for f in job.fragments)

    def terminate(self) -> None:
        """As a kubelet begins."""
        self._process.signal(signal.SIGTERM)

    def ended_by(self, timeout: float = PATIENCE) -> int:
        """The signal."""
        return -int(self._process.wait(timeout))

    def panics(self) -> list[Event]:
        return self.witness.events("panic")

    def last_words(self) -> str:
        """Of its log, and of its witness without what it says each second."""
        acts = [line for line in self.witness.lines() if " heartbeat " not in line]
        return "\n".join([*LineFile(self.dir / "log").tail(12), *acts[-25:]])

    def resets(self, at_ns: int) -> list[Event]:
        return since(self.witness, "actors_aborted", at_ns)


class Jobs:
    """A cluster whose metas have a registry, jobs, and pause points, with compute nodes beside."""

    def __init__(self, cluster: Cluster, release: str = "head") -> None:
        self.cluster = cluster
        self.nodes: list[Node] = []
        self._calls = 0
        with_registry(cluster, release)
        for pod in cluster.pods:
            (pod.dir / "points").mkdir()
            pod.meta_flags = [
                *pod.meta_flags,
                *FLAGS,
                f"--workers={release}",
                f"--pause-dir={pod.dir / 'points'}",
            ]

    def start(self, nodes: int = 1, *flags: str, mode: str | None = None) -> Pod:
        """The leader, once all compute nodes have their streams."""
        if mode:
            self.cluster.install_sql()
            self.set_mode(mode)
            self.cluster.postgres.sql(VERIFY)
        leader = self.cluster.start(sql=False)
        await_event(leader.witness, "recovery_done", 0)
        for n in range(nodes):
            self.add_node(f"c{n + 1}", *flags)
            wait_for("its stream", lambda n=n: len(leader.witness.events("stream_connected")) > n, PATIENCE)
        return leader

    def add_node(self, name: str, *flags: str, host: str = "127.0.0.1") -> Node:
        node = Node(self.cluster, name, host).start(*flags)
        self.nodes.append(node)
        node.wait_running(PATIENCE)
        return node

    def leader(self) -> Pod:
        return self.cluster.wait_converged(PATIENCE)

    def point(self, pod: Pod, name: str) -> Point:
        return Point(pod.dir / "points", name)

    # --- what a frontend asks ------------------------------------------------------------------

    def later(self, pod: Pod, *words: str, timeout: int = 600) -> Call:
        self._calls += 1
        name, folder = f"call{self._calls}-{words[0]}", self.cluster.lab.dir / "calls"
        folder.mkdir(exist_ok=True)
        argv: list[str | Path] = [metasim(), "call", f"--timeout={timeout}s", pod.id, *words]
        at = boot_ns()
        return Call(words, self.cluster.lab.spawn(name, argv, folder / name), at)

    def ask(self, pod: Pod, *words: str) -> Any:
        status, said = self.later(pod, *words).wait()
        assert status == 0, f"{words}: exit {status}: {said}"
        return json.loads(said)

    def order(self, pod: Pod, *words: str) -> "Order":
        """`metafence <words>` at that pod's agent, while the test goes on."""
        self._calls += 1
        name, folder = f"order{self._calls}-{words[0]}", self.cluster.lab.dir / "calls"
        folder.mkdir(exist_ok=True)
        argv: list[str | Path] = [metafence(), *words, "--socket", pod.dir / "agent.sock"]
        return Order(words, self.cluster.lab.spawn(name, argv, folder / name), boot_ns())

    def create(self, pod: Pod, name: str, actors: int = 1) -> Job:
        made = self.ask(pod, "create", name, str(actors))
        return Job(made["job"], made["fragments"], made["tables"])

    def drop(self, pod: Pod, job: Job) -> Call:
        """Committed, and behind its barrier."""
        at = boot_ns()
        dropped = self.later(pod, "drop", str(job.id))
        await_event(pod.witness, "command_queued", at, job=str(job.id))
        return dropped

    def recover(self, pod: Pod) -> Call:
        return self.later(pod, "recover")

    def status(self, pod: Pod) -> int:
        return int(self.ask(pod, "status")["status"])

    def tables(self, pod: Pod) -> list[int]:
        """Of the version that the leader has."""
        return list(self.ask(pod, "tables"))

    def wait_reclaimed(self, job: Job, timeout: float = PATIENCE) -> Pod:
        """None of its tables is in Hummock, by the word of the present leader; no node has died for it."""

        def reclaimed() -> Pod | None:
            self.assert_alive()
            leaders = self.cluster.leaders()
            if len(leaders) != 1:
                return None
            status, said = self.later(leaders[0], "tables", timeout=5).wait()
            gone = status == 0 and not set(job.tables) & set(json.loads(said))
            return leaders[0] if gone else None

        return wait_for(f"the tables of job {job.id} are reclaimed", reclaimed, timeout, every=0.2)

    def wait_works(self, job: Job, timeout: float = PATIENCE) -> None:
        """Recovered: the job's actors run; no node has died."""

        def works() -> bool:
            self.assert_alive()
            return sum(node.running(job) for node in self.nodes) > 0

        wait_for(f"job {job.id} runs", works, timeout, every=0.2)

    # --- what it came to -----------------------------------------------------------------------

    def removals(self, at_ns: int, by: str | None = None) -> list[Event]:
        """Of tables from Hummock, by whichever leader, that took some."""
        found = [
            e
            for pod in self.cluster.pods
            for e in since(pod.witness, "unregistered", at_ns)
            if e.fields["tables"] != "[]" and by in (None, e.fields["by"])
        ]
        return sorted(found, key=lambda e: e.boot_ns)

    def refusals(self, at_ns: int) -> list[Event]:
        """Removals that the gate refused."""
        return [
            e
            for pod in self.cluster.pods
            for e in since(pod.witness, "unregister_failed", at_ns)
            if "MF003" in e.fields["msg"]
        ]

    def markers(self) -> list[tuple[Any, ...]]:
        """The record of recoveries: id, term, attempts, refused, how it ended."""
        return self.cluster.postgres.sql(
            "SELECT id, term, joined, refused, ended FROM metafence.recovery"
            " WHERE scope = 'global' ORDER BY id"
        )

    def purges(self) -> list[dict[str, Any]]:
        """Removals that met an open recovery and passed."""
        names = ("recovery_id", "term", "outcome", "table_ids", "missing", "held_ms")
        rows = self.cluster.postgres.sql(f"SELECT {', '.join(names)} FROM metafence.purge ORDER BY id")
        return [dict(zip(names, row, strict=True)) for row in rows]

    def configure(self, mode: str, **options: str) -> None:
        """Of ordered recovery: what the agents are told, before they start."""
        for pod in self.cluster.pods:
            pod.config["recovery"] = {"mode": mode, **options}

    def set_mode(self, mode: str) -> None:
        """… and what the schema is, which is asked in each transaction."""
        self.cluster.postgres.sql("UPDATE metafence.setting SET value = %s WHERE name = 'recovery'", mode)

    def panics(self) -> list[Event]:
        return [e for node in self.nodes for e in node.panics()]

    def assert_alive(self) -> None:
        """Every compute node has the process that it began with; if not, its last words are shown."""
        for node in self.nodes:
            why = [e.fields["why"] for e in node.panics()]
            assert node.alive and not why, f"{node.name} is gone: {why}\n{node.last_words()}"


@dataclass
class Pending:
    """A DROP is committed and waits behind a barrier that its busy actor does not let pass."""

    jobs: Jobs
    leader: Pod
    node: Node
    job: Job
    kept: Job
    busy: Point
    dropped: Call


def make_pending(jobs: Jobs, leader: Pod) -> Pending:
    """On the first node, beside a job that stays."""
    kept = jobs.create(leader, "kept")
    job = jobs.create(leader, "mv")
    node = next(n for n in jobs.nodes if n.running(job))
    busy = node.make_busy(job)
    return Pending(jobs, leader, node, job, kept, busy, jobs.drop(leader, job))


@contextmanager
def paused(point: Point) -> Iterator[Point]:
    try:
        yield point
    finally:
        point.release()


Make = Callable[..., Cluster]
SIGABRT = int(signal.SIGABRT)

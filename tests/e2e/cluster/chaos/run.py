# SPDX-License-Identifier: Apache-2.0
"""Rounds of the plan on metas of one release: after each of them everything has to come back alone, and in
the end what all of them did is judged."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psycopg
from harness.paths import REPO
from harness.waiting import boot_ns, hold, hold_until
from kubelab import Cluster, Database, cgroups
from kubelab.fixtures import make_namespace, save_evidence
from kubernetes.client.exceptions import ApiException
from matrix.wave import SHARES
from metas import Registry
from metas.registry import COMMITTED
from urllib3.exceptions import HTTPError

from . import evidence
from .faults import Faults
from .history import Cause, Entry, History, Verdict, judge
from .plan import Fault, Round
from .schedule import End, Schedule

METAS, COMPUTES = 3, 2
NAME = "chaos"
DISK_MB = 300
RETURN_S = 240.0  # the brake on fences, back-offs of kubelets and watches, pods that are made again
STEADY_S = 5.0
LOOK_S = 1.0
TAKES_ROWS = ("postgres_clock", "failover")  # what may take a row from a leader inside its lease
RESULTS = REPO / "build" / "results" / "chaos"
# What asking says while what is asked is broken.
AWAY = (
    ApiException,
    HTTPError,
    OSError,
    AssertionError,
    LookupError,
    StopIteration,
    ValueError,
    psycopg.Error,
    subprocess.TimeoutExpired,
)


def first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


class ChaosMetas(Registry):
    """Metas with workers whose every renewal, term and write Postgres notes for us."""

    def install_sql(self) -> None:
        super().install_sql()
        evidence.install(self.database)
        tables = evidence.guarded_tables(self.database)
        assert "worker" in tables and len(tables) > 3, tables
        evidence.watch_writes(self.database, tables)


class DidNotReturn(AssertionError):
    """Something had not come back within RETURN_S after its faults were over."""


@dataclass
class Report:
    seed: int
    rounds: int = 0
    faults: int = 0
    missed: list[str] = field(default_factory=list)  # second faults that found nothing to break
    slowest_s: float = 0.0
    verdict: Verdict | None = None
    timeline: list[str] = field(default_factory=list)


class Chaos:
    """One run. `say` is given each line of the timeline."""

    def __init__(self, cluster: Cluster, seed: int, say: Callable[[str], None]) -> None:
        self.cluster, self._say = cluster, say
        self.report = Report(seed)
        self.database = Database(cluster.postgres, NAME)
        self.metas = ChaosMetas(cluster, NAME, self.database, metas=METAS, computes=COMPUTES)
        self.faults = Faults(self.metas, self._keep_log)
        self._logs: list[tuple[Entry, ...]] = []  # of primaries that were lost
        self._causes: list[Cause] = []
        self._barriers: dict[str, float] = {}  # of a leader's incarnation: the first that was seen committed
        self._began = boot_ns()

    def say(self, text: str) -> None:
        line = f"{(boot_ns() - self._began) / 1e9:7.1f} s  {text}"
        self.report.timeline.append(line)
        self._say(line)

    # --- the scene ---------------------------------------------------------------------------

    def start(self) -> None:
        for node in self.cluster.nodes:
            cgroups.weigh(node.group, SHARES)  # what the machine does beside it is no part of the plan
        self.faults.prepare()
        make_namespace(self.cluster, NAME, "restricted")
        self.database.create(witness=False)
        leader = self.metas.start(timeout=RETURN_S)
        self.wait_returned("the start")
        self.say(f"{leader.name} leads {METAS} metas and {COMPUTES} compute nodes")

    def close(self) -> None:
        self.metas.close()

    # --- rounds ------------------------------------------------------------------------------

    def go(self, rounds: Iterator[Round], minutes: float) -> Report:
        """Until so many minutes are over; a round that has begun is finished. What was seen is judged also
        when something did not return."""
        end = boot_ns() + int(minutes * 60e9)
        try:
            while boot_ns() < end:
                self._round(next(rounds))
        except Exception:
            with suppress(*AWAY):
                self._judge()
            raise
        self._judge()
        return self.report

    def _round(self, one: Round) -> None:
        began = boot_ns()
        try:
            Schedule(self._begin, self._wait_until).play(one)
            took = self.wait_returned(f"round {one.number}")
        finally:
            taking = [fault for fault in one.faults if fault.kind in TAKES_ROWS]
            self._causes += [Cause(str(fault), began, boot_ns()) for fault in taking]
        self.say(f"round {one.number}: all is well again after {took:.1f} s")
        self.report.rounds += 1
        self.report.slowest_s = max(self.report.slowest_s, took)

    def _begin(self, fault: Fault, is_first: bool) -> End | None:
        number = self.report.rounds + 1
        try:
            end = self.faults.begin(fault)
        except AWAY as error:
            if is_first:
                raise
            said = f"round {number}: {fault} finds nothing to break: {first_line(error)}"
            self.report.missed.append(said)
            self.say(said)
            return None
        self.report.faults += 1
        self.say(f"round {number}: {fault}  {self.faults.said}".rstrip())
        return end

    def _wait_until(self, end_ns: int, under_way: list[Fault]) -> None:
        """Who comes and goes meanwhile is seen, unless the API server would keep us from going on in time."""
        is_slow = any(fault.kind.startswith("api_") for fault in under_way)
        looked = 0

        def look() -> None:
            nonlocal looked
            if not is_slow and boot_ns() - looked > LOOK_S * 1e9:
                with suppress(*AWAY):
                    self.faults.look()
                looked = boot_ns()

        hold_until(end_ns, look)

    # --- is all well? ------------------------------------------------------------------------

    def wait_returned(self, after: str) -> float:
        """Nobody helps, and it has to stay so: a fault may be noticed a moment after its end. How long it
        took; DidNotReturn with what is missing."""
        began = since = boot_ns()
        self._barriers.clear()
        while boot_ns() - since < STEADY_S * 1e9:
            if missing := self._missing():
                since = boot_ns()
                if since - began > RETURN_S * 1e9:
                    text = f"after {after}, not within {RETURN_S:g} s: {missing}"
                    raise DidNotReturn(f"{text}\n{self._describe()}")
            hold(LOOK_S / 2)
        return (since - began) / 1e9

    def _missing(self) -> str:
        """What is not as it should be: one leader, labels, agents, nodes, compute nodes, and barriers."""
        try:
            self.faults.look()
            return (
                self.metas.unsettled(True)
                or self._missing_nodes()
                or self._missing_workers()
                or self._barrier()
            )
        except AWAY as error:
            return f"{type(error).__name__}: {first_line(error)}"

    def _missing_nodes(self) -> str:
        return "; ".join(self.cluster.not_ready())

    def _missing_workers(self) -> str:
        rows = sorted((row.host, row.status) for row in self.metas.rows())
        wanted = [(f"compute-{n}.compute", "RUNNING") for n in range(COMPUTES)]
        return "" if rows == wanted else f"rows of workers: {rows}"

    def _barrier(self) -> str:
        """The jobs run: another barrier was committed since it was first looked."""
        leader = self.metas.leaders()[0]
        now = leader.metric(COMMITTED)
        first = self._barriers.setdefault(str(leader.incarnation), now)
        return "" if now > first else f"{leader.name} commits no barrier: {now:g}"

    def _describe(self) -> str:
        with suppress(*AWAY):
            return self.metas.describe()
        return "(nobody can be asked)"

    # --- the verdict -------------------------------------------------------------------------

    def _keep_log(self) -> None:
        """Of a primary that is about to be lost."""
        self._logs.append(evidence.read(self.database))

    def _judge(self) -> None:
        history = self._history()
        self.report.verdict = judge(history)
        self._keep(history)

    def _history(self) -> History:
        return History(
            ttl_ns=int(self.metas.ttl * 1e9),
            incarnations=tuple(
                one for meta in self.metas.everyone for one in evidence.incarnations(meta.witness, repr(meta))
            ),
            logs=(*self._logs, evidence.read(self.database)),
            causes=tuple(self._causes),
            lost=evidence.lost(self.database),
        )

    def _keep(self, history: History) -> None:
        folder = folder_of(self.report.seed)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "timeline.txt").write_text("\n".join(self.report.timeline) + "\n")
        (folder / "history.json").write_text(json.dumps(asdict(history)))
        (folder / "verdict.txt").write_text(f"{self.report.verdict}\n")


def folder_of(seed: int) -> Path:
    return RESULTS / f"seed-{seed}"


def describe(report: Report) -> list[str]:
    """For the end of a run."""
    return [
        f"seed {report.seed}: {report.rounds} rounds, {report.faults} faults, {len(report.missed)} of the"
        f" second faults found nothing to break; slowest return {report.slowest_s:.1f} s,"
        f" load {os.getloadavg()[0]:.1f}",
        str(report.verdict),
    ]


def run(
    cluster: Cluster, seed: int, minutes: float, rounds: Iterator[Round], say: Callable[[str], None]
) -> Report:
    """On a cluster that is up and has a disk of its own for Postgres (DISK_MB). DidNotReturn, or the report
    with its verdict."""
    chaos = Chaos(cluster, seed, say)
    try:
        chaos.start()
        report = chaos.go(rounds, minutes)
        assert report.verdict is not None
        if not report.verdict.is_clean:
            save_evidence(cluster, NAME)
        return report
    except Exception:
        say(f"pods, events and logs are kept in {save_evidence(cluster, NAME)}")
        if chaos.report.verdict is not None:
            say(str(chaos.report.verdict))
        raise
    finally:
        chaos.close()

# SPDX-License-Identifier: Apache-2.0
"""Compressed trouble: one after another of everything that can go wrong around three metas, and after each
one leader, right labels, no overlap. What agents and metafence-runs cost is measured in quiet windows
at the start, in the middle and at the end, and must be the same.

An hour with --full (seed by the clock, printed); a minute else (a fixed seed, so that each run is the
same). METAFENCE_TROUBLE_SECONDS and METAFENCE_TROUBLE_SEED say otherwise.
"""

import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from harness import Lab, Pod, boot_ns, results
from harness.nameserver import NAME, Nameserver, let_agents_ask
from kube import Kube, Open
from measures import PER_INCARNATION, Measuring, Window, table
from trouble import Keeper, Milestones, Troubles

CONVERGE_S = 90  # storm delay (4 x ttl), hold after a fence (ttl + 1 s), election, back-offs
# Of a quiet process.
LOG_B_PER_MIN = 600
LOG_B_PER_WINDOW = 3000  # of a short one: a line or two, on a machine that is busy with something else
READS_PER_MIN = 900  # ten polls a second, and some that something asked for
REQUESTS_PER_MIN = 45  # a look of the leader's agent at the worker pods each 10 s is most of it
REQUESTS_PER_LOOK = 10
# Whatever happens, of an agent.
LOG_B_PER_TROUBLE = 64 << 10
REQUESTS_PER_S = 8
# From the first window to the last, and from the middle to the last: what a process touches for the first
# time is no leak.
RSS_GROWTH_KIB = (2048, 512)
DIRTY_GROWTH_KIB = (1024, 256)


@dataclass(frozen=True)
class Length:
    ttl: int
    seconds: float
    windows: int
    window_s: float
    settle_s: float  # in the full form longer than the time between two lists, which may open a connection
    seed: int
    is_full: bool


def length_of(config: pytest.Config) -> Length:
    is_full = config.getoption("--full")
    seconds = float(os.environ.get("METAFENCE_TROUBLE_SECONDS", 3600 if is_full else 60))
    seed = int(os.environ.get("METAFENCE_TROUBLE_SEED", time.time_ns() % 10**6 if is_full else 1))
    if is_full:
        # The longer time-outs: a machine that is busy for a second must not look like a trouble.
        return Length(10, seconds, 5, 60, 60, seed, True)
    return Length(5, seconds, 3, 5, 2, seed, False)


@pytest.fixture
def names(lab: Lab) -> Iterator[Nameserver]:
    server = Nameserver(lab.dir)
    yield server
    server.close()


def prepare(kube: Open, ttl: int, lab: Lab, names: Nameserver, monkeypatch: pytest.MonkeyPatch) -> Kube:
    """Three metas whose agents find Postgres by name. A storm is over sooner than in a release, so that an
    hour has several."""
    made = kube(ttl=ttl, run_flags=["--kill-window=60s"])
    made.cluster.install_sql()
    let_agents_ask(made.pods, names, lab.dir, monkeypatch)
    for pod in made.pods:
        pod.witness = Milestones(pod.witness.path)
        pod.config["postgres"]["host"] = NAME
    with open(made.cluster.postgres.data / "postgresql.conf", "a") as conf:
        conf.write("max_wal_size = 64MB\n")  # the directory is in memory
    made.cluster.postgres.restart("fast")
    made.cluster.start(sql=False)
    return made


class Hour:
    def __init__(self, made: Kube, names: Nameserver, length: Length) -> None:
        self.made, self.length = made, length
        self.keeper = Keeper(made)
        self.troubles = Troubles(made, self.keeper, names, random.Random(length.seed))
        self.windows: list[Window] = []
        self.log: list[str] = []
        self.slowest_s = 0.0
        self.most_log_b = 0
        self.most_requests_per_s = 0.0
        self.began = boot_ns()

    @property
    def gone_s(self) -> float:
        return (boot_ns() - self.began) / 1e9

    def say(self, text: str) -> None:
        self.log.append(f"{self.gone_s:7.1f} s  {text}")
        print(self.log[-1], flush=True)

    # --- between two troubles --------------------------------------------------------------------

    def is_right(self, status: dict[str, Any], role: str) -> bool:
        """Nothing is left of what was: the proof is fresh, Postgres and the API answer, no order stands."""
        has_proof = role != "leader" or (status["deadline_ms_left"] or 0) > self.length.ttl * 1000 / 2
        is_well = status["armed"] and status["database"]["state"] == "answers" and status["kubernetes"]["up"]
        is_ordered = status["not_covered"] or status["paused_until"] or status["manual_fence"]
        return bool(status["role"] == role and has_proof and is_well and not is_ordered)

    def converged(self) -> bool:
        cluster = self.made.cluster
        leaders = cluster.leaders()
        if len(leaders) != 1 or cluster.owner() is not leaders[0]:
            return False
        wanted = {p.name: "leader" if p in leaders else "follower" for p in self.made.pods}
        if self.made.roles() != wanted:
            return False
        for pod in self.made.pods:
            status = pod.status()
            if status is None or not self.is_right(status, wanted[pod.name]):
                return False
        return all(p.is_follower for p in self.made.pods if p not in leaders)

    def converge(self, after: str) -> float:
        began = boot_ns()
        try:
            self.keeper.wait(f"one leader, right labels after {after}", self.converged, CONVERGE_S)
        except AssertionError as error:
            statuses = [p.status() for p in self.made.pods]
            raise AssertionError(
                f"{error}\n{self.made.cluster.describe()}\n{self.made.roles()}\n{statuses}"
            ) from None
        return (boot_ns() - began) / 1e9

    def judge(self) -> None:
        verdict = self.made.cluster.witness()
        margin_ms, ttl = verdict.worst_margin_ms, self.length.ttl
        results.record(results.Measured("trouble", ttl, True, verdict.overlaps, margin_ms))
        takeovers = len(verdict.takeovers)
        self.say(f"verdict: {verdict.overlaps} overlaps in {takeovers} takeovers, {verdict.ticks} ticks")
        assert verdict.ticks > 0 and verdict.overlaps == 0, verdict.raw

    # --- troubles --------------------------------------------------------------------------------

    def _log_bytes(self) -> dict[str, int]:
        return {p.name: p.agent_log.path.stat().st_size for p in self.made.pods}

    def one(self, kind: str) -> None:
        began, kills, logs = boot_ns(), self.made.kills(), self._log_bytes()
        getattr(self.troubles, kind)()
        what = f"{kind}: {self.troubles.said}"
        took = self.converge(what)
        killed = self.made.kills() - kills
        whole_s = max((boot_ns() - began) / 1e9, 5.0)  # a few at once are no rate
        requests_per_s = self.made.api.count(began) / whole_s / len(self.made.pods)
        log_b = max(now - logs[name] for name, now in self._log_bytes().items())
        self.say(f"{what}; right again after {took:.1f} s, {killed} kills, {log_b} log bytes")
        self.slowest_s = max(self.slowest_s, took)
        self.most_log_b = max(self.most_log_b, log_b)
        self.most_requests_per_s = max(self.most_requests_per_s, requests_per_s)
        assert log_b < LOG_B_PER_TROUBLE, what
        assert requests_per_s < REQUESTS_PER_S, f"{what}: {requests_per_s:.1f} requests/s of an agent"
        # At ttl 5 a log-in of a busy machine may cost the lease.
        is_harmless = kind in Troubles.HARMLESS and self.length.is_full
        assert killed == 0 or not is_harmless, f"{what}: killed {killed}\n{self.made.cluster.describe()}"

    def until(self, end_s: float, kinds: Iterator[str]) -> None:
        while self.gone_s < end_s:
            self.one(next(kinds))

    # --- quiet windows ---------------------------------------------------------------------------

    def move_to(self, pod: Pod) -> None:
        cluster = self.made.cluster
        if cluster.leaders() != [pod]:
            self.troubles.give_row_to(pod)
            self.keeper.wait(f"{pod.name} leads", lambda: cluster.leaders() == [pod], CONVERGE_S)
            self.converge(f"a move to {pod.name}")

    def warm_up(self) -> None:
        """Each has led once: what only a leader needs has been made."""
        for pod in reversed(self.made.pods):
            self.move_to(pod)

    def measure(self, name: str) -> None:
        """The first pod leads, so that each process has the same work in each window."""
        self.move_to(self.made.pods[0])
        self.keeper.hold(self.length.settle_s)
        self.converge("settling")
        measuring = Measuring(self.made, name, self.began)
        end = boot_ns() + int(self.length.window_s * 1e9)
        while boot_ns() < end:
            self.keeper.hold(0.5)
            measuring.look()
        self.windows.append(measuring.end())
        self.say(f"measured: {name}")
        self.judge()


def shuffled(troubles: Troubles, chance: random.Random) -> Iterator[str]:
    """Each kind once in random order, then again."""
    names = [kind.__name__ for kind in troubles.kinds]
    while True:
        yield from chance.sample(names, len(names))


def check_growth(windows: list[Window], process: str, is_full: bool) -> None:
    """The last window against the first; in the full form also against the one in the middle."""
    uses = [w.row(process).use for w in windows]
    pids, fds = [u.pid for u in uses], [u.fds for u in uses]
    assert len(set(pids)) == 1, f"{process} did not live for the whole time: {pids}"
    # In the short form they may be there or not: the connection for requests, and the sessions in Postgres
    # that an agent opens when its meta first leads.
    assert max(fds) - min(fds) <= (0 if is_full else 3), f"{process}: {fds} descriptors"
    assert {u.threads for u in uses} == {1}, f"{process}: {uses}"
    bases = [(uses[0], 0), (uses[len(uses) // 2], 1)] if is_full else [(uses[0], 0)]
    for base, n in bases:
        assert uses[-1].rss <= base.rss + RSS_GROWTH_KIB[n], f"{process}: {uses}"
        assert uses[-1].private <= base.private + DIRTY_GROWTH_KIB[n], f"{process}: {uses}"
    files = [w.row(process).files for w in windows]
    assert files[-1] <= files[0] + 4096, f"{process}: {files} bytes of files"


def check_rates(windows: list[Window], is_full: bool) -> None:
    for window in windows:
        for row in window.rows:
            log_b = row.log_per_min * window.seconds / 60
            allowed = LOG_B_PER_MIN * window.seconds / 60 if is_full else LOG_B_PER_WINDOW
            assert log_b <= allowed, f"{window.name}: {row.process} logs {log_b:.0f} bytes"
        for name, per_min in window.reads_per_min.items():
            assert per_min <= READS_PER_MIN, f"{window.name}: {name} reads {per_min:.0f}/min"
            usual = windows[0].reads_per_min[name]
            assert not is_full or 0.8 * usual < per_min < 1.2 * usual, f"{window.name}: {per_min:.0f}/min"
        # A short window may have one look more than its share.
        allowed = REQUESTS_PER_MIN + (0 if is_full else REQUESTS_PER_LOOK * 60 / window.seconds)
        assert window.api_per_min <= allowed, f"{window.name}: {window.api_per_min:.0f}/min"


def check_tables(windows: list[Window]) -> None:
    """Nothing grows but what has a row for each incarnation."""
    first, last = windows[0], windows[-1]
    born = last.incarnations - first.incarnations
    for name, (rows, size) in last.tables.items():
        rows_before, size_before = first.tables[name]
        if name in PER_INCARNATION:
            assert rows <= rows_before + born, f"{name}: {rows_before} -> {rows} rows, {born} incarnations"
        else:
            assert rows <= rows_before + 1000, f"{name}: {rows_before} -> {rows} rows"
        allowed = size_before + (256 << 10) + 1024 * born
        assert size <= allowed, f"{name}: {size_before} -> {size} bytes, {born} incarnations"


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_compressed_trouble(
    kube: Open, lab: Lab, names: Nameserver, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    length = length_of(pytestconfig)
    made = prepare(kube, length.ttl, lab, names, monkeypatch)
    hour = Hour(made, names, length)
    hour.say(f"seed {length.seed}, {length.seconds:.0f} s")
    kinds = shuffled(hour.troubles, random.Random(length.seed))
    try:
        hour.warm_up()
        hour.measure("start")
        begin = hour.gone_s
        for n in range(1, length.windows):
            share = n / (length.windows - 1)
            hour.until(begin + share * (length.seconds - begin), kinds)
            at = {0.5: "middle", 1.0: "end"}.get(share, f"{share:.0%}")
            hour.measure(at)
        for pod in made.pods[:-1]:
            check_growth(hour.windows, f"agent {pod.name}", length.is_full)
            check_growth(hour.windows, f"run {pod.name}", length.is_full)
        check_rates(hour.windows, length.is_full)
        check_tables(hour.windows)
        slow = hour.keeper.slow
        assert len(slow) <= 3 + hour.keeper.probes // 100, f"slow probes: {slow}"
    finally:
        lines = table(hour.windows) if hour.windows else []
        troubles = sum("right again" in line for line in hour.log)
        lines += [
            "",
            f"{troubles} troubles, {made.incarnations()} incarnations, "
            f"{hour.keeper.containers} containers started again",
            f"slowest return to one leader and right labels: {hour.slowest_s:.1f} s",
            f"most in one trouble: {hour.most_log_b} log bytes of an agent, "
            f"{hour.most_requests_per_s:.1f} requests/s of an agent",
            f"{hour.keeper.probes} probes, slower than 0.5 s: {hour.keeper.slow}",
        ]
        results.keep("trouble-hour" if length.is_full else "trouble", [*hour.log, "", *lines], lines)

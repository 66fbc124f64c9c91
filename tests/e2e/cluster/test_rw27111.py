# SPDX-License-Identifier: Apache-2.0
"""rw#27111, "global recovery may reclaim dropped tables before all actors have been reset", by the report's
sequence. The steps that race in real life wait for each other at pause points.

 1  two compute nodes, a job on one of them, another that stays
 2  a chunk of the job keeps its actor busy: it sees no abort
 3  DROP commits in the catalog, and waits behind a barrier
 4  RECOVER, or another leader: a global recovery
 5  the purge of the dropped tables, before any control stream
 6  the chunk goes on to its next partition, and reads it
"""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from harness.logs import Event
from harness.paths import metasim
from harness.waiting import boot_ns
from metas import Compute, Meta, Registry

Note = Callable[[str, Any], None]
Enlist = Callable[..., Registry]
JOBS = ("--jobs=0", "--max-heartbeat-interval=3600s")
BUSY = "actor-busy"
PATIENCE = 90
SIGSEGV = 139  # how abort() ends the first process of a container


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "release" in metafunc.fixturenames:
        releases = ["v2.6", "v3.0", "head"]
        metafunc.parametrize("release", releases if metafunc.config.getoption("--full") else releases[-1:])


@dataclass
class Story:
    """Where the six steps have come to."""

    metas: Registry
    leader: Meta
    node: Compute  # that runs the job
    other: Compute
    job: dict[str, Any]
    kept: dict[str, Any]
    incarnations: list[str | None]  # of the two nodes
    later: ThreadPoolExecutor  # for what is answered later
    since: int = 0  # boot_ns of step 3

    def ask_later(self, *words: str) -> "Future[Any]":
        return self.later.submit(self.leader.call, *words, timeout=2 * PATIENCE)

    def wait(self, what: str, probe: Callable[[], Any]) -> Any:
        return self.metas.wait(what, probe, PATIENCE)

    @property
    def table(self) -> str:
        """Whose partitions the busy actor reads."""
        return str(self.job["tables"][1])

    def removals(self) -> list[Event]:
        """Of the job's tables from Hummock, by whichever leader."""
        found = [e for meta in self.metas.metas for e in meta.events("unregistered", self.since)]
        return [e for e in found if self.table in e.fields["tables"].strip("[]").split()]

    def refusals(self) -> list[Event]:
        found = self.leader.events("unregister_failed", self.since)
        return [e for e in found if "MF003" in e.fields["msg"]]


def ask(compute: Compute, *words: str) -> Any:
    done = compute.cluster.run([metasim(), "call", f"{compute.ip}:5688", *words], timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def runs(compute: Compute, job: dict[str, Any]) -> bool:
    stats = ask(compute, "stats")
    return any(stats.get(str(fragment), 0) for fragment in job["fragments"])


def incarnations(*computes: Compute) -> list[str | None]:
    return [compute.incarnation for compute in computes]


@contextmanager
def pending(metas: Registry) -> Iterator[Story]:
    """Steps 1 to 3."""
    leader = metas.start()
    computes = metas.connect_computes(leader, 2)
    kept, job = leader.call("create", "kept", "2"), leader.call("create", "mv", "1")
    node, other = sorted(computes, key=lambda compute: runs(compute, job), reverse=True)
    assert runs(node, job) and not runs(other, job) and runs(other, kept)
    later = ThreadPoolExecutor()
    story = Story(metas, leader, node, other, job, kept, incarnations(node, other), later, boot_ns())
    node.hold_at(BUSY)
    try:
        ask(node, "update", str(job["fragments"][0]))
        story.wait("its actor is busy", lambda: node.events("paused", story.since))
        story.ask_later("drop", str(job["job"]))
        story.wait("DROP waits", lambda: leader.events("command_queued", story.since))
        yield story
    finally:
        later.shutdown(wait=False)


def test_rw27111_control(enlist: Enlist) -> None:
    """The compute node dies by its panic, after an empty read."""
    metas = enlist(guarded=False, release="head", metas=1, computes=2, flags=JOBS)
    with pending(metas) as story:
        node = story.node
        recovered = story.ask_later("recover")
        purged = story.wait("the purge", story.removals)[0]
        story.wait("the nodes see it", lambda: node.events("version_removed", story.since))
        begun = story.wait("the streams", lambda: node.events("reset_begin", story.since))[0]
        assert purged.fields["by"] == "purge" and purged.boot_ns < begun.boot_ns
        node.let_go(BUSY)
        story.wait("the node dies", lambda: node.events("panic", story.since))
        reads = node.events("read", purged.boot_ns)
        assert [(e.fields["rows"], e.fields["table"]) for e in reads] == [("0", story.table)]
        story.wait("its container is started again", node.kubelet_restarts)
        [status] = node.read().status.container_statuses
        assert status.last_state.terminated.exit_code == SIGSEGV
        log = metas.cluster.kubectl("logs", node.name, "-n", metas.namespace, "--previous")
        assert f"loaded partition 1 of table {story.table} at version" in log and ": 0 rows" in log, log
        assert "panic: called `Option::unwrap()` on a `None` value: delta_btree_map" in log, log
        recovered.result(PATIENCE)
        assert incarnations(story.other) == story.incarnations[1:]


def assert_unharmed(story: Story) -> None:
    """The tables are reclaimed after the reset, nobody panics, and what was not dropped runs."""
    node, other = story.node, story.other
    gone = story.wait("the tables are reclaimed", story.removals)[0]
    aborted = node.events("actors_aborted", story.since)[0]
    assert aborted.boot_ns < gone.boot_ns and gone.fields["by"] == "purge"
    story.wait("the other job runs", lambda: runs(node, story.kept) and runs(other, story.kept))
    assert incarnations(node, other) == story.incarnations
    assert not node.events("panic") and not other.events("panic")
    purges = story.metas.database.sql("SELECT outcome, missing FROM metafence.purge")
    assert purges == [("acknowledged", None)]


def test_rw27111_enforce(enlist: Enlist, release: str, note: Note) -> None:
    """The purge is refused until Init has been answered; nobody panics, and the tables are reclaimed."""
    metas = enlist(release=release, recovery="enforce", computes=2, flags=JOBS)
    with pending(metas) as story:
        node = story.node
        recovered = story.ask_later("recover")
        begun = story.wait("an Init", lambda: node.events("reset_begin", story.since))[0]
        story.wait("refusals", lambda: len(story.refusals()) >= 2)
        assert not story.removals() and not recovered.done() and runs(node, story.job)
        node.let_go(BUSY)
        recovered.result(PATIENCE)
        assert_unharmed(story)
        assert not set(story.job["tables"]) & set(story.leader.call("tables"))
        gone = story.removals()[0]
        note("Init to the purge, s", round((gone.boot_ns - begun.boot_ns) / 1e9, 2))


def test_rw27111_another_leader(enlist: Enlist, note: Note) -> None:
    """The leader is fenced while the DROP waits: its successor's recovery is ordered as well."""
    metas = enlist(release="head", recovery="enforce", computes=2, flags=JOBS)
    with pending(metas) as story:
        node, old = story.node, story.leader
        old.cli("fence", "--reason", "test")
        story.wait("an Init", lambda: node.events("reset_begin", story.since))
        story.leader = metas.wait_new_leader(old, PATIENCE)
        story.wait("a refusal", story.refusals)
        assert not story.removals() and runs(node, story.job)
        node.let_go(BUSY)
        assert_unharmed(story)
        refused_ns = story.removals()[0].boot_ns - story.refusals()[0].boot_ns
        note("first refusal to the purge, s", round(refused_ns / 1e9, 2))
        old.cli("unfence")
        assert metas.wait_converged(PATIENCE) is story.leader

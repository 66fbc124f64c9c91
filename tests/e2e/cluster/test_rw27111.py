# SPDX-License-Identifier: Apache-2.0
"""rw#27111, "global recovery may reclaim dropped tables before all actors have been reset", by the report's
sequence. The steps that race in real life wait for each other at pause points.

 1  two compute nodes, a job on one of them, another that stays
 2  a chunk of the job keeps its actor busy: it sees no abort
 3  DROP commits in the catalog, and waits behind a barrier
 4  RECOVER (or another leader): a global recovery
 5  the purge of the dropped tables, before any control stream
 6  the chunk goes on to its next partition, and reads it
"""

import json
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from harness.paths import metasim
from harness.waiting import boot_ns, wait_for
from metas import Compute, Meta, Registry

Note = Callable[[str, Any], None]
Enlist = Callable[..., Registry]
BUSY = "actor-busy"
OFF = {"metafence": {"config": {"recovery": {"mode": "off"}}}}
ENFORCE = {"metafence": {"config": {"recovery": {"mode": "enforce"}}}}


@dataclass
class Story:
    """Where the six steps have come to."""

    metas: Registry
    leader: Meta
    computes: list[Compute]
    node: Compute  # that runs the job
    restarts: dict[str, int]  # of the compute nodes' containers
    job: dict[str, Any]
    kept: dict[str, Any]
    since: int  # boot_ns of step 3
    later: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(4))  # what is answered later


def ask(compute: Compute, *words: str) -> Any:
    done = compute.cluster.run([metasim(), "call", f"{compute.ip}:5688", *words], timeout=30)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def ask_later(story: Story, *words: str) -> "Future[Any]":
    """An RPC to the leader whose answer is awaited later."""
    return story.later.submit(story.leader.call, *words, timeout=600)


def set_mode(metas: Registry, mode: str) -> None:
    metas.database.sql("UPDATE metafence.setting SET value = %s WHERE name = 'recovery'", mode)


def runs(compute: Compute, job: dict[str, Any]) -> bool:
    stats = ask(compute, "stats")
    return any(stats.get(str(fragment), 0) for fragment in job["fragments"])


def make_pending(metas: Registry, leader: Meta) -> Story:
    """Steps 1 to 3."""
    computes = metas.wait_computes(2)
    kept, job = leader.call("create", "kept", "2"), leader.call("create", "mv", "1")
    node = next(c for c in computes if runs(c, job))
    restarts = {c.name: c.kubelet_restarts() for c in computes}
    story = Story(metas, leader, computes, node, restarts, job, kept, boot_ns())
    node.hold_at(BUSY)
    ask(node, "update", str(job["fragments"][0]))
    metas.wait("its actor is busy", lambda: node.events("paused", story.since), 30)
    ask_later(story, "drop", str(job["job"]))
    metas.wait("DROP is queued", lambda: leader.events("command_queued", story.since), 30)
    return story


def removals(story: Story) -> list[Any]:
    wanted = str(story.job["tables"][0])
    return [
        event
        for meta in story.metas.metas
        for event in meta.events("unregistered", story.since)
        if wanted in event.fields["tables"].strip("[]").split()
    ]


def refusals(story: Story) -> list[Any]:
    return [
        event
        for meta in story.metas.metas
        for event in meta.events("unregister_failed", story.since)
        if "MF003" in event.fields["msg"]
    ]


def assert_unharmed(story: Story) -> None:
    """Every node keeps its process, the tables are reclaimed, what was not dropped runs."""
    story.metas.wait("the tables are reclaimed", lambda: removals(story), 60)
    story.metas.wait("the other job runs", lambda: any(runs(c, story.kept) for c in story.computes), 60)
    assert not [e for c in story.computes for e in c.events("panic", story.since)]
    assert {c.name: c.kubelet_restarts() for c in story.computes} == story.restarts


def test_rw27111_control(enlist: Enlist) -> None:
    """The compute node dies by its panic, after an empty read."""
    metas = enlist(computes=2, flags=("--jobs=0",), values=OFF)
    leader = metas.start()
    set_mode(metas, "off")
    story = make_pending(metas, leader)
    recovered = ask_later(story, "recover")
    metas.wait("the purge", lambda: removals(story), 30)
    metas.wait("it is seen", lambda: story.node.events("version_removed", story.since), 30)
    story.node.let_go(BUSY)
    metas.wait("the node dies", lambda: story.node.events("panic", story.since), 30)
    [read] = story.node.events("read", removals(story)[0].boot_ns)
    assert read.fields["rows"] == "0" and read.fields["table"] == str(story.job["tables"][1])
    wait_for("its container is restarted", lambda: story.node.kubelet_restarts() > 0, 60)
    recovered.result(120)


@pytest.mark.parametrize("release", ["v2.8", "v3.0", "head"])
def test_rw27111_enforce(enlist: Enlist, release: str, note: Note) -> None:
    """The purge is refused until Init has been answered; nobody panics."""
    metas = enlist(release=release, computes=2, flags=("--jobs=0",), values=ENFORCE)
    leader = metas.start()
    set_mode(metas, "enforce")
    story = make_pending(metas, leader)
    recovered = ask_later(story, "recover")
    begun = metas.wait("an Init", lambda: story.node.events("reset_begin", story.since), 30)[0]
    metas.wait("refusals", lambda: len(refusals(story)) >= 2, 60)
    assert not removals(story) and not recovered.done()
    story.node.let_go(BUSY)
    recovered.result(120)
    assert_unharmed(story)
    aborted = story.node.events("actors_aborted", story.since)[0]
    assert begun.boot_ns < aborted.boot_ns < removals(story)[0].boot_ns
    held_ns = removals(story)[0].boot_ns - refusals(story)[0].boot_ns
    note("first refusal to the purge, s", round(held_ns / 1e9, 2))


def test_rw27111_another_leader(enlist: Enlist, note: Note) -> None:
    """The leader is fenced: the compute nodes are reset before the winner's purge passes."""
    metas = enlist(metas=3, computes=2, flags=("--jobs=0",), values=ENFORCE)
    leader = metas.start()
    set_mode(metas, "enforce")
    story = make_pending(metas, leader)
    leader.cli("fence", "--reason", "test")
    successor = metas.wait_new_leader(leader, 90)
    metas.wait("a reset", lambda: story.node.events("reset_begin", story.since), 60)
    assert not removals(story)
    story.node.let_go(BUSY)
    assert_unharmed(story)
    aborted = story.node.events("actors_aborted", story.since)[0]
    note("end of the reset to the purge, s", round((removals(story)[0].boot_ns - aborted.boot_ns) / 1e9, 2))
    leader.cli("unfence")
    assert metas.wait_converged(90) is successor


def test_rw27111_handover(enlist: Enlist) -> None:
    """By an operator: `metafence handover` in the leader's pod, with a DROP that does not end."""
    metas = enlist(metas=2, computes=2, flags=("--jobs=0",), values=ENFORCE)
    leader = metas.start()
    set_mode(metas, "enforce")
    story = make_pending(metas, leader)
    order = story.later.submit(leader.cli, "handover", "--wait", "1s")
    metas.wait("a reset", lambda: story.node.events("reset_begin", story.since), 60)
    assert not removals(story)
    story.node.let_go(BUSY)
    said = order.result(300)
    assert f"mv (job {story.job['job']}, " in said, said
    assert_unharmed(story)
    assert metas.wait_converged(90) is not leader

# SPDX-License-Identifier: Apache-2.0
"""rw#27111 through leadership: a leader is fenced, killed or handed over while something is to be reclaimed.
Each change of leaders is a global recovery, whose purge comes before its streams. 20 interleavings: how the
leader goes, and how far DROP or CREATE has come; the actor's chunk ends when the first of what follows is
seen. No compute node may panic, and where an actor is left an Init is answered before the purge; by how much,
or that there was nothing to reset, is printed."""

import random
import signal
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from harness import Cluster, Pod, boot_ns, results, wait_for
from jobs import PATIENCE, Job, Jobs, Node, Point, await_event, paused, since

Make = Callable[..., Cluster]
STAGES = ("committed", "queued", "collected", "creating")
CAUSES = ("kill", "term", "fence", "lost pod", "handover")


@dataclass
class Story:
    """What is under way when the leader goes."""

    job: Job | None  # that is to be reclaimed
    busy: Node | None  # where its actor sees nothing
    chunk: Point | None


def begin(jobs: Jobs, leader: Pod, stage: str, name: str, stack: ExitStack) -> Story:
    at = boot_ns()
    if stage == "creating":
        stack.enter_context(paused(jobs.point(leader, "create-backfill")))
        jobs.later(leader, "create", name, "1")
        made = await_event(leader.witness, "create_committed", at)
        await_event(leader.witness, "paused", at, at="create-backfill")
        lists = [[int(n) for n in made.fields[k].strip("[]").split()] for k in ("fragments", "tables")]
        job = Job(int(made.fields["job"]), *lists)
    else:
        job = jobs.create(leader, name)
    node = next(n for n in jobs.nodes if n.running(job))
    if stage == "collected":  # the barrier has passed: no actor of it is left
        stack.enter_context(paused(jobs.point(leader, "drop-collected")))
        jobs.later(leader, "drop", str(job.id))
        await_event(leader.witness, "paused", at, at="drop-collected")
        return Story(job, None, None)
    chunk = node.make_busy(job)
    stack.callback(chunk.release)
    if stage == "committed":
        stack.enter_context(paused(jobs.point(leader, "drop-committed")))
        jobs.later(leader, "drop", str(job.id))
        await_event(leader.witness, "paused", at, at="drop-committed")
    elif stage == "queued":
        jobs.drop(leader, job)
    return Story(job, node, chunk)


def go(jobs: Jobs, leader: Pod, cause: str) -> Callable[[], None]:
    """The leader goes; what is returned waits for the end of the order that did it."""
    if cause in ("kill", "term"):
        leader.signal_meta(signal.SIGKILL if cause == "kill" else signal.SIGTERM)
        return lambda: None
    if cause == "lost pod":
        leader.kill()
        return lambda: None
    words = ["fence"] if cause == "fence" else ["handover", "--wait", "0s"]
    return jobs.order(leader, *words, "--reason", "test", "--timeout", f"{PATIENCE}s").succeeds


def come_back(leader: Pod, cause: str) -> None:
    if cause == "fence":
        assert leader.cli("unfence").returncode == 0
    elif cause == "lost pod":
        leader.start()
    elif cause == "kill":  # by a stranger: its container ends, and the kubelet starts it again
        wait_for("its container ends", lambda: not leader.main.alive, PATIENCE)
        leader.start(agent=False)


def first_sign(jobs: Jobs, at_ns: int) -> str:
    """Of what follows the end of the leader."""

    def sign() -> str | None:
        if any(since(node.witness, "reset_begin", at_ns) for node in jobs.nodes):
            return "a reset"
        if jobs.refusals(at_ns):
            return "a refusal"
        return "the purge" if jobs.removals(at_ns, "purge") else None

    return wait_for("a reset, a refusal or the purge", sign, PATIENCE)


def order_of(jobs: Jobs, story: Story, at_ns: int) -> str:
    """Which came first on the node that matters: the end of its reset or the purge."""
    removed = [
        e for e in jobs.removals(at_ns) if story.job and str(story.job.tables[0]) in e.fields["tables"]
    ]
    if not removed:
        return "nothing was left to remove"
    if not story.busy:
        return "no actor was left"
    resets = [e for e in story.busy.resets(at_ns) if e.boot_ns < removed[0].boot_ns]
    if not resets:
        return "the purge first"
    return f"Init first, by {(removed[0].boot_ns - resets[0].boot_ns) / 1e9:.2f} s"


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("cause", CAUSES)
def test_no_compute_node_panics_when_the_leader_goes(cluster: Make, cause: str) -> None:
    jobs = Jobs(cluster(pods=2, ttl=10), "v3.0")
    jobs.configure("enforce", resetBeforeStart="4s", initTimeout="3s", maxHold="60s")
    leader = jobs.start(2, mode="enforce")
    kept = jobs.create(leader, "kept", 2)
    stages = list(STAGES)
    random.Random(cause).shuffle(stages)
    lines = []
    for stage in stages:
        leader = jobs.leader()
        with ExitStack() as stack:
            story = begin(jobs, leader, stage, stage, stack)
            at = boot_ns()
            ended = go(jobs, leader, cause)
            sign = first_sign(jobs, at)
        ended()
        come_back(leader, cause)
        jobs.assert_alive()
        jobs.cluster.wait_converged(PATIENCE)
        assert story.job is not None
        jobs.wait_reclaimed(story.job)
        jobs.wait_works(kept)
        jobs.assert_alive()
        order = order_of(jobs, story, at)
        assert order.startswith("Init first") or not story.busy, order
        lines.append(f"{cause}, {stage}, chunk ends at {sign}: {order}")
    results.keep(f"rw27111-{cause.replace(' ', '-')}", lines, lines)

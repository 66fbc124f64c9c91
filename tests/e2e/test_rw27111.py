# SPDX-License-Identifier: Apache-2.0
"""rw#27111: a global recovery reclaims a dropped job's tables before the compute nodes have reset; an actor
that saw no abort reads nothing where there was something, and the whole compute node panics. Here with real
processes and a real Postgres, the report's sequence step by step: create, a long chunk, DROP behind it,
RECOVER, the read after the chunk. Control runs show that the equipment does it; the others that an agent
with recovery.mode enforce prevents it."""

import statistics
from collections.abc import Callable

import pytest
from harness import Cluster, Pod, boot_ns, hold, results, wait_for
from jobs import PATIENCE, SIGABRT, Jobs, Pending, await_event, make_pending, paused, since

Make = Callable[..., Cluster]
TTL = 30  # a lease that a busy machine does not outlast


def unguarded(cluster: Make, release: str = "head", nodes: int = 2, *flags: str) -> tuple[Jobs, Pod]:
    jobs = Jobs(cluster(pods=1, ttl=TTL, guarded=False), release)
    return jobs, jobs.start(nodes, *flags)


# --- control: what RisingWave does alone ---


@pytest.mark.parametrize("release", ["v2.6", "v3.0", "head"])
def test_control_the_compute_node_dies_by_an_empty_read(cluster: Make, release: str) -> None:
    """RECOVER takes the tables while the actor still runs; its next read finds nothing."""
    jobs, leader = unguarded(cluster, release)
    p = make_pending(jobs, leader)
    at = boot_ns()
    recovered = jobs.recover(leader)
    gone = await_event(leader.witness, "unregistered", at, by="purge")
    assert gone.fields["tables"] == str(p.job.tables).replace(",", "")
    removed = await_event(p.node.witness, "version_removed", at)
    begun = await_event(p.node.witness, "reset_begin", at)
    assert begun.boot_ns > gone.boot_ns, "the streams open after the purge"
    p.busy.release()
    assert p.node.ended_by() == SIGABRT
    reads = since(p.node.witness, "read", removed.boot_ns)
    assert [(r.fields["rows"], r.fields["table"]) for r in reads] == [("0", str(p.job.tables[1]))]
    assert [e.fields["why"] for e in p.node.panics()]
    assert "0 rows" in (p.node.dir / "log").read_text()
    recovered.succeeds()
    assert all(n.alive for n in jobs.nodes if n is not p.node)


def test_control_without_drop_and_recover_the_same_update_passes(cluster: Make) -> None:
    jobs, leader = unguarded(cluster)
    job = jobs.create(leader, "mv")
    node = next(n for n in jobs.nodes if n.running(job))
    busy, at = node.make_busy(job), boot_ns()
    busy.release()
    await_event(node.witness, "chunk_done", at)
    read = since(node.witness, "read", at, table=str(job.tables[1]))
    assert read and all(r.fields["rows"] != "0" for r in read)
    assert node.alive and not node.panics() and jobs.tables(leader) == sorted(job.tables)


def test_control_a_new_leader_does_the_same(cluster: Make) -> None:
    """Each change of leaders is a global recovery: what a fencing tool must not cause."""
    jobs = Jobs(cluster(pods=2, ttl=5, guarded=False))
    leader = jobs.start(2)
    p = make_pending(jobs, leader)
    leader.kill()
    at = boot_ns()
    other = next(pod for pod in jobs.cluster.pods if pod is not leader)
    await_event(other.witness, "unregistered", at, by="purge")
    await_event(p.node.witness, "reset_begin", at)
    seen = await_event(p.node.witness, "subscribed", at)  # it looks for the new leader
    assert seen.fields["tables"] == "[]" or str(p.job.tables[1]) not in seen.fields["tables"]
    p.busy.release()
    assert p.node.ended_by() == SIGABRT and p.node.panics()


# --- enforce: nothing is reclaimed before everybody has reset ---


def guarded(
    cluster: Make,
    release: str = "head",
    nodes: int = 2,
    mode: str = "enforce",
    pods: int = 1,
    **recovery: str,
) -> tuple[Jobs, Pod]:
    jobs = Jobs(cluster(pods=pods, ttl=TTL), release)
    jobs.configure(mode, **recovery)
    return jobs, jobs.start(nodes, mode=mode)


def wait_refused(jobs: Jobs, at_ns: int, count: int = 1) -> None:
    wait_for(f"{count} refusals", lambda: len(jobs.refusals(at_ns)) >= count, PATIENCE)


def assert_unharmed(p: Pending) -> None:
    """All processes live on, the tables are reclaimed, what was not dropped runs."""
    p.jobs.wait_reclaimed(p.job)
    p.jobs.wait_works(p.kept)
    assert set(p.jobs.tables(p.jobs.leader())) == set(p.kept.tables)
    p.jobs.assert_alive()


@pytest.mark.parametrize("release", ["v2.6", "v3.0", "head"])
def test_report_expects_that_recover_racing_a_drop_does_not_crash(cluster: Make, release: str) -> None:
    """The purge is refused until Init has been answered by the node that can't abort its actor."""
    jobs, leader = guarded(cluster, release)
    p = make_pending(jobs, leader)
    pids, at = [node.pid for node in jobs.nodes], boot_ns()
    recovered = jobs.recover(leader)
    begun = await_event(p.node.witness, "reset_begin", at)
    wait_refused(jobs, at, 2)
    assert not jobs.removals(at) and not recovered.done() and jobs.status(leader) == 2
    assert p.node.running(p.job) > 0, "aborted, and not ended"
    p.busy.release()
    aborted = await_event(p.node.witness, "actors_aborted", at)
    recovered.succeeds()
    gone = jobs.removals(at)
    assert [e.fields["by"] for e in gone] == ["purge"]
    assert begun.boot_ns < aborted.boot_ns < gone[0].boot_ns
    assert [node.pid for node in jobs.nodes] == pids
    assert_unharmed(p)
    [purge] = jobs.purges()
    assert purge["outcome"] == "acknowledged" and set(purge["table_ids"]) == set(p.job.tables)
    marker = wait_for("the recovery is closed", lambda: jobs.markers()[-1], PATIENCE)
    assert marker[0] == purge["recovery_id"] and marker[4] == "committed"


def test_report_expects_that_a_read_of_what_is_removed_is_an_error(cluster: Make) -> None:
    """What RisingWave should do, as the stand-in's fixed mode does it: no empty answer, nobody dies."""
    jobs, leader = unguarded(cluster, "head", 2, "--read-removed=error")
    p = make_pending(jobs, leader)
    at = boot_ns()
    recovered = jobs.recover(leader)
    await_event(p.node.witness, "version_removed", at)
    p.busy.release()
    failed = await_event(p.node.witness, "actor_failed", at)
    recovered.succeeds()
    assert p.node.alive and not p.node.panics()
    # The third expectation: who, what, and against which version.
    for part in (f"worker {p.node.worker_id()}", f"table {p.job.tables[1]}", "partition 1", "version"):
        assert part in failed.fields["msg"], failed.fields["msg"]


def test_report_expects_that_the_error_carries_context(cluster: Make) -> None:
    """Ours: term, tables and the compute node that has not reset, in the leader's own log of the failed
    attempt."""
    jobs, leader = guarded(cluster)
    p = make_pending(jobs, leader)
    at = boot_ns()
    recovered = jobs.recover(leader)
    wait_refused(jobs, at)
    said = jobs.refusals(at)[0].fields["msg"]
    term = leader.status()["term"]["term"]  # type: ignore[index]
    for part in ("MF003", f"term {term}", f"{p.node.worker_id()} {p.node.address}", str(p.job.tables[0])):
        assert part in said, said
    p.busy.release()
    recovered.succeeds()
    assert_unharmed(p)


def test_an_actor_that_never_ends_opens_the_gate_at_max_hold(cluster: Make) -> None:
    """Without the opt-in nobody kills its node: the purge passes at the bound, and it is on record for whom
    it could not wait."""
    jobs, leader = guarded(cluster, maxHold="8s", initTimeout="3s")
    p = make_pending(jobs, leader)
    term = leader.status()["term"]["term"]  # type: ignore[index]
    at = boot_ns()
    recovered = jobs.recover(leader)
    wait_for("the purge passes", lambda: jobs.removals(at, "purge"), PATIENCE)
    [purge] = jobs.purges()
    assert purge["outcome"] == "bound" and purge["held_ms"] >= 8000 and purge["term"] == term
    assert purge["missing"] == f"{p.node.worker_id()} {p.node.address}"
    assert set(purge["table_ids"]) == set(p.job.tables)
    assert jobs.refusals(at) and p.node.alive and not recovered.done()
    p.busy.release()
    assert p.node.ended_by() == SIGABRT  # what the bound costs
    recovered.succeeds()


def test_an_actor_of_another_job_holds_up_no_purge(cluster: Make) -> None:
    """It never answers its reset either. But two looks at its node's statistics find none of the dropped
    job's actors, and that it is not being made is known: NONE."""
    jobs, leader = guarded(cluster, maxHold="150s")
    kept, job = jobs.create(leader, "kept"), jobs.create(leader, "mv")
    jobs.recover(leader).succeeds()
    wait_for("it has come to a commit", lambda: jobs.markers()[-1][4] == "committed", PATIENCE)
    node = next(n for n in jobs.nodes if n.running(kept))
    busy = node.make_busy(kept)
    jobs.drop(leader, job)
    at = boot_ns()
    recovered = jobs.recover(leader)
    await_event(node.witness, "reset_begin", at)
    [purge] = wait_for("the purge passes", jobs.purges, PATIENCE)
    assert purge["outcome"] == "acknowledged" and set(purge["table_ids"]) == set(job.tables)
    acks = "SELECT how FROM metafence.acknowledgement WHERE recovery_id = %s AND port = %s"
    assert jobs.cluster.postgres.sql(acks, purge["recovery_id"], node.port) == [("none",)]
    assert node.running(kept) > 0 and not since(node.witness, "actors_aborted", at)
    busy.release()
    recovered.succeeds()
    jobs.wait_works(kept)
    jobs.assert_alive()


def test_observe_records_and_delays_nothing(cluster: Make) -> None:
    jobs, leader = guarded(cluster, mode="observe")
    p = make_pending(jobs, leader)
    at = boot_ns()
    recovered = jobs.recover(leader)
    gone = await_event(leader.witness, "unregistered", at, by="purge")
    begun = await_event(p.node.witness, "reset_begin", at)
    assert begun.boot_ns > gone.boot_ns, "an Init of the agent"
    assert not jobs.refusals(at)
    [purge] = jobs.purges()
    assert purge["outcome"] == "observed" and set(purge["table_ids"]) == set(p.job.tables)
    assert f"{p.node.worker_id()} {p.node.address}" in purge["missing"]
    p.busy.release()
    assert p.node.ended_by() == SIGABRT
    recovered.succeeds()
    assert jobs.markers()[-1][2:4] == (1, 0)  # one attempt, none refused


@pytest.mark.long
@pytest.mark.timeout(400)
def test_ten_failed_attempts_keep_one_marker(cluster: Make) -> None:
    """… its acknowledgements and one maxHold: whoever has reset is not asked again."""
    jobs, leader = guarded(cluster, maxHold="200s")
    p = make_pending(jobs, leader)
    free = next(node for node in jobs.nodes if node is not p.node)
    before, at = len(jobs.markers()), boot_ns()
    recovered = jobs.recover(leader)
    wait_refused(jobs, at)
    acks = "SELECT recovery_id, worker_id, how, at FROM metafence.acknowledgement WHERE port = %s"
    first = wait_for(
        "the free node is acknowledged", lambda: jobs.cluster.postgres.sql(acks, free.port), PATIENCE
    )
    still_open = "SELECT id, held_from FROM metafence.recovery WHERE closed_at IS NULL"
    held = jobs.cluster.postgres.sql(still_open)
    wait_for("ten attempts", lambda: len(jobs.refusals(at)) >= 10, 170)  # up to 5 s and more between two
    assert len(jobs.markers()) == before + 1 and jobs.markers()[-1][2] >= 10
    assert jobs.cluster.postgres.sql(acks, free.port) == first
    assert jobs.cluster.postgres.sql(still_open) == held
    assert len(since(free.witness, "reset_begin", at)) <= 1
    p.busy.release()
    recovered.succeeds()
    assert_unharmed(p)


# --- what is no global recovery ---


def removal_ms(jobs: Jobs, leader: Pod, name: str) -> float:
    """From the barrier of a DROP to the end of its removal: the gate is in between."""
    job = jobs.create(leader, name)
    at = boot_ns()
    with paused(jobs.point(leader, "drop-collected")):
        dropped = jobs.later(leader, "drop", str(job.id))
        await_event(leader.witness, "paused", at, at="drop-collected")
    dropped.succeeds()
    began = await_event(leader.witness, "resumed", at, at="drop-collected")
    ended = await_event(leader.witness, "unregistered", at, by="drop")
    return (ended.boot_ns - began.boot_ns) / 1e6


@pytest.mark.long
@pytest.mark.timeout(600)
def test_normal_drop_cancel_and_alter_are_never_refused(cluster: Make) -> None:
    """… and hardly delayed: the same DROP in turns with ordered recovery off and enforced."""
    jobs, leader = guarded(cluster)
    at = boot_ns()
    job = jobs.create(leader, "altered")
    jobs.ask(leader, "alter", str(job.id))
    with paused(jobs.point(leader, "create-backfill")):
        made = jobs.later(leader, "create", "cancelled", "1")
        begun = await_event(leader.witness, "paused", at, at="create-backfill")
        jobs.ask(leader, "cancel", begun.fields["job"])
    made.wait()
    off: list[float] = []
    on: list[float] = []
    # What a busy machine adds comes and goes: the best of each come down to what the work takes, the sooner
    # the quieter it is. What the gate added would be in each of them.
    while len(on) < 5 or (min(on) - min(off) >= 5 and len(on) < 30):
        jobs.set_mode("off")
        off.append(removal_ms(jobs, leader, f"off{len(off)}"))
        jobs.set_mode("enforce")
        on.append(removal_ms(jobs, leader, f"on{len(on)}"))
    median = statistics.median(a - b for a, b in zip(on, off, strict=True))
    figures = (
        f"a DROP's removal: {min(on) - min(off):+.2f} ms at best, {median:+.2f} ms p50 of {len(on)} pairs"
    )
    results.keep("rw27111-delay", [figures, f"off {sorted(off)}", f"on {sorted(on)}"], [figures])
    assert min(on) - min(off) < 5, figures
    assert not jobs.refusals(at) and not since(leader.witness, "unregister_failed", at)
    assert not since(leader.witness, "recovery_start", at)
    assert not jobs.panics() and set(jobs.tables(leader)) & set(job.tables)


def test_a_recovery_of_the_database_alone_is_never_refused(cluster: Make) -> None:
    """It resets first and removes afterwards, by itself."""
    jobs, leader = guarded(cluster)
    job = jobs.create(leader, "mv", 2)
    node = next(n for n in jobs.nodes if n.running(job))
    other = next(n for n in jobs.nodes if n is not node)
    busy, at = node.make_busy(job), boot_ns()
    other.kill()
    await_event(leader.witness, "database_failed", at)
    dropped = jobs.drop(leader, job)

    def nothing_is_removed() -> None:
        assert not jobs.removals(at) and not jobs.refusals(at)

    hold(1, nothing_is_removed)
    busy.release()
    dropped.succeeds()
    aborted = await_event(node.witness, "actors_aborted", at)
    assert jobs.removals(at)[0].boot_ns > aborted.boot_ns
    assert not jobs.refusals(at) and node.alive and not jobs.panics()
    assert not since(leader.witness, "recovery_start", at) and jobs.status(leader) == 3

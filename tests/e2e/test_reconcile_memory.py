# SPDX-License-Identifier: Apache-2.0
"""A leader whose memory of the workers is not what the table says: seen from the log of changes, mended by
the lightest cure, and never by a call that would abort it."""

from collections.abc import Callable

from computes import WORKERS, Compute, aborts, deeds, with_registry
from harness import Cluster, Pod, wait_for
from harness.waiting import boot_ns
from workerpods import set_guard

MEND_S = 10
Make = Callable[..., Cluster]


def made(cluster: Make, **options: object) -> tuple[Cluster, Pod]:
    """A leader that has loaded all rows under the guard."""
    c = cluster(**{"pods": 1, "ttl": 10, "meta_flags": WORKERS, **options})
    with_registry(c)
    return c, c.start()


def wait_known(leader: Pod) -> None:
    leader.wait_status("the log is whole", lambda s: s["workers"]["state"]["log_known"], 20)


def test_a_row_that_the_leader_can_not_know(cluster: Make) -> None:
    """Its next recovery, or a call by anybody, would abort it: it is restarted, as itself, and knows the
    row then."""
    c, leader = made(cluster)
    wait_known(leader)
    before, term = leader.incarnations, leader.status()["term"]["term"]
    began = boot_ns()
    c.postgres.sql("INSERT INTO worker VALUES (4711, 'FRONTEND', '10.9.8.7', 4567, 'RUNNING', 7)")
    c.postgres.sql(
        "INSERT INTO worker_property (worker_id, is_streaming, is_serving, is_unschedulable)"
        " VALUES (4711, false, true, false)"
    )
    wait_for("a new incarnation leads", lambda: leader.incarnations > before and leader.acts_as_leader, 20)
    died = leader.shim_status()["last_death"]
    assert died["reason"] == "DivergedLeader"
    assert died["dead_ns"] - began < MEND_S * 1_000_000_000
    assert c.owner() is leader
    loaded = leader.witness.events("registry_loaded", leader.meta_pid)[-1]
    assert "4711" in loaded.fields["ids"]
    leader.wait_status(
        "in a new term nothing differs",
        lambda s: s["term"]["term"] > term
        and s["workers"]["state"]["known"]
        and s["workers"]["state"]["unknown_rows"] == 0,
        20,
    )
    assert leader.incarnations == before + 1
    assert [d[:3] for d in deeds(c)] == [("restart", None, "UnknownRow")]
    assert not aborts(c)


def test_an_endpoint_with_two_ids(cluster: Make) -> None:
    """Somebody deletes the row of a live compute node, which registers anew: a recovery reads the table, and
    status shows it."""
    c, leader = made(cluster, meta_flags=[*WORKERS, "--recovery=2s"])
    compute = Compute(c, "compute").start()
    first_id = compute.wait_running()
    wait_known(leader)
    before = leader.incarnations
    c.postgres.sql("DELETE FROM worker WHERE worker_id = %s", first_id)
    compute.kill()
    compute.start()
    second_id = compute.wait_running()
    assert second_id != first_id

    def recovered() -> bool:
        return any(d[0] == "recover" and d[3] == "ok" for d in deeds(c))

    leader.wait_status("it recovers", lambda s: s["workers"]["memory"]["recovering_ms"], MEND_S + 10)
    wait_for("a recovery is done", recovered, MEND_S + 20)
    leader.wait_status("it runs", lambda s: s["workers"]["memory"]["recovering_ms"] == 0, 10)
    snapshots = leader.witness.events("recovery_snapshot", leader.meta_pid)
    # The new id is in it, or is not active yet and comes later: the old one is not.
    assert snapshots and f"{first_id}@" not in snapshots[-1].fields["workers"]
    assert leader.incarnations == before and not aborts(c)


def test_a_ghost_in_the_barrier_map_is_healed_without_a_restart(cluster: Make) -> None:
    """The guard observes. A compute node is dead and its row deleted by another hand; the leader still counts
    on it, and the job's recovery never ends. A global one reads the table anew."""
    jobs = [flag for flag in WORKERS if not flag.startswith("--jobs")]
    c, leader = made(cluster, ttl=30, meta_flags=jobs)
    set_guard(c, "observe")
    lost = Compute(c, "lost").start()
    ghost = lost.wait_running(40)

    def runs_on(worker_id: int) -> bool:
        running = leader.witness.events("database_running", leader.meta_pid)
        return bool(running) and running[-1].fields["workers"] == f"[{worker_id}]"

    wait_for("the job runs on it", lambda: runs_on(ghost), 40)
    left = Compute(c, "left").start()
    worker = left.wait_running(40)
    wait_known(leader)
    lost.kill()
    c.postgres.sql("DELETE FROM worker WHERE worker_id = %s", ghost)
    wait_for("it runs on what is left", lambda: runs_on(worker), 90)
    wait_for("it is recorded", lambda: deeds(c, "recover"), 30)
    active = leader.witness.events("active", leader.meta_pid)[-1].fields["workers"]
    assert active == f"[{worker}@127.0.0.1:{left.port}]"
    assert [(a, r, o) for a, _, r, o in deeds(c)] == [("recover", "Ghost", "ok")]
    assert leader.incarnations == 1 and leader.kills() == 0 and not aborts(c)

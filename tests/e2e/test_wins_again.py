# SPDX-License-Identifier: Apache-2.0
"""A zombie wins the row again (b14).

The true leader dies, the zombie is first to campaign, and the row names it again: "id is mine" proves
nothing. Its services were never initialized anew: they act on what it remembered from before.
"""

from bare import GUARD_TICKS
from harness import boot_ns, wait_for
from scenario import Case, Make, cut_link, judge, wait_error, writes_beside


def test_zombie_wins_again(cluster: Make, zombie_case: Case) -> None:
    case = zombie_case
    made = cluster(ttl=case.ttl, guarded=case.guarded, pods=2)
    old = made.start()
    pid = old.meta_pid
    fault = cut_link(old, "stall")
    true = made.wait_new_leader(old, case.ttl + 3)
    fault.wait_end()
    if not case.guarded:
        wait_error(old, pid, fault)
    old.proxy.heal()
    if case.guarded:
        made.wait_converged(2 * case.ttl)
    else:
        writes_beside(old, pid, since_ns=boot_ns())
    true.kill()
    wait_for(f"{old.name} owns the row", lambda: made.owner() is old, case.ttl + 5)
    won = old.wait_leading(5)
    if case.guarded:
        assert won.pid != pid, "a new incarnation, with services of its own, leads"
    else:
        assert won.pid == pid, "the zombie leads again with services from its first term"
    judge("b14 zombie wins again", made, case)


def test_superseded_is_latched_while_paused(cluster: Make) -> None:
    """Paused: nobody kills the zombie. It wins the row again, the pause ends: it dies at once, although
    the row names it. Not in enforce, where Postgres lets it win nothing."""
    made = cluster(ttl=5, pods=2)
    old = made.start()
    made.postgres.sql("UPDATE metafence.setting SET value = 'observe' WHERE name = 'guard'")
    pid = old.meta_pid
    assert old.cli("pause", "--for", "10m", "--reason", "test").returncode == 0
    fault = cut_link(old, "stall")
    true = made.wait_new_leader(old, made.ttl + 3)
    fault.wait_end()
    wait_error(old, pid, fault)
    old.proxy.heal()
    writes_beside(old, pid, since_ns=boot_ns())
    status = old.wait_status("says that it is superseded", lambda s: s["superseded"], 5)
    assert "Paused" in status["not_covered"], status
    true.kill()
    wait_for(f"{old.name} owns the row", lambda: made.owner() is old, made.ttl + 5)
    assert old.meta_pid == pid and old.meta_alive
    assert old.cli("resume").returncode == 0
    record = old.agent_log.expect(msg="fence", rule="Superseded")
    assert record is not None
    wait_for("a new incarnation leads", lambda: old.acts_as_leader and old.meta_pid != pid, 12)


def test_refused_for_a_new_agent_as_well(cluster: Make) -> None:
    """Paused, and its agent is a new one that saw nothing of it: superseded all the same. Not a row of the
    zombie comes in, the lease is not its own when the true leader dies, the next candidate leads at once."""
    made = cluster(ttl=5, pods=3)
    old = made.start()
    with made.postgres.connect() as session:
        session.execute(GUARD_TICKS)
    pid = old.meta_pid
    assert old.cli("pause", "--for", "10m", "--reason", "test").returncode == 0
    fault = cut_link(old, "stall")
    true = made.wait_new_leader(old, made.ttl + 10)
    fault.wait_end()
    wait_error(old, pid, fault)
    healed = boot_ns()
    old.proxy.heal()
    old.kill_agent()
    old.start_agent()
    old.wait_status("knows that it is superseded", lambda s: s["superseded"], 20)

    def refused() -> int:
        failed = [
            e for e in old.witness.events("write", pid) if e.boot_ns > healed and e.fields["db"] == "err"
        ]
        return sum("MF001" in e.fields.get("msg", "") for e in failed)

    rows = "SELECT count(*) FROM witness_tick WHERE pid = %s"
    before = made.postgres.sql(rows, pid)
    wait_for("the zombie is refused", lambda: refused() >= 10, 20)
    third = next(p for p in made.pods if p not in (old, true))
    true.kill()
    made.pods.remove(true)
    killed = boot_ns()
    took = (third.wait_leading(made.ttl + 5).boot_ns - killed) / 1e9
    print(f"next leader {took:.2f} s after the death (lease {made.ttl} s)")
    assert made.owner() is third
    assert old.meta_pid == pid and old.meta_alive, "paused"
    assert made.postgres.sql(rows, pid) == before, "a row of the zombie came in"
    assert old.cli("resume").returncode == 0
    old.agent_log.expect(msg="fence", rule="Superseded")
    assert made.wait_converged(20) is third

# SPDX-License-Identifier: Apache-2.0
"""A zombie wins the row again (b14).

The true leader dies, the zombie is first to campaign, and the row names it again: "id is mine" proves
nothing. Its services were never initialized anew: they act on what it remembered from before.
"""

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
    the row names it."""
    made = cluster(ttl=5, pods=2)
    old = made.start()
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

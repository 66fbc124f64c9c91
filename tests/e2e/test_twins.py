# SPDX-License-Identifier: Apache-2.0
"""Two processes with one id (i1, i2).

A force-deleted pod that still runs on a partitioned node and its replacement share the advertise
address. Both renew the same row, both lead, and the row cannot tell them apart. Only the session tag
can: metafence doesn't start the second while the first still renews, and of two that run nevertheless
one is kept down.
"""

import signal

import pytest
from harness import Cluster, Pod, boot_ns, hold, wait_for
from scenario import Case, Make, judge, writes_beside


def twin_of(made: Cluster, original: Pod) -> Pod:
    twin = made.new_pod("twin", advertise=original.id)
    made.pods.append(twin)
    return twin


@pytest.mark.smoke_when_short
def test_second_process_with_the_same_id(cluster: Make, zombie_case: Case) -> None:
    case = zombie_case
    made = cluster(ttl=case.ttl, guarded=case.guarded, pods=2)
    first = made.start()
    pid = first.meta_pid
    twin = twin_of(made, first).start()
    if case.guarded:
        _is_held(made, first, twin)
    else:
        twin.wait_leading(5)
        writes_beside(first, pid, since_ns=boot_ns())
        writes_beside(twin, twin.meta_pid, since_ns=boot_ns())
    judge("i1 twins", made, case)


def _is_held(made: Cluster, first: Pod, twin: Pod) -> None:
    """Not started for as long as the first renews, and the first is left in peace."""
    pid = first.meta_pid
    twin.wait_status("held for its identity", lambda s: s["meta"]["hold_reason"] == "Identity", 10)

    def unchanged() -> None:
        assert twin.incarnations == 0, "the twin was started beside a living leader"
        assert first.meta_pid == pid and first.acts_as_leader

    hold(max(10.0, made.ttl + 3), unchanged)  # longer than the lease
    first.kill()
    made.pods.remove(first)
    # Nobody renews any more: after the lease either the other meta or the twin, no longer held, leads.
    made.wait_converged(2 * made.ttl)
    assert twin.incarnations == 1


def test_two_that_run_nevertheless(cluster: Make) -> None:
    """Both were started as followers; with the leader gone both win the row in turn. The one whose
    successor owns the term is killed and kept down; the other leads on undisturbed."""
    made = cluster(ttl=5, pods=2)
    leader = made.start()
    first = made.pods[1]
    twin = twin_of(made, first).start()
    wait_for("the twin runs as follower", lambda: twin.is_follower, 10)
    leader.kill()
    pair = [first, twin]

    def one_is_down() -> bool:
        held = [p for p in pair if p.shim_status()["hold"] == "Twin"]
        return len(held) == 1 and not held[0].meta_alive

    wait_for("one twin is kept down", one_is_down, 2 * made.ttl + 5)
    survivor = next(p for p in pair if p.meta_alive)
    held = first if survivor is twin else twin
    survivor.wait_leading(5)
    pid, kills = survivor.meta_pid, [p.kills() for p in pair]

    def quiet() -> None:
        assert survivor.meta_pid == pid and survivor.acts_as_leader
        assert not held.meta_alive
        assert [p.kills() for p in pair] == kills, "the twins kill each other"

    hold(2 * made.ttl, quiet)
    assert kills[pair.index(survivor)] == 0
    # The survivor goes away for good: the held one is not held for ever.
    survivor.kill()
    wait_for("the held twin runs again", lambda: held.acts_as_leader, 3 * made.ttl)


def test_a_dying_twin_costs_at_most_one_takeover(cluster: Make) -> None:
    """i2: TERM makes a twin resign the shared row. The pods end with one leader all the same."""
    made = cluster(ttl=5, pods=3)
    first = made.start()
    twin = twin_of(made, first).start()
    twin.wait_status("held for its identity", lambda s: s["meta"]["hold_reason"] == "Identity", 10)
    assert first.term() == 0, "a planned end is metafence-run's own exit status"
    made.pods.remove(first)
    made.wait_converged(2 * made.ttl)
    assert made.witness().overlaps == 0


def test_control_a_dying_twin_takes_the_lease_along(cluster: Make) -> None:
    """i2 without metafence: the resign of one deletes the row that the other lives by."""
    made = cluster(ttl=5, guarded=False, pods=2)
    first = made.start()
    twin = twin_of(made, first).start()
    twin.wait_leading(5)
    before = made.postgres.sql("SELECT count(*) FROM witness.renewal")[0][0]
    twin.signal_meta(signal.SIGTERM)
    assert twin.main.wait(10) == 0
    resigned = [e for e in twin.witness.events("resign") if e.pid == twin.meta_pid]
    assert resigned, "the twin resigned the shared row"
    wait_for(
        "somebody wrote the row anew",
        lambda: made.postgres.sql("SELECT count(*) FROM witness.renewal")[0][0] > before,
        5,
    )

# SPDX-License-Identifier: Apache-2.0
"""The agent's connection is lost at each statement of a pass and of a cure, before Postgres has it or before
its answer comes: nothing is done by half or twice, and the next pass settles it."""

from collections.abc import Callable
from typing import Any

import pytest
from computes import WORKERS, aborts, call, deeds, with_registry
from harness import Cluster, Lab, Pod, wait_for
from relay import Relay
from workerpods import Open, end_pod, only_tombstones, pod_of, prepared, rows, wait_judged

STATE, ROWS, LOG, BURY, INTEND, NOTE, WITHDRAW, UNBURY = (
    f"metafence.{name}("
    for name in (
        "reconcile_state",
        "workers",
        "reconcile_log",
        "bury",
        "intend",
        "note_reconcile",
        "withdraw",
        "unbury",
    )
)
# Statement, and behind which one it is: the second look repeats the first three.
OF_A_REMOVAL = (
    (STATE, None),
    (ROWS, None),
    (LOG, None),
    (BURY, None),
    (INTEND, None),
    (STATE, INTEND),
    (ROWS, INTEND),
    (LOG, INTEND),
    (NOTE, INTEND),
    (WITHDRAW, None),
)
# What is announced and can't be withdrawn binds its endpoint until the term ends, as does what is announced
# once more, by an agent that has doubted for a moment whether it leads.
MAY_STAY_ANNOUNCED = {(INTEND, None), (NOTE, INTEND), (WITHDRAW, None)}
AT_ONCE = {"maxPercent": 100}


def cut_pass(
    relay: Relay, what: tuple[str, str | None], is_answered: bool, begin: Callable[[], None]
) -> None:
    """Begins a removal, and cuts it there."""
    statement, behind = what
    if behind is None:
        relay.arm(1, is_answered, statement)
        begin()
    else:
        hold = relay.hold(behind)
        begin()
        hold.wait()
        relay.arm(1, is_answered, statement)
        hold.release()
    wait_for(f"{statement} is cut", lambda: relay.has_cut, 60)
    relay.arm(0, False)


@pytest.mark.parametrize("half", [0, 1])
def test_lost_at_each_statement_of_a_removal(
    kube: Open, lab: Lab, request: pytest.FixtureRequest, half: int
) -> None:
    """With one place a statement, before it and before its answer take turns."""
    is_full = request.config.getoption("--full")
    cuts = [
        (what, is_answered)
        for n, what in enumerate(OF_A_REMOVAL)
        for is_answered in ((False, True) if is_full else (n % 4 < 2,))
        if n % 2 == half
    ]
    hosts = [f"10.9.8.{n}" for n in range(len(cuts) + 1)]
    k, ids = prepared(kube, hosts, ttl=30, reconcile=AT_ONCE)
    relay = Relay(k.cluster.postgres.port, lab.port())
    k.pods[0].config["postgres"]["port"] = relay.port
    leader, sql = k.cluster.start(), k.cluster.postgres.sql
    wait_judged(leader)
    left = set(hosts)
    for (what, is_answered), host in zip(cuts, hosts[1:], strict=True):
        place = f"{what} cut {'before its answer' if is_answered else 'before it'}"
        cut_pass(relay, what, is_answered, lambda host=host: end_pod(k.api, pod_of(host)))
        left.remove(host)
        wait_for(f"{place}: the row goes", lambda: rows(k.cluster) == left, 60)
        wait_for(
            f"{place}: its tombstone goes",
            lambda: sql("SELECT worker_id FROM metafence.tombstone WHERE outcome IS NULL") == [],
            60,
        )
        wait_judged(leader)
        deleted = [int(e.fields["worker"]) for e in leader.witness.events("worker_deleted")]
        assert deleted == [ids[h] for h in hosts[1:] if h not in left], place
        announced = {i for (i,) in sql("SELECT worker_id FROM metafence.intent WHERE NOT is_repeated")}
        may_stay = {ids[h] for (w, _), h in zip(cuts, hosts[1:], strict=True) if w in MAY_STAY_ANNOUNCED}
        assert announced <= may_stay, place
    assert leader.incarnations == 1 and leader.kills() == 0 and not aborts(k.cluster)
    relay.close()


@pytest.mark.parametrize("is_there", [True, False], ids=["written", "gone"])
def test_lost_as_a_tombstone_is_taken_back(kube: Open, lab: Lab, is_there: bool) -> None:
    """Its row has been written, or is gone: either way one of the next passes does it."""
    hosts = [f"10.9.8.{n}" for n in range(2)]
    k, _ = prepared(kube, hosts, "compute", ttl=30)
    relay = Relay(k.cluster.postgres.port, lab.port())
    k.pods[0].config["postgres"]["port"] = relay.port
    leader = k.cluster.start()
    only_tombstones(k.cluster, leader)
    wait_judged(leader)
    end_pod(k.api, pod_of(hosts[1]))

    def lying() -> list[Any]:
        return k.cluster.postgres.sql("SELECT worker_id FROM metafence.tombstone WHERE outcome IS NULL")

    wait_for("it is buried", lying, 60)
    relay.arm(1, False, UNBURY)
    call(leader, "register" if is_there else "delete", hosts[1])
    wait_for("the taking back is cut", lambda: relay.has_cut, 60)
    relay.arm(0, False)
    wait_judged(leader, 4)
    assert not lying()
    assert leader.incarnations == 1 and not aborts(k.cluster)
    relay.close()


def insert_unknown(c: Cluster, worker_id: int) -> None:
    c.postgres.sql(
        "INSERT INTO worker VALUES (%s, 'FRONTEND', %s, 4567, 'RUNNING', %s)",
        worker_id,
        f"10.9.8.{worker_id % 100}",
        worker_id,
    )
    c.postgres.sql(
        "INSERT INTO worker_property (worker_id, is_streaming, is_serving, is_unschedulable)"
        " VALUES (%s, false, true, false)",
        worker_id,
    )


def adhoc(leader: Pod) -> int:
    """Global recoveries that somebody asked the present incarnation for."""
    begun = leader.witness.events("recovery_start", leader.meta_pid)
    return sum("adhoc" in e.fields["reason"] for e in begun)


def wait_fine(leader: Pod) -> None:
    def fine(status: dict[str, Any]) -> bool:
        workers = status["workers"]
        is_read = workers["leading"] and workers["state"]["known"]
        return is_read and workers["memory"]["reason"] == "Fine"

    leader.wait_status("nothing differs", fine, 60)


def test_lost_at_each_statement_of_a_cure(cluster: Callable[..., Cluster], lab: Lab) -> None:
    """Two recoveries and two restarts, each once, whatever was lost of what is written about them."""
    c = cluster(pods=1, ttl=30, meta_flags=WORKERS)
    with_registry(c)
    relay = Relay(c.postgres.port, lab.port())
    c.pods[0].config["postgres"]["port"] = relay.port
    leader = c.start()
    leader.wait_status("the log is whole", lambda s: s["workers"]["state"]["log_known"], 40)

    # Others delete a row, and its endpoint registers anew.
    for number, statement in enumerate((STATE, NOTE)):
        worker = call(leader, "register", "10.9.7.1")["worker"]
        relay.arm(1, False, NOTE if statement == NOTE else "no statement")
        c.postgres.sql("DELETE FROM worker WHERE worker_id = %s", worker)
        if statement == STATE:
            relay.arm(1, True, STATE)
        call(leader, "register", "10.9.7.1")
        wait_for(f"{statement} is cut", lambda: relay.has_cut, 60)
        relay.arm(0, False)
        wait_for("a recovery is asked for", lambda number=number: adhoc(leader) == number + 1, 60)
        wait_fine(leader)
        assert adhoc(leader) == number + 1
    assert leader.incarnations == 1

    # Others insert one.
    for number, is_answered in enumerate((False, True)):
        relay.arm(1, is_answered, NOTE)
        insert_unknown(c, 4711 + number)
        wait_for("the record is cut", lambda: relay.has_cut, 60)
        relay.arm(0, False)
        wait_for(
            "a new incarnation leads",
            lambda number=number: leader.incarnations == number + 2 and leader.acts_as_leader,
            60,
        )
        loaded = leader.witness.events("registry_loaded", leader.meta_pid)[-1]
        assert str(4711 + number) in loaded.fields["ids"]
        wait_fine(leader)
        assert leader.incarnations == number + 2 == leader.kills() + 1
    assert not aborts(c)
    assert [d[0] for d in deeds(c) if d[0] == "restart"] == ["restart"], "one was written, its answer lost"
    relay.close()

# SPDX-License-Identifier: Apache-2.0
"""rw#8238, "pod stays in unknown and does not restart", by the report's own triggers translated to the
election in SQL: the leader's link to the store is cut for longer than the lease, the store's pod is deleted
by force and gone for longer than the lease, the lease itself is deleted.

With metafence the old leader is a follower again, nobody having touched anything; its label says so. The
control runs without metafence show what the report saw.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
from harness.waiting import boot_ns, hold_until, wait_for
from kubelab import POSTGRES_PORT, Database, Store
from metas import Deployment, Meta, OperatorLabeler, is_handed_over
from metas.faults import cut_link, take_row, wait_campaign_error
from metas.nets import Rules, pod_without_port
from psycopg import OperationalError

Note = Callable[[str, Any], None]
Deploy = Callable[..., Deployment]
FULL_RATE = 20  # this many writes are two seconds of work
CONVERGED = 60.0  # a lease, a hold of at most another, and the kubelet's probes on a busy machine


def longer_than_lease(metas: Deployment, began_ns: int) -> None:
    hold_until(began_ns + int(max(metas.ttl * 4 / 3, metas.ttl + 3) * 1e9))


def lose_store(metas: Deployment, old: Meta, meanwhile: Callable[[int], None]) -> Rules:
    """The store's pod is deleted by force, and starts again after `meanwhile`, which is given the moment at
    which it was gone. Who reconnects first to a store that is back is a draw; here the old leader's link
    is the last to heal, until the block is lifted, as it is for two of three."""
    database = metas.database
    assert isinstance(database, Store)
    database.scale(0)
    database.force_delete()
    wait_for("Postgres is gone, too", lambda: not answers(database), 30)
    meanwhile(boot_ns())
    late = pod_without_port(metas.cluster, old.node, old.ip, POSTGRES_PORT).begin()
    database.scale(1)
    database.wait_ready()
    return late


def answers(database: Store) -> bool:
    try:
        database.connect().close()
        return True
    except OperationalError:
        return False


# --- with metafence --------------------------------------------------------------------------


def link(metas: Deployment, old: Meta) -> Meta:
    block = cut_link(metas, old)
    began = boot_ns()
    new = metas.wait_new_leader(old, metas.ttl + 10)
    longer_than_lease(metas, began)
    block.lift()
    return new


def store(metas: Deployment, old: Meta) -> Meta:
    late = lose_store(metas, old, lambda began: longer_than_lease(metas, began))
    new = metas.wait_new_leader(old, 2 * metas.ttl + 20)
    late.lift()
    return new


TRIGGERS = {"link": link, "store": store, "row": take_row}


def had_slow_patch(metas: Deployment, meta: Meta, mark: int) -> bool:
    """The API server took half a second or more for a label: then it is given up for a newer one."""
    patches = metas.cluster.audit.writes(mark, user=metas.account, resource="pods", pod=meta.name)
    return any(patch.took_ms > 500 or not patch.succeeded for patch in patches)


def assert_story(metas: Deployment, old: Meta, new: Meta, since: int, mark: int) -> None:
    """As a watch of the pods saw it, from the fault on."""
    recorder = metas.recorder
    said = recorder.describe(since)
    third = next(m for m in metas.metas if m not in (old, new))
    for roles in (recorder.roles(old.uid, since), recorder.operators_roles(old.uid, since)):
        if roles == ["leader", "follower"] and had_slow_patch(metas, old, mark):
            continue  # the old leader was back before the server took its `unknown`: the newest value wins
        assert is_handed_over(roles), said
    roles = recorder.roles(new.uid, since)
    assert roles.count("leader") == 1 and roles[-1] == "leader", said
    assert "leader" not in recorder.roles(third.uid, since), said
    assert recorder.two_leaders_s() == 0, said
    ids = {m.id for m in metas.metas}
    for meta in metas.metas:
        members = meta.members() or []
        assert {m["id"] for m in members} == ids, members
        assert [m["id"] for m in members if m["leader"]] == [new.id], members


def assert_nobody_overlapped(metas: Deployment) -> dict[str, Any]:
    verdict = metas.verdict()
    assert verdict["ticks"] > 0 and verdict["unknown_ticks"] == 0, "the witness saw too little"
    assert verdict["overlaps"] == 0 and verdict["late_ticks"] == 0, verdict
    return verdict


@pytest.mark.parametrize("trigger", TRIGGERS)
def test_old_leader_follows(deploy: Deploy, request: pytest.FixtureRequest, trigger: str, note: Note) -> None:
    database = request.getfixturevalue("store" if trigger == "store" else "database")
    metas = deploy(database=database)
    old = metas.start()
    mark, incarnation, since = metas.cluster.audit.mark(), old.incarnation, boot_ns()
    new = TRIGGERS[trigger](metas, old)
    assert metas.wait_converged(CONVERGED) is new
    assert_story(metas, old, new, since, mark)
    assert old.incarnation != incarnation and [m.kubelet_restarts() for m in metas.metas] == [0, 0, 0]
    counts = {m.name: m.run_status()["fences"] for m in metas.metas}
    # After an outage the winner may be ahead of its agent's first read: then it is fenced once, for safety.
    spared = [m for m in metas.others(old) if trigger != "store" or m is not new]
    assert counts[old.name] == 1 and not any(counts[m.name] for m in spared), counts
    assert counts[new.name] <= 1, counts
    status = json.loads(old.cli("status", "-o", "json"))  # as a person asks, by kubectl exec
    assert status["meta"]["restarts"] == 1 and status["role"] == "follower", status
    verdict = assert_nobody_overlapped(metas)
    last = old.events("tick", 0, incarnation)[-1].boot_ns
    note("old leader's last act, s after the fault", round((last - since) / 1e9, 2))
    note("margin to the earliest takeover, ms", verdict["worst_margin_ms"])


def test_kubelet_restarts_the_old_leader(deploy: Deploy, database: Database, note: Note) -> None:
    """restart: container, for those who want to see it under RESTARTS."""
    metas = deploy(database=database, values={"metafence": {"run": {"restart": "container"}}})
    old = metas.start()
    mark, since = metas.cluster.audit.mark(), boot_ns()
    new = link(metas, old)
    assert metas.wait_converged(CONVERGED) is new
    assert_story(metas, old, new, since, mark)
    assert {m.name: m.kubelet_restarts() for m in metas.metas} == {m.name: int(m is old) for m in metas.metas}
    statuses = old.read().status.container_statuses
    ended = next(s.last_state.terminated for s in statuses if s.name == "meta")
    assert ended.exit_code == 137, ended
    assert metas.others(old) and assert_nobody_overlapped(metas)
    back = old.events("ready", since)[-1].boot_ns
    note("follower again, s after the fault", round((back - since) / 1e9, 2))


# --- without ---------------------------------------------------------------------------------


def assert_zombie(metas: Deployment, old: Meta, new: Meta, incarnation: str | None) -> None:
    """Nobody restarts it, it writes on at full rate beside the new leader, and its label is not true."""
    healed = boot_ns()

    def writes() -> bool:
        done = [e for e in old.events("write", healed, incarnation) if e.fields["db"] == "ok"]
        return len(done) >= FULL_RATE

    metas.wait(f"{old} writes on as a zombie", writes, 60)
    wait_for(
        "the operator calls it a follower",
        lambda: (c := metas.recorder.now(old.uid)) is not None and c.operators_role == "follower",
        30,
    )
    assert {m.name for m in metas.leaders()} == {old.name, new.name}, metas.describe()
    assert old.incarnation == incarnation and old.kubelet_restarts() == 0
    assert [m["id"] for m in new.members() or [] if m["leader"]] == [new.id]
    verdict = metas.verdict()
    assert verdict["overlaps"] > 0, verdict


def test_control_link(deploy: Deploy, database: Database, note: Note) -> None:
    metas = deploy(database=database, guarded=False)
    old = metas.start()
    with OperatorLabeler(metas.cluster, metas.namespace):
        metas.wait("it is labelled", lambda: "leader" in metas.recorder.operators_roles(old.uid), 20)
        incarnation, since = old.incarnation, boot_ns()
        block = cut_link(metas, old)
        new = metas.wait_new_leader(old, metas.ttl + 10)
        wait_campaign_error(old, incarnation, since, metas.ttl)
        assert metas.recorder.operators_roles(old.uid, since) == ["leader", "unknown"]
        block.lift()
        assert_zombie(metas, old, new, incarnation)
    note("two leaders: ticks beyond the lease", metas.verdict()["late_ticks"])


def test_control_store(deploy: Deploy, store: Store, note: Note) -> None:
    metas = deploy(database=store, guarded=False)
    old = metas.start()
    incarnation = old.incarnation

    def meanwhile(began: int) -> None:
        wait_campaign_error(old, incarnation, began, metas.ttl)
        longer_than_lease(metas, began)

    with OperatorLabeler(metas.cluster, metas.namespace):
        late = lose_store(metas, old, meanwhile)
        new = metas.wait_new_leader(old, 2 * metas.ttl + 20)
        late.lift()
        assert_zombie(metas, old, new, incarnation)
    note("two leaders: ticks beyond the lease", metas.verdict()["late_ticks"])


def test_control_row(deploy: Deploy, database: Database, note: Note) -> None:
    """Here the old leader learns of it by SQL and leaves by itself, after both have led for a moment."""
    metas = deploy(database=database, guarded=False)
    old = metas.start()
    incarnation = old.incarnation
    new = take_row(metas, old)
    assert new is not old
    metas.wait("the kubelet has restarted it", lambda: old.kubelet_restarts() == 1, 30)
    assert [e.fields["code"] for e in old.events("exit", 0, incarnation)] == ["0"]
    up = new.events("leader_up")[-1].boot_ns
    note("acted beside its successor, ms", max(0, old.events("tick", 0, incarnation)[-1].boot_ns - up) / 1e6)

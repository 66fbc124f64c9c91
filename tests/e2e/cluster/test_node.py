# SPDX-License-Identifier: Apache-2.0
"""The leader's node is cut off: entirely, and from the API server alone."""

from collections.abc import Callable
from typing import Any

from harness.waiting import boot_ns, hold, wait_for
from kubelab import Database
from kubernetes.client.exceptions import ApiException
from metas import Deployment, Meta
from metas.nets import node_without_api

Deploy = Callable[..., Deployment]
Note = Callable[[str, Any], None]
CLEARED_S = 10.0  # from the takeover until the old leader's label is gone
HEALED_S = 90.0  # a node that was away is Ready after 0 to 14 s, its twin pods a good time later


def last_renewal(meta: Meta, incarnation: str | None) -> int:
    return meta.events("renew", 0, incarnation)[-1].boot_ns


def force_delete(metas: Deployment, meta: Meta) -> None:
    here = ("-n", metas.namespace)
    metas.cluster.kubectl("delete", "pod", meta.name, *here, "--force", "--grace-period=0", "--wait=false")

    def gone() -> bool:
        try:
            return metas.cluster.pod(metas.namespace, meta.name).metadata.uid != meta.uid
        except ApiException as error:
            return error.status == 404

    wait_for(f"{meta} is no object any more", gone, 20)


def wait_twin(metas: Deployment, old: Meta) -> Meta:
    """Another pod of the name runs."""

    def running() -> Meta | None:
        twin = next((m for m in metas.refresh() if m.name == old.name and m.uid != old.uid), None)
        return twin if twin is not None and twin.program("metafence-run") is not None else None

    return metas.wait(f"a twin of {old} starts", running, 60)


def assert_nobody_overlapped(metas: Deployment) -> None:
    verdict = metas.verdict()
    assert verdict["overlaps"] == 0 and verdict["late_ticks"] == 0, verdict


def test_node_cut_off(deploy: Deploy, database: Database, note: Note) -> None:
    """Nobody can reach the old leader: it is dead by its own deadline, its label is cleared by another."""
    metas = deploy(database=database)
    old = metas.start()
    incarnation, since = old.incarnation, boot_ns()
    old.node.cut()
    metas.wait(f"{old} is dead", lambda: old.run_status()["fences"] == 1, metas.ttl + 2)
    dead = old.run_status()["last_death"]["dead_ns"]
    new = metas.wait_new_leader(old, metas.ttl + 10)
    takeover = new.events("elected")[-1].boot_ns
    earliest = last_renewal(old, incarnation) + int(metas.ttl * 1e9)
    assert dead < earliest and dead < takeover, (dead, earliest, takeover)
    note("dead before the earliest takeover, ms", (earliest - dead) // 10**6)
    note("dead before the takeover, ms", (takeover - dead) // 10**6)

    def cleared() -> bool:
        change = metas.recorder.now(old.uid)
        return change is not None and change.role == change.operators_role == "unknown"

    metas.wait("the old leader's label is cleared", cleared, CLEARED_S)
    assert old.node.is_cut
    cleared_s = (metas.recorder.now(old.uid).boot_ns - takeover) / 1e9  # type: ignore[union-attr]
    assert cleared_s < CLEARED_S
    note("label gone after the takeover, s", round(cleared_s, 2))

    metas.wait("the API server gives it up", lambda: old.read().metadata.deletion_timestamp, 60, 0.2)
    force_delete(metas, old)
    twin = wait_twin(metas, old)
    assert twin.node is not old.node
    metas.wait("the twin follows", lambda: twin.is_follower, 60)
    assert metas.leaders() == [new], metas.describe()
    old.node.heal()
    metas.wait("the old pod ends when its node is back", lambda: not old.processes(), 60)
    assert metas.wait_converged(HEALED_S) is new
    assert_nobody_overlapped(metas)
    assert metas.recorder.roles(new.uid, since).count("leader") == 1, metas.recorder.describe(since)
    assert all(m.run_status()["fences"] == 0 for m in metas.metas), "nobody else was touched"


def test_twin_waits_for_the_living(deploy: Deploy, database: Database, note: Note) -> None:
    """The leader's node has lost the API server alone: the leader goes on, and renews. Its pod is deleted by
    force, and the twin of its name holds until the old one is gone."""
    metas = deploy(database=database)
    old = metas.start()
    incarnation = old.incarnation
    with node_without_api(metas.cluster, old.node):
        metas.wait("the API server gives it up", lambda: old.read().metadata.deletion_timestamp, 60, 0.2)
        assert old.acts_as_leader and old.incarnation == incarnation, metas.describe()
        force_delete(metas, old)
        twin = wait_twin(metas, old)

        def held() -> bool:
            status = twin.run_status()
            return status["hold"] != "None"

        metas.wait("the twin is held", held, 30)

        def beside() -> None:
            assert not twin.events("start"), f"the twin started beside the living\n{metas.describe()}"
            assert old.incarnation == incarnation and old.meta_process is not None, metas.describe()

        hold(2 * metas.ttl, beside)
        assert old.run_status()["fences"] == 0
        note("twin held, reason", twin.run_status()["hold"])
    metas.wait("the old pod ends when its node is back", lambda: not old.processes(), 60)
    metas.wait_converged(HEALED_S)
    assert_nobody_overlapped(metas)
    assert twin.events("start"), "the twin goes on in the end"

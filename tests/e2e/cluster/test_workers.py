# SPDX-License-Identifier: Apache-2.0
"""Worker rows against real pods: what is proven gone is removed, by that very id; what lives stays, whatever
the API server says of it."""

from collections.abc import Callable
from typing import Any

from harness.waiting import boot_ns
from kubelab import Cluster, Node
from kubernetes.client.exceptions import ApiException
from metas import Compute, Meta, Registry
from metas.deployment import config
from metas.nets import node_without_api

Note = Callable[[str, Any], None]
Enlist = Callable[..., Registry]
QUICK = config(reconcile={"interval": "500ms", "confirmAfter": "2s"})
BY_ADDRESS = {"advertise": "ip", "terminationGracePeriodSeconds": 1}
REMOVED_S = 120.0
UNEXPIRED = ("--max-heartbeat-interval=600s",)  # the leader itself removes nobody meanwhile
LOOKS = 8  # a second each: several times what it takes to remove a row


def elsewhere(cluster: Cluster, leader: Meta) -> Node:
    """A node that the leader is not on: it can be cut off."""
    return next(node for node in cluster.nodes if node is not leader.node)


def on(node: Node) -> dict[str, Any]:
    return {"nodeSelector": {"kubernetes.io/hostname": node.name}}


def look_on(leader: Meta, what: str) -> None:
    """The leader's agent compares often enough, and can read all that it needs."""
    status = leader.status()
    assert status is not None

    def good(status: dict[str, Any]) -> int:
        return status["workers"]["rounds"] - status["workers"]["failures"]

    wanted = good(status) + LOOKS
    leader.wait_status(what, lambda s: good(s) >= wanted, 180)


def wait_gone(metas: Registry, compute: Compute) -> None:
    def gone() -> bool:
        try:
            return metas.cluster.pod(metas.namespace, compute.name).metadata.uid != compute.uid
        except ApiException as error:
            return error.status == 404

    metas.wait(f"{compute} is no object any more", gone, 60)


def acts_on(metas: Registry, worker: int) -> list[str]:
    return [action for action, other, _ in metas.deeds() if other == worker]


def test_rw27092_criterion_2_removal_is_by_id(enlist: Enlist, cluster: Cluster, note: Note) -> None:
    """A StatefulSet that was scaled down: that row goes, and with it nothing else. Then a pod is deleted by
    force while its process lives, on a node that has lost the API server alone: its row stays."""
    metas = enlist(computes=0, flags=UNEXPIRED, values=QUICK)
    leader = metas.start()
    node = elsewhere(cluster, leader)
    live, dead = metas.join(2, **BY_ADDRESS, **on(node))
    rows = {row.host: row.worker for row in metas.rows()}
    kept, removed = rows[live.ip], rows[dead.ip]
    dead.crash()
    metas.scale(1)
    wait_gone(metas, dead)
    since = boot_ns()
    metas.wait("the row is removed", lambda: [r.worker for r in metas.rows()] == [kept], REMOVED_S)
    note("row removed after its pod was gone, s", round((boot_ns() - since) / 1e9, 1))
    deleted = leader.events("worker_deleted")
    assert [(e.fields["worker"], e.fields["by"]) for e in deleted] == [(str(removed), "rpc")]
    assert "delete" in acts_on(metas, removed) and not acts_on(metas, kept), metas.deeds()
    metas.wait("the leader knows", lambda: set(metas.active(leader)) == {kept}, 30)

    with node_without_api(cluster, node):
        here = ("-n", metas.namespace)
        cluster.kubectl("delete", "pod", live.name, *here, "--force", "--grace-period=0", "--wait=false")
        wait_gone(metas, live)
        since = boot_ns()
        look_on(leader, "it looks on")
        assert live.process is not None, "its process has ended"
        assert [r.worker for r in metas.rows()] == [kept] and not acts_on(metas, kept), metas.deeds()
        beats = [e for e in live.events("heartbeat", since) if e.fields["ok"] == "true"]
        assert beats and not live.events("unknown_worker")
    assert not leader.events("abort")

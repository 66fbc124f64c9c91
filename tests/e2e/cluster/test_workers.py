# SPDX-License-Identifier: Apache-2.0
"""Worker rows against real pods: what is proven gone is removed, by that very id; what lives stays, whatever
the API server says of it."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from harness.waiting import boot_ns
from kubelab import Cluster, Node
from kubelab.images import POD
from kubelab.manifests import container, pod
from kubernetes import client
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


@contextmanager
def no_pass_is_whole(metas: Registry, leader: Meta) -> Iterator[None]:
    """What agents may read lacks something: they go on to look at pods, and judge nobody."""
    api = client.RbacAuthorizationV1Api(metas.cluster.api)
    role = api.read_namespaced_role("metafence", metas.namespace)
    rules = metas.cluster.api.sanitize_for_serialization(role)["rules"]
    fewer = [rule for rule in rules if "endpointslices" not in rule["resources"]]
    assert len(fewer) == len(rules) - 1
    api.patch_namespaced_role("metafence", metas.namespace, {"rules": fewer})
    leader.wait_status("a pass is not whole", lambda s: s["workers"]["last_pass"]["whole"] is False, 60)
    yield
    api.patch_namespaced_role("metafence", metas.namespace, {"rules": rules})


def successor(metas: Registry, compute: Compute) -> Compute:
    """The next pod of that name, once it is a worker."""

    def found() -> Compute | None:
        after = [c for c in metas.computes() if c.name == compute.name and c.uid != compute.uid]
        return after[0] if after and after[0].worker() else None

    return metas.wait(f"another {compute.name} is a worker", found, 60)


def take_address(metas: Registry, name: str, node: Node, address: str) -> None:
    """A compute node of another RisingWave has it, by all that is seen from outside."""
    metas.wait(f"{address} is free", lambda: not node.has_given(address), 60)
    node.give_next(address)
    listens = container(name, POD, "serve", ":5688", ports=[{"containerPort": 5688}])
    labels = {"risingwave/name": name, "risingwave/component": "compute"}
    metas.cluster.apply(pod(metas.namespace, name, listens, labels=labels, nodeName=node.name))
    ready = ("--for=condition=Ready", "--timeout=90s")
    metas.cluster.kubectl("wait", "-n", metas.namespace, *ready, f"pod/{name}")
    assert metas.cluster.pod(metas.namespace, name).status.pod_ip == address


def test_an_address_that_was_given_away(enlist: Enlist, cluster: Cluster) -> None:
    """Two pods of workers are gone, their rows are left. One's address is a stranger's now, and its row goes;
    the other's is of a new pod of ours, and its row stays. Then the first is one of ours again."""
    metas = enlist(computes=0, flags=UNEXPIRED, values=QUICK)
    leader = metas.start()
    node = elsewhere(cluster, leader)
    first, second = metas.join(2, **BY_ADDRESS, **on(node))
    ids = {row.host: row.worker for row in metas.rows()}
    kept, removed = ids[first.ip], ids[second.ip]
    leader.wait_status("whose row is whose", lambda s: (s["workers"]["last_pass"] or {}).get("live") == 2, 60)

    with no_pass_is_whole(metas, leader):
        second.crash()
        metas.scale(1)
        wait_gone(metas, second)
        take_address(metas, "other", node, second.ip)
        first.crash()
        node.give_next(first.ip)
        cluster.kubectl("delete", "pod", first.name, "-n", metas.namespace, "--wait=false")
        heir = successor(metas, first)
        assert (heir.ip, heir.worker()) == (first.ip, str(kept))
        assert {r.host: r.worker for r in metas.rows()} == ids and not metas.deeds()

    metas.wait("the stranger's row goes", lambda: [r.worker for r in metas.rows()] == [kept], REMOVED_S)
    deleted = leader.events("worker_deleted")
    assert [(e.fields["worker"], e.fields["by"]) for e in deleted] == [(str(removed), "rpc")]
    [judged] = json.loads(leader.cli("reconcile", "--dry-run", "-o", "json"))["rows"]
    assert (judged["id"], judged["verdict"], judged["reason"]) == (kept, "LIVE", "PodRuns")
    assert judged["known_pod"] == heir.uid

    cluster.kubectl("delete", "pod", "other", "-n", metas.namespace)
    metas.wait("its address is free", lambda: not node.has_given(second.ip), 60)
    node.give_next(second.ip)
    metas.scale(2)
    back = successor(metas, second)
    assert back.ip == second.ip
    rows, since = metas.rows(), boot_ns()
    assert {row.host: str(row.worker) for row in rows} == {first.ip: heir.worker(), back.ip: back.worker()}
    look_on(leader, "it looks on")
    assert metas.rows() == rows
    assert not [deed for row in rows for deed in acts_on(metas, row.worker)], metas.deeds()
    for live in (heir, back):
        beats = [e for e in live.events("heartbeat", since) if e.fields["ok"] == "true"]
        assert beats and not live.events("unknown_worker")
    assert not leader.events("abort")

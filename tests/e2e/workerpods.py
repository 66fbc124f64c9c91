# SPDX-License-Identifier: Apache-2.0
"""Pods of workers in the fake API server, and their rows: what the reconciler compares.

The workers have no process, and with an expiry of an hour the leader does not remove them by itself. They are
frontends, or compute nodes that stay STARTING and for which `metasim call register` speaks: to neither does
the leader open anything. Their addresses lead nowhere."""

import json
from collections.abc import Callable
from typing import Any

from computes import WORKERS, with_registry
from harness import Cluster, Pod
from harness.fakeapi import NAMESPACE, FakeApi
from kube import Kube

SLICES = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets"
PORT = 4567
FAST = {"interval": "500ms", "confirmAfter": "2s", "startingGrace": "1s"}
# Component of a pod -> type and status of its row.
KINDS = {"frontend": ("FRONTEND", "RUNNING"), "compute": ("COMPUTE_NODE", "STARTING")}
Open = Callable[..., Kube]


def prepare(api: FakeApi) -> None:
    """The collections that a namespace has, empty; no kruise."""
    api.collections[SLICES] = ("EndpointSliceList", [])
    api.collections[SETS] = ("StatefulSetList", [])


def add_worker_pod(
    api: FakeApi, name: str, ip: str, component: str = "frontend", owner: str = "ReplicaSet", port: int = PORT
) -> str:
    """A pod that runs; its uid."""
    uid = api.add_pod(name)
    with api.lock:
        body = api.pods[name].body
        body["metadata"]["labels"]["risingwave/component"] = component
        body["metadata"]["ownerReferences"] = [
            {
                "apiVersion": "batch/v1" if owner == "Job" else "apps/v1",
                "kind": owner,
                "name": "w",
                "uid": "owner-uid",
                "controller": True,
            }
        ]
        body["spec"]["containers"] = [{"name": "worker", "image": "x", "ports": [{"containerPort": port}]}]
        body["status"] = {
            "phase": "Running",
            "podIP": ip,
            "podIPs": [{"ip": ip}],
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "worker", "ready": True, "state": {"running": {}}}],
        }
        api._changed(name)
    return uid


def end_pod(api: FakeApi, name: str, stays: bool = False) -> None:
    """Its kubelet says that all its containers have ended; then the object goes, or stays listed."""
    with api.lock:
        status = api.pods[name].body["status"]
        status["phase"] = "Failed"
        status["conditions"] = [{"type": "Ready", "status": "False"}]
        ended = {"terminated": {"exitCode": 137}}
        status["containerStatuses"] = [{"name": "worker", "ready": False, "state": ended}]
        api._changed(name)
    if not stays:
        api.delete_pod(name)


def insert_workers(cluster: Cluster, hosts: list[str], component: str = "frontend") -> dict[str, int]:
    """Rows before the first start, so that each leader knows them: host -> id."""
    ids = {host: 100 + n for n, host in enumerate(hosts)}
    kind, status = KINDS[component]
    for host, worker_id in ids.items():
        cluster.postgres.sql(
            "INSERT INTO worker VALUES (%s, %s, %s, %s, %s, %s)",
            worker_id,
            kind,
            host,
            PORT,
            status,
            worker_id,
            user="meta",
        )
        cluster.postgres.sql(
            "INSERT INTO worker_property (worker_id, is_streaming, is_serving, is_unschedulable)"
            " VALUES (%s, false, true, false)",
            worker_id,
            user="meta",
        )
    return ids


def pod_of(host: str) -> str:
    return f"w-{host.replace('.', '-')}"


def prepared(
    kube: Open, hosts: list[str], component: str = "frontend", **options: Any
) -> tuple[Kube, dict[str, int]]:
    """Metas that are not started yet, with rows that each leader will know and their pods; the rows' ids."""
    reconcile, release = options.pop("reconcile", {}), options.pop("release", "head")
    k = kube(**{"pods": 1, "ttl": 10, "meta_flags": WORKERS, **options})
    prepare(k.api)
    for host in hosts:
        add_worker_pod(k.api, pod_of(host), host, component)
    for pod in k.pods:
        pod.config["reconcile"] = {**FAST, **reconcile}
    with_registry(k.cluster, release)
    return k, insert_workers(k.cluster, hosts, component)


def set_guard(cluster: Cluster, mode: str) -> None:
    cluster.postgres.sql("UPDATE metafence.setting SET value = %s WHERE name = 'guard'", mode)


def only_tombstones(cluster: Cluster, leader: Pod, meanwhile: Callable[[], None] = lambda: None) -> None:
    """The guard is off for a moment: from now on, until the next takeover, nothing proves what the leader
    knows, and nothing is asked of it."""
    set_guard(cluster, "off")
    meanwhile()
    set_guard(cluster, "enforce")
    leader.wait_status("the log has a gap", lambda s: not s["workers"]["state"]["log_known"], 30)


def wait_judged(leader: Pod, passes: int = 1) -> None:
    now = leader.wait_status("a pass", lambda s: s["workers"]["passes"] > 0, 60)["workers"]["passes"]
    leader.wait_status("more passes", lambda s: s["workers"]["passes"] >= now + passes, 60)


def rows(cluster: Cluster) -> set[str]:
    return {r[0] for r in cluster.postgres.sql("SELECT host FROM worker")}


def report(leader: Any, *words: str) -> tuple[int, dict[str, Any]]:
    """`metafence reconcile -o json` against the leader's agent: exit status and report."""
    socket = str(leader.dir / "agent.sock")
    done = leader.cli("reconcile", "-o", "json", "--socket", socket, *words)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)

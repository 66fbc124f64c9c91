# SPDX-License-Identifier: Apache-2.0
"""Rotation of the cluster's credentials, by the steps that Kubernetes' documentation gives for it. What pods
hold is renewed by their kubelets; that the agents read it again is what is tried."""

import signal
from collections.abc import Callable
from pathlib import Path

from harness.process import signal_pid
from harness.waiting import wait_for
from kubelab import Cluster
from kubernetes.client import V1Pod

PROJECTED = "volumes/kubernetes.io~projected"
RENEWED_S = 150.0  # a kubelet looks at a pod's volumes once a minute and a half at the latest


def _files(cluster: Cluster, pods: list[V1Pod], name: str) -> dict[str, str]:
    """That file of each pod's service account, wherever the pod has it mounted."""
    found: dict[str, str] = {}
    for pod in pods:
        node, uid = cluster.node_of(pod), pod.metadata.uid
        folder: Path = node.path(node.dir / "kubelet/pods" / uid / PROJECTED)
        paths = list(folder.glob(f"*/{name}"))
        assert paths, f"{pod.metadata.name} has no {name} of a service account"
        found |= {f"{uid}/{path.parent.name}": path.read_text() for path in paths}
    return found


def _restart_server(cluster: Cluster) -> None:
    plane = cluster.plane
    plane.apiserver.kill()
    plane.apiserver.start()
    plane.wait_ready()
    for program in (plane.controllers, plane.scheduler, plane.dns):
        program.kill()
        program.start()


def _restart_clients(cluster: Cluster) -> None:
    """Kubelets and proxies: their service manager starts them again."""
    for node in cluster.nodes:
        pids = node.pids("kubelet", "kube-proxy")
        assert len(pids) == 2, f"{node.name} has the pids {pids} for kubelet and proxy"
        for pid in pids:
            signal_pid(pid, signal.SIGKILL)


def _wait_in_pods(cluster: Cluster, pods: list[V1Pod], name: str, is_new: Callable[[str, str], bool]) -> None:
    """New kubelets renew what they give to pods; is_new(before, now) of each pod's file."""
    before = _files(cluster, pods, name)
    _restart_clients(cluster)

    def renewed() -> bool:
        now = _files(cluster, pods, name)
        return all(is_new(before[file], text) for file, text in now.items())

    wait_for(f"the {name} of each pod is renewed", renewed, RENEWED_S, every=0.5)


def rotate_tokens(cluster: Cluster, pods: list[V1Pod]) -> None:
    """Another key signs, then the tokens of the former are good for nothing."""
    cluster.plane.pki.add_service_account_key()
    _restart_server(cluster)
    _wait_in_pods(cluster, pods, "token", lambda before, now: now != before)
    cluster.plane.pki.drop_former_service_account_keys()
    _restart_server(cluster)


def rotate_authority(cluster: Cluster, pods: list[V1Pod]) -> None:
    """Another authority is trusted beside the former, then the API server has a certificate by it."""
    plane = cluster.plane
    plane.pki.add_authority()
    newest = plane.pki.authority.read_text()
    plane.controllers.kill()  # they publish it to all namespaces
    plane.controllers.start()
    _wait_in_pods(cluster, pods, "ca.crt", lambda _, now: now.strip() == newest.strip())
    plane.apiserver.kill()
    plane.pki.renew_server()
    _restart_server(cluster)
    _restart_clients(cluster)

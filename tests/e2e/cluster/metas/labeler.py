# SPDX-License-Identifier: Apache-2.0
"""RisingWave's operator, as far as it labels metas: every 2 s it asks each running meta who leads, and writes
what that one believes of itself."""

import threading

from harness.waiting import boot_ns
from kubelab import Cluster
from kubernetes import client

from .meta import OPERATORS_ROLE, Meta

PERIOD = 2.0
MANAGER = "risingwave-operator"


class OperatorLabeler:
    """`says` overrides what is written, for a labeler that has another opinion; `always`: also what is there
    already."""

    def __init__(
        self, cluster: Cluster, namespace: str, says: dict[str, str] | None = None, always: bool = False
    ) -> None:
        self._cluster, self._namespace, self._says = cluster, namespace, says or {}
        self.writes = 0
        self._always = always
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "OperatorLabeler":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(20)

    def _run(self) -> None:
        while not self._stop.is_set():
            began = boot_ns()
            try:
                for pod in self._cluster.core.list_namespaced_pod(self._namespace, _request_timeout=5).items:
                    if pod.status.phase == "Running" and pod.status.pod_ip:
                        self._label(pod)
            except Exception:  # it too lives on an API server and a network that scenarios break
                pass
            self._stop.wait(max(0.0, PERIOD - (boot_ns() - began) / 1e9))

    def _label(self, pod: client.V1Pod) -> None:
        role = self._says.get(pod.metadata.name) or self._ask(pod)
        if not self._always and (pod.metadata.labels or {}).get(OPERATORS_ROLE) == role:
            return
        self._cluster.core.patch_namespaced_pod(
            pod.metadata.name,
            self._namespace,
            {"metadata": {"labels": {OPERATORS_ROLE: role}}},
            field_manager=MANAGER,
            _request_timeout=5,
        )
        self.writes += 1

    def _ask(self, pod: client.V1Pod) -> str:
        meta = Meta(self._cluster, pod, self._cluster.layout.shared)
        mine = [m for m in meta.members() or [] if m["id"] == meta.id]
        if not mine:
            return "unknown"
        return "leader" if mine[0]["leader"] else "follower"

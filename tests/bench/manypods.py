# SPDX-License-Identifier: Apache-2.0
"""The stand-in API server with thousands of pods of workers, of the size that real ones have."""

import json
from collections.abc import Iterator
from typing import Any

from harness import boot_ns
from harness.fakeapi import NAMESPACE, Change, FakeApi, Refused, _selects
from workerpods import SETS, SLICES

LABELS = {"risingwave/component": "frontend"}
SELECTOR = "risingwave/component in (compute,frontend,compactor,standalone)"
PORT = 4567


def address(n: int) -> str:
    return f"10.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}"


def _rest() -> tuple[dict[str, Any], dict[str, Any], list[Any]]:
    """What is the same in all pods, about 9 kB of JSON: spec, conditions and managedFields as of a pod of a
    Deployment."""
    env = [{"name": f"RW_SETTING_{n:02}", "value": f"value-of-the-setting-{n}" * 2} for n in range(40)]
    probe = {"tcpSocket": {"port": PORT}, "periodSeconds": 10, "failureThreshold": 3, "timeoutSeconds": 5}
    container = {
        "name": "worker",
        "image": "registry.example/risingwave:v3.0.3",
        "args": ["frontend-node", "--listen-addr", f"0.0.0.0:{PORT}"],
        "env": env,
        "ports": [{"containerPort": PORT, "name": "service", "protocol": "TCP"}],
        "resources": {"limits": {"cpu": "4", "memory": "16Gi"}, "requests": {"cpu": "1", "memory": "4Gi"}},
        "livenessProbe": probe,
        "readinessProbe": probe,
        "volumeMounts": [{"mountPath": f"/mnt/{n}", "name": f"volume-{n}"} for n in range(6)],
    }
    spec = {
        "containers": [container],
        "volumes": [{"name": f"volume-{n}", "emptyDir": {}} for n in range(6)],
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
        "serviceAccountName": "default",
    }
    kinds = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    conditions = {"conditions": [{"type": k, "status": "True", "lastProbeTime": None} for k in kinds]}
    names = {f'k:{{"name":"RW_SETTING_{n:02}"}}': {".": {}, "f:value": {}} for n in range(40)}
    fields = {"fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:containers": names}}}
    managed = [
        {"manager": manager, "operation": "Update", "apiVersion": "v1", **fields}
        for manager in ("kube-controller-manager", "kubelet")
    ]
    return spec, conditions, managed


class ManyPods(FakeApi):
    """Answers lists by `limit` and `continue`, and keeps of each pod only its version."""

    def __init__(self, port: int, count: int) -> None:
        spec, conditions, managed = _rest()
        self.tail = b',"spec":%s}' % json.dumps(spec, separators=(",", ":")).encode()
        self.conditions = json.dumps(conditions["conditions"], separators=(",", ":"))
        self.managed = json.dumps(managed, separators=(",", ":"))
        self.versions = [1] * count
        super().__init__(port)
        self.collections[SLICES] = ("EndpointSliceList", [])
        self.collections[SETS] = ("StatefulSetList", [])

    @staticmethod
    def name(n: int) -> str:
        return f"frontend-7d9f8c6b5-{n:05}"

    def worker(self, n: int) -> bytes:
        """A pod that runs, as JSON."""
        ip = address(n)
        head = (
            f'{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{self.name(n)}","namespace":"{NAMESPACE}",'
            f'"uid":"0f8fad5b-d9cb-469f-a165-{n:012}","resourceVersion":"{self.versions[n]}",'
            f'"labels":{json.dumps(LABELS)},"ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet",'
            f'"name":"w","uid":"owner-uid","controller":true}}],"managedFields":{self.managed}}},'
            f'"status":{{"phase":"Running","podIP":"{ip}","podIPs":[{{"ip":"{ip}"}}],"conditions":'
            f'{self.conditions},"containerStatuses":[{{"name":"worker","ready":true,"restartCount":0,'
            f'"image":"registry.example/risingwave:v3.0.3","containerID":"containerd://{n:064}",'
            f'"state":{{"running":{{"startedAt":"2026-01-01T00:00:00Z"}}}}}}]}}'
        )
        return head.encode() + self.tail

    def touch_worker(self, n: int) -> None:
        """As its kubelet does, for a condition that changed."""
        with self.lock:
            self.version += 1
            self.versions[n] = self.version
            body = {"metadata": {"name": self.name(n), "labels": LABELS}, "number": n}
            self.changes.append(Change(boot_ns(), self.version, "MODIFIED", body))
            self.lock.notify_all()

    def next_changes(self, query: dict[str, str], after: int) -> tuple[list[Change], int] | None:
        found = super().next_changes(query, after)
        if found is None:
            return None
        whole = [
            Change(c.at_ns, c.version, c.kind, self.worker(c.pod["number"])) if "number" in c.pod else c
            for c in found[0]
        ]
        return whole, found[1]

    def _workers(self, query: dict[str, str]) -> range:
        meta = {"metadata": {"name": "any", "labels": LABELS}}
        return range(len(self.versions)) if _selects(query, meta) else range(0)

    def selected(self, query: dict[str, str]) -> Iterator[Any]:
        yield from super().selected(query)
        for n in self._workers(query):
            yield self.worker(n)

    def _list(self, query: dict[str, str]) -> Any:
        workers = self._workers(query)
        if not workers:
            return super()._list(query)
        version, first = self.version, 0
        if "continue" in query:
            version, first = (int(part) for part in query["continue"].split("."))
            if not 0 <= first < len(workers):
                raise Refused(410, "Expired", "no such place")
        count = int(query.get("limit") or 0) or len(workers)
        end = min(first + count, len(workers))
        meta = {"resourceVersion": str(version)}
        if end < len(workers):
            meta |= {"continue": f"{version}.{end}", "remainingItemCount": len(workers) - end}
        items = b",".join(self.worker(n) for n in workers[first:end])
        head = b'{"kind":"PodList","apiVersion":"v1","metadata":%s,"items":[' % json.dumps(meta).encode()
        return head + items + b"]}"

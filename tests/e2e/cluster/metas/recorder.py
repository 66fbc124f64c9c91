# SPDX-License-Identifier: Apache-2.0
"""Every change of the role labels, as a watch sees them: a thread that looks on."""

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from harness.waiting import boot_ns, hold
from kubelab import Cluster
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import ReadTimeoutError

from .meta import OPERATORS_ROLE, ROLE


@dataclass(frozen=True)
class Change:
    """A pod has these labels from now on; kind is ADDED, MODIFIED or DELETED."""

    boot_ns: int
    kind: str
    name: str
    uid: str
    role: str | None
    operators_role: str | None
    restarts: int  # of the meta container


# It says each failed request, and here the server is what scenarios break.
logging.getLogger("urllib3").setLevel(logging.ERROR)


def _dedupe(values: list[str | None]) -> list[str]:
    kept: list[str] = []
    for value in values:
        if value is not None and (not kept or kept[-1] != value):
            kept.append(value)
    return kept


def is_handed_over(roles: list[str]) -> bool:
    """leader, unknown, follower in this order. On a busy machine a follower may be unknown again for a
    moment, when it can't read who leads; a leader it is not."""
    begins = roles[:3] == ["leader", "unknown", "follower"]
    return begins and "leader" not in roles[1:] and roles[-1] == "follower"


class LabelRecorder:
    """A list, then a watch from there on; while the API server is away, again and again."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace
        self._changes: list[Change] = []
        self._last: dict[str, Change] = {}
        self._stop = threading.Event()
        self._listed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> "LabelRecorder":
        self._thread.start()
        assert self._listed.wait(20), "the recorder of labels saw no list of pods"
        return self

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(5)

    def _run(self) -> None:
        version = ""  # up to which everything was seen; empty: list first
        while not self._stop.is_set():
            try:
                version = version or self._list()
                version = self._follow(version)
            except ApiException as error:
                if error.status == 410:
                    version = ""
                hold(0.1)
            except Exception:  # the API server is what some scenarios break
                hold(0.1)

    def _list(self) -> str:
        answer = self._cluster.core.list_namespaced_pod(
            self._namespace, _request_timeout=5, _preload_content=False
        )
        found = json.loads(answer.data)
        known = {pod["metadata"]["uid"] for pod in found["items"]}
        for pod in found["items"]:
            self._note("MODIFIED" if pod["metadata"]["uid"] in self._last else "ADDED", pod)
        for uid in [u for u, c in self._last.items() if u not in known and c.kind != "DELETED"]:
            old = self._last[uid]
            self._add(Change(boot_ns(), "DELETED", old.name, uid, None, None, old.restarts))
        self._listed.set()
        return found["metadata"]["resourceVersion"]

    def _follow(self, version: str) -> str:
        """Until the stream ends, or is silent for two seconds: where to go on."""
        stream = self._cluster.core.list_namespaced_pod(
            self._namespace,
            watch=True,
            resource_version=version,
            timeout_seconds=600,
            _request_timeout=(5, 2),
            _preload_content=False,
        )
        try:
            rest = b""
            while not self._stop.is_set():
                piece = stream.read1()
                if not piece:
                    return version
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    version = self._take(json.loads(line)) or version
        except ReadTimeoutError:
            pass
        finally:
            stream.close()
        return version

    def _take(self, event: dict[str, Any]) -> str:
        """The version that it brings."""
        if event["type"] == "ERROR":
            raise ApiException(status=event["object"].get("code", 500))
        pod = event["object"]
        if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
            self._note(event["type"], pod)
        return pod["metadata"]["resourceVersion"]

    def _note(self, kind: str, pod: dict[str, Any]) -> None:
        meta = pod["metadata"]
        labels = {} if kind == "DELETED" else meta.get("labels", {})
        statuses = pod.get("status", {}).get("containerStatuses", [])
        restarts = next((s["restartCount"] for s in statuses if s["name"] == "meta"), 0)
        role, operators = labels.get(ROLE), labels.get(OPERATORS_ROLE)
        self._add(Change(boot_ns(), kind, meta["name"], meta["uid"], role, operators, restarts))

    def _add(self, change: Change) -> None:
        before = self._last.get(change.uid)
        same = before is not None and before.kind != "DELETED" and change.kind != "DELETED"
        if same and (before.role, before.operators_role, before.restarts) == (
            change.role,
            change.operators_role,
            change.restarts,
        ):
            return
        self._last[change.uid] = change
        self._changes.append(change)

    # --- asking ------------------------------------------------------------------------------

    def changes(self, since_ns: int = 0) -> list[Change]:
        return [c for c in list(self._changes) if c.boot_ns >= since_ns]

    def now(self, uid: str) -> Change | None:
        return self._last.get(uid)

    def roles(self, uid: str, since_ns: int = 0) -> list[str]:
        """The values of metafence.io/role one after the other, with the one that was there at the start."""
        mine = [c for c in list(self._changes) if c.uid == uid]
        before = [c for c in mine if c.boot_ns < since_ns][-1:]
        return _dedupe([c.role for c in [*before, *(c for c in mine if c.boot_ns >= since_ns)]])

    def operators_roles(self, uid: str, since_ns: int = 0) -> list[str]:
        mine = [c for c in list(self._changes) if c.uid == uid]
        before = [c for c in mine if c.boot_ns < since_ns][-1:]
        return _dedupe([c.operators_role for c in [*before, *(c for c in mine if c.boot_ns >= since_ns)]])

    def two_leaders_s(
        self, since_ns: int = 0, key: Callable[[Change], str | None] = lambda c: c.role
    ) -> float:
        """For how long, in sum, more than one pod had the label `leader`."""
        leaders: set[str] = set()
        total, began = 0, None
        for change in list(self._changes):
            leaders.discard(change.uid)
            if key(change) == "leader":
                leaders.add(change.uid)
            if len(leaders) > 1 and began is None:
                began = change.boot_ns
            if len(leaders) <= 1 and began is not None:
                total += max(0, change.boot_ns - max(began, since_ns))
                began = None
        if began is not None:
            total += boot_ns() - max(began, since_ns)
        return total / 1e9

    def describe(self, since_ns: int = 0) -> str:
        origin = since_ns or (self._changes[0].boot_ns if self._changes else 0)
        return "\n".join(
            f"{(c.boot_ns - origin) / 1e9:8.3f} {c.kind:9}{c.name} {c.uid[:8]} "
            f"{c.role} / {c.operators_role} restarts={c.restarts}"
            for c in self.changes(since_ns)
        )

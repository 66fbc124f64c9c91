# SPDX-License-Identifier: Apache-2.0
"""What pods asked of the API server, from its audit log."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
POD = "authentication.kubernetes.io/pod-name"


@dataclass(frozen=True)
class Request:
    """One request that the server has taken; `code` is 0 while a watch goes on."""

    verb: str
    resource: str  # as pods or pods/status; a path when it is no resource
    namespace: str
    name: str
    user: str
    pod: str  # of whose token; "" for a token that is bound to none
    code: int
    received: datetime
    took_ms: float

    @property
    def is_write(self) -> bool:
        return self.verb in WRITES

    @property
    def succeeded(self) -> bool:
        return 200 <= self.code < 300


class AuditLog:
    """Requests of service accounts; those of the cluster's own controllers are among them, so filter by
    namespace, user or pod."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def mark(self) -> int:
        """Where the log ends now, for `since`. A request is written before it is answered."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def requests(self, since: int = 0, **wanted: str | int) -> list[Request]:
        """In the order of their ends; `wanted` are fields of Request that must be equal."""
        return [
            request
            for request in map(_parse, self._last_lines(since))
            if all(getattr(request, field) == value for field, value in wanted.items())
        ]

    def writes(self, since: int = 0, **wanted: str | int) -> list[Request]:
        return [request for request in self.requests(since, **wanted) if request.is_write]

    def count(self, since: int = 0, **wanted: str | int) -> "Counter[tuple[str, str, int]]":
        """How often which (verb, resource, code)."""
        return Counter((r.verb, r.resource, r.code) for r in self.requests(since, **wanted))

    def _last_lines(self, since: int) -> Iterator[dict[str, Any]]:
        """A watch has a line at its start and one at its end: only the newest counts."""
        try:
            with open(self.path, "rb") as file:
                file.seek(since)
                text = file.read()
        except FileNotFoundError:
            return iter(())
        newest: dict[str, dict[str, Any]] = {}
        for line in text[: text.rfind(b"\n") + 1].splitlines():
            entry = json.loads(line)
            newest.pop(entry["auditID"], None)
            newest[entry["auditID"]] = entry
        return iter(newest.values())


def _parse(entry: dict[str, Any]) -> Request:
    target = entry.get("objectRef", {})
    resource = "/".join(filter(None, [target.get("resource"), target.get("subresource")]))
    received = datetime.fromisoformat(entry["requestReceivedTimestamp"])
    ended = datetime.fromisoformat(entry["stageTimestamp"])
    done = entry["stage"] != "ResponseStarted"
    return Request(
        verb=entry["verb"],
        resource=resource or entry["requestURI"].partition("?")[0],
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        user=entry["user"]["username"],
        pod=entry["user"].get("extra", {}).get(POD, [""])[0],
        code=entry.get("responseStatus", {}).get("code", 0) if done else 0,
        received=received,
        took_ms=(ended - received).total_seconds() * 1e3,
    )

# SPDX-License-Identifier: Apache-2.0
"""A small Kubernetes API server that does what a test tells it, the faults included.

Pods with resourceVersion, server-side apply of labels with conflicts, merge patches of annotations,
watches with bookmarks and 410, events. Plain HTTP/1.1, on loopback, in a thread of the test.
"""

import copy
import json
import re
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from .waiting import boot_ns

NAMESPACE = "meta"
TOKEN = "not-a-real-token"
OWN_KEY = "metafence.io/role"
ROLE_KEY = "risingwave/meta-role"
FENCE_KEY = "metafence.io/fence"
PAUSE_KEY = "metafence.io/pause-until"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
EVENTS = f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
BOOKMARK_S = 1.0
EVENT_NEEDS = (
    "eventTime",
    "reportingController",
    "reportingInstance",
    "action",
    "reason",
    "regarding",
    "type",
)
REASONS = {"401": "Unauthorized", "403": "Forbidden", "429": "TooManyRequests", "500": "InternalError"}

FAULTS = (
    "down",  # connections are refused, open ones cut
    "slow",  # every answer takes SLOW_S
    "hang",  # requests are read and never answered
    "500",
    "403",
    "401",
    "429",  # with Retry-After
    "garbage",  # 200 with bytes that are no JSON
    "huge",  # 200 with 50 MB
    "half",  # half an answer, then the end of the connection
)
SLOW_S = 3.0


@dataclass(frozen=True)
class Request:
    at_ns: int
    method: str
    path: str
    query: dict[str, str]
    body: Any
    status: int | None  # None: not answered

    @property
    def pod(self) -> str | None:
        found = re.fullmatch(re.escape(PODS) + r"/([^/]+)", self.path)
        return found[1] if found else None


@dataclass(frozen=True)
class Change:
    at_ns: int
    version: int
    kind: str  # ADDED, MODIFIED, DELETED
    pod: dict[str, Any]


class Refused(Exception):
    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.status = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": code,
            "reason": reason,
            "message": message,
            "details": details,
        }


@dataclass
class _Pod:
    body: dict[str, Any]
    owners: dict[str, set[str]] = field(default_factory=dict)  # label -> managers


class FakeApi:
    def __init__(self, port: int) -> None:
        self.port = port
        self.lock = threading.Condition()
        self.pods: dict[str, _Pod] = {}
        self.events: list[dict[str, Any]] = []
        self.requests: list[Request] = []
        self.changes: list[Change] = []
        self.version = 1000
        self.oldest = 0  # watches from before are answered 410
        self.gone_as_status = False
        self.deaf = False  # watches stay open and say nothing, not even a bookmark
        self.fault: str | None = None
        self.denied: Callable[[Request], bool] = lambda _: False  # answered 403
        self.gate: Callable[[Request], None] = lambda _: None  # may keep a request waiting
        self.delay: Callable[[Request], None] = lambda _: None  # … its answer, which then is of before
        self.page = 0  # a list ends after so many pods, and `rest` is what becomes of the next page
        self.rest = "410"  # or "garbage"
        self._cached: list[dict[str, Any]] | None = None
        self.lacking: set[tuple[str, str]] = set()  # (verb, resource) that access reviews deny
        self.has_policy = True  # a dry run of a label that is none of metafence's is refused
        self.token = TOKEN
        # Other collections that can be listed: path -> kind of the list, items.
        self.collections: dict[str, tuple[str, list[dict[str, Any]]]] = {}
        self._lose = 0  # so many patches are done and not answered
        self._held: list[Callable[[], None]] | None = None  # patches that land when released
        self._sockets: set[socket.socket] = set()
        self._server: _Server | None = None
        self._listen()

    # --- life ------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _listen(self) -> None:
        self._server = _Server(self)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def _unlisten(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
        self.cut()

    def cut(self) -> None:
        """Ends every open connection, watches too."""
        with self.lock:
            for open_one in list(self._sockets):
                try:
                    open_one.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
            self.lock.notify_all()

    def close(self) -> None:
        self.fault = None
        self._unlisten()

    def break_by(self, fault: str) -> None:
        """From now on, also for the watches that are open, unless the fault is a slow server."""
        assert fault in FAULTS, fault
        with self.lock:
            self.fault = fault
            self.lock.notify_all()
        if fault == "down":
            self._unlisten()
        elif fault not in ("slow", "hang"):
            self.cut()

    def heal(self) -> int:
        """The end of the fault, as boot_ns."""
        with self.lock:
            self.fault = None
            self.lock.notify_all()
        if self._server is None:
            self._listen()
        return boot_ns()

    def lose_answers(self, count: int) -> None:
        """The next `count` patches of pods are done and not answered."""
        with self.lock:
            self._lose = count

    def hold_patches(self) -> None:
        """Patches are taken and neither done nor answered, until release_patches."""
        with self.lock:
            self._held = []

    def held(self) -> int:
        with self.lock:
            return len(self._held or [])

    def stop_holding(self) -> int:
        """Later patches pass; those that are held stay so. How many are."""
        with self.lock:
            self._kept, self._held = self._held or [], None
            return len(self._kept)

    def release_patches(self) -> None:
        """The held ones are done now, however late it is."""
        for do in self._kept:
            do()
        self._kept = []

    _kept: list[Callable[[], None]] = []

    def be_deaf(self, deaf: bool) -> None:
        with self.lock:
            self.deaf = deaf
            self.lock.notify_all()

    def stand_still(self) -> None:
        """What a server has in its cache stays as it is: its watches say nothing more, and lists that are
        content with that (resourceVersion=0) are of now for ever. All others it asks its store for."""
        with self.lock:
            self._cached = [copy.deepcopy(p.body) for p in self.pods.values()]
        self.be_deaf(True)

    def compact(self, as_status: bool) -> None:
        """Watches from before now are too old: told by the HTTP status, or by an ERROR in the stream."""
        with self.lock:
            self.oldest = self.version
            self.gone_as_status = as_status
        self.cut()

    # --- the cluster's side ----------------------------------------------------------------------

    def add_pod(self, name: str, uid: str | None = None, owner: str = "sts-uid") -> str:
        """A pod of the StatefulSet with uid `owner`, without labels; its uid."""
        pod_uid = uid or str(uuid.uuid4())
        body = {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {
                "name": name,
                "namespace": NAMESPACE,
                "uid": pod_uid,
                "generation": 9007199254740993,
                "labels": {},
                "annotations": {},
                "ownerReferences": [
                    {
                        "apiVersion": "apps/v1",
                        "kind": "StatefulSet",
                        "name": "meta",
                        "uid": owner,
                        "controller": True,
                    }
                ],
            },
            "spec": {"nodeName": f"node-of-{name}", "containers": [{"name": "meta", "image": "x"}]},
            "status": {"phase": "Running"},
        }
        with self.lock:
            self.pods[name] = _Pod(body)
            self._changed(name, "ADDED")
        return pod_uid

    def delete_pod(self, name: str) -> None:
        with self.lock:
            self._changed(name, "DELETED")
            del self.pods[name]

    def _changed(self, name: str, kind: str = "MODIFIED") -> None:
        self.version += 1
        body = self.pods[name].body
        body["metadata"]["resourceVersion"] = str(self.version)
        self.changes.append(Change(boot_ns(), self.version, kind, copy.deepcopy(body)))
        self.lock.notify_all()

    def set_label(self, name: str, key: str, value: str | None, manager: str = "kubectl-edit") -> None:
        """As an update by another writer: the key is his from then on."""
        with self.lock:
            pod = self.pods[name]
            labels = pod.body["metadata"]["labels"]
            if value is None:
                labels.pop(key, None)
                pod.owners.pop(key, None)
            elif labels.get(key) != value:
                labels[key] = value
                pod.owners[key] = {manager}
            else:
                if manager in pod.owners.setdefault(key, set()):
                    return
                pod.owners[key].add(manager)
            self._changed(name)

    def annotate(self, name: str, key: str, value: str | None) -> None:
        with self.lock:
            annotations = self.pods[name].body["metadata"]["annotations"]
            if value is None:
                annotations.pop(key, None)
            else:
                annotations[key] = value
            self._changed(name)

    def touch(self, name: str) -> None:
        """A change of something else, as the kubelet makes them all the time."""
        with self.lock:
            self._changed(name)

    # --- what a test looks at --------------------------------------------------------------------

    def label(self, name: str, key: str = OWN_KEY) -> str | None:
        with self.lock:
            return self.pods[name].body["metadata"]["labels"].get(key)

    def annotation(self, name: str, key: str) -> str | None:
        with self.lock:
            return self.pods[name].body["metadata"]["annotations"].get(key)

    def labels_seen(self, name: str, since_ns: int = 0, key: str = OWN_KEY) -> list[str | None]:
        """The values that the label has had, as a watch shows them, without repetition."""
        seen: list[str | None] = []
        with self.lock:
            changes = [c for c in self.changes if c.pod["metadata"]["name"] == name and c.at_ns >= since_ns]
        for change in changes:
            value = change.pod["metadata"]["labels"].get(key)
            if not seen or seen[-1] != value:
                seen.append(value)
        return seen

    def label_patches(self, name: str, since_ns: int = 0) -> list[Request]:
        with self.lock:
            return [
                r
                for r in self.requests
                if r.method == "PATCH"
                and r.pod == name
                and r.at_ns >= since_ns
                and isinstance(r.body, dict)
                and "labels" in r.body.get("metadata", {})
            ]

    def deletes(self, name: str) -> list[Request]:
        with self.lock:
            return [r for r in self.requests if r.method == "DELETE" and r.pod == name]

    def count(self, since_ns: int = 0) -> int:
        with self.lock:
            return sum(r.at_ns >= since_ns for r in self.requests)

    def events_of(self, name: str, since_ns: int = 0) -> list[dict[str, Any]]:
        with self.lock:
            return [
                e for e in self.events if e["regarding"]["name"] == name and e["receivedBootNs"] >= since_ns
            ]

    # --- requests --------------------------------------------------------------------------------

    def answer(self, request: Request) -> tuple[int, dict[str, Any]]:
        try:
            with self.lock:
                return self._answer(request)
        except Refused as refused:
            return refused.code, refused.status

    def _answer(self, request: Request) -> tuple[int, dict[str, Any]]:
        if self.denied(request):
            raise Refused(403, "Forbidden", f'pods "x" is forbidden: cannot {request.method} here')
        if request.path == PODS and request.method == "GET":
            return 200, self._list(request.query)
        if request.path in self.collections and request.method == "GET":
            kind, items = self.collections[request.path]
            version = {"resourceVersion": str(self.version)}
            return 200, {"kind": kind, "apiVersion": "v1", "metadata": version, "items": copy.deepcopy(items)}
        if request.path == EVENTS and request.method == "POST":
            return 201, self._event(request.body)
        if request.path == REVIEWS and request.method == "POST":
            return 201, self._review(request.body)
        name = request.pod
        if name is None:
            raise Refused(404, "NotFound", f"the server could not find {request.path}")
        if name not in self.pods:
            raise Refused(404, "NotFound", f'pods "{name}" not found', name=name, kind="pods")
        if request.method == "GET":
            return 200, copy.deepcopy(self.pods[name].body)
        if request.method == "PATCH":
            return 200, self._patch(name, request)
        if request.method == "DELETE":
            return 200, self._delete(name, request.body)
        raise Refused(405, "MethodNotAllowed", request.method)

    def _list(self, query: dict[str, str]) -> dict[str, Any]:
        bodies = [p.body for p in self.pods.values()]
        if "resourceVersion" in query and self._cached is not None:
            bodies = self._cached
        items = [copy.deepcopy(body) for body in bodies if _selects(query, body)]
        for item in items:  # as the real one
            del item["kind"], item["apiVersion"]
        meta = {"resourceVersion": str(self.version)}
        if "continue" in query and self.rest == "410":
            raise Refused(410, "Expired", "The provided continue parameter is too old")
        if "continue" in query:
            items = [{"metadata": 17}]
        elif 0 < self.page < len(items):
            items, meta["continue"] = items[: self.page], "the rest"
        return {"kind": "PodList", "apiVersion": "v1", "metadata": meta, "items": items}

    def selected(self, query: dict[str, str]) -> Iterator[Any]:
        """The pods that a watch begins with, as JSON or what becomes JSON. Under the lock."""
        return (copy.deepcopy(p.body) for p in self.pods.values() if _selects(query, p.body))

    def _event(self, body: dict[str, Any]) -> dict[str, Any]:
        meta = body["metadata"]
        name = meta.get("name") or meta["generateName"] + uuid.uuid4().hex[:5]
        if any(e["metadata"]["name"] == name for e in self.events):
            raise Refused(409, "AlreadyExists", f'events "{name}" already exists')
        for key in EVENT_NEEDS:
            if not body.get(key):
                raise Refused(422, "Invalid", f"{key}: Required value")
        if len(body.get("note", "")) > 1024:
            raise Refused(422, "Invalid", "note: too long")
        kept = {**body, "metadata": {**meta, "name": name}, "receivedBootNs": boot_ns()}
        self.events.append(kept)
        return kept

    def _review(self, body: dict[str, Any]) -> dict[str, Any]:
        asked = body["spec"]["resourceAttributes"]
        allowed = (asked["verb"], asked["resource"]) not in self.lacking and asked["namespace"] == NAMESPACE
        return {**body, "status": {"allowed": allowed}}

    def _check_uid(self, name: str, wanted: str | None) -> None:
        uid = self.pods[name].body["metadata"]["uid"]
        if wanted is not None and wanted != uid:
            text = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}"
            raise Refused(409, "Conflict", f'Operation cannot be fulfilled on pods "{name}": {text}')

    def _delete(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        wanted = (options or {}).get("preconditions", {})
        self._check_uid(name, wanted.get("uid"))
        body = self.pods[name].body
        version = body["metadata"]["resourceVersion"]
        if wanted.get("resourceVersion", version) != version:
            text = f"ResourceVersion in precondition: {wanted['resourceVersion']}, in object meta: {version}"
            raise Refused(409, "Conflict", f'Operation cannot be fulfilled on pods "{name}": {text}')
        body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self._changed(name)
        return copy.deepcopy(body)

    def _patch(self, name: str, request: Request) -> dict[str, Any]:
        meta = request.body.get("metadata", {})
        self._check_uid(name, meta.get("uid"))
        if "fieldManager" not in request.query:
            raise Refused(422, "Invalid", "fieldManager: Required value")
        if request.query.get("dryRun") == "All":
            return self._dry_run(name, meta)
        if "labels" in meta:
            force = request.query.get("force") == "true"
            self._apply(name, meta["labels"], request.query["fieldManager"], force)
        elif "annotations" in meta:
            self._merge(name, meta["annotations"])
        return copy.deepcopy(self.pods[name].body)

    def _dry_run(self, name: str, meta: dict[str, Any]) -> dict[str, Any]:
        if self.has_policy and set(meta.get("labels", {})) - {OWN_KEY, ROLE_KEY}:
            text = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no such label"
            raise Refused(403, "Forbidden", f'pods "{name}" is forbidden: {text}')
        return copy.deepcopy(self.pods[name].body)

    def _apply(self, name: str, wanted: dict[str, str], manager: str, force: bool) -> None:
        pod = self.pods[name]
        labels = pod.body["metadata"]["labels"]
        foreign = [
            k for k, v in wanted.items() if labels.get(k) != v and pod.owners.get(k, set()) - {manager}
        ]
        if foreign and not force:
            causes = [{"reason": "FieldManagerConflict", "field": f".metadata.labels.{k}"} for k in foreign]
            raise Refused(409, "Conflict", "Apply failed with 1 conflict", causes=causes)
        before = copy.deepcopy((labels, pod.owners))
        for key, value in wanted.items():
            same = labels.get(key) == value
            pod.owners[key] = {manager} | (pod.owners.get(key, set()) if same else set())
            labels[key] = value
        for key in [k for k, who in pod.owners.items() if manager in who and k not in wanted]:
            pod.owners[key].discard(manager)
            if not pod.owners[key]:
                del pod.owners[key], labels[key]
        if before != (labels, pod.owners):
            self._changed(name)

    def _merge(self, name: str, wanted: dict[str, str | None]) -> None:
        annotations = self.pods[name].body["metadata"]["annotations"]
        before = dict(annotations)
        for key, value in wanted.items():
            if value is None:
                annotations.pop(key, None)
            else:
                annotations[key] = value
        if before != annotations:
            self._changed(name)

    def next_changes(self, query: dict[str, str], after: int) -> tuple[list[Change], int] | None:
        """Blocks for at most a bookmark's time: changes, and the version up to which they are all. None: the
        watch is too old."""
        with self.lock:
            if after < self.oldest:
                return None
            self.lock.wait_for(lambda: self.version > after or self.fault, BOOKMARK_S)
            if self.deaf:
                return [], after
            changes = [c for c in self.changes if c.version > after and _selects(query, c.pod)]
            return changes, max(after, self.version)

    # Whether a patch is to be kept back; `do` is what it would have done.
    def keep_back(self, do: Callable[[], None]) -> bool:
        with self.lock:
            if self._held is None:
                return False
            self._held.append(do)
            return True

    def loses_answer(self) -> bool:
        with self.lock:
            lost = self._lose > 0
            self._lose -= lost
            return lost


def _selects(query: dict[str, str], pod: dict[str, Any]) -> bool:
    meta = pod["metadata"]
    name = query.get("fieldSelector", "").removeprefix("metadata.name=")
    if name and name != meta["name"]:
        return False
    if "labelSelector" in query:
        terms = re.split(r",(?![^(]*\))", query["labelSelector"])
        return all(_has_label(meta["labels"], term) for term in terms)
    return True


def _has_label(labels: dict[str, str], term: str) -> bool:
    """Of "key=value" or "key in (a,b)"."""
    among = re.fullmatch(r"(\S+) in \((.*)\)", term)
    if among:
        return labels.get(among[1]) in among[2].split(",")
    key, _, value = term.partition("=")
    return labels.get(key) == value


def as_json(body: Any) -> bytes:
    """Bytes are JSON already."""
    return body if isinstance(body, bytes) else json.dumps(body).encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, api: FakeApi) -> None:
        self.api = api
        super().__init__(("127.0.0.1", api.port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that is gone


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        with self.server.api.lock:
            self.server.api._sockets.add(self.connection)

    def finish(self) -> None:
        with self.server.api.lock:
            self.server.api._sockets.discard(self.connection)
        super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._serve()

    do_PATCH = do_POST = do_DELETE = do_GET

    # --- one request -----------------------------------------------------------------------------

    def _read(self) -> Request:
        url = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length)
        query = {k: v[0] for k, v in parse_qs(url.query).items()}
        body = json.loads(raw) if raw else None
        return Request(boot_ns(), self.command, url.path, query, body, None)

    def _serve(self) -> None:
        api = self.server.api
        request = self._read()
        with api.lock:
            api.requests.append(request)
            place = len(api.requests) - 1
        status = self._respond(api, request)
        with api.lock:
            api.requests[place] = Request(**{**request.__dict__, "status": status})

    def _respond(self, api: FakeApi, request: Request) -> int | None:
        if api.fault is not None and not self._broken(api, api.fault):
            return None
        if self.headers.get("Authorization") != f"Bearer {api.token}":
            return self._status(401, "Unauthorized", "the token is not right")
        if request.query.get("watch") in ("1", "true"):
            return self._watch(api, request)
        if request.method == "PATCH":
            if api.keep_back(lambda: api.answer(request) and None):
                self._wait_for_the_end()
                return None
            if api.loses_answer():
                api.answer(request)
                self.close_connection = True
                return None
        api.gate(request)
        status, body = api.answer(request)
        api.delay(request)
        self._json(status, body)
        return status

    def _broken(self, api: FakeApi, fault: str) -> bool:
        """Whether the request is served all the same, after the fault has done its part."""
        if fault == "slow":
            with api.lock:
                api.lock.wait_for(lambda: api.fault != "slow", SLOW_S)
            return True
        if fault == "hang":
            self._wait_for_the_end()
        elif fault in REASONS:
            self._status(int(fault), REASONS[fault], "told to")
        elif fault == "garbage":
            self._bytes(200, b'\x00<html>{"kind": "Po\xff' * 20)
        elif fault == "huge":
            self._huge()
        elif fault == "half":
            self._send_head(200, 4000)
            self.wfile.write(b'{"kind":"Pod","metadata":{"na')
            self.close_connection = True
        else:
            self.close_connection = True
        return False

    def _wait_for_the_end(self) -> None:
        """Until the client gives up, or the connection is cut."""
        self.close_connection = True
        try:
            while self.connection.recv(4096):
                pass
        except OSError:
            pass

    # --- answers ---------------------------------------------------------------------------------

    def _send_head(self, status: int, length: int | None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        if status == 429:
            self.send_header("Retry-After", "2")
        if length is None:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def _bytes(self, status: int, body: bytes) -> None:
        try:
            self._send_head(status, len(body))
            self.wfile.write(body)
        except OSError:
            self.close_connection = True

    def _json(self, status: int, body: Any) -> None:
        self._bytes(status, as_json(body))

    def _status(self, code: int, reason: str, message: str) -> int:
        refused = Refused(code, reason, message)
        self._json(code, refused.status)
        return code

    def _huge(self) -> None:
        try:
            self._send_head(200, 50 << 20)
            self.wfile.write(b'{"kind":"Pod","x":"')
            for _ in range(50):
                self.wfile.write(b"y" * (1 << 20))
        except OSError:
            pass
        self.close_connection = True

    # --- watch -----------------------------------------------------------------------------------

    def _line(self, kind: str, body: Any) -> None:
        line = b'{"type":"%s","object":%s}\n' % (kind.encode(), as_json(body))
        middle = len(line) // 2  # frames are split anywhere
        for part in (line[:middle], line[middle:]):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.flush()

    def _initial(self, api: FakeApi, request: Request) -> int:
        """A watch that begins with a list (client-go's default): what there is, then a mark; its version."""
        with api.lock:
            bodies, after = list(api.selected(request.query)), api.version
        for body in bodies:
            self._line("ADDED", body)
        meta = {"resourceVersion": str(after), "annotations": {"k8s.io/initial-events-end": "true"}}
        self._line("BOOKMARK", {"kind": "Pod", "apiVersion": "v1", "metadata": meta})
        return after

    def _watch(self, api: FakeApi, request: Request) -> int:
        after = int(request.query.get("resourceVersion") or 0)
        if after < api.oldest and api.gone_as_status:
            return self._status(410, "Expired", "too old resource version")
        try:
            self._send_head(200, None)
            if request.query.get("sendInitialEvents") == "true":
                after = self._initial(api, request)
            while api.fault in (None, "slow"):
                with api.lock:
                    if not api.lock.wait_for(lambda: not api.deaf or api.fault, BOOKMARK_S):
                        continue
                news = api.next_changes(request.query, after)
                if news is None:
                    self._line("ERROR", Refused(410, "Expired", "too old resource version").status)
                    break
                changes, after = news
                for change in changes:
                    self._line(change.kind, change.pod)
                if not changes and not api.deaf:
                    mark = {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": str(after)}}
                    self._line("BOOKMARK", mark)
            if api.fault == "hang":
                self._wait_for_the_end()
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            pass
        self.close_connection = True
        return 200

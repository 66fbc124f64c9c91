# SPDX-License-Identifier: Apache-2.0
"""An API server that has gone mad, in the place of the real one for some pods: it has the right certificate
and never a right answer."""

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

from kubelab import CONTROL_PLANE, Cluster

from .nets import Rules, pods_to_other_api

PORT = 7443


def _status(code: int, reason: str) -> bytes:
    tree = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return json.dumps(tree).encode()


POD = b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"meta-0","uid":"'
ANSWERS: dict[str, list[tuple[int, bytes]]] = {
    "500": [(500, _status(500, "InternalError"))],
    "403": [(403, _status(403, "Forbidden"))],
    "garbage": [
        (200, b"<html>a proxy's login page</html>"),
        (200, b"\xff\xfe\x00" * 400),
        (200, b""),
        (200, POD + b'\\u0000","resourceVersion":18446744073709551617,"labels":[1,2]}}'),
        (200, b'{"kind":"PodList","metadata":{"resourceVersion":1.5},"items":{"a":7}}'),
        (200, b'{"type":"ADDED","object":null}\n{"type":7}\n{"type":"MODIFIED","object":{"kind":"Pod"'),
        (200, b"[" * 100_000),
        (200, POD + b"x" * (50 << 20)),
    ],
}


class BrokenApi:
    """For the length of a with block; `answered` counts."""

    def __init__(self, cluster: Cluster, pods: list[str], kind: str) -> None:
        self.answered = 0
        answers = ANSWERS[kind]
        broken = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                code, body = answers[broken.answered % len(answers)]
                broken.answered += 1
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_PATCH = do_POST = do_DELETE = answer

            def log_message(self, format: str, *words: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # clients leave in the middle of 50 MB

        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(cluster.layout.pki / "apiserver.crt", cluster.layout.pki / "apiserver.key")
        with cluster.inside():
            self._server = Server((CONTROL_PLANE, PORT), Handler)
        self._server.socket = tls.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self._rules: Rules = pods_to_other_api(cluster, pods, PORT)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)

    def __enter__(self) -> "BrokenApi":
        self._thread.start()
        self._rules.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rules.lift()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

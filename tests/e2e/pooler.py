# SPDX-License-Identifier: Apache-2.0
"""A pooler in transaction mode with one backend, and clients that leave it as they like: what one session
sets, the next one finds."""

import itertools
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType

from harness import Postgres


def _exactly(link: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        part = link.recv(size - len(parts))
        if not part:
            raise ConnectionError("closed")
        parts += part
    return parts


def _message(link: socket.socket) -> tuple[bytes, bytes]:
    """Kind and the whole message."""
    head = _exactly(link, 5)
    return head[:1], head + _exactly(link, struct.unpack("!I", head[1:])[0] - 4)


def _ready() -> bytes:
    return b"R" + struct.pack("!II", 8, 0) + b"K" + struct.pack("!III", 12, 99999999, 7) + b"Z\0\0\0\5I"


def serve_each(listener: socket.socket, serve: Callable[[socket.socket], None]) -> None:
    """A thread for each client, until the listener is closed."""

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(client,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


class Pooler:
    """Listens on `port`; its backend is a superuser's session."""

    def __init__(self, postgres: Postgres, database: str, port: int) -> None:
        self.port = port
        self._lock = threading.Lock()  # who has it has the backend
        self._backend = socket.create_connection(("127.0.0.1", postgres.port))
        words = b"user\0postgres\0database\0" + database.encode() + b"\0\0"
        self._backend.sendall(struct.pack("!II", len(words) + 8, 196608) + words)
        while _message(self._backend)[0] != b"Z":
            continue
        self._server = socket.create_server(("127.0.0.1", port))
        serve_each(self._server, self._serve)

    def __enter__(self) -> "Pooler":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        with self._lock:
            self._backend.close()

    def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                _exactly(client, struct.unpack("!I", _exactly(client, 4))[0] - 4)
                client.sendall(_ready())
                while True:
                    self._transaction(client, _message(client))
            except OSError:
                return

    def _transaction(self, client: socket.socket, first: tuple[bytes, bytes]) -> None:
        """From the first message until the backend is idle again, whatever becomes of the client."""
        with self._lock:
            kind, message = first
            try:
                while kind != b"X":
                    self._backend.sendall(message)
                    if kind in (b"Q", b"S") and self._answer(client) == b"I":
                        return
                    kind, message = _message(client)
            except ConnectionError:
                self._backend.sendall(b"S\0\0\0\4")
                self._answer(None)
                raise
            raise ConnectionError("it said good-bye")

    def _answer(self, client: socket.socket | None) -> bytes:
        """Up to the backend's "ready": always to its end, so that nobody gets what is another's."""
        while True:
            kind, message = _message(self._backend)
            if client is not None and kind not in (b"A", b"S"):
                try:
                    client.sendall(message)
                except OSError:
                    client = None
            if kind == b"Z":
                return message[-1:]

    def run(self, sql: str) -> None:
        """As another client of the pool."""
        with self._lock:
            text = sql.encode() + b"\0"
            self._backend.sendall(b"Q" + struct.pack("!I", len(text) + 4) + text)
            self._answer(None)


class Poisoner:
    """Another client, which sets what it likes for itself."""

    SETTINGS = (
        "SET search_path = ''",
        "SET timezone = 'Asia/Kathmandu'",
        "SET default_transaction_read_only = on",
        "SET datestyle = 'German'",
        "SET search_path = nowhere, public",
        "SET default_transaction_isolation = 'serializable'",
        "RESET ALL",
    )

    def __init__(self, pooler: Pooler) -> None:
        self._pooler = pooler
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Poisoner":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        for setting in itertools.cycle(self.SETTINGS):
            if self._stop.wait(0.03):
                return
            self._pooler.run(setting)

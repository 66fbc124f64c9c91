# SPDX-License-Identifier: Apache-2.0
"""Between clients and Postgres, where one statement can be told from another: one of them loses its
connection, before the server has it or before its answer comes, or waits until a test has done what it wants
to come first. All other sessions and statements go on."""

import socket
import struct
import threading

from harness import wait_for
from pooler import serve_each

STATEMENTS = (b"Q", b"P")
ENDS = (b"Q", b"S")


class Hold:
    """Of the next statement with a text in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.came, self.may_go = threading.Event(), threading.Event()

    def wait(self, timeout: float = 60) -> "Hold":
        wait_for(f"a statement with {self.text} comes", self.came.is_set, timeout)
        return self

    def release(self) -> None:
        self.may_go.set()


class Relay:
    def __init__(self, target: int, port: int) -> None:
        self.target, self.port = target, port
        self.seen = 0  # statements since arm()
        self._text, self._cut_at, self._is_answered = "", 0, False  # 0: never
        self._holds: list[Hold] = []
        self._lock = threading.Lock()
        self._server = socket.create_server(("127.0.0.1", port))
        serve_each(self._server, self._serve)

    def close(self) -> None:
        with self._lock:
            for hold in self._holds:
                hold.release()
        self._server.close()

    def arm(self, statement: int, is_answered: bool, text: str = "") -> None:
        """The so-many-th statement with `text` in it from now on is cut; 0: none is."""
        with self._lock:
            self.seen, self._cut_at = 0, statement
            self._text, self._is_answered = text, is_answered

    @property
    def has_cut(self) -> bool:
        return self._cut_at > 0 and self.seen >= self._cut_at

    def hold(self, text: str) -> Hold:
        """The next statement with `text` in it waits until it is released."""
        with self._lock:
            self._holds.append(Hold(text))
            return self._holds[-1]

    # --- one client ------------------------------------------------------------------------------

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self.target)) as server:
            back = threading.Thread(target=self._back, args=(server, client), daemon=True)
            try:
                size = client.recv(4, socket.MSG_WAITALL)
                server.sendall(size + self._rest(client, size))
                back.start()
                while message := self._next(client):
                    self._forward(server, client, message)
            except (OSError, struct.error):
                pass  # one of the two has left
            for end in (server, client):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
            if back.ident is not None:
                back.join()

    @staticmethod
    def _rest(link: socket.socket, size: bytes) -> bytes:
        return link.recv(struct.unpack("!I", size)[0] - 4, socket.MSG_WAITALL)

    def _next(self, client: socket.socket) -> bytes:
        head = client.recv(5, socket.MSG_WAITALL)
        return head + self._rest(client, head[1:]) if head else b""

    def _forward(self, server: socket.socket, client: socket.socket, message: bytes) -> None:
        if message[:1] in STATEMENTS:
            self._wait_hold(message)
            if self._is_cut(message):
                if self._is_answered:  # it is done, but nobody is told
                    self._send_unheard(server, client, message)
                raise OSError("cut")
        server.sendall(message)

    def _wait_hold(self, message: bytes) -> None:
        with self._lock:
            waiting = (h for h in self._holds if not h.came.is_set() and h.text.encode() in message)
            hold = next(waiting, None)
            if hold is None:
                return
            hold.came.set()
        hold.may_go.wait()

    def _is_cut(self, message: bytes) -> bool:
        with self._lock:
            if self._text.encode() not in message:
                return False
            self.seen += 1
            return self.seen == self._cut_at

    def _send_unheard(self, server: socket.socket, client: socket.socket, message: bytes) -> None:
        whole = message
        while message[:1] not in ENDS:
            message = self._next(client)
            whole += message
        client.shutdown(socket.SHUT_RDWR)
        server.sendall(whole + b"X\0\0\0\4")
        while server.recv(65536):
            continue

    @staticmethod
    def _back(server: socket.socket, client: socket.socket) -> None:
        try:
            while data := server.recv(65536):
                client.sendall(data)
        except OSError:
            pass

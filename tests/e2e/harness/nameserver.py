# SPDX-License-Identifier: Apache-2.0
"""A name server on loopback that knows one name, or is silent, or says SERVFAIL."""

import socket
import threading
from pathlib import Path

NAME = "meta-store.test"
TYPE_A = 1
SERVFAIL = 2
NXDOMAIN = 3


class Nameserver:
    def __init__(self, directory: Path, port: int = 0) -> None:
        self.mode = "answer"  # silent, servfail
        self.questions = 0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", port))
        self.resolv_conf = directory / "resolv.conf"
        port = self._socket.getsockname()[1]
        self.resolv_conf.write_text(f"nameserver 127.0.0.1:{port}\noptions timeout:1 attempts:2\n")
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                question, peer = self._socket.recvfrom(512)
            except OSError:
                return  # closed
            self.questions += 1
            if self.mode != "silent":
                try:
                    self._socket.sendto(self._answer(question), peer)
                except OSError:
                    return

    def _answer(self, question: bytes) -> bytes:
        """The first question of the packet, answered for 60 s with 127.0.0.1."""
        labels, at = [], 12
        while question[at]:
            labels.append(question[at + 1 : at + 1 + question[at]].decode())
            at += 1 + question[at]
        asked = question[12 : at + 5]
        is_a = int.from_bytes(question[at + 1 : at + 3], "big") == TYPE_A
        code = 0 if ".".join(labels).lower() == NAME else NXDOMAIN
        code = SERVFAIL if self.mode == "servfail" else code
        has_address = is_a and code == 0
        head = question[:2] + bytes([0x81, 0x80 | code, 0, 1, 0, int(has_address), 0, 0, 0, 0])
        address = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\x7f\x00\x00\x01"
        return head + asked + (address if has_address else b"")

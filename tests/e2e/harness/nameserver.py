# SPDX-License-Identifier: Apache-2.0
"""A name server on loopback that knows one name, or is silent, or says SERVFAIL; and how programs are made
to ask it."""

import os
import socket
import subprocess
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from .pod import Pod

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
        self.address = f"127.0.0.1:{port}"
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


def let_agents_ask(
    pods: Iterable[Pod], names: Nameserver, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From their next start on the agents have no other name server."""
    library = directory / "resolvconf.so"
    source = Path(__file__).parents[1] / "resolvconf.c"
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    library.chmod(0o755)
    monkeypatch.setenv("RESOLV_CONF", str(names.resolv_conf))
    for pod in pods:
        plain = pod.start_agent

        def start_agent(plain=plain, **options) -> None:  # type: ignore[no-untyped-def]
            with monkeypatch.context() as patch:
                patch.setenv("LD_PRELOAD", str(library))
                plain(**options)

        pod.start_agent = start_agent  # type: ignore[method-assign]

# SPDX-License-Identifier: Apache-2.0
"""A TCP proxy in front of Postgres: the link of one pod, which a test can cut."""

import socket
from pathlib import Path

from .lab import Lab
from .paths import metasim
from .waiting import wait_for


class Proxy:
    def __init__(self, lab: Lab, target_port: int, directory: Path, name: str = "proxy") -> None:
        self.port = lab.port()
        self._control = directory / f"{name}.sock"
        listen, target = f"127.0.0.1:{self.port}", f"127.0.0.1:{target_port}"
        argv: list[str | Path] = [metasim(), "pgproxy", "--listen", listen, "--target", target]
        log = directory / f"{name}.log"
        self._process = lab.spawn(name, [*argv, "--control", self._control], log)
        wait_for(f"{name} on port {self.port} listens", self._control.exists, 10)

    def order(self, line: str) -> str:
        """Sends one control line, returns what follows "ok"."""
        with socket.socket(socket.AF_UNIX) as control:
            control.settimeout(5)
            control.connect(str(self._control))
            control.sendall(line.encode() + b"\n")
            answer = control.makefile().readline().strip()
        assert answer.startswith("ok"), f"pgproxy refused {line!r}: {answer}"
        return answer[2:].strip()

    def heal(self) -> None:
        self.order("mode pass")

# SPDX-License-Identifier: Apache-2.0
"""TLS for a Postgres and for a Kubernetes API, with an authority of their own."""

import re
import socket
import subprocess
from pathlib import Path

from harness import Lab, Postgres, wait_for
from harness.paths import metasim

NAMES = "DNS:localhost,DNS:meta-store.test,IP:127.0.0.1,IP:::1"


class Authority:
    """Makes a certificate for NAMES."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.file = folder / "ca.crt"
        self._openssl(
            "req", "-x509", "-days", "2", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=authority of a test",
            "-keyout", "ca.key", "-out", "ca.crt",
        )  # fmt: skip
        (folder / "names").write_text(f"subjectAltName={NAMES}\n")
        self._openssl(
            "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-keyout", "server.key",
            "-out", "server.csr",
        )  # fmt: skip
        self._openssl(
            "x509", "-req", "-days", "2", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key",
            "-CAcreateserial", "-extfile", "names", "-out", "server.crt",
        )  # fmt: skip

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True)


def switch_tls_on(postgres: Postgres, authority: Authority) -> None:
    for name in ("server.crt", "server.key"):
        copy = postgres.data / name
        copy.write_bytes((authority.folder / name).read_bytes())
        copy.chmod(0o600)
        subprocess.run(["chown", "--reference", postgres.data, copy], check=True)
    with open(postgres.data / "postgresql.conf", "a") as conf:
        conf.write("ssl = on\n")
    postgres.restart()


def has_ipv6() -> bool:
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
            return True
        except OSError:
            return False


class SecureApi:
    """TLS and HTTP/2 by Go's own server, as Kubernetes has it, before a plain one."""

    def __init__(self, lab: Lab, authority: Authority, target: str) -> None:
        self.authority = f"[::1]:{lab.port()}" if has_ipv6() else f"127.0.0.1:{lab.port()}"
        self._log = lab.dir / "apiproxy.log"
        folder = authority.folder
        argv: list[str | Path] = [metasim(), "apiproxy", f"--listen={self.authority}", f"--target={target}"]
        argv += [f"--cert={folder / 'server.crt'}", f"--key={folder / 'server.key'}"]
        lab.spawn("apiproxy", argv, self._log)
        host, port = re.fullmatch(r"\[?(.*?)\]?:(\d+)", self.authority).groups()

        def listens() -> bool:
            try:
                socket.create_connection((host, int(port)), 1).close()
                return True
            except OSError:
                return False

        wait_for("the API's proxy listens", listens, 20)

    @property
    def url(self) -> str:
        return f"https://{self.authority}"

    def lines(self) -> list[str]:
        """One for each request: protocol, method, path."""
        return re.findall(r"(HTTP/\S+ [A-Z]+ \S+)", self._log.read_text())

# SPDX-License-Identifier: Apache-2.0
"""Faults of single connections, by packet rules of the node on which a pod runs. Everything else of the
pod, the node's own traffic and kubectl exec go on."""

import subprocess
import uuid
from ipaddress import IPv4Address
from pathlib import Path
from typing import Literal

from .layout import LabError
from .netns import inside

# drop: lost both ways; reset: both ends are told; requests, replies: only the one direction is lost.
How = Literal["drop", "reset", "requests", "replies"]
TABLE = "lab_"


def _nft(namespace: Path, *arguments: str, stdin: str | None = None) -> str:
    with inside(namespace):
        done = subprocess.run(["nft", *arguments], input=stdin, text=True, capture_output=True)
    if done.returncode != 0:
        raise LabError(f"nft: {done.stderr.strip()}")
    return done.stdout


class Block:
    """Holds until lift(), or for the length of a with block. Open connections are hit like new ones."""

    def __init__(self, namespace: Path, pod_ip: str, address: str, port: int, how: How) -> None:
        for end in (pod_ip, address):
            IPv4Address(end)  # nft would ask a name server about anything else
        self.namespace = namespace
        self.table = TABLE + uuid.uuid4().hex[:12]
        request = f"ip saddr {pod_ip} ip daddr {address} tcp dport {port}"
        reply = f"ip saddr {address} ip daddr {pod_ip} tcp sport {port}"
        verdict = "reject with tcp reset" if how == "reset" else "drop"
        hit = {"requests": [request], "replies": [reply]}.get(how, [request, reply])
        rules = "\n".join(f"{match} {verdict}" for match in hit)
        # Before the filters of kube-proxy; a service's address is the real one by then.
        chain = f"chain forward {{\ntype filter hook forward priority -10; policy accept;\n{rules}\n}}"
        _nft(namespace, "-f", "-", stdin=f"table ip {self.table} {{\n{chain}\n}}\n")

    def lift(self) -> None:
        """A second call does nothing."""
        if self.table in tables(self.namespace):
            _nft(self.namespace, "delete", "table", "ip", self.table)

    def __enter__(self) -> "Block":
        return self

    def __exit__(self, *_: object) -> None:
        self.lift()


def tables(namespace: Path) -> list[str]:
    words = [line.split() for line in _nft(namespace, "list", "tables", "ip").splitlines()]
    return [w[2] for w in words if len(w) == 3 and w[2].startswith(TABLE)]


def lift_all(namespace: Path) -> None:
    for table in tables(namespace):
        _nft(namespace, "delete", "table", "ip", table)

# SPDX-License-Identifier: Apache-2.0
"""Packet rules in the control plane's namespace or a node's, and a look at what a node sends to a pod."""

import socket
import subprocess
import threading
import uuid
from types import TracebackType

from harness.waiting import boot_ns
from kubelab import API_PORT, CONTROL_PLANE, Cluster, Node
from kubelab.layout import pod_range

ALL_PACKETS = 0x0003  # ETH_P_ALL
IP, TCP = 0x0800, 6


def _nft(cluster: Cluster, part: str, *arguments: str, stdin: str | None = None) -> None:
    with cluster.inside(part):
        done = subprocess.run(["nft", *arguments], input=stdin, text=True, capture_output=True)
    assert done.returncode == 0, f"nft: {done.stderr}"


class Rules:
    """A table of one's own, for the length of a with block, or from begin() to lift()."""

    def __init__(self, cluster: Cluster, chains: str, part: str = "cp") -> None:
        self._cluster, self._chains, self._part = cluster, chains, part
        self._table = f"test_{uuid.uuid4().hex[:12]}"

    def begin(self) -> "Rules":
        script = f"table ip {self._table} {{\n{self._chains}\n}}\n"
        _nft(self._cluster, self._part, "-f", "-", stdin=script)
        return self

    def lift(self) -> None:
        _nft(self._cluster, self._part, "delete", "table", "ip", self._table)

    def __enter__(self) -> "Rules":
        return self.begin()

    def __exit__(self, *_: object) -> None:
        self.lift()


def pod_without_port(cluster: Cluster, node: Node, pod_ip: str, port: int) -> Rules:
    """A pod reaches that port nowhere, wherever it is served next."""
    return Rules(
        cluster,
        "chain f { type filter hook forward priority -10; policy accept;\n"
        f"ip saddr {pod_ip} tcp dport {port} drop\n"
        f"ip daddr {pod_ip} tcp sport {port} drop\n}}",
        node.name,
    )


def node_without(cluster: Cluster, node: Node, port: int, how: str = "drop") -> Rules:
    """A node, and the pods on it, lose that port of the control plane's machine and nothing else: both ways,
    only their requests, or only the replies. Open connections are hit, too."""
    sources = f"{{ {node.ip}, {pod_range(node.index)} }}"
    requests = (
        "chain i { type filter hook input priority -10; policy accept;\n"
        f"ip saddr {sources} ip daddr {CONTROL_PLANE} tcp dport {port} drop\n}}"
    )
    replies = (
        "chain o { type filter hook output priority -10; policy accept;\n"
        f"ip daddr {sources} tcp sport {port} drop\n}}"
    )
    lost = {"requests": [requests], "replies": [replies], "drop": [requests, replies]}[how]
    return Rules(cluster, "\n".join(lost))


def node_without_api(cluster: Cluster, node: Node) -> Rules:
    return node_without(cluster, node, API_PORT)


def pods_to_other_api(cluster: Cluster, pods: list[str], port: int) -> Rules:
    """What these pods take for the API server is another port of its machine from now on. Connections that
    are open end with a reset."""
    sources = "{ " + ", ".join(pods) + " }"
    match = f"ip saddr {sources} ip daddr {CONTROL_PLANE} tcp dport"
    return Rules(
        cluster,
        "chain p { type nat hook prerouting priority -100; policy accept;\n"
        f"{match} {API_PORT} redirect to :{port}\n}}\n"
        "chain i { type filter hook input priority -10; policy accept;\n"
        f"{match} {API_PORT} reject with tcp reset\n}}",
    )


class ConnectionTap:
    """When its node opened a connection to a port of a pod, as the kubelet does for each probe: the
    instants of the SYNs, by boot_ns()."""

    def __init__(self, cluster: Cluster, node: Node, pod_ip: str, port: int) -> None:
        self._address, self._port = socket.inet_aton(pod_ip), port
        self.opened: list[int] = []
        with cluster.inside(node.name):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ALL_PACKETS))
        self._socket.settimeout(0.2)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                packet, where = self._socket.recvfrom(128)
            except TimeoutError:
                continue
            now = boot_ns()
            if where[1] != IP or packet[9] != TCP or packet[16:20] != self._address:
                continue
            tcp = packet[(packet[0] & 15) * 4 :]
            is_first = tcp[13] & 0x12 == 0x02  # SYN, no ACK
            if is_first and int.from_bytes(tcp[2:4], "big") == self._port:
                self.opened.append(now)

    def __enter__(self) -> "ConnectionTap":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._socket.close()

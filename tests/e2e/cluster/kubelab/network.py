# SPDX-License-Identifier: Apache-2.0
"""The wires: a bridge in the control plane's namespace, a cable to each node, and routes between the
ranges of pods. No namespace has a default route and none is tied to the machine's own network."""

import subprocess
from pathlib import Path

from .layout import CONTROL_PLANE, SERVICES, LabError, Layout, node_ip, node_name, pod_range
from .netns import inside

BRIDGE = "br0"


def run_ip(*arguments: str, commands: list[str] | None = None) -> str:
    """The program ip, with one call or a batch of commands."""
    batch = ["-batch", "-"] if commands else []
    stdin = "\n".join(commands) if commands else None
    done = subprocess.run(["ip", *arguments, *batch], input=stdin, text=True, capture_output=True)
    if done.returncode != 0:
        raise LabError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def make(layout: Layout, nodes: int) -> None:
    indexes = range(1, nodes + 1)
    parts = ["cp", *map(node_name, indexes)]
    run_ip(commands=[f"netns add {layout.name(part)}" for part in parts])
    run_ip(
        "-n",
        layout.name("cp"),
        commands=[
            "link set lo up",
            f"link add {BRIDGE} type bridge",
            f"addr add {CONTROL_PLANE}/24 dev {BRIDGE}",
            f"link set {BRIDGE} up",
        ],
    )
    for index in indexes:
        _plug_in(layout, index)
        routes = [f"route add {pod_range(i)} via {node_ip(i)}" for i in indexes if i != index]
        # A node's own processes reach services too: the output hook of the node rewrites the address.
        routes.append(f"route add {SERVICES} via {CONTROL_PLANE}")
        run_ip("-n", layout.name(node_name(index)), commands=routes)
    if nodes:
        routes = [f"route add {pod_range(i)} via {node_ip(i)}" for i in indexes]
        run_ip("-n", layout.name("cp"), commands=routes)
    for part in parts:
        with inside(layout.namespace(part)):
            Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _plug_in(layout: Layout, index: int) -> None:
    name = node_name(index)
    here, there = layout.name("cp"), layout.name(name)
    run_ip(commands=[f"link add {name} netns {here} type veth peer name eth0 netns {there}"])
    run_ip("-n", here, commands=[f"link set {name} master {BRIDGE} up"])
    address = [f"addr add {node_ip(index)}/24 dev eth0", "link set lo up", "link set eth0 up"]
    run_ip("-n", there, commands=address)


def set_cable(layout: Layout, name: str, up: bool) -> None:
    """Plugs a node in or off, at the bridge's end: the node sees a dead line, not a missing device."""
    run_ip("-n", layout.name("cp"), "link", "set", name, "up" if up else "down")


def existing(prefix: str) -> set[str]:
    """Names of a cluster's namespaces that are there."""
    folder = Path("/run/netns")
    return {path.name for path in folder.glob(f"{prefix}-*")} if folder.is_dir() else set()


def remove(name: str) -> None:
    run_ip("netns", "del", name)

# SPDX-License-Identifier: Apache-2.0
"""Nodes that boot anew and kubelets that start again: containers come back in an order of the kubelet's own,
and safety does not rest on it."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.process import descendants
from harness.waiting import boot_ns, hold, wait_for
from kubelab import Database
from kubelab.node import Node
from metas import Deployment

Deploy = Callable[..., Deployment]
Note = Callable[[str, Any], None]
BOOTED_S = 150.0


def assert_nobody_overlapped(metas: Deployment) -> None:
    verdict = metas.verdict()
    assert verdict["overlaps"] == 0 and verdict["late_ticks"] == 0, verdict


def test_node_boots_anew(deploy: Deploy, database: Database, note: Note) -> None:
    """Loss of power under the leader, and the node is back before its pods are given up: the same pods start
    again, each meta under metafence-run with an agent beside it, and one leads."""
    metas = deploy(database=database)
    old = metas.start()
    node = old.node
    node.crash()
    began = boot_ns()
    new = metas.wait_new_leader(old, metas.ttl + 15)
    node.start()
    metas.cluster.wait_nodes(90)

    def runs_again() -> bool:
        metas.refresh()
        return all(m.program("metafence-run") and m.status() for m in metas.metas) and len(metas.metas) == 3

    metas.wait("all pods run again", runs_again, BOOTED_S)
    leader = metas.wait_converged(BOOTED_S)
    assert leader is new, "nobody had a reason to move the lease again"
    for meta in metas.metas:
        status = meta.run_status()
        assert status["armed"] and status["agent_present"], (meta, status)
    assert all(m.run_status()["fences"] == 0 for m in metas.metas)
    assert_nobody_overlapped(metas)
    note("all well after the loss of power, s", round((boot_ns() - began) / 1e9, 1))


def kubelet_of(node: Node) -> int | None:
    for pid in descendants(node.init_pid):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if Path(words[0]).name == "kubelet":
            return pid
    return None


def restart_kubelet(node: Node) -> None:
    pid = kubelet_of(node)
    assert pid is not None, f"no kubelet on {node.name}"
    os.kill(pid, signal.SIGKILL)
    wait_for("another kubelet runs", lambda: kubelet_of(node) not in (None, pid), 20)


def test_kubelet_starts_again(deploy: Deploy, database: Database, note: Note) -> None:
    """Containers go on meanwhile; and what ends afterwards is started again, meta as well as its sidecar."""
    metas = deploy(database=database)
    leader = metas.start()
    incarnations = {m.name: m.incarnation for m in metas.metas}
    restart_kubelet(leader.node)
    hold(5)
    assert {m.name: m.incarnation for m in metas.metas} == incarnations, "containers were restarted with it"
    assert metas.leaders() == [leader]
    for container, program in (("meta", "metafence-run"), ("metafence", "metafence")):
        before = leader.kubelet_restarts(container)
        leader.signal(program, signal.SIGKILL)
        metas.wait(
            f"{container} is started again",
            lambda c=container, b=before: leader.kubelet_restarts(c) == b + 1,
            BOOTED_S,
        )
    metas.wait_converged(BOOTED_S)
    assert_nobody_overlapped(metas)
    note("leader's restarts of meta", leader.kubelet_restarts())

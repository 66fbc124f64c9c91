# SPDX-License-Identifier: Apache-2.0
"""A leader dies while an actor sees no abort: its successor in the same pod is not started before the compute
nodes have reset, as long as nobody else can lead; and never for longer than recovery.resetBeforeStart."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from computes import WORKERS, Compute, ask, with_registry
from harness import Cluster, Pod, boot_ns, wait_for
from harness.paths import metasim

Make = Callable[..., Cluster]
PATIENCE = 60
POINT = "actor-busy"


def begin(cluster: Make, mode: str, reset_before_start: str) -> tuple[Cluster, Pod, Compute, Path]:
    """A leader, and a compute node whose actor is in a chunk that sees nothing until the file is gone."""
    c = cluster(pods=1, ttl=30, meta_flags=WORKERS)
    with_registry(c)
    c.pods[0].config["recovery"] = {"mode": mode, "resetBeforeStart": reset_before_start}
    leader = c.start()
    assert leader.cli("sql", "install", "--recovery", mode).returncode == 0
    node = Compute(c, "compute")
    points = node.dir / "points"
    points.mkdir()
    node.start("--pause-dir", str(points))
    node.wait_running()
    wait_for("its stream", lambda: leader.witness.events("stream_connected"), PATIENCE)
    leader.wait_status("its mode is known", lambda s: s["recovery"]["acts_as"] == mode, PATIENCE)
    made = json.loads(ask(leader, "create", "mv", "1").stdout)
    busy = points / POINT
    busy.touch()
    at = boot_ns()
    argv = [metasim(), "call", f"127.0.0.1:{node.port}", "update", str(made["fragments"][0])]
    subprocess.run(argv, check=True, capture_output=True, timeout=PATIENCE)
    wait_for("it is busy", lambda: seen(node, "paused", at), PATIENCE)
    return c, leader, node, busy


def seen(node: Any, kind: str, at_ns: int) -> list[Any]:
    return [e for e in node.witness.events(kind) if e.boot_ns > at_ns]


def restart(leader: Pod) -> int:
    """By an operator's fence that is lifted at once; the moment before."""
    at = boot_ns()
    assert leader.cli("fence", "--reason", "test", timeout=PATIENCE).returncode == 0
    assert leader.cli("unfence", timeout=PATIENCE).returncode == 0
    return at


def test_the_start_waits_for_the_resets(cluster: Make) -> None:
    c, leader, node, busy = begin(cluster, "enforce", "25s")
    at = restart(leader)
    status = leader.wait_status("it is held", lambda s: s["meta"]["hold_reason"] == "Reset", PATIENCE)
    assert not status["meta"]["alive"]
    wait_for("the node is asked", lambda: seen(node, "reset_begin", at), PATIENCE)
    status = leader.wait_status(
        "status says what it waits for", lambda s: s["recovery"]["waits_for"] == "resets", PATIENCE
    )
    assert status["recovery"]["step"] == "RESET" and status["recovery"]["start_held_ms"] > 0
    assert [n["evidence"] for n in status["recovery"]["nodes"]] == ["UNKNOWN"]
    assert not seen(leader, "start", at)
    busy.unlink()
    leader.wait_leading(PATIENCE)
    aborted, started = seen(node, "actors_aborted", at)[0], seen(leader, "start", at)[0]
    assert aborted.boot_ns < started.boot_ns
    assert node.alive and not node.witness.events("panic")
    told = [h["detail"] for h in (leader.status() or {})["history"] if h["event"] == "recovery"]
    for reason in ("StartHeld", "ComputeReset"):
        assert any(detail.startswith(reason) for detail in told), told
    assert c.owner() is leader


def test_the_start_does_not_wait_for_ever(cluster: Make) -> None:
    _, leader, node, busy = begin(cluster, "enforce", "3s")
    at = restart(leader)
    wait_for("it is started again", lambda: seen(leader, "start", at), PATIENCE)
    asked, started = seen(node, "reset_begin", at), seen(leader, "start", at)
    assert asked and asked[0].boot_ns < started[0].boot_ns
    died = leader.shim_status()["last_death"]["dead_ns"]
    assert started[0].boot_ns - died >= 3_000_000_000
    assert not seen(node, "actors_aborted", at), "it was held until it had reset"
    assert leader.agent_log.expect(event="StartUnproven")
    busy.unlink()
    leader.wait_leading(PATIENCE)


def test_observe_holds_no_start(cluster: Make) -> None:
    _, leader, node, busy = begin(cluster, "observe", "25s")
    at = restart(leader)
    wait_for("it is started again", lambda: seen(leader, "start", at), PATIENCE)
    started = seen(leader, "start", at)[0]
    assert not [e for e in seen(node, "reset_begin", at) if e.boot_ns < started.boot_ns]
    assert not leader.agent_log.find(event="StartHeld")
    busy.unlink()
    leader.wait_leading(PATIENCE)

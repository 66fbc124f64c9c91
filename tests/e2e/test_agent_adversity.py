# SPDX-License-Identifier: Apache-2.0
"""The agent among strangers and on a full disk (P2, P8): what it writes and asks stays bounded, and
nothing of it costs a healthy leader its life."""

import json
import os
import signal
import socket
import stat
import time
from typing import Any

from harness import Pod, hold
from harness.process import signal_pid
from harness.waiting import wait_for
from scenario import Make


def command(pod: Pod, **members: str) -> dict[str, Any]:
    """An order by the control socket, without waiting for what comes of it."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(pod.dir / "agent.sock"))
        client.sendall(json.dumps(members).encode() + b"\n")
        return json.loads(client.makefile().readline())


def test_notification_storm(cluster: Make) -> None:
    """Every session may notify on our channel. It makes the agent look, not spin."""
    made = cluster(ttl=5, pods=1)
    leader = made.start()
    before = leader.wait_status("leads", lambda s: s["rule"] == "Leader", 10)
    begin = time.monotonic()
    with made.postgres.connect() as session:
        session.autocommit = True
        while time.monotonic() < begin + 3:
            session.execute("SELECT pg_notify('metafence', '')")
    after = leader.wait_status("still leads", lambda s: s["rule"] == "Leader", 10)
    counted = {k: after["counters"][k] - before["counters"][k] for k in ("reads", "notifications")}
    assert counted["notifications"] > 300, counted
    # Ten polls a second and one read each 50 ms.
    assert counted["reads"] < 35 * (time.monotonic() - begin), counted
    assert leader.kills() == 0


def test_hung_up_on_for_long(cluster: Make) -> None:
    """metafence-run expects the agent's messages from another user: said once, not ten times a second."""
    made = cluster(ttl=5, pods=1, run_flags=["--peer-uid=54321"])
    made.install_sql()
    pod = made.pods[0].start()
    pod.wait_leading(20)
    pod.wait_status("says so", lambda s: "NoFence" in s["not_covered"], 10)
    hold(3)
    assert len(pod.agent_log.find(msg="no connection to metafence-run")) == 1, pod.agent_log.tail(20)
    assert pod.run_log.path.read_text().count("connection refused") <= 10


def test_control_socket_cannot_be_made(cluster: Make) -> None:
    """No room for it: permits do not depend on it, and it comes when it can."""
    made = cluster(ttl=5, pods=1)
    made.install_sql()
    pod = made.pods[0]
    later = pod.dir / "later"
    pod.config["control"]["socket"] = str(later / "agent.sock")
    pod.start()
    pod.wait_leading(10)
    wait_for("permits", lambda: pod.shim_status()["permit"] == "Leader", 10)
    hold(made.ttl + 1)
    assert pod.agent is not None and pod.agent.alive
    assert pod.kills() == 0 and pod.shim_status()["permit"] == "Leader"
    pod.agent_log.expect(level="error")
    later.mkdir()
    wait_for("the control socket", lambda: (later / "agent.sock").exists(), 10)


def test_pause_does_not_unfence(cluster: Make) -> None:
    """An operator pauses while a new agent has not heard metafence-run yet. What the fence before asked for
    stands."""
    made = cluster(ttl=5, pods=1)
    pod = made.start()
    assert command(pod, cmd="fence", reason="test") == {"ok": True}
    wait_for("held", lambda: pod.shim_status()["hold"] == "Manual", 10)
    pod.kill_agent()
    pod.main.signal(signal.SIGSTOP)
    pod.start_agent()
    wait_for("the agent listens", pod.status, 10)
    assert command(pod, **{"cmd": "pause", "for": "10m", "reason": "test"}) == {"ok": True}
    signal_pid(pod.main.pid, signal.SIGCONT)
    pod.wait_status("both hold", lambda s: s["manual_fence"] and s["paused_until"], 10)
    hold(1)
    assert pod.shim_status()["hold"] == "Manual" and not pod.meta_alive


def test_link_in_place_of_the_copy(cluster: Make) -> None:
    """The volume is shared with meta's container: a link that waits there leads to nobody's file."""
    made = cluster(ttl=5, pods=1)
    made.install_sql()
    pod = made.pods[0]
    victim = pod.dir / "victim"
    victim.write_text("keep me")
    (pod.dir / "agent.sock.last-good.new").symlink_to(victim)
    pod.start()
    pod.wait_status("runs", lambda s: s["config"]["valid"], 10)
    copy = pod.dir / "agent.sock.last-good"
    wait_for("the copy", copy.exists, 10)
    assert victim.read_text() == "keep me"
    assert not copy.is_symlink() and stat.S_IMODE(os.stat(copy).st_mode) == 0o600


def test_wrong_table_is_asked_for_as_often_as_a_right_one(cluster: Make) -> None:
    """Nothing is ever read of the leader beside it: a wish that stays open must not make the agent spin."""
    made = cluster(ttl=5, pods=1, run_flags=["--database-hold=1s"])
    pod = made.pods[0]
    pod.config["election"]["leaderTable"] = "elsewhere.election_leader"
    pod.start()
    pod.wait_leading(20)
    before = pod.wait_status("sees it lead", lambda s: s["engaged"], 10)
    begin = time.monotonic()
    hold(3)
    after = pod.wait_status("answers", lambda s: s["row"]["defect"], 10)
    failed = after["counters"]["reads_failed"] - before["counters"]["reads_failed"]
    assert 0 < failed < 15 * (time.monotonic() - begin), failed
    assert pod.kills() == 0 and "Unarmed" in after["not_covered"]

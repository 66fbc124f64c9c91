# SPDX-License-Identifier: Apache-2.0
"""Probes of the sidecar: one alone leads to the fence; they are answered at once whatever else is wrong.

In the first tests notifications are off, the next poll is an hour away, the lease lasts for two: nobody
but the probe makes the agent look at the row again. Each probe asks for a fresh read and is answered at
once.
"""

import contextlib
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from harness import Lab, boot_ns, wait_for
from harness.paths import metafence, metafence_run
from harness.pod import Pod
from harness.waiting import Starvation, hold
from scenario import Make

QUERY_TIMEOUT_S = 0.5  # of the profile


def start_leader(cluster: Make) -> Pod:
    """A leader whose agent has read what it wants to know, and waits for its next poll."""
    made = cluster(ttl=7200, pods=1)
    pod = made.pods[0]
    pod.config["notify"] = False
    made.install_sql()
    pod.start()
    pod.wait_leading(15)
    pod.wait_status("has read the own row", lambda s: s["engaged"] and s["row"]["state"] == "ours", 10)
    return pod


def steal_row(pod: Pod) -> None:
    """Of a meta that is stopped, so that it does not see by itself that it has lost."""
    pod.signal_meta(signal.SIGSTOP)
    pod.postgres.sql("UPDATE election_leader SET id = '127.0.0.1:1', last_heartbeat = now()")


@pytest.mark.smoke
def test_one_probe_is_enough(cluster: Make) -> None:
    pod = start_leader(cluster)
    pid = pod.meta_pid
    reads = pod.status()["counters"]["reads"]  # type: ignore[index]
    steal_row(pod)

    def unseen() -> None:
        assert pod.meta_pid == pid and pod.meta_alive, "nobody has looked at the row"

    hold(3, unseen)
    assert pod.status()["counters"]["reads"] == reads, "not polled, not notified"  # type: ignore[index]
    starvation = Starvation()
    asked_ns = boot_ns()
    code, body = pod.probe("/readyz")
    answered_ns = boot_ns()
    assert code == 200, body
    fence = pod.agent_log.expect(msg="fence", rule="Superseded")
    dead = pod.agent_log.expect(msg="dead", reason="Superseded")
    took_s = (int(dead["dead_boot_ns"]) - asked_ns) / 1e9
    assert int(fence["boot_ns"]) > asked_ns
    # But for what the machine itself made everybody wait.
    bound_s = QUERY_TIMEOUT_S + 0.05 + starvation.worst
    assert took_s < bound_s, f"dead {took_s:.3f} s after the probe, bound {bound_s:.3f} s"
    assert (answered_ns - asked_ns) / 1e9 < 0.5 + starvation.worst, "the answer waits for nothing"

    # What the gate before the next start waits for, the next probes bring as well.
    def follows() -> bool:
        pod.probe("/readyz")
        return pod.meta_pid != pid and pod.is_follower

    wait_for("a new incarnation is a follower", follows, 15, every=0.5)
    print(f"dead {took_s * 1000:.1f} ms after the probe")


def test_many_probes_are_one_read(cluster: Make) -> None:
    """Anybody in the cluster's network may probe, as often as they like."""
    pod = start_leader(cluster)
    before = pod.status()["counters"]["reads"]  # type: ignore[index]
    begin = time.monotonic()
    for _ in range(400):
        assert pod.probe("/readyz")[0] == 200
    took = time.monotonic() - begin
    wait_for("they led to reads", lambda: pod.status()["counters"]["reads"] > before, 2)  # type: ignore[index]
    reads = pod.status()["counters"]["reads"] - before  # type: ignore[index]
    assert reads <= took / 0.05 + 2, f"{reads} reads for 400 probes in {took:.2f} s"


def test_probes_without_postgres(cluster: Make) -> None:
    """A probe never waits for the database, and never fails because of it."""
    pod = start_leader(cluster)
    pid = pod.meta_pid
    pod.proxy.order("mode stall")
    slowest = 0.0
    for _ in range(40):
        for path in ("/livez", "/readyz", "/startupz"):
            begin = time.monotonic()
            code, body = pod.probe(path)
            slowest = max(slowest, time.monotonic() - begin)
            assert code == 200, (path, body)
        time.sleep(0.05)
    assert slowest < 0.5, f"slowest answer after {slowest:.3f} s"
    assert pod.meta_pid == pid and pod.meta_alive


def test_endpoints_tell_the_role(cluster: Make) -> None:
    made = cluster(ttl=5, pods=2)
    leader = made.start()
    follower = next(p for p in made.pods if p is not leader)
    for pod, role, yes, no in (
        (leader, "leader", "/leader", "/replica"),
        (follower, "follower", "/replica", "/leader"),
    ):
        code, body = pod.probe(yes)
        assert code == 200 and body["role"] == role and body["leader"] == leader.id, body
        assert body["proof_age_ms"] < 1000, body
        assert pod.probe(no)[0] == 503
        code, body = pod.probe("/readyz?verbose")
        assert code == 200 and {c["result"] for c in body["checks"]} == {"ok"}, body
        assert pod.probe("/livez")[0] == pod.probe("/meta/livez")[0] == 200
    code, page = leader.probe("/metrics")
    assert code == 200
    for line in ("metafence_is_leader 1", 'metafence_role{role="leader"} 1', "metafence_postgres_up 1"):
        assert line in page.splitlines(), page
    # Held by an operator: down on purpose is not ready, and nobody restarts it for that.
    assert follower.cli("fence", "--reason", "test").returncode == 0
    code, body = follower.probe("/readyz")
    assert code == 503 and body["reason"] == "Manual", body
    assert follower.probe("/meta/livez")[0] == follower.probe("/livez")[0] == 200
    assert follower.probe("/replica")[0] == 503
    page = follower.probe("/metrics")[1]
    line = 'metafence_fence_attempts_total{method="permit",reason="Manual",result="confirmed"} 1'
    assert line in page.splitlines(), page
    assert "metafence_manual_fence 1" in page.splitlines(), page


def test_probe_among_bad_clients(cluster: Make) -> None:
    """Hundreds that say nothing, or a byte now and then: a probe is answered at once, the agent's
    descriptors stay few, and the bad ones are cut within seconds."""
    made = cluster(ttl=5, pods=1)
    pod = made.start()
    assert pod.agent is not None
    fds = Path(f"/proc/{pod.agent.pid}/fd")
    before = len(list(fds.iterdir()))
    bad = [socket.create_connection(("127.0.0.1", pod.http_port), timeout=5) for _ in range(500)]
    slowest, most = 0.0, 0
    for round_ in range(20):
        for client in bad[::2]:
            with contextlib.suppress(OSError):  # cut already
                client.send(b"GET /livez HTTP/1.1\r\n"[round_ : round_ + 1])
        begin = time.monotonic()
        assert pod.probe("/readyz")[0] == 200
        slowest = max(slowest, time.monotonic() - begin)
        most = max(most, len(list(fds.iterdir())))
        time.sleep(0.1)
    assert slowest < 0.5, f"slowest answer after {slowest:.3f} s"
    assert most - before < 80, f"{most} descriptors, {before} before"
    # Its own sessions and calls come and go: ten at most.
    wait_for("all are cut", lambda: len(list(fds.iterdir())) <= before + 10, 10)
    for client in bad:
        client.close()


def test_port_is_taken(cluster: Make) -> None:
    """A healthy leader lives without the agent's HTTP port; it is there as soon as it can be had."""
    made = cluster(ttl=5, pods=1)
    pod = made.pods[0]
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", pod.http_port))
        other.listen()
        made.start()
        pid = pod.meta_pid
        pod.agent_log.expect(msg="no probes and no metrics", err="Address already in use")
        hold(2 * made.ttl, lambda: None)
        assert pod.meta_pid == pid and pod.acts_as_leader
        assert len(pod.agent_log.find(msg="no probes and no metrics")) == 1, "said once"
    pod.agent_log.expect(msg="probes and metrics", port=str(pod.http_port), timeout=5)
    assert pod.probe("/leader")[0] == 200


def image(lab: Lab) -> Path:
    """A folder with both programs, as they are in the image."""
    programs = lab.dir / "image"
    programs.mkdir()
    for program in (metafence(), metafence_run()):
        shutil.copy(program, programs / program.name)
    return programs


def test_copy_of_metafence_run(cluster: Make, lab: Lab) -> None:
    """metafence-run goes to the shared volume from beside the agent; /startupz waits for that alone, not
    for database or meta."""
    programs, volume = image(lab), lab.dir / "volume"
    made = cluster(ttl=5, pods=1)
    pod = made.pods[0]
    made.postgres.stop()
    copy = volume / "metafence-run"
    pod.config["fence"]["metafenceRun"] = str(copy)
    argv: list[str | Path] = [programs / "metafence", "agent", "--config", pod.write_config()]
    lab.spawn("agent", argv, pod.agent_log.path)
    pod.agent_log.expect(msg="probes and metrics")
    code, body = pod.probe("/startupz")
    assert code == 503 and str(copy) in body["reason"], body
    assert pod.probe("/livez")[0] == pod.probe("/readyz")[0] == 200
    volume.mkdir()
    wait_for("the copy is in place", lambda: pod.probe("/startupz")[0] == 200, 5)
    assert copy.read_bytes() == metafence_run().read_bytes()
    assert copy.stat().st_mode & 0o7777 == 0o555
    assert subprocess.run([copy, "--version"], capture_output=True, timeout=5).returncode == 0


def test_copy_beside_a_broken_configuration(cluster: Make, lab: Lab) -> None:
    """Without the copy no meta would start: it comes, and probes are answered where they are expected,
    whatever else is wrong in the file."""
    made = cluster(ttl=5, pods=1)
    pod = made.pods[0]
    copy = lab.dir / "metafence-run"
    pod.config["fence"]["metafenceRun"] = str(copy)
    pod.config["timing"]["margin"] = "59s"
    argv: list[str | Path] = [image(lab) / "metafence", "agent", "--config", pod.write_config()]
    lab.spawn("agent", argv, pod.agent_log.path)
    pod.agent_log.expect(msg="ConfigInvalid", running_on="built-in")
    pod.agent_log.expect(msg="probes and metrics")
    wait_for("the copy is in place", lambda: pod.probe("/startupz")[0] == 200, 10)
    assert copy.read_bytes() == metafence_run().read_bytes()

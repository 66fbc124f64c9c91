# SPDX-License-Identifier: Apache-2.0
"""A pod that stands still, starves, or whose agent hangs in a call: nothing of it may cost the lease its
guard, and no tool that measures time is trusted to have run."""

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness import Lab, Pod, boot_ns, hold, wait_for
from harness.freezer import frozen
from harness.process import descendants, signal_pid
from scenario import Case, Fault, Make, judge

GUARDED = Case(5, True, 0)


def pids_of(pod: Pod) -> list[int]:
    assert pod.agent is not None
    return [pod.agent.pid, pod.main.pid, *descendants(pod.main.pid)]


def test_whole_pod_frozen(cluster: Make) -> None:
    """As a machine that was suspended: agent, metafence-run and meta stand still for three leases. What runs
    again acts for no longer than a kill takes."""
    made = cluster(ttl=5)
    old = made.start()
    pid = old.meta_pid
    frozen = pids_of(old)
    for one in frozen:
        signal_pid(one, signal.SIGSTOP)
    made.wait_new_leader(old, made.ttl + 5)
    hold(2 * made.ttl)
    thawed = boot_ns()
    for one in frozen:  # meta first: it may run while its guards don't yet
        signal_pid(one, signal.SIGCONT)
    wait_for("the old leader is dead", lambda: old.meta_pid != pid or not old.meta_alive, 3)
    acted = [e.boot_ns for e in old.witness.events("tick", pid) if e.boot_ns > thawed]
    late = (max(acted) - thawed) / 1e9 if acted else 0.0
    print(f"acted for {late * 1000:.0f} ms after the thaw")
    assert late < 0.5, f"acted for {late:.3f} s after the thaw"
    made.wait_converged(3 * made.ttl)
    assert old.kills() == 1


def test_agent_frozen(cluster: Make) -> None:
    """Its socket stays open, its permits end."""
    made = cluster(ttl=5)
    old = made.start()
    assert old.agent is not None
    old.agent.signal(signal.SIGSTOP)
    made.wait_new_leader(old, 2 * made.ttl + 3)
    assert old.shim_status()["last_death"]["reason"] == "AgentLost"
    old.agent.signal(signal.SIGCONT)
    made.wait_converged(3 * made.ttl)
    judge("A16 agent frozen", made, GUARDED)


def test_leader_frozen_by_its_control_group(cluster: Make) -> None:
    """In version 1 not even SIGKILL reaches it before the thaw: then it is said that nothing is fenced; and
    what it gets first is its death, not its next tick."""
    made = cluster(ttl=5)
    old = made.start()
    pid = old.meta_pid
    assert pid is not None
    with frozen(pid) as how:
        stood = boot_ns()
        made.wait_new_leader(old, 2 * made.ttl + 3)
        if how == "v1":
            old.wait_status("is not fenced", lambda s: s["not_fenced"], 10)
            assert old.meta_pid == pid and old.meta_alive
    wait_for("it is dead", lambda: old.meta_pid != pid or not old.meta_alive, 5)
    acted = [e for e in old.witness.events("tick", pid) if e.boot_ns > stood]
    print(f"frozen by {how}: {len(acted)} ticks after")
    assert not acted, acted
    made.wait_converged(4 * made.ttl)
    judge(f"G06 frozen by {how}", made, GUARDED)


def test_agent_restarted_beside_a_stopped_metafence_run(cluster: Make) -> None:
    """The new agent gets no word of it, and knows from its state file who runs and leads: it sees the
    lease lost, and its second method ends meta."""
    made = cluster(ttl=5, pods=2)
    old = made.start()
    pid = old.meta_pid
    heir = made.pods[1]
    with stopped(old.main.pid):
        old.kill_agent()
        old.start_agent()
        old.wait_status("knows of meta", lambda s: s["engaged"] and s["meta"]["pid"] == pid, 10)
        made.postgres.sql("UPDATE election_leader SET id = %s, last_heartbeat = now()", heir.id)
        wait_for("meta is dead", lambda: not old.meta_alive, 10)
        old.agent_log.expect(msg="dead by pidfd")  # as lost, or where all is slow as expired
        assert old.meta_pid == pid
    # It finds the order first, and starts meta again; or the death, which nobody ordered, and ends.
    wait_for("it has seen the death", lambda: not old.main.alive or old.incarnations > 1, 6 * made.ttl)
    if not old.main.alive:
        old.start(agent=False)  # as the kubelet does
    made.wait_converged(6 * made.ttl)


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stopped for the time of the block."""
    signal_pid(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        signal_pid(pid, signal.SIGCONT)


@contextmanager
def starved(pid: int) -> Iterator[None]:
    """A process that gets the CPU for a hundredth of the time, in small pieces."""
    stop = threading.Event()

    def throttle() -> None:
        while not stop.is_set():
            signal_pid(pid, signal.SIGSTOP)
            stop.wait(0.2)
            signal_pid(pid, signal.SIGCONT)
            stop.wait(0.002)

    thread = threading.Thread(target=throttle)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        signal_pid(pid, signal.SIGCONT)


def test_starved_agent(cluster: Make) -> None:
    """It sees the world in jerks. A meta that dies is noticed, lost leadership ends in time, and no gap in
    its own time is a reason to wait."""
    made = cluster(ttl=5)
    old = made.start()
    assert old.agent is not None
    with starved(old.agent.pid):
        hold(made.ttl)
        old.signal_meta(signal.SIGKILL)
        assert old.main.wait(5) == 128 + signal.SIGKILL, "the death is noticed without the agent"
        old.start(agent=False)  # as the kubelet does
        made.wait_converged(6 * made.ttl, needs_status=False)
        leader = made.leaders()[0]
        if leader is not old:  # leadership comes back to the starved one
            made.postgres.sql("UPDATE election_leader SET id = %s, last_heartbeat = now()", old.id)
            wait_for(f"{old.name} leads", lambda: old.acts_as_leader, 4 * made.ttl)
        hold(2)
        pid = old.meta_pid
        fault = Fault.begins(made.ttl)
        old.proxy.order("mode stall")
        made.wait_new_leader(old, 2 * made.ttl + 3)
        assert old.meta_pid != pid or not old.meta_alive
        fault.wait_end()
        old.proxy.heal()
    made.wait_converged(6 * made.ttl)
    judge("A17 starved agent", made, GUARDED)


# --- the agent hangs in a call ---


@pytest.fixture(scope="session")
def stuck_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For LD_PRELOAD: the call named by STUCK never returns once the file STUCK_FILE exists."""
    library = tmp_path_factory.mktemp("stuck") / "stuck.so"
    source = Path(__file__).with_name("stuck.c")
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    library.chmod(0o755)
    return library


@pytest.mark.parametrize("call", ["recv", "send", "epoll_wait", "malloc", "clock_gettime"])
def test_agent_hangs_in_a_call(
    cluster: Make, lab: Lab, stuck_library: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Whatever it is: metafence-run shares nothing with the agent but a socket, and ends meta by its own
    clock; the agent's probes are no longer answered, which is what the kubelet restarts it for."""
    made = cluster(ttl=5)
    old = made.pods[0]
    flag = lab.dir / "stuck-now"
    plain = old.start_agent

    def start_agent(password: str | None = "only for tests") -> None:
        with monkeypatch.context() as patch:
            patch.setenv("LD_PRELOAD", str(stuck_library))
            patch.setenv("STUCK", call)
            patch.setenv("STUCK_FILE", str(flag))
            plain(password)

    old.start_agent = start_agent  # type: ignore[method-assign]
    made.start()
    assert old.probe("/livez")[0] == 200
    since = boot_ns()
    flag.touch()
    made.wait_new_leader(old, 2 * made.ttl + 3)
    death = old.shim_status()["last_death"]
    assert death["reason"] in ("AgentLost", "LeaseExpired"), death
    assert death["dead_ns"] - since < made.ttl * 1e9
    for path in ("/livez", "/readyz"):
        with pytest.raises((TimeoutError, socket.timeout, ConnectionError)):
            old.probe(path, timeout=1)
    old.kill_agent()
    flag.unlink()
    plain()
    made.wait_converged(3 * made.ttl)
    judge(f"A20 hangs in {call}", made, GUARDED)

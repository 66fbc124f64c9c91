# SPDX-License-Identifier: Apache-2.0
"""metafence-run where nobody did anything wrong: it gets no CPU for longer than a permit lasts, holds go on
for hours, other things stand where its files should be."""

import os
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator

import pytest
from fenceclient import boot_ns
from harness.paths import metafence_run
from harness.process import signal_pid
from harness.waiting import hold, wait_for
from test_shim import Shim

PERMIT_S = 2.0


@pytest.fixture
def shim() -> Iterator[Shim]:
    shim = Shim()
    yield shim
    print(shim.log.read_text())
    shim.close()


def test_newest_permit_counts(shim: Shim) -> None:
    """After a time without CPU its queue begins with permits that have run out, and ends with a good one.
    Whoever judges by the oldest kills a healthy, provable leader."""
    agent = shim.running()
    deadline = shim.lead(agent, PERMIT_S)
    signal_pid(shim.process.pid, signal.SIGSTOP)

    def permits_until(end_ns: int) -> bool:
        agent.leader(PERMIT_S)
        return boot_ns() > end_ns

    wait_for("its permit ran out", lambda: permits_until(deadline + 500_000_000), 30, every=0.2)
    signal_pid(shim.process.pid, signal.SIGCONT)
    agent.until("it has caught up", lambda s: s.order_seq == agent.seq)
    hold(1.0, lambda: agent.leader(PERMIT_S))
    assert (agent.status.alive, agent.status.incarnation, agent.status.fences) == (True, 1, 0)


def test_kill_among_permits_counts(shim: Shim) -> None:
    """What is latched is not lost between two permits that are taken in one turn."""
    agent = shim.running()
    shim.lead(agent, PERMIT_S)
    signal_pid(shim.process.pid, signal.SIGSTOP)
    agent.leader(PERMIT_S)
    agent.kill(4)
    agent.leader(PERMIT_S)
    signal_pid(shim.process.pid, signal.SIGCONT)
    status = agent.until("death", lambda s: s.last_death.incarnation == 1)
    assert status.last_death.reason == "Superseded"


def test_rolling_hold_is_said_once(shim: Shim) -> None:
    """An agent that holds for long moves the end of its short hold ahead with each order."""
    agent = shim.running()
    for step in range(1, 41):
        agent.follower(pause_end_ns=boot_ns() + 60_000_000_000 + step)
        agent.until("taken", lambda s: s.order_seq == agent.seq)
    agent.follower(pause_end_ns=boot_ns() + 3600_000_000_000)
    agent.until("taken", lambda s: s.order_seq == agent.seq)
    agent.follower()
    agent.until("resumed", lambda s: s.pause_end_ns == 0)
    wait_for("all is said", lambda: shim.log.read_text().count('msg="pause changed"') >= 3, 5)
    assert shim.log.read_text().count('msg="pause changed"') == 3  # begun, prolonged, ended


def test_socket_that_somebody_serves_stays_his(shim: Shim) -> None:
    """Also while his queue is full, when a connection is not refused but put off."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as owner:
        owner.bind(str(shim.socket))
        owner.listen(0)
        waiting = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(3)]
        for s in waiting:
            s.setblocking(False)
            s.connect_ex(str(shim.socket))
        inode = os.stat(shim.socket).st_ino
        shim.start("sh", "-c", "exit 0")
        assert shim.process.wait(10) == 1
        assert "another process listens there" in shim.log.read_text()
        assert os.stat(shim.socket).st_ino == inode
        for s in waiting:
            s.close()


def test_everybody_may_connect_and_be_refused_by_uid(shim: Shim) -> None:
    """The agent may run as another user than meta, whatever umask the image has."""
    old = os.umask(0o077)
    try:
        shim.running()
    finally:
        os.umask(old)
    assert stat.S_IMODE(os.stat(shim.socket).st_mode) & 0o666 == 0o666


def test_many_silent_ones_displace_nobody(shim: Shim) -> None:
    agent = shim.running()
    strangers = []
    for _ in range(12):
        strangers.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        strangers[-1].connect(str(shim.socket))
        agent.follower()  # raises Closed when it was displaced
        agent.until("taken", lambda s: s.order_seq == agent.seq)
    for stranger in strangers:
        stranger.close()


def test_probe_answers_whatever_stands_there(shim: Shim) -> None:
    os.mkfifo(shim.state)
    argv = [str(metafence_run()), "probe", "liveness", "--state", str(shim.state)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=10)
    assert done.returncode == 1 and done.stdout.startswith("fail: ")
    shim.start("sh", "-c", "exit 0")
    assert shim.process.wait(10) == 1

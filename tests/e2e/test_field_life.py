# SPDX-License-Identifier: Apache-2.0
"""Starts and ends: a slow start, everything down at the start, a stopped child whose parent leaves, clients
that hold on to a dead leader, a host whose clock is wrong, a database that forgets the last term."""

import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from harness import Cluster, Lab, Pod, Postgres, Proxy, boot_ns, hold, wait_for
from harness.paths import postgres_bin
from harness.process import descendants, signal_pid
from kube import AFTER_FAULT_S, Open
from scenario import Case, Fault, Make, cut_link, judge

GUARDED = Case(5, True, 0)


def test_slow_start_is_left_alone(cluster: Make) -> None:
    """Booting takes longer than two leases, and leadership moves meanwhile: nobody shoots it for that."""
    made = cluster(ttl=5)
    slow = made.pods[2]
    slow.meta_flags = ["--slow-start=12s"]
    made.install_sql()
    old = made.pods[0].start()
    old.wait_leading(15)
    made.pods[1].start()
    wait_for("the second follows", lambda: made.pods[1].is_follower, 10)
    slow.start()
    wait_for("the third boots", lambda: slow.incarnations == 1, 10)
    hold(4)
    made.postgres.sql("UPDATE election_leader SET id = %s, last_heartbeat = now()", made.pods[1].id)
    made.wait_new_leader(old, 5)
    wait_for("it is a follower in the end", lambda: slow.is_follower, 20)
    assert slow.incarnations == 1 and slow.kills() == 0
    assert made.wait_converged(15) is made.pods[1]


def test_everything_down_at_the_start(kube: Open) -> None:
    """Neither Postgres nor the API: the agents run and answer, nobody waits for them in vain, and all comes
    right by itself."""
    made = kube()
    made.cluster.install_sql()
    made.cluster.postgres.stop()
    made.api.break_by("down")
    for pod in made.pods:
        pod.start()
    for pod in made.pods:
        wait_for(f"probes of {pod.name}", lambda p=pod: p.agent is not None and p.status() is not None, 10)

    def answers() -> None:
        for pod in made.pods:
            assert pod.probe("/livez")[0] == 200
            assert pod.agent is not None and pod.agent.alive
            assert pod.status()["role"] in ("unknown", "held")  # type: ignore[index]

    hold(2 * made.cluster.ttl, answers)
    made.cluster.postgres.start()
    # The hold for an unreachable database ends with the first good read.
    leader = made.cluster.wait_converged(60)
    assert made.kills() == 0
    made.api.heal()
    made.wait_labels(leader, AFTER_FAULT_S)


def test_stopped_child_whose_parent_is_gone(cluster: Make) -> None:
    """The fence is not over when the first process ends: a daemon child that is stopped keeps the port."""
    made = cluster(ttl=5, meta_flags=["--double-fork"])
    old = made.start()
    wait_for("the leader is covered", lambda: (old.status() or {}).get("rule") == "Leader", 5)
    tree = [p for p in descendants(old.main.pid) if p != old.meta_pid]
    children = wait_for(
        "its child ticks", lambda: {e.pid for e in old.witness.events("tick")} - {old.meta_pid}, 10
    )
    for child in {*tree, *children}:
        signal_pid(child, signal.SIGSTOP)
    made.postgres.sql("UPDATE election_leader SET id = %s, last_heartbeat = now()", made.pods[1].id)
    wait_for("the kill is noted", lambda: old.kills() == 1, 5)
    dead = wait_for("the agent has the proof", lambda: old.agent_log.find(msg="dead"), 5)
    assert dead
    assert not [p for p in {*tree, *children} if _lives(p)], "reported dead while a child lives"
    made.wait_converged(3 * made.ttl)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_clients_of_the_old_leader_are_cut(cluster: Make) -> None:
    """No label and no Service is needed for it: their connections end with the process, before anybody else
    can lead, and new ones are refused."""
    made = cluster(ttl=5)
    old = made.start()
    fault = cut_link(old, "stall")
    port = old.metrics_port
    with socket.create_connection(("127.0.0.1", port), timeout=made.ttl + 3) as client:
        renewed = old.witness.events("renew")[-1].boot_ns
        try:
            ended = client.recv(1) == b""
        except ConnectionError:
            ended = True
        assert ended and boot_ns() < renewed + int(made.ttl * 1e9), "cut when another could lead already"

    def refused() -> bool:
        with socket.socket() as late:
            return late.connect_ex(("127.0.0.1", port)) != 0

    # The kernel closes a dying process's sockets one after the other.
    wait_for("new clients are refused", refused, (renewed - boot_ns()) / 1e9 + made.ttl)
    made.wait_new_leader(old, made.ttl + 3)
    fault.wait_end()
    old.proxy.heal()
    made.wait_converged(2 * made.ttl)
    judge("E03 clients are cut", made, GUARDED)


@pytest.mark.parametrize(("shift_s", "percent"), [(3600, 0), (-3600, 0), (0, 10), (-86400 * 400, -10)])
def test_wrong_clock(
    cluster: Make, lab: Lab, monkeypatch: pytest.MonkeyPatch, shift_s: int, percent: int
) -> None:
    """The host's wall clock is wrong, or drifts: not one decision looks at it."""
    library = lab.dir / "stuck.so"
    source = Path(__file__).with_name("stuck.c")
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    made = cluster(ttl=5)
    old = made.pods[0]
    plain = old.start_agent

    def start_agent() -> None:
        with monkeypatch.context() as patch:
            patch.setenv("LD_PRELOAD", str(library))
            patch.setenv("SHIFT_S", str(shift_s))
            patch.setenv("SHIFT_PERCENT", str(percent))
            plain()

    old.start_agent = start_agent  # type: ignore[method-assign, assignment]
    made.start()
    pid = old.meta_pid
    hold(2 * made.ttl)
    assert old.meta_pid == pid and [p.kills() for p in made.pods] == [0, 0, 0]
    if shift_s:  # the wrong clock is what it logs with
        year = old.agent_log.records()[-1]["ts"][:13]
        assert year != made.pods[1].agent_log.records()[-1]["ts"][:13]
    fault = Fault.begins(made.ttl)
    old.proxy.order("mode stall")
    made.wait_new_leader(old, made.ttl + 3)
    fault.wait_end()
    old.proxy.heal()
    made.wait_converged(3 * made.ttl)
    judge(f"B16 clock {shift_s:+} s {percent:+} %", made, GUARDED)


# --- a failover that loses the last term ---


class Standby:
    """A streaming copy of a Postgres whose replay can be stopped, and which can be promoted."""

    def __init__(self, lab: Lab, primary: Postgres) -> None:
        self.lab, self.port = lab, lab.port()
        home = lab.dir / "standby"
        home.mkdir()
        user: dict[str, Any] = {}
        if os.geteuid() == 0:
            shutil.chown(home, "postgres")
            user = {"user": "postgres", "group": "postgres", "extra_groups": []}
        copy = [postgres_bin("pg_basebackup"), "-D", home / "data", "-R", "-X", "stream", "-c", "fast"]
        where = f"host=127.0.0.1 port={primary.port} user=postgres"
        subprocess.run([*copy, "-d", where], check=True, capture_output=True, cwd="/", **user)
        self.server = Postgres.__new__(Postgres)
        self.server.lab, self.server.port, self.server.dir = lab, self.port, home
        self.server.data, self.server.log = home / "data", home / "postgres.log"
        with open(home / "data" / "postgresql.conf", "a") as conf:
            conf.write(f"port = {self.port}\n")
        self.server.start()


def test_failover_that_loses_the_last_term(cluster: Make, lab: Lab) -> None:
    """A leads, replication stops, B takes over on the primary, the primary is lost, the standby knows only of
    A. What A's agent reads there is no proof until it is seen to advance, B is ended, and one leads."""
    made = cluster(ttl=5, pods=2)
    first = made.start()
    second = made.pods[1]
    standby = Standby(lab, made.postgres)
    wait_for(
        "the copy is up to date",
        lambda: standby.server.sql("SELECT id FROM election_leader") == [(first.id,)],
        10,
    )
    standby.server.sql("SELECT pg_wal_replay_pause()")
    # The receiver too: what it has taken is replayed at the promotion.
    standby.server.sql("ALTER SYSTEM SET primary_conninfo = ''")
    standby.server.sql("SELECT pg_reload_conf()")
    hold(0.5)
    made.postgres.sql("UPDATE election_leader SET id = %s, last_heartbeat = now()", second.id)
    made.wait_converged(3 * made.ttl)
    assert made.leaders() == [second]
    pid = second.meta_pid
    made.postgres.stop("immediate")
    standby.server.sql("SELECT pg_promote()")
    for pod in made.pods:  # the Service leads to the new primary
        pod.proxy.order("mode reset")
    relay = [_moved(made, pod, standby.port) for pod in made.pods]
    assert len(relay) == 2
    made.postgres = standby.server
    wait_for("whose term is lost is dead", lambda: not second.meta_alive or second.meta_pid != pid, 10)
    leader = made.wait_converged(6 * made.ttl)
    owner = standby.server.sql("SELECT id FROM election_leader")
    assert owner == [(leader.id,)]


def _moved(made: Cluster, pod: Pod, port: int) -> Proxy:
    """The pod's address of Postgres, leading elsewhere from now on."""
    address = pod.proxy.port
    pod.proxy._process.kill()
    (pod.dir / "proxy.sock").unlink()
    moved = Proxy.__new__(Proxy)
    taken = made.lab.port
    made.lab.port = lambda: address  # type: ignore[method-assign]
    try:
        moved.__init__(made.lab, port, pod.dir)  # type: ignore[misc]
    finally:
        made.lab.port = taken  # type: ignore[method-assign]
    pod.proxy = moved
    return moved

# SPDX-License-Identifier: Apache-2.0
"""Answers that make no sense are a clear message or "unknown": never a crash, never a kill.

Each test feeds something wrong from outside to a healthy cluster and sees to it that agent, shim and
leader are the same processes afterwards.
"""

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from harness import Cluster, Pod, hold, wait_for
from harness.paths import postgres_bin
from scenario import Make


@contextmanager
def untouched(made: Cluster) -> Iterator[None]:
    """Same agents, same metas, no kill; and at the end the cluster is as it should be."""
    agents = [p.agent.pid for p in made.pods if p.agent]
    metas = [p.meta_pid for p in made.pods]
    yield
    assert all(p.agent is not None and p.agent.alive for p in made.pods), "an agent crashed"
    assert all(p.main.alive for p in made.pods), "a metafence-run crashed"
    assert [p.agent.pid for p in made.pods if p.agent] == agents
    assert [p.meta_pid for p in made.pods] == metas, made.describe()
    assert [p.kills() for p in made.pods] == [0] * len(made.pods)


@pytest.mark.parametrize("heartbeat", ["NULL", "now() + interval '1 hour'"])
def test_heartbeat_that_says_nothing(cluster: Make, heartbeat: str) -> None:
    """The live owner repairs it within a second."""
    made = cluster(ttl=5)
    leader = made.start()
    with untouched(made):
        for _ in range(5):
            # Right after a renewal: the agent has nearly a second to see it.
            renewed = renewals(leader) + 1
            wait_for("the next renewal", lambda n=renewed: renewals(leader) >= n, made.ttl)
            made.postgres.sql(f"UPDATE election_leader SET last_heartbeat = {heartbeat}")
            broken = leader.agent_log.expect(msg="rule changed", rule="RowBroken")
            assert broken
            made.wait_converged(made.ttl)


def test_empty_table(cluster: Make) -> None:
    """A row that is absent for a moment is no verdict on anybody: here the leader is the only one that
    can write it again."""
    made = cluster(ttl=5, pods=1)
    pod = made.start()
    with untouched(made):
        for _ in range(5):
            made.postgres.sql("DELETE FROM election_leader")
            wait_for("the row is there again", lambda: made.owner() is pod, made.ttl)
            wanted = renewals(pod) + 2
            wait_for("two renewals later", lambda: renewals(pod) >= wanted, made.ttl)
            pod.wait_status("leads", lambda s: s["rule"] == "Leader" and s["deadline_ms_left"] > 3000, 3)


def renewals(pod: Pod) -> int:
    return len(pod.witness.events("renew"))


def test_table_of_another_shape(cluster: Make) -> None:
    """The configured table is not the election's: said by name, and nobody is covered."""
    made = cluster(ttl=5, pods=1)
    made.postgres.sql(
        "CREATE TABLE strange (service varchar, id integer, last_heartbeat text);"
        "INSERT INTO strange VALUES ('__meta_election_', 42, 'yesterday'); GRANT ALL ON strange TO meta"
    )
    pod = made.pods[0]
    pod.config["election"]["leaderTable"] = "strange"
    pod.start()
    pod.wait_leading(10)
    with untouched(made):
        status = pod.wait_status("unarmed", lambda s: "Unarmed" in s["not_covered"], 5)
        assert status["rule"] == "RowBroken" and status["row"]["defect"] == "unreadable", status
        hold(made.ttl + 1)


def test_view_in_place_of_the_election_table(cluster: Make) -> None:
    """A view can't carry the term trigger: install refuses, by name."""
    made = cluster(ttl=5, pods=1)
    made.postgres.sql(
        "ALTER TABLE election_leader RENAME TO real_leader;"
        "CREATE VIEW election_leader AS SELECT * FROM real_leader;"
        "ALTER VIEW election_leader OWNER TO meta"
    )
    made.pods[0].write_config()
    done = made.pods[0].cli("sql", "install")
    assert done.returncode == 1, done
    assert '"election_leader" is a view' in done.stderr, done.stderr


def test_standby_in_place_of_the_primary(cluster: Make) -> None:
    """A standby's row may be old: no read at all. The agent says so and its meta lives on."""
    made = cluster(ttl=5, pods=1, run_flags=["--database-hold=3s"])
    pod = made.pods[0]
    pod.config["postgres"]["port"] = standby_of(made)
    pod.start()
    pod.wait_leading(20)
    with untouched(made):
        pod.agent_log.expect(msg="database", state="standby")
        status = pod.wait_status("unarmed", lambda s: "Unarmed" in s["not_covered"], 5)
        assert not status["armed"]
        hold(made.ttl + 1)


def standby_of(made: Cluster) -> int:
    """A streaming standby of the cluster's Postgres; its port."""
    primary = made.postgres
    port = made.lab.port()
    home = made.lab.dir / "standby"
    home.mkdir()
    if os.geteuid() == 0:
        shutil.chown(home, "postgres")
    user = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
    copy = [postgres_bin("pg_basebackup"), "-D", home / "data", "-R", "-X", "stream", "-c", "fast"]
    subprocess.run(
        [*copy, "-d", f"host=127.0.0.1 port={primary.port} user=postgres"],
        check=True,
        capture_output=True,
        cwd="/",
        **user,  # type: ignore[call-overload]
    )
    argv = [postgres_bin("postgres"), "-D", home / "data", "-p", str(port)]
    made.lab.spawn("standby", argv, home / "postgres.log", user="postgres")
    return port


GARBAGE = [b"", b"\0" * 7, b"{", b'{"cmd":"nothing"}\n', b'{"cmd":' + b"[" * 5000 + b"\n", os.urandom(70_000)]


def test_garbage_on_the_control_socket(cluster: Make) -> None:
    made = cluster(ttl=5)
    leader = made.start()
    with untouched(made):
        for bytes_ in GARBAGE:
            _talk(leader, "agent.sock", socket.SOCK_STREAM, bytes_)
        hangers = [_connect(leader, "agent.sock", socket.SOCK_STREAM) for _ in range(64)]
        assert leader.status() is not None, "idle clients shut others out"
        for client in hangers:
            client.close()
        made.wait_converged(made.ttl)


def test_garbage_on_the_fence_socket(cluster: Make) -> None:
    made = cluster(ttl=5)
    leader = made.start()
    with untouched(made):
        for bytes_ in GARBAGE:
            _talk(leader, "fence.sock", socket.SOCK_SEQPACKET, bytes_)
        hold(made.ttl + 1)
        made.wait_converged(made.ttl)


def _connect(pod: Pod, name: str, kind: int) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, kind)
    client.connect(str(pod.dir / name))
    client.settimeout(2)
    return client


def _talk(pod: Pod, name: str, kind: int, bytes_: bytes) -> None:
    with _connect(pod, name, kind) as client:
        try:
            client.send(bytes_)
            client.recv(65536)
        except (TimeoutError, BrokenPipeError, ConnectionResetError):
            pass  # refusing to answer is an answer


@pytest.mark.parametrize("answer", [b"", b"\0" * 9, b"HTTP/1.1 200 OK\r\n\r\n", os.urandom(4096)])
def test_garbage_from_the_meta_port(cluster: Make, answer: bytes) -> None:
    """Something else listens where the agent asks for the recovery status."""
    made = cluster(ttl=5, pods=1)
    pod = made.pods[0]
    with garbage_server(answer) as port:
        pod.config["meta"]["servicePort"] = port
        made.start()
        with untouched(made):
            hold(made.ttl + 1)
            made.wait_converged(made.ttl)


@contextmanager
def garbage_server(answer: bytes) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    client, _ = server.accept()
                    with client:
                        client.sendall(answer)
                        client.recv(4096)
                except OSError:
                    if server.fileno() < 0:
                        return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)

# SPDX-License-Identifier: Apache-2.0
"""pgbouncer in transaction mode between metas and Postgres: what a tag is worth there, and what is said."""

import os
import shutil
from pathlib import Path

import psycopg
import pytest
from computes import WORKERS, aborts, call, deeds, with_registry
from harness import Cluster, Pod, hold, wait_for
from harness.postgres import DATABASE, PASSWORD, USER
from harness.process import Process
from pooler import Pooler
from scenario import Make

INI = """
[databases]
{database} = host=127.0.0.1 port={postgres} dbname={database} user={user} password='{password}'
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 20
ignore_startup_parameters = extra_float_digits,options
"""


class Bouncer:
    def __init__(self, made: Cluster) -> None:
        self.port = made.lab.port()
        directory = made.lab.dir / "pgbouncer"
        directory.mkdir(mode=0o755)
        ini = directory / "pgbouncer.ini"
        ini.write_text(
            INI.format(
                database=DATABASE,
                postgres=made.postgres.port,
                user=USER,
                password=PASSWORD,
                port=self.port,
            )
        )
        program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
        assert program, "pgbouncer is missing: run ./dev setup"
        self.process: Process = made.lab.spawn(
            "pgbouncer", [Path(program), ini], directory / "log", user="postgres"
        )

        self.dsn = f"host=127.0.0.1 port={self.port} dbname={DATABASE} user={USER}"

        def answers() -> bool:
            assert self.process.alive, (directory / "log").read_text()[-2000:]
            try:
                psycopg.connect(self.dsn).close()
                return True
            except psycopg.OperationalError:
                return False

        wait_for("pgbouncer answers", answers, 30)


def behind(made: Cluster, port: int, is_agent_too: bool) -> None:
    """The metas, and their agents too, connect to `port`."""
    made.pods[0].config["postgres"]["port"] = made.postgres.port
    made.install_sql()
    for pod in made.pods:
        pod.proxy.port = port
        if is_agent_too:
            pod.config["postgres"]["port"] = port
            pod.config["election"]["leaderTable"] = "public.election_leader"
            pod.config["election"]["memberTable"] = "public.election_member"
        else:
            pod.config["postgres"]["port"] = made.postgres.port


def counters(made: Cluster) -> dict[str, int]:
    return dict(made.postgres.sql("SELECT name, value FROM metafence.counters()"))  # type: ignore[arg-type]


def tag_of(pod: Pod) -> str:
    return pod.witness.events("start", pod.meta_pid)[-1].fields["tag"]


def wait_rounds(leader: Pod) -> None:
    """Its agent has looked for what the leader's memory lacks, several times."""

    def rounds() -> int:
        status = leader.status()
        return status["workers"]["rounds"] if status else 0

    wanted = rounds() + 4
    wait_for("more rounds", lambda: rounds() >= wanted, 60)


@pytest.mark.parametrize("is_agent_too", [False, True], ids=["metas", "all"])
def test_behind_pgbouncer(cluster: Make, is_agent_too: bool) -> None:
    """It gives each transaction the application_name of its client: tags arrive, and all is covered."""
    made = cluster(ttl=10, pods=2, meta_flags=WORKERS)
    with_registry(made)
    bouncer = Bouncer(made)
    behind(made, bouncer.port, is_agent_too)
    old = made.start(sql=False)
    term = old.wait_status("its term is known", lambda s: s["term"]["owner_tag"] == tag_of(old), 30)
    assert term["not_covered"] == [] and term["database"]["pooled"] == is_agent_too
    old_tag = tag_of(old)

    # What the leader does to the workers' rows is its own, whatever session it gets.
    ids = [call(old, "register", f"10.9.8.{n}")["worker"] for n in range(4)]
    call(old, "delete", "10.9.8.0")
    logged = made.postgres.sql("SELECT DISTINCT tag FROM metafence.mutation")
    assert logged == [(old_tag,)]
    wait_rounds(old)

    # Another leads. Of the former one nothing comes in any more, through whatever session.
    old.kill()
    made.postgres.sql("DELETE FROM election_leader")
    new = made.wait_new_leader(old, 30)
    new.wait_status("its term is known", lambda s: s["term"]["owner_tag"] == tag_of(new), 30)
    with psycopg.connect(bouncer.dsn, application_name=old_tag, autocommit=True) as zombie:
        for _ in range(10):
            with pytest.raises(psycopg.Error) as refusal:
                zombie.execute("DELETE FROM worker")
            assert refusal.value.sqlstate == "MF001"
    assert call(new, "register", "10.9.8.1")["worker"] == ids[1]
    wait_rounds(new)
    seen = counters(made)
    assert seen["untagged"] == seen["takeover_without_lock"] == 0 and seen["refused"] > 0
    if is_agent_too:
        assert "pooler        yes" in made.pods[0].cli("sql", "status").stdout
    assert not deeds(made) and not aborts(made) and new.incarnations == 1


def test_behind_a_pooler_that_hides_names(cluster: Make) -> None:
    """No tag arrives: the lease is watched and the fence works, but there is no P5, which `sql status` says;
    and as nothing tells the leader's writes from others', nothing is done to it for them."""
    made = cluster(ttl=10, pods=2, meta_flags=[*WORKERS, "--tick=1s"])
    with_registry(made)
    with Pooler(made.postgres, DATABASE, made.lab.port()) as pooler:
        behind(made, pooler.port, is_agent_too=False)
        old = made.start(sql=False)
        pid = old.meta_pid
        old.wait_status("nobody's term", lambda s: s["term"]["known"] and s["term"]["owner_tag"] == "", 30)
        call(old, "register", "10.9.8.1")
        wait_for("statements are counted", lambda: counters(made)["untagged"] > 0, 30)
        assert "P5 off" in made.pods[0].cli("sql", "status").stdout
        hold(3)
        assert not old.status()["workers"]["leading"]  # type: ignore[index]
        made.wait_converged(20)
        assert old.meta_pid == pid and old.kills() == 0 and not deeds(made)
        made.postgres.sql("UPDATE election_leader SET id = %s, last_heartbeat = now()", made.pods[1].id)
        wait_for("the old leader is killed", lambda: old.kills() == 1, 20)
        assert old.meta_pid != pid or not old.meta_alive

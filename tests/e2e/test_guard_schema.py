# SPDX-License-Identifier: Apache-2.0
"""The guard as it comes, lives through RisingWave's migrations, and goes: beside real metas and agents."""

import json
import os
import subprocess

import psycopg
import pytest
from harness import Cluster, Lab, Pod, hold, wait_for
from harness.paths import metasim, postgres_bin
from harness.postgres import DATABASE, PASSWORD, USER
from pooler import Pooler
from scenario import Make


def migrate(made: Cluster, version: str) -> None:
    """As a meta of that version does it at its start, with the metas' own role."""
    dsn = made.postgres.dsn(USER) + f" password='{PASSWORD}'"
    argv = [metasim(), "schema", "--version", version]
    done = subprocess.run(argv, env=os.environ | {"METASIM_DSN": dsn}, capture_output=True, text=True)
    assert done.returncode == 0, f"schema {version}: {done.stderr}"


def sql_status(pod: Pod) -> dict[str, object]:
    done = pod.cli("sql", "status", "-o", "json")
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def wait_guarded(made: Cluster, at_least: int) -> int:
    """The agents have put the guard on every table that is there."""

    def count() -> int | None:
        status = sql_status(made.pods[0])
        is_whole = status["unguarded"] == 0 and isinstance(status["guarded"], int)
        return int(str(status["guarded"])) if is_whole and int(str(status["guarded"])) >= at_least else None

    return wait_for(f"{at_least} tables are guarded", count, 90, 0.3)


def supersede(made: Cluster, tag: str) -> None:
    """That tag led once: a zombie of long ago."""
    made.postgres.sql(
        "INSERT INTO metafence.tag (tag, id, first_seen, owned_term, superseded)"
        " VALUES (%s, 'zombie:5690', now(), 0, true)",
        tag,
    )


def refuse(made: Cluster, tag: str, statement: str) -> None:
    with psycopg.connect(made.postgres.dsn(USER), password=PASSWORD, application_name=tag) as zombie:
        with pytest.raises(psycopg.Error) as refusal:
            zombie.execute(statement)
        zombie.rollback()
    assert refusal.value.sqlstate == "MF001", refusal.value


ZOMBIE = "metafence:zombie01:00000000000000aa"


def test_fresh_database_and_every_migration(cluster: Make) -> None:
    """Installed before there is anything: the agent of the leader brings the guard as the tables appear, with
    each version's migration, and those migrations run on guarded tables."""
    made = cluster(ttl=10, pods=2)
    leader = made.start()
    assert sql_status(leader)["guarded"] == 0
    supersede(made, ZOMBIE)
    counts = []
    for version in ("v2.0", "v2.6", "v3.0", "head", "next"):
        if version == "head":  # its migration deletes all workers
            made.postgres.sql(
                "INSERT INTO worker (worker_type, host, port, status)"
                " VALUES ('COMPUTE_NODE', 'h', 1, 'RUNNING')"
            )
        migrate(made, version)
        counts.append(wait_guarded(made, counts[-1] if counts else 10))
        refuse(made, ZOMBIE, "INSERT INTO hummock_sequence (name, seq) VALUES ('z', 1)")
        refuse(made, ZOMBIE, "DELETE FROM catalog_version; INSERT INTO catalog_version VALUES ('z', 1)")
    print(f"guarded tables, version by version: {counts}")
    assert made.postgres.sql("SELECT count(*) FROM worker") == [(0,)]
    assert leader.kills() == 0 and made.wait_converged(10) is leader
    counters = dict(made.postgres.sql("SELECT name, value FROM metafence.counters()"))
    assert counters["refused"] == 2 * len(counts)
    assert counters["unreadable"] + counters["unrecorded"] == 0


def test_the_dump_after_an_uninstall_is_the_one_before(cluster: Make) -> None:
    """Under a leader that writes: nothing of the guard is left, no meta is killed for it."""
    made = cluster(ttl=10, pods=2)
    migrate(made, "head")

    def dump() -> str:
        argv = [postgres_bin("pg_dump"), "-s", "-d", made.postgres.dsn()]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        return "\n".join(line for line in done.stdout.splitlines() if not line.startswith("\\"))

    made.install_sql()  # a first time, so that the leader's own tables are in both dumps
    leader = made.start(sql=False)
    assert leader.cli("sql", "uninstall").returncode == 0
    before = dump()
    assert "metafence" not in before
    hold(1)
    made.install_sql()
    assert "metafence_guard" in dump() and "metafence_hold" in dump()
    done = leader.cli("sql", "uninstall", "--timeout", "60s", timeout=90)
    assert done.returncode == 0, done.stderr
    assert dump() == before
    made.wait_converged(30)


def test_pooler_is_told_and_never_guessed_through(cluster: Make) -> None:
    """Through a pooler in transaction mode the search_path is anybody's. An unqualified leader table is
    refused there by the installation; the schema's name makes it right whatever others set."""
    made = cluster(ttl=10, pods=1)
    pod = made.pods[0]
    made.postgres.sql("CREATE SCHEMA theirs")
    made.postgres.sql("CREATE TABLE theirs.election_leader (LIKE public.election_leader)")
    with Pooler(made.postgres, DATABASE, made.lab.port()) as pooler:
        pod.config["postgres"]["port"] = pooler.port
        pod.write_config()
        pooler.run("SET search_path = theirs, public")
        done = pod.cli("sql", "install")
        assert done.returncode == 1 and "behind a pooler" in done.stderr, done.stderr
        assert "schema.election_leader" in done.stderr
        nothing = "SELECT count(*) FROM pg_namespace WHERE nspname = 'metafence'"
        assert made.postgres.sql(nothing) == [(0,)]
        pod.config["election"]["leaderTable"] = "public.election_leader"
        pod.write_config()
        for setting in ("theirs, public", "''", "pg_catalog"):
            pooler.run(f"SET search_path = {setting}")
            done = pod.cli("sql", "install", "--guard", "enforce")
            assert done.returncode == 0, done.stderr
            assert "through a pooler" in done.stderr
            status = pod.cli("sql", "status")
            assert status.returncode == 0 and "pooler        yes" in status.stdout, status.stdout
        owner = "SELECT tgrelid::regclass::text FROM pg_trigger WHERE tgname = 'metafence_term'"
        assert made.postgres.sql(owner) == [("election_leader",)]


def test_two_tags_of_one_session(cluster: Make, lab: Lab) -> None:
    """Metas behind a session pooler: the second tag that comes on a session is seen and said."""
    made = cluster(ttl=10, pods=1)
    made.install_sql()
    with psycopg.connect(made.postgres.dsn(USER), password=PASSWORD, autocommit=True) as session:
        for number in (1, 2):
            session.execute(f"SET application_name = 'metafence:pooled01:000000000000000{number}'")
            session.execute(
                "INSERT INTO election_leader VALUES ('s', 'meta', clock_timestamp()) ON CONFLICT (service) DO"
                " UPDATE SET last_heartbeat = excluded.last_heartbeat"
            )
    status = made.pods[0].cli("sql", "status")
    assert "pooler        likely: 1" in status.stdout, status.stdout

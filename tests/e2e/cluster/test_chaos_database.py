# SPDX-License-Identifier: Apache-2.0
"""What ./dev chaos does to Postgres is what it says, and what it reads there is what happened: on a Postgres
of the cluster without the rest of it."""

import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from chaos import evidence
from chaos.database import FullDisk, SteppedClock, fail_over
from harness.waiting import boot_ns, wait_for
from kubelab import Cluster, Database, Postgres, Settings, cgroups, network, preflight
from kubelab.fixtures import private_cluster

DISK_MB = 160


@pytest.fixture(scope="module")
def lonely() -> Iterator[Cluster]:
    """A cluster of which only the Postgres is there."""
    with private_cluster(Settings(postgres_mb=DISK_MB)) as cluster:
        preflight.check()
        cluster.down()
        cluster.layout.logs.mkdir(parents=True)
        cgroups.make_for_tracking(cluster.layout.name("cp"))
        network.make(cluster.layout, 0)
        cluster.postgres.create()
        yield cluster
    assert cluster.leftovers() == []


@pytest.fixture
def postgres(lonely: Cluster) -> Iterator[Postgres]:
    lonely.postgres.start()
    yield lonely.postgres
    lonely.postgres.kill()


@pytest.fixture
def database(postgres: Postgres) -> Iterator[Database]:
    made = Database(postgres, "chaos").create()
    yield made
    made.drop()


def is_off_by(session: "psycopg.Connection[Any]", seconds: float) -> bool:
    before = time.time()
    [(now,)] = session.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchall()
    return before - 0.01 <= now - seconds <= time.time() + 0.01


def test_its_clock_steps(postgres: Postgres) -> None:
    clock = SteppedClock(postgres)
    postgres.restart("fast")
    with postgres.connect() as old:
        for seconds in (0, 12, -40, 0):
            clock.step(seconds)
            assert is_off_by(old, seconds), "a session that was there sees it"
            with postgres.connect() as new:
                assert is_off_by(new, seconds)


def test_its_disk_is_full(postgres: Postgres, database: Database) -> None:
    database.sql("CREATE TABLE t AS SELECT 1 AS n")
    disk = FullDisk(postgres)
    disk.fill()

    def refused() -> str | None:
        try:
            database.sql("INSERT INTO t SELECT generate_series(1, 100000)")
            return None
        except (psycopg.errors.DiskFull, psycopg.OperationalError) as error:
            return str(error)

    wait_for("there is no room", refused, 20)
    disk.clear()
    postgres.wait_ready()
    database.sql("INSERT INTO t SELECT generate_series(1, 100000)")
    assert database.sql("SELECT count(*) FROM t") == [(100001,)]


def test_a_standby_takes_over_without_the_last_seconds(postgres: Postgres, database: Database) -> None:
    database.sql("CREATE TABLE t (n int)")
    for _ in range(2):  # and what took over can be failed over itself
        database.sql("TRUNCATE t")
        database.sql("INSERT INTO t VALUES (1)")
        take_over = fail_over(postgres, lambda: database.sql("INSERT INTO t VALUES (2)") and None)
        assert not postgres.program.alive
        take_over()
        assert database.sql("SELECT n FROM t") == [(1,)]
    [(file,)] = database.sql("SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)")
    assert file == "00000003", "two promotions"
    assert not (postgres.dir / "standby").exists()


def test_the_log_has_what_happened_by_the_clock_since_the_boot(
    postgres: Postgres, database: Database
) -> None:
    """Tables of the same names stand for metafence's and RisingWave's."""
    database.sql(
        "CREATE SCHEMA metafence; CREATE TABLE metafence.term (service text, term bigint, owner_id text,"
        " owner_tag text); CREATE TABLE worker (n int); CREATE TABLE hummock_sequence (n int)"
    )
    evidence.install(database)
    evidence.watch_writes(database, ("worker", "hummock_sequence"))
    before = boot_ns()
    with database.connect() as session:
        session.execute("SET application_name = 'the tag'")
        session.execute("INSERT INTO metafence.term VALUES ('s', 1, 'me', 'the tag')")
        session.execute("UPDATE metafence.term SET term = 1")
        heartbeat = "INSERT INTO election_leader VALUES ('s', 'me', now() - interval '5 s')"
        session.execute(heartbeat)
        session.execute("UPDATE election_leader SET id = id")
        with session.transaction(), session.transaction():
            session.execute("INSERT INTO worker SELECT generate_series(1, 10)")
        with session.transaction(force_rollback=True):
            session.execute("DELETE FROM worker")
        session.execute("TRUNCATE hummock_sequence")
    after = boot_ns()
    log = evidence.read(database)
    assert [(e.kind, e.tag, e.id, e.term, e.relation, e.operation) for e in log] == [
        ("term", "the tag", "me", 1, "", ""),
        ("renewal", "the tag", "me", 0, "", ""),
        ("write", "the tag", "", 0, "worker", "INSERT"),
        ("write", "the tag", "", 0, "hummock_sequence", "TRUNCATE"),
    ]
    assert all(e.xid > 0 and len(e.snapshot.split(":")) == 3 for e in log)
    resolution = 20_000_000
    for entry in log:
        lease = 5 * 10**9 if entry.kind == "renewal" else 0
        assert before - resolution <= entry.boot_ns + lease <= after + resolution, entry
    assert evidence.lost(database) == 0
    database.sql("ALTER TABLE chaos.log ADD CHECK (kind <> 'write') NOT VALID")
    database.sql("INSERT INTO worker VALUES (11)")
    assert evidence.lost(database) == 1 and len(evidence.read(database)) == len(log)

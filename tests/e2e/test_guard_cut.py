# SPDX-License-Identifier: Apache-2.0
"""Installation and removal lose their connection at every statement, once before the server has it and once
before its answer comes: a clear error, metas that notice nothing, and a second try that completes it."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from harness import Cluster
from harness.postgres import PASSWORD, USER
from relay import Relay
from scenario import Make

TAG = "metafence:leader01:00000000000000aa"


@contextmanager
def cutter(made: Cluster) -> Iterator[Relay]:
    cut = Relay(made.postgres.port, made.lab.port())
    made.pods[0].config["postgres"]["port"] = cut.port
    made.pods[0].write_config()
    try:
        yield cut
    finally:
        cut.close()


def lead(made: Cluster) -> None:
    """What the leader does all the time must work in every state in between."""
    with psycopg.connect(
        made.postgres.dsn(USER), password=PASSWORD, application_name=TAG, autocommit=True
    ) as session:
        session.execute(
            "INSERT INTO election_leader AS e VALUES ('s', 'meta', clock_timestamp()) ON CONFLICT (service)"
            " DO UPDATE SET last_heartbeat = excluded.last_heartbeat"
        )
        session.execute("UPDATE worker SET status = 'RUNNING'")
        session.execute(
            "INSERT INTO hummock_sequence VALUES ('a', 1) ON CONFLICT (name) DO UPDATE SET seq = 2"
        )
        session.execute("DELETE FROM hummock_sequence")


def scene(made: Cluster) -> None:
    with made.postgres.connect(user=USER) as session:
        session.execute(
            "CREATE TABLE worker (worker_id serial PRIMARY KEY, worker_type varchar NOT NULL, host varchar,"
            " port int, status varchar, transaction_id int, UNIQUE (host, port));"
            "CREATE TABLE hummock_sequence (name varchar PRIMARY KEY, seq bigint NOT NULL);"
            "INSERT INTO worker (worker_type, host, port, status) VALUES ('COMPUTE_NODE', 'h', 1, 'STARTING')"
        )


def sql(made: Cluster, verb: str) -> None:
    done = made.pods[0].cli("sql", verb)
    assert done.returncode == 0, f"sql {verb}: {done.stderr}"


def cut_everywhere(made: Cluster, cut: Relay, verb: str, places: int) -> int:
    """From the other verb's end, cut at the first statement, at the second …, until it gets through. With one
    place a statement, before it and before its answer take turns."""
    other = "uninstall" if verb == "install" else "install"
    statement = 0
    while True:
        statement += 1
        for is_answered in (False, True) if places == 2 else (statement % 2 == 0,):
            cut.arm(0, False)
            sql(made, other)
            cut.arm(statement, is_answered)
            done = made.pods[0].cli("sql", verb)
            seen = cut.seen
            cut.arm(0, False)
            lead(made)
            if done.returncode == 0:
                assert seen < statement, f"{verb} went on over a cut at statement {statement}"
                return statement - 1
            assert done.returncode == 1 and "connection" in done.stderr, done.stderr
            assert PASSWORD not in done.stderr
            sql(made, verb)
            lead(made)


def test_lost_at_every_statement(cluster: Make, request: pytest.FixtureRequest) -> None:
    places = 2 if request.config.getoption("--full") else 1
    made = cluster(ttl=5, pods=1)
    scene(made)
    with cutter(made) as cut:
        counts = {verb: cut_everywhere(made, cut, verb, places) for verb in ("install", "uninstall")}
        assert made.postgres.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'metafence'") == [(0,)]
        assert made.postgres.sql("SELECT count(*) FROM pg_trigger WHERE tgname LIKE 'metafence%%'") == [(0,)]
    print(f"statements that were cut, each in {places} places: {counts}")
    assert counts["install"] >= 10 and counts["uninstall"] >= 5

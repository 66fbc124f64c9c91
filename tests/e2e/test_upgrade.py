# SPDX-License-Identifier: Apache-2.0
"""Upgrades, in the order of docs/upgrading.md: schema, agents one after the other, and back again.

What an agent of the version before needs of the schema is pinned in surface/ (surface.py). The schema of the
version before is there as its program installed it, in surface/schema-VERSION.sql."""

import json
import re
import signal
from typing import Any

import psycopg
import pytest
import surface
from harness import Cluster, Pod, hold, wait_for
from harness.paths import REPO
from harness.postgres import PASSWORD, USER
from kube import Open, supersede
from scenario import Make
from workerpods import end_pod, pod_of, prepared, wait_judged

GRANT = (REPO / "sql" / "grant.sql").read_text()
NOW = surface.schema_version()
AGENT = "metafence"  # postgres.applicationName
# Where the agent's own sessions have their statements from; the rest is the command line's.
SOURCES = ["agent/pg/election.c", "agent/workers/store.c"]
pytestmark = pytest.mark.timeout(480)
QUIET_S = 3.0  # a kill that should not be would come within a lease


def install(made: Cluster, *words: str) -> str:
    made.pods[0].write_config()
    done = made.pods[0].cli("sql", "install", *words, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def findings(pod: Pod) -> dict[str, str]:
    """check -> fix, of what doctor calls failed."""
    done = pod.cli("doctor", "-o", "json", timeout=60)
    report = json.loads(done.stdout)
    return {f["check"]: f["fix"] for f in report["findings"] if f["level"] == "failed"}


def nobody_dies(made: Cluster, seconds: float = QUIET_S) -> None:
    pids = [pod.meta_pid for pod in made.pods]

    def check() -> None:
        assert [pod.meta_pid for pod in made.pods] == pids, "a meta was started anew"
        for pod in made.pods:
            status = pod.status()
            assert status is None or status["not_covered"] == [], status["not_covered"]

    hold(seconds, check)
    assert [pod.kills() for pod in made.pods] == [0] * len(made.pods)


# --- agent N-1 with schema N ---------------------------------------------------------------------


def test_there_is_a_file_for_this_version_and_the_one_before() -> None:
    assert {NOW - 1, NOW} <= set(surface.versions()), "SQL_VERSION rose: run test_upgrade.py with --write"


@pytest.mark.parametrize("version", surface.versions())
def test_what_agents_of_that_version_use_is_there(cluster: Make, version: int) -> None:
    """With a role of its own, which has no right but those that are granted."""
    made = cluster(pods=1)
    made.postgres.sql(f"CREATE ROLE lookout LOGIN PASSWORD '{PASSWORD}'")
    install(made, "--agent-role", "lookout")
    was = surface.pinned(version)
    assert was["statements"] and was["functions"] and was["tables"]
    login = psycopg.connect(made.postgres.dsn("lookout"), password=PASSWORD, autocommit=True)
    with login as session:
        assert surface.differences(was, session) == []
        for signature in was["functions"]:
            allowed = "SELECT has_function_privilege(%s, 'EXECUTE')"
            assert session.execute(allowed, [f"metafence.{signature}"]).fetchone() == (True,), signature
        for table in was["tables"]:
            session.execute(f"SELECT FROM metafence.{table} LIMIT 1")


SERVICE = "__meta_election_"
TAG = "metafence:7d3f2a10:00000000000000ab"


def statement(version: int, part: str) -> bytes:
    [found] = [s["sql"] for s in surface.pinned(version)["statements"] if part in s["sql"]]
    return str(found).encode()


@pytest.mark.parametrize("version", surface.versions())
def test_a_fence_by_the_statements_of_that_version(cluster: Make, version: int) -> None:
    """They mean what they meant: who owns the term, by which session; its sessions' end; the death, once."""
    made = cluster(pods=1)
    made.postgres.sql(f"CREATE ROLE lookout LOGIN PASSWORD '{PASSWORD}'")
    install(made, "--agent-role", "lookout")
    made.postgres.sql("GRANT SELECT ON election_member TO lookout")  # else it is asked without
    dsn = {"password": PASSWORD, "autocommit": True}
    meta = psycopg.connect(made.postgres.dsn(USER), application_name=TAG, **dsn)
    meta.execute("INSERT INTO election_leader VALUES (%s, 'meta-0:5690', now())", [SERVICE])
    with meta, psycopg.connect(made.postgres.dsn("lookout"), **dsn) as agent:

        def ask(part: str, *values: str) -> list[str | None]:
            answer = agent.pgconn.exec_params(statement(version, part), [v.encode() for v in values])
            assert answer.ntuples == 1, answer.error_message.decode()
            cells = [answer.get_value(0, n) for n in range(answer.nfields)]
            return [cell.decode() if cell is not None else None for cell in cells]

        read = ask('"election_leader"', SERVICE, "meta-0:5690", TAG)
        assert read[5] == "meta-0:5690" and read[8:11] == ["1", "meta-0:5690", TAG], read
        assert read[13:] == [TAG, "t", "f", "enforce"], read
        assert ask("end_sessions", TAG) == ["1"]
        with pytest.raises(psycopg.OperationalError):
            meta.execute("SELECT 1")
        death = (TAG, "meta-0:5690", "permit", "LeaseExpired")
        assert ask("record_death", *death) == ["1"] and ask("record_death", *death) == ["0"]
    assert made.postgres.sql("SELECT incarnation_tag, term FROM metafence.death") == [(TAG, 1)]


def test_a_change_is_found(cluster: Make) -> None:
    """A column that is gone, a function with other arguments, another result: each is told."""
    made = cluster(pods=1)
    install(made)
    was = surface.pinned(NOW)
    with made.postgres.connect() as session:
        session.execute("ALTER TABLE metafence.death RENAME COLUMN method TO how")
        session.execute("DROP FUNCTION metafence.end_sessions(text)")
        session.execute(
            "CREATE FUNCTION metafence.end_sessions(text, int) RETURNS int LANGUAGE sql AS 'SELECT 1'"
        )
        found = "\n".join(surface.differences(was, session))
    assert "column death.method" in found and "function end_sessions(text)" in found, found
    assert re.search(r"SELECT metafence.end_sessions\(\$1\): .*does not exist", found), found


def _a_day_in_the_life(kube: Open) -> str:
    """Leading, reconciling a row by a call and one by a tombstone, a fence, a proven death: what the agents
    send to Postgres for it."""
    hosts = ["10.9.8.1", "10.9.8.2", "10.9.8.3"]
    k, _ = prepared(kube, hosts, pods=2, ttl=30)
    k.cluster.postgres.sql("ALTER SYSTEM SET log_statement = 'all'")
    k.cluster.postgres.sql("SELECT pg_reload_conf()")
    leader = k.cluster.start()
    wait_judged(leader)  # pods that it has never seen are no evidence
    end_pod(k.api, pod_of(hosts[0]))
    gone = "SELECT count(*) FROM worker WHERE host = %s"
    wait_for("the row is gone", lambda: k.cluster.postgres.sql(gone, hosts[0]) == [(0,)], 90)
    k.cluster.postgres.sql("UPDATE metafence.setting SET value = 'off' WHERE name = 'guard'")
    leader.wait_status("the log has a gap", lambda s: not s["workers"]["state"]["log_known"], 30)
    k.cluster.postgres.sql("UPDATE metafence.setting SET value = 'enforce' WHERE name = 'guard'")
    end_pod(k.api, pod_of(hosts[1]), stays=True)
    buried = "SELECT count(*) > 0 FROM metafence.tombstone"
    wait_for("a tombstone is written", lambda: k.cluster.postgres.sql(buried) == [(True,)], 90)
    supersede(k, leader)
    dead = "SELECT count(*) > 0 FROM metafence.death"
    wait_for("the death is recorded", lambda: k.cluster.postgres.sql(dead) == [(True,)], 60)
    return k.cluster.postgres.log.read_text()


def test_what_this_agent_uses_is_pinned(kube: Open, request: pytest.FixtureRequest) -> None:
    """From a run, from what it is granted, and from its source: nothing is used that is not in the file."""
    log = _a_day_in_the_life(kube)
    statements = [s for s in surface.sent(log, AGENT) if "metafence." in s]
    port = re.search(r"port (\d+)", log)
    assert port and len(statements) >= 5, statements
    dsn = f"host=127.0.0.1 port={port[1]} user={USER} dbname=meta"
    with psycopg.connect(dsn, password=PASSWORD, autocommit=True) as session:
        now = surface.describe(session, GRANT, statements)
    if request.config.getoption("--write"):
        known = surface.pinned(NOW) if NOW in surface.versions() else None
        surface.write(NOW, surface.merged(now, known))
    was = surface.pinned(NOW)
    assert surface.missing(now, was) == [], "run with --write"
    code = "".join((REPO / source).read_text() for source in SOURCES)
    called = set(re.findall(r'SQL_SCHEMA\s+"\.(\w+)\(', code))
    assert len(called) >= 8 and called <= {name.split("(")[0] for name in was["functions"]}, called


# --- agent N with schema N-1, and the upgrade of the schema ---------------------------------------


@pytest.fixture
def older(cluster: Make) -> Cluster:
    """Metas and agents of this version on the schema of the version before."""
    made = cluster(ttl=30, pods=2)
    made.postgres.sql((surface.FOLDER / f"schema-{NOW - 1}.sql").read_text(), user=USER)
    leader = made.pods[0].start()
    leader.wait_leading(20)
    made.pods[1].start()
    made.wait_converged(30)
    return made


def test_an_agent_ahead_of_its_schema_and_the_upgrade_under_it(older: Cluster) -> None:
    """It leads, is covered, and fences by the old schema, which doctor names. The schema's upgrade under a
    living leader ends nobody and needs no restart of an agent."""
    leader = older.leaders()[0]
    status = leader.wait_status("has the term", lambda s: s["term"]["known"], 20)
    assert status["not_covered"] == [], status["not_covered"]
    found = findings(leader)
    assert "sql install" in found["postgres.schema"], found
    said = install(older)
    assert f"schema version {NOW - 1} is installed" in said and f"version {NOW} is in place" in said, said
    nobody_dies(older)
    assert older.postgres.sql("SELECT owner_id FROM metafence.term") == [(leader.id,)], "the term is kept"
    assert "postgres.schema" not in findings(leader)
    assert _fenced_and_back(older, leader) is not leader


def _fenced_and_back(made: Cluster, old: Pod) -> Pod:
    """rw#8238: the row is taken from under the leader; its process is ended and comes back as a follower."""
    pid = old.meta_pid
    other = next(p for p in made.pods if p is not old)
    made.postgres.sql("UPDATE election_leader SET id = %s, last_heartbeat = now()", other.id)
    wait_for(f"{old.name} is killed", lambda: old.meta_pid != pid, 20)
    return made.wait_converged(40)


def test_an_agent_ahead_of_its_schema_fences(older: Cluster) -> None:
    old = older.leaders()[0]
    assert _fenced_and_back(older, old) is not old
    dead = "SELECT count(*) > 0 FROM metafence.death"
    wait_for("the death is recorded", lambda: older.postgres.sql(dead) == [(True,)], 20)


# --- a newer schema: rollback of the agents -------------------------------------------------------

NEWER = """
UPDATE metafence.setting SET value = '{version}' WHERE name = 'schema_version';
ALTER TABLE metafence.term ADD COLUMN of_the_next_version text;
ALTER TABLE metafence.tag ADD COLUMN of_the_next_version text;
ALTER TABLE metafence.death ADD COLUMN of_the_next_version text;
CREATE FUNCTION metafence.of_the_next_version(text) RETURNS text LANGUAGE sql AS 'SELECT $1';
"""


def test_an_agent_behind_its_schema(cluster: Make) -> None:
    """As after a rollback of the image alone: all works, doctor says what to do, and the older program
    refuses to install over the newer schema."""
    made = cluster(ttl=30, pods=2)
    install(made)
    made.postgres.sql(NEWER.format(version=NOW + 1))
    leader = made.start(sql=False)
    assert leader.wait_status("has the term", lambda s: s["term"]["known"], 20)["not_covered"] == []
    assert "image" in findings(leader)["postgres.schema"]
    refused = leader.cli("sql", "install", timeout=60)
    assert refused.returncode == 1 and f"schema version {NOW + 1} is newer" in refused.stderr, refused
    nobody_dies(made)
    assert _fenced_and_back(made, leader) is not leader


# --- one pod after the other ----------------------------------------------------------------------


def test_a_rolling_restart(cluster: Make) -> None:
    """As a StatefulSet replaces its pods, the last first: a follower's end is nobody's business, a leader
    that is asked to end resigns, and the next one leads at once. Nothing is fenced for it."""
    made = cluster(ttl=30, pods=3)
    made.start()
    changes = 0
    for pod in reversed(made.pods):
        led = pod.acts_as_leader
        changes += led
        assert pod.term() == 0, "a planned end is exit 0"
        assert pod.agent is not None
        pod.agent.signal(signal.SIGTERM)
        pod.agent.signal(signal.SIGTERM)
        pod.agent.wait(20)
        if led:
            made.wait_new_leader(pod, 60)
        pod.start()
        made.wait_converged(40)
    assert changes >= 1
    assert [pod.kills() for pod in made.pods] == [0, 0, 0]
    verdict: Any = made.witness()
    assert verdict.overlaps == 0, verdict.raw

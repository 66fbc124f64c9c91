# SPDX-License-Identifier: Apache-2.0
"""The command line as an operator uses it. Exit codes: 0 done, 1 failed, 2 usage, 3 not confirmed."""

import json
import re
import subprocess

import pytest
from harness import Cluster, wait_for
from harness.paths import metafence, metafence_run
from harness.postgres import PASSWORD
from scenario import Make


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    argv = [str(metafence()), *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=10, env={"PATH": "/usr/bin"})


@pytest.mark.smoke
def test_version() -> None:
    ours = run("version")
    shim = subprocess.run([metafence_run(), "--version"], capture_output=True, text=True, timeout=5)
    assert ours.returncode == shim.returncode == 0
    number = re.search(r"\d+\.\d+\.\d+", ours.stdout)
    assert number and number[0] in shim.stdout, (ours.stdout, shim.stdout)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["fly"],
        ["status", "--no-such-option"],
        ["status", "-o", "morse"],
        ["pause", "--reason", "no length"],
        ["pause", "--for", "30", "--reason", "no unit"],
        ["pause", "--for", "-5m", "--reason", "negative"],
        ["pause", "--for", "25h", "--reason", "too long"],
        ["config", "melt"],
        ["sql", "drop"],
    ],
)
def test_wrong_usage_is_2_and_says_what(words: list[str]) -> None:
    done = run(*words)
    assert done.returncode == 2, done
    assert done.stderr.strip() and not done.stdout.strip(), done
    if words:
        assert any(w in done.stderr for w in words) or "--reason" in done.stderr, done.stderr


def test_no_agent_is_1_and_names_the_socket() -> None:
    done = run("status", "--socket", "/nowhere/agent.sock")
    assert done.returncode == 1
    assert "/nowhere/agent.sock" in done.stderr


@pytest.mark.smoke
def test_status_fence_unfence_pause_resume(cluster: Make) -> None:
    made = cluster(ttl=5)
    leader = made.start()
    _status(made)
    _pause(made)
    _fence(made)
    assert made.wait_converged(2 * made.ttl) is not leader


def _status(made: Cluster) -> None:
    leader = made.leaders()[0]
    status = leader.status()
    assert status is not None
    assert (status["id"], status["podUid"], status["role"]) == (leader.id, leader.uid, "leader")
    assert status["meta"]["pid"] == leader.meta_pid and status["meta"]["alive"]
    assert status["term"]["owner_id"] == leader.id and status["term"]["known"]
    assert status["term"]["owner_tag"] == status["meta"]["tag"]
    assert 0 < status["deadline_ms_left"] <= 5000
    assert status["not_covered"] == []
    table = leader.cli("status")
    assert table.returncode == 0
    for word in ("Leader", leader.id):
        assert word in table.stdout, table.stdout


def _pause(made: Cluster) -> None:
    leader = made.leaders()[0]
    assert leader.cli("pause", "--for", "10m", "--reason", "upgrade").returncode == 0
    paused = leader.wait_status("paused", lambda s: s["paused_until"], 3)
    assert "Paused" in paused["not_covered"] and paused["rule"] == "Paused"
    assert leader.cli("resume").returncode == 0
    leader.wait_status("not paused", lambda s: not s["paused_until"] and s["rule"] == "Leader", 3)
    # A pause ends by itself.
    assert leader.cli("pause", "--for", "2s", "--reason", "short").returncode == 0
    leader.wait_status("paused", lambda s: s["paused_until"], 2)
    leader.wait_status("not paused", lambda s: not s["paused_until"], 4)


def _fence(made: Cluster) -> None:
    leader = made.leaders()[0]
    pid = leader.meta_pid
    done = leader.cli("fence", "--reason", "exercise")
    assert done.returncode == 0, done
    assert leader.meta_pid == pid and not leader.meta_alive, "0 means: confirmed dead"
    fenced = leader.wait_status("fenced", lambda s: s["role"] == "fenced", 3)
    assert fenced["manual_fence"] and fenced["meta"]["hold_reason"] == "Manual"
    assert fenced["last_fence"]["confirmed"], fenced["last_fence"]
    made.wait_new_leader(leader, 2 * made.ttl)
    assert leader.cli("unfence").returncode == 0
    wait_for("follower", lambda: leader.is_follower, 3)


def test_a_fence_that_can_not_be_confirmed_is_3(cluster: Make) -> None:
    """With the link to Postgres cut nobody can say that the sessions are gone."""
    made = cluster(ttl=5, pods=1)
    pod = made.start()
    pod.proxy.order("mode stall")
    done = pod.cli("fence", "--reason", "test")
    assert done.returncode == 3, done
    assert "confirm" in done.stderr.lower(), done.stderr


def test_config(cluster: Make) -> None:
    made = cluster(ttl=5, pods=1)
    pod = made.pods[0]
    pod.write_config()
    assert pod.cli("config", "validate").returncode == 0
    shown = pod.cli("config", "show")
    assert shown.returncode == 0 and pod.id in shown.stdout
    assert "only for tests" not in shown.stdout + shown.stderr
    # Timing that can't keep the promise is refused with its numbers and the fix.
    pod.config["timing"]["margin"] = "4s"
    pod.write_config()
    refused = pod.cli("config", "validate")
    assert refused.returncode == 1
    for word in ("margin", "5"):
        assert word in refused.stderr, refused.stderr


def test_sql(cluster: Make) -> None:
    """Installed twice, printed, taken away again; a leader goes on meanwhile."""
    made = cluster(ttl=5)
    leader = made.start(sql=False)
    pid = leader.meta_pid
    assert leader.cli("sql", "status").returncode in (0, 1)
    printed = leader.cli("sql", "print")
    assert printed.returncode == 0 and "CREATE SCHEMA" in printed.stdout
    for _ in range(2):
        done = leader.cli("sql", "install")
        assert done.returncode == 0, done.stderr
    assert leader.cli("sql", "status").returncode == 0
    leader.wait_status("sees the term", lambda s: s["term"]["known"], 5)
    assert made.postgres.sql("SELECT owner_id FROM metafence.term") == [(leader.id,)]
    done = leader.cli("sql", "uninstall")
    assert done.returncode == 0, done.stderr
    assert made.postgres.sql("SELECT to_regnamespace('metafence') IS NULL") == [(True,)]
    made.wait_converged(made.ttl)
    assert leader.meta_pid == pid and leader.kills() == 0


def test_sql_for_an_agent_of_another_role(cluster: Make) -> None:
    made = cluster(ttl=5, pods=1)
    pod = made.start()
    made.postgres.sql(f"CREATE ROLE lookout LOGIN PASSWORD '{PASSWORD}'")
    for words in ([], ["--agent-role", "lookout"]):
        done = pod.cli("sql", "install", *words)
        assert done.returncode == 0, done.stderr
        reads = made.postgres.sql("SELECT has_schema_privilege('lookout', 'metafence', 'USAGE')")
        assert reads == [(bool(words),)]
    printed = pod.cli("sql", "print", "--agent-role", "lookout")
    assert 'TO "lookout"' in printed.stdout, printed
    pod.config["postgres"]["user"] = "lookout"
    pod.write_config()
    status = pod.cli("sql", "status")
    assert status.returncode == 0 and "not readable" not in status.stdout, status
    denied = pod.cli("sql", "install")
    assert denied.returncode == 1 and "as the metas' own role" in denied.stderr, denied


def test_status_as_json_is_one_object(cluster: Make) -> None:
    made = cluster(ttl=5, pods=1)
    made.start()
    done = made.pods[0].cli("status", "-o", "json")
    status = json.loads(done.stdout)
    expected = {"version", "id", "podUid", "rule", "role", "armed", "engaged", "superseded"}
    expected |= {"paused_until", "manual_fence", "row", "term", "deadline_ms_left", "not_covered"}
    expected |= {"meta", "last_fence", "counters"}
    assert expected <= status.keys(), expected - status.keys()

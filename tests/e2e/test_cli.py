# SPDX-License-Identifier: Apache-2.0
"""The command line as an operator uses it. Exit codes: 0 done, 1 failed, 2 usage, 3 not confirmed."""

import json
import os
import pty
import re
import subprocess

import pytest
import yaml
from harness import Cluster, Pod, wait_for
from harness.fakeapi import PAUSE_KEY
from harness.paths import metafence, metafence_run
from harness.postgres import PASSWORD
from kube import Open
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


def test_config_diff(cluster: Make) -> None:
    """What the agent runs on, against what its next start would read."""
    pod = cluster(ttl=30, pods=1).start()
    socket = ("--socket", str(pod.dir / "agent.sock"))
    same = pod.cli("config", "diff", *socket)
    assert (same.returncode, same.stdout) == (0, "the agent runs on what the file says\n"), same
    pod.config["timing"]["margin"] = "3s"
    pod.config["notify"] = False
    pod.write_config()
    differs = pod.cli("config", "diff", *socket)
    assert differs.returncode == 1, differs
    lines = [line.split() for line in differs.stdout.splitlines()]
    assert ["notify"] in lines and ["timing.margin"] in lines and len(lines) == 6, differs.stdout
    assert ["file", "3s", "(file,"] in [line[:3] for line in lines], differs.stdout
    forms = {form: pod.cli("config", "diff", "-o", form, *socket) for form in ("json", "yaml")}
    found = {d["key"]: d for d in json.loads(forms["json"].stdout)["differences"]}
    assert yaml.safe_load(forms["yaml"].stdout) == json.loads(forms["json"].stdout)
    assert found["notify"]["running"]["value"] is True and found["notify"]["file"]["value"] is False
    assert PASSWORD not in str(forms)
    # What the pod says, here the agent's environment alone, counts as well.
    pod.kill_agent()
    pod.start_agent(METAFENCE_POLL="300ms")
    pod.wait_status("an agent again", lambda s: s["rule"] == "Leader", 30)
    found = json.loads(pod.cli("config", "diff", "-o", "json", *socket).stdout)["differences"]
    [poll] = found
    assert poll["running"] == {
        "value": "300ms", "source": "environment METAFENCE_POLL, annotation metafence.io/poll"
    }  # fmt: skip
    pod.kill_agent()
    gone = pod.cli("config", "diff", *socket)
    assert gone.returncode == 1 and "no agent answers" in gone.stderr


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


# --- forms, watching, completion, kubectl ---------------------------------------------------------


FORMS = ["config options", "config validate", "sql status", "version", "fence --dry-run"]


def test_every_form_of_every_command(cluster: Make) -> None:
    """JSON and YAML say the same, of the commands whose answer does not change from one call to the next."""
    made = cluster(ttl=30, pods=1)
    pod = made.start()
    for words in FORMS:
        forms = ("table", "wide", "json", "yaml")
        done = {form: pod.cli(*words.split(), "-o", form, timeout=60) for form in forms}
        assert {d.returncode for d in done.values()} == {0}, done
        assert all(d.stdout for d in done.values()), done
        assert yaml.safe_load(done["yaml"].stdout) == json.loads(done["json"].stdout), words
    for word, shape in (("status", dict), ("history", list)):
        assert isinstance(yaml.safe_load(pod.cli(word, "-o", "yaml", timeout=60).stdout), shape)
    wide = pod.cli("status", "-o", "wide", timeout=60).stdout
    assert wide.splitlines()[0] == pod.cli("status", timeout=60).stdout.splitlines()[0]
    assert "metafence:" in wide and "\033[" not in wide
    assert pod.kills() == 0 and pod.meta_alive, "a dry run orders nothing"
    would = pod.cli("sql", "install", "--dry-run", timeout=60).stdout
    assert would == pod.cli("sql", "print", timeout=60).stdout and "CREATE" in would
    assert pod.cli("sql", "uninstall", "--dry-run", timeout=60).returncode == 0
    assert made.postgres.sql("SELECT to_regnamespace('metafence') IS NOT NULL") == [(True,)]
    _history(pod)
    _watch_on_a_terminal(pod)
    _watch_through_a_pipe(pod)


def _history(pod: Pod) -> None:
    assert pod.cli("fence", "--reason", "disk is full", timeout=60).returncode in (0, 3)
    table = pod.cli("history", timeout=60).stdout.splitlines()
    assert table[0].split()[:3] == ["WHEN", "EVENT", "RULE"]
    bare = pod.cli("history", "--no-headers", timeout=60).stdout.splitlines()
    assert bare[: len(table) - 1] == table[1:]
    fences = [line for line in table if " fence " in line and "ManualFence" in line]
    assert fences and "disk is full" in fences[0], table
    assert pod.id in pod.cli("history", "-o", "wide", timeout=60).stdout
    events = [e["event"] for e in json.loads(pod.cli("history", "-o", "json", timeout=60).stdout)]
    assert events.index("fence") < events.index("dead")


def _watch_on_a_terminal(pod: Pod) -> None:
    """The screen is drawn anew, in color; NO_COLOR is respected."""
    argv = [str(metafence()), "status", "--watch", "--socket", str(pod.dir / "agent.sock")]
    for env, colored in (({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False)):
        ours, theirs = pty.openpty()
        process = subprocess.Popen(argv, stdout=theirs, stdin=theirs, env=env)
        os.close(theirs)
        seen = b""
        while seen.count(b"\033[H\033[J") < 2:
            seen += os.read(ours, 4096)
        process.kill()
        process.wait()
        os.close(ours)
        assert (b"\033[31m" in seen) == colored, seen  # a fenced meta is red
        assert b"disk is full" in seen


def _watch_through_a_pipe(pod: Pod) -> None:
    argv = [str(metafence()), "status", "-w", "-o", "json", "--socket", str(pod.dir / "agent.sock")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        both = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.kill()
    assert both[0]["boot_ns"] < both[1]["boot_ns"]


def test_untagged_names_the_fix(cluster: Make) -> None:
    pod = cluster(ttl=30, pods=1).start(sql=False)
    pod.wait_status("no term trigger", lambda s: "Untagged" in s["not_covered"], 10)
    assert "run `metafence sql install`" in pod.cli("status", timeout=60).stdout


def test_status_shows_what_is_refused(kube: Open) -> None:
    """An annotation that is no order, and labels that may not be written."""
    made = kube(ttl=30, pods=1)
    pod = made.start()
    made.api.annotate(pod.name, PAUSE_KEY, "tomorrow")
    pod.wait_status("refused", lambda s: "tomorrow" in s["kubernetes"]["refused_order"], 10)
    table = pod.cli("status", timeout=60).stdout
    assert "refused order" in table and "tomorrow" in table, table
    made.api.annotate(pod.name, PAUSE_KEY, None)
    pod.wait_status("taken back", lambda s: not s["kubernetes"]["refused_order"], 10)
    assert "refused" not in pod.cli("status", timeout=60).stdout
    made.api.denied = lambda request: request.method == "PATCH"
    pod.cli("fence", "--reason", "to be mirrored", "--timeout", "10s", timeout=60)
    pod.wait_status("denied", lambda s: s["kubernetes"]["label"]["denied"], 20)
    assert "label         refused" in pod.cli("status", timeout=60).stdout


def complete(*words: str) -> list[str]:
    script = (
        f"source <({metafence()} completion bash); COMP_WORDS=({' '.join(words)}); "
        'COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _metafence; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, cwd="/etc")
    assert done.returncode == 0 and not done.stderr, done
    return done.stdout.split()


def test_completion_for_bash() -> None:
    assert complete("metafence", "sta") == ["status"]
    assert complete("metafence", "sql", "un") == ["uninstall"]
    assert complete("metafence", "status", "--wa") == ["--watch"]
    assert complete("metafence", "status", "-o", "''") == ["table", "wide", "json", "yaml"]
    assert complete("metafence", "sql", "install", "--guard", "en") == ["enforce"]
    assert complete("metafence", "doctor", "--meta-config", "hostn") == ["hostname"]
    # Each command of the overview, and nothing else.
    overview = re.findall(r"^  (\w+) ", run("--help").stdout, re.MULTILINE)
    assert complete("metafence", "''") == [*overview, "--help"]

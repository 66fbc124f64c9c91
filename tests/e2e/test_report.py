# SPDX-License-Identifier: Apache-2.0
"""What an operator gives to others: `metafence report` says all that is known and no secret, also one that
stands where it does not belong; `metafence logs pretty` makes the log readable, other lines stay."""

import json
import os
import pty
import re
import subprocess

from harness import Cluster, Pod, wait_for
from harness.logs import parse_logfmt
from harness.paths import metafence
from harness.postgres import PASSWORD
from scenario import Make

SECTIONS = ["version", "status", "history", "doctor", "config show", "sql status"]
SECTIONS += ["reconcile --dry-run", "status -o json", "metrics"]
IN_REASON, IN_FILE, IN_HOST, AS_KEY = "planted-reason", "planted-file", "planted-host", "planted-key"


def sections(text: str) -> dict[str, str]:
    parts = re.split(r"^== (.*)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def report(pod: Pod) -> dict[str, str]:
    done = pod.cli("report", timeout=60)
    assert done.returncode == 0 and not done.stderr, done
    assert done.stdout.startswith("metafence report of ")
    for secret in (PASSWORD, IN_REASON, IN_FILE, IN_HOST, AS_KEY):
        assert secret not in done.stdout, f"{secret}: {done.stdout}"
    found = sections(done.stdout)
    assert list(found) == SECTIONS
    return found


def test_report_says_all_and_no_secret(cluster: Make) -> None:
    made: Cluster = cluster(ttl=30, pods=1)
    pod = made.start()
    reason = f"rotation, password={IN_REASON}"
    assert pod.cli("pause", "--for", "10m", "--reason", reason).returncode == 0
    pod.wait_status("paused", lambda s: s["paused_until"], 20)
    found = report(pod)
    assert json.loads(found["status -o json"])["id"] == pod.id
    assert "rotation, password=[redacted]" in found["history"]
    for section, word in [
        ("version", "libpq"),
        ("status", pod.id),
        ("doctor", "postgres.guard"),
        ("config show", "# password: environment PGPASSWORD"),
        ("sql status", "guard"),
        ("metrics", "metafence_build_info{"),
    ]:
        assert word in found[section], (section, found[section])
    _with_secrets_in_the_file(pod)


def _with_secrets_in_the_file(pod: Pod) -> None:
    """Of the file alone: the agent goes on with what it has read at its start."""
    (pod.dir / "password").write_text(IN_FILE + "\n")
    kept = dict(pod.config["postgres"])
    pod.config["postgres"].update(
        passwordFile=str(pod.dir / "password"), host=f"postgres://rw:{IN_HOST}@pg", applicationName=IN_FILE
    )
    pod.write_config()
    found = report(pod)
    assert "postgres://rw:[redacted]@pg" in found["config show"]
    assert 'applicationName: "[redacted]"' in found["config show"], "the content of passwordFile"
    pod.config["postgres"] = {**kept, "password": AS_KEY}
    pod.write_config()
    assert "postgres.password" in report(pod)["config show"]


def test_report_without_an_agent_says_so(tmp_path) -> None:
    argv = [
        metafence(),
        "report",
        "--socket",
        str(tmp_path / "none"),
        "--config",
        str(tmp_path / "none.yaml"),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, env={"PGPASSWORD": PASSWORD})
    assert done.returncode == 0 and PASSWORD not in done.stdout
    found = sections(done.stdout)
    assert list(found) == SECTIONS
    assert "no agent answers" in found["status"] and "can't be read" in found["config show"]


def pretty(text: bytes) -> bytes:
    argv = [metafence(), "logs", "pretty"]
    done = subprocess.run(argv, input=text, capture_output=True, timeout=60, env={})
    assert done.returncode == 0 and not done.stderr, done
    return done.stdout


def test_logs_of_both_programs_are_made_readable(cluster: Make) -> None:
    pod = cluster(ttl=30, pods=1).start()
    logs = [pod.agent_log.path, pod.run_log.path]
    wait_for("both have said something", lambda: all(b"msg=" in path.read_bytes() for path in logs), 20)
    for path in logs:
        before = path.read_text().rsplit("\n", 1)[0].splitlines()  # whole lines
        after = pretty("\n".join(before).encode()).decode().splitlines()
        assert len(after) == len(before)
        ours = 0
        for raw, shown in zip(before, after, strict=True):
            fields = parse_logfmt(raw)
            if not fields or "boot_ns" not in fields:
                assert shown == raw
                continue
            ours += 1
            clock = fields["ts"].replace("T", " ")[:23]
            assert shown.startswith(f"{clock}  {fields['level']:<5}  {fields['msg']}"), (raw, shown)
            assert " boot_ns=" not in shown
        assert ours > 0, f"{path}: no line is ours"


def test_lines_of_others_pass_untouched() -> None:
    ours = b"ts=2026-11-30T13:49:36.123456Z boot_ns=7 level=warn msg=x"
    others = (
        b"INFO risingwave_meta: started\n\n\xff\xfe\x00 \x1b[31m\r\n" + ours[:-6] + b"\nno newline at the end"
    )
    assert pretty(others) == others
    assert pretty(b"[pod/m-0/metafence] " + ours) == b"[pod/m-0/metafence] 2026-11-30 13:49:36.123  warn   x"


def test_each_line_of_a_log_that_grows_is_shown_at_once() -> None:
    argv = [metafence(), "logs", "pretty"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={}) as process:
        assert process.stdin and process.stdout
        for line in (b"one\n", b"two\n"):
            process.stdin.write(line)
            process.stdin.flush()
            assert process.stdout.readline() == line, "kept back until there is more"
        process.stdin.close()
        assert process.wait(20) == 0


def test_colors_are_for_terminals_alone() -> None:
    line = b"ts=2026-11-30T13:49:36.123456Z boot_ns=7 level=error msg=x k=v\n"
    assert b"\x1b" not in pretty(line)
    ours, theirs = pty.openpty()
    env = {"TERM": "xterm"}
    subprocess.run(
        [metafence(), "logs", "pretty"], input=line, stdout=theirs, timeout=60, env=env, check=True
    )
    os.close(theirs)
    shown = os.read(ours, 4096)
    os.close(ours)
    assert b"\x1b[31merror" in shown and shown.rstrip().endswith(b"\x1b[0m")

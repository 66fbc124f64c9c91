# SPDX-License-Identifier: Apache-2.0
"""`kubectl metafence` against a kubectl that writes down what it is asked for, and as Krew installs it."""

import hashlib
import re
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from harness.paths import REPO, metafence

FOLDER = REPO / "agent" / "cli"
Plugin = Callable[..., "subprocess.CompletedProcess[str]"]
# What bash of macOS does not have.
OLD_BASH = "enable -n mapfile readarray\nshopt -s compat32 2> /dev/null\n"


FAKE_KUBECTL = """#!/bin/sh
printf '%s\\n' "$*" >> "$CALLS"
case $* in
*"get pods"*role=leader*) printf 'meta-1\\n' ;;
*"get pods"*zone=b*) printf 'meta-5\\n' ;;
*"get pods"*) printf 'meta-0\\nmeta-1\\n' ;;
*meta-0*) exit 3 ;;
*"logs meta-"*--previous*) echo none >&2; exit 1 ;;
*"logs meta-"*) echo "a line of the log" ;;
*"logs pretty") sed 's/^/pretty: /' ;;
esac
"""


def calling(tmp_path: Path, program: Path) -> Plugin:
    (tmp_path / "kubectl").write_text(FAKE_KUBECTL)
    (tmp_path / "kubectl").chmod(0o755)
    (tmp_path / "old-bash").write_text(OLD_BASH)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "CALLS": str(tmp_path / "calls")}

    def plugin(*words: str) -> "subprocess.CompletedProcess[str]":
        (tmp_path / "calls").write_text("")
        return subprocess.run(
            [program, *words],
            capture_output=True,
            text=True,
            env={**env, "BASH_ENV": str(tmp_path / "old-bash")},
            timeout=60,
            stdin=subprocess.DEVNULL,
        )

    return plugin


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return calling(tmp_path, FOLDER / "kubectl-metafence")


def calls(tmp_path: Path) -> list[str]:
    return [c for c in (tmp_path / "calls").read_text().splitlines() if "get pods" not in c]


def call(pod: str, words: str, options: str = "") -> str:
    return f"{options}exec -i {pod} -c metafence -- metafence {words}"


FILE = "--config /etc/metafence/agent.yaml"


@pytest.mark.parametrize(
    ("words", "status", "made"),
    [
        (
            ["-n", "rw", "-p", "meta-2", "fence", "--reason", "a b"],
            0,
            [call("meta-2", "fence --reason a b", "-n rw ")],
        ),
        (["status"], 3, [call("meta-0", "status"), call("meta-1", "status")]),
        (["-l", "zone=b", "fence"], 0, [call("meta-5", "fence")]),
        (["--selector=zone=b", "status"], 0, [call("meta-5", "status")]),
        (["sql", "status"], 0, [call("meta-1", f"sql status {FILE}")]),
        (["reconcile", "--dry-run"], 0, [call("meta-1", "reconcile --dry-run")]),
        (["recover", "--wait", "5s"], 0, [call("meta-1", "recover --wait 5s")]),
        (["handover", "--wait", "5s"], 0, [call("meta-1", "handover --wait 5s")]),
        (["-p", "a", "config", "show", "--config", "b"], 0, [call("a", "config show --config b")]),
        (["-v", "6", "-p", "a", "status"], 0, [call("a", "status", "--v=6 ")]),
        (["-v=8", "--v=9", "-p", "a", "status"], 0, [call("a", "status", "--v=8 --v=9 ")]),
        (["-p", "a", "config", "diff"], 0, [call("a", f"config diff {FILE}")]),
        (["-v"], 2, []),
        ([], 2, []),
        (["fence"], 2, []),
        (["-x", "status"], 2, []),
        (["-p"], 2, []),
        (["-A", "-p", "a", "status"], 2, []),
        (["-A", "-l", "a=b", "status"], 2, []),
        (["-p", "a", "-l", "a=b", "status"], 2, []),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_it_asks_kubectl_for(tmp_path: Path, plugin: Plugin, words, status, made) -> None:
    done = plugin(*words)
    assert (done.returncode, calls(tmp_path)) == (status, made), done.stderr


def test_logs_are_the_sidecars_made_readable_there(tmp_path: Path, plugin: Plugin) -> None:
    done = plugin("-n", "rw", "logs", "--tail=5")
    assert done.returncode == 0 and done.stdout == "pretty: a line of the log\n"
    wanted = ["-n rw logs meta-1 -c metafence --tail=5", call("meta-1", "logs pretty", "-n rw ")]
    assert sorted(calls(tmp_path)) == sorted(wanted)
    # With a log of one's own on standard input.
    plugin("-p", "a", "logs", "pretty")
    assert calls(tmp_path) == [call("a", "logs pretty")]


def test_report_has_the_log_behind_it(tmp_path: Path, plugin: Plugin) -> None:
    done = plugin("-p", "meta-1", "report")
    assert done.returncode == 0, done.stderr
    log = "logs meta-1 -c metafence --tail=2000"
    assert calls(tmp_path) == [call("meta-1", f"report {FILE}"), log, f"{log} --previous"]
    assert done.stdout == "== log\n\na line of the log\n\n== log of the container before\n\nnone\n"
    # Who can't make the first part does not seem to have made it.
    assert plugin("-p", "meta-0", "report").returncode == 3
    assert calls(tmp_path) == [call("meta-0", f"report {FILE}")]


def test_no_pod_is_said(tmp_path: Path, plugin: Plugin) -> None:
    (tmp_path / "kubectl").write_text("#!/bin/sh\n")
    done = plugin("status")
    assert done.returncode == 1 and "no pod with label metafence.io/role" in done.stderr


def said(*words: str) -> str:
    return subprocess.run([metafence(), *words], capture_output=True, text=True, timeout=60).stdout


@pytest.fixture
def offered(tmp_path: Path) -> Callable[..., set[str]]:
    """What kubectl is told for these words, of which the last is being typed."""
    ask = calling(tmp_path, FOLDER / "kubectl_complete-metafence")

    def complete(*words: str) -> set[str]:
        done = ask(*words)
        *found, directive = done.stdout.splitlines()
        assert (done.returncode, done.stderr, directive) == (0, "", ":4"), done
        assert len(set(found)) == len(found)
        return set(found)

    return complete


def test_completion_is_what_the_programs_own_table_makes() -> None:
    assert said("completion", "kubectl") == (FOLDER / "kubectl_complete-metafence").read_text()


def test_completion_offers_each_command_and_the_plugins_own_options(offered) -> None:
    overview = set(re.findall(r"^  (\w+) ", said("--help"), re.MULTILINE))
    first = offered("")
    assert {word for word in first if not word.startswith("-")} == overview - {"agent", "completion"}
    assert {"--namespace", "--pod", "--all", "--selector"} <= first
    assert offered("-n", "rw", "-A", "-v", "6", "sta") == first  # kubectl takes those that begin so


@pytest.mark.parametrize(
    ("words", "some"),
    [
        (["status", "--wa"], {"--watch", "--output"}),
        (["-n", "rw", "--pod", "a", "sql", ""], {"install", "uninstall", "print", "status", "--guard"}),
        (["--namespace=rw", "config", ""], {"validate", "show", "diff", "options"}),
    ],
    ids=["an option", "behind a pod", "behind a namespace"],
)
def test_completion_offers_verbs_and_options(offered, words, some) -> None:
    found = offered(*words)
    assert some <= found
    command = next(w for w in words if not w.startswith("-") and w not in ("rw", "a"))
    options = set(re.findall(r"--[a-z-]+", said(command, "--help")))
    assert {word for word in found if word.startswith("--")} <= options | {"--help"}, "of another command"


@pytest.mark.parametrize(
    ("words", "all_of_them"),
    [
        (["status", "-o", ""], {"table", "wide", "json", "yaml"}),
        (["sql", "install", "--guard", "en"], {"off", "observe", "enforce"}),
        (["fence", "--reason", ""], set()),
        (["config", "--config", ""], set()),  # a file in the pod
        (["-n", ""], set()),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_completion_offers_values(offered, words, all_of_them) -> None:
    assert offered(*words) == all_of_them


def test_completion_offers_pods(tmp_path: Path, offered) -> None:
    assert offered("-n", "rw", "-p", "") == {"meta-0", "meta-1"}
    assert "-n rw get pods -l metafence.io/role" in (tmp_path / "calls").read_text()
    assert "status" in offered("-p", "meta-0", "")


# --- a release -----------------------------------------------------------------------------------


def release(out: Path) -> Path:
    out.mkdir()
    argv = [REPO / "image" / "plugin", "--version", "1.2.3", "--epoch", "1700000000", "--out", out]
    subprocess.run(argv, check=True, timeout=60)
    return out / "kubectl-metafence-1.2.3.tar.gz"


def test_krew_can_install_it(tmp_path: Path) -> None:
    archive = release(tmp_path / "a")
    tree = yaml.safe_load((tmp_path / "a" / "metafence.yaml").read_text())
    assert (tree["apiVersion"], tree["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    name = tree["metadata"]["name"]
    assert re.fullmatch(r"[a-z0-9-]+", name) and not name.startswith("kube")
    assert tree["spec"]["version"] == "v1.2.3" and len(tree["spec"]["shortDescription"]) <= 50
    [platform] = tree["spec"]["platforms"]
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert platform["uri"].endswith(f"/v1.2.3/{archive.name}")
    with tarfile.open(archive) as tar:
        for file in platform["files"]:
            tar.extract(file["from"], tmp_path / "krew", filter="data")
    installed = tmp_path / "krew" / platform["bin"]
    assert installed.name == f"kubectl-{name}"
    done = calling(tmp_path, installed)("-p", "meta-1", "version")
    assert done.returncode == 0 and calls(tmp_path) == [call("meta-1", "version")]


def test_a_release_is_the_same_bytes_twice(tmp_path: Path) -> None:
    assert release(tmp_path / "a").read_bytes() == release(tmp_path / "b").read_bytes()

# SPDX-License-Identifier: Apache-2.0
"""README.md as a new user with a cluster reads it: its commands as they stand there, on metas that run
already, and then each line of its table. Only namespace, database and image are this test's own."""

import re
import shlex
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from harness.waiting import wait_for
from kubelab import images
from metas import Meta
from metas.deployment import TTL
from metas.registry import make_catalog
from test_injection import REPO, Foreign, assert_fenced, foreign, readme_commands

__all__ = ["foreign"]  # the fixture

README = REPO / "README.md"
HEADING = "On Kubernetes"
Note = Callable[[str, Any], None]


def table() -> list[str]:
    """What stands between backticks in the table and is a command, in order."""
    part = README.read_text().partition(f"\n## {HEADING}\n")[2].partition("\n## ")[0]
    rows = [line for line in part.splitlines() if line.startswith("| ")]
    return [code for row in rows for code in re.findall(r"`(kubectl [^`]*)`", row)]


def expanded(command: str) -> list[str]:
    """As a shell makes words of it: quotes, and what `date` says."""
    done = subprocess.run(
        [
            "bash",
            "-c",
            f'for word in "$@" {command.removeprefix("kubectl")}; do printf "%s\\0" "$word"; done',
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    return done.stdout.split("\0")[:-1]


def install(metas: Foreign) -> str:
    """The README's block; what doctor said."""
    commands = readme_commands(metas, README, HEADING)
    assert [c[:2] for c in commands] == [
        ["helm", "install"],
        ["kubectl", "patch"],
        ["kubectl", "rollout"],
        ["kubectl", "exec"],
    ]
    said = ""
    for program, *words in commands:
        if words[0] == "patch":
            wait_for("the policy is in force", metas.injects, 20)
        if words[0] == "exec":
            metas.wait_covered()
        run = {"helm": metas.cluster.helm, "kubectl": metas.cluster.kubectl}[program]
        said = run(*words, timeout=300)
    return said


def held(metas: Foreign, reason: str) -> Meta:
    """The meta that is down for it."""

    def found() -> Meta | None:
        for meta in metas.refresh():
            status = meta.status()
            if status is not None and status["meta"]["hold_reason"] == reason:
                return meta
        return None

    return metas.wait(f"a meta is held: {reason}", found, TTL + 30)


@pytest.mark.timeout(900)
def test_the_commands_of_the_readme(foreign: Callable[..., Foreign], note: Note) -> None:
    metas = foreign("operator", lambda pod: f"{pod.metadata.name}.rw-meta:5690")
    metas.guarded = False
    make_catalog(metas.cluster, metas.database, "v3.0")
    metas.apply(labels={}, user=images.UID)  # metasim's; RisingWave's image is root's
    metas.wait_converged(120)
    doctor = install(metas)
    failed = [line for line in doctor.splitlines() if line.startswith("✗")]
    assert not failed, failed
    commands = table()
    assert len(commands) == 6, commands
    here = ("--namespace", metas.namespace)
    for command in commands:
        words = expanded(command)
        target = words[1:]
        if "reconcile" in words:  # "in the leader's pod"
            leader = metas.wait_converged(90)
            words = [leader.name if re.fullmatch(r"rw-meta-\d", word) else word for word in words]
        said = metas.cluster.kubectl(words[0], *here, *words[1:])
        if "fence=" in command:
            down = held(metas, "Manual")
            assert down.name in target
            metas.cluster.kubectl("annotate", *here, "pod", down.name, "metafence.io/fence-")
            metas.wait_converged(90)
        elif "pause-until=" in command:
            paused = metas.meta("rw-meta-0")
            paused.wait_status("is paused", lambda s: "Paused" in s["not_covered"], 20)
            metas.cluster.kubectl("annotate", *here, "pod", paused.name, "metafence.io/pause-until-")
            paused.wait_status("is not paused", lambda s: "Paused" not in s["not_covered"], 20)
        elif "-L" in words:
            assert said.count("leader") == 1 and said.count("follower") == 2, said
        else:
            assert said.strip(), shlex.join(words)
    assert_fenced(metas, metas.wait_covered(), note)

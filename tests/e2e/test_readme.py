# SPDX-License-Identifier: Apache-2.0
"""README.md as a new user without Kubernetes reads it: its blocks run as they stand there, on a real
Postgres, with metasim as the RisingWave that they start; then each command of its table. For a cluster
tests/e2e/cluster/test_readme.py does the same."""

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from harness import Cluster, Lab, wait_for
from harness.paths import REPO, metafence, metafence_run, metasim
from harness.postgres import DATABASE, PASSWORD, USER
from scenario import Make

README = (REPO / "README.md").read_text()
PART = README.partition("\n## Use it without Kubernetes\n")[2].partition("\n## ")[0]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PART, re.DOTALL)


class Reader:
    """Somebody with a folder, a shell and the programs in PATH. What is his own stands in place of the
    README's examples: addresses, ports, the folder of sockets."""

    def __init__(self, made: Cluster, lab: Lab) -> None:
        self.dir = lab.dir / "reader"
        (self.dir / "bin").mkdir(parents=True)
        self.pod = made.pods[0]  # its ports and its link to Postgres; it is not started
        self.own = {
            "/run/metafence": str(self.dir / "run"),
            "/etc/metafence/password": str(self.dir / "password"),
            "meta-0.example.internal:5690": self.pod.id,
            "host: postgres.example.internal": f'host: "127.0.0.1"\n  port: {made.postgres.port}',
            "database: metadata": f"database: {DATABASE}",
            "user: risingwave ": f"user: {USER} ",
        }
        (self.dir / "run").mkdir()
        (self.dir / "password").write_text(PASSWORD + "\n")
        for program in (metafence(), metafence_run()):
            (self.dir / "bin" / program.name).symlink_to(program)
        self._risingwave(made)

    def _risingwave(self, made: Cluster) -> None:
        """What `risingwave` is here: metasim with this test's database, ports and lease."""
        env = {**self.pod._meta_env(), "RW_SQL_ENDPOINT": f"127.0.0.1:{made.postgres.port}"}
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in env.items())
        flags = shlex.join([*self.pod.profile.meta_flags(), f"--witness={self.pod.witness.path}"])
        script = self.dir / "bin" / "risingwave"
        script.write_text(f'#!/bin/sh\n{exports}exec {metasim()} "$@" {flags}\n')
        script.chmod(0o755)

    def mine(self, text: str) -> str:
        for theirs, own in self.own.items():
            text = text.replace(theirs, own)
        return text

    @property
    def env(self) -> dict[str, str]:
        return {"PATH": f"{self.dir / 'bin'}:/usr/bin:/bin", "HOME": str(self.dir)}

    def write_config(self) -> str:
        """The README's agent.yaml, and what it says of a second meta on a machine: own sockets and ports."""
        [text] = blocks("yaml")
        for theirs in ("meta-0.example", "host: postgres", "user: risingwave ", "/etc/metafence/password"):
            assert theirs in text, f"the README's agent.yaml has no {theirs}"
        own = (
            f"fence: {{socket: {self.dir}/run/fence.sock}}\ncontrol: {{socket: {self.dir}/run/agent.sock}}\n"
        )
        own += f"http: {{port: {self.pod.http_port}}}\nmeta: {{servicePort: {self.pod.service_port}}}\n"
        (self.dir / "agent.yaml").write_text(self.mine(text) + own)
        uid = re.search(r"podUid: (\S+)", text)
        assert uid
        return uid[1]

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            words, cwd=self.dir, env=self.env, capture_output=True, text=True, timeout=60, check=False
        )


def starts(lab: Lab, reader: Reader, uid: str) -> None:
    """The block of shell, by a shell; the programs stay."""
    [script] = blocks("sh")
    ports = f"--service-port {reader.pod.service_port} --metrics-port {reader.pod.metrics_port}"
    ports += f" --dashboard-port {reader.pod.dashboard_port}"
    assert "meta-node ..." in script and "metafence-run --socket" in script, script
    script = script.replace("meta-node ...", "meta-node").replace(
        "metafence-run --", f"metafence-run {ports} --"
    )
    env = {**reader.env, "UID_OF_THIS_META": uid}
    # The shell stays, as a person's does.
    argv: list[str | Path] = ["/bin/bash", "-ec", reader.mine(script) + "wait\n"]
    lab.spawn("reader/shell", argv, reader.dir / "log", env)


def table() -> list[str]:
    """The commands between backticks, in their order."""
    rows = [line for line in PART.splitlines() if line.startswith("| ") and "`metafence " in line]
    found = [code for row in rows for code in re.findall(r"`(metafence [^`]*)`", row)]
    assert len(found) >= 10, found
    return found


def chosen(command: str) -> list[list[str]]:
    """With something in place of FILE and TEXT; one for each choice."""
    words = shlex.split(command.replace("\\|", "|").replace("FILE", "agent.yaml"))
    words = ["read in the README" if word == "TEXT" else word for word in words]
    choices = [word for word in words if "|" in word] or [""]
    return [[choice if "|" in word else word for word in words] for choice in choices[0].split("|")]


@pytest.fixture
def reader(cluster: Make, lab: Lab) -> Reader:
    return Reader(cluster(ttl=30, pods=1), lab)


def test_as_a_new_user(reader: Reader, lab: Lab) -> None:
    uid = reader.write_config()
    starts(lab, reader, uid)
    config = ("--config", "agent.yaml")

    def leads() -> Any:
        shown = reader.run("metafence", "status", *config).stdout
        return shown if re.search(r"^role +leader", shown, re.MULTILINE) else None

    wait_for("this meta leads", leads, 60)
    wait_for(
        "nothing is without cover", lambda: re.search(r"^not covered +-$", leads() or "", re.MULTILINE), 60
    )
    for command in table():
        for words in chosen(command):
            own = [] if "--config" in words else config
            if words[1] in ("handover", "recover"):
                continue  # these need a second meta and compute nodes: test_cli_planned.py
            done = reader.run(*words, *own)
            assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    wait_for("it leads again, without the triggers", lambda: "Untagged" in (leads() or ""), 90)


def test_what_the_readme_says_of_exit_codes(reader: Reader) -> None:
    reader.write_config()
    said = re.search(r"Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not confirmed", PART)
    assert said
    assert reader.run("metafence", "config", "validate", "--config", "agent.yaml").returncode == 0
    assert reader.run("metafence", "status", "--config", "agent.yaml").returncode == 1, "there is no agent"
    assert reader.run("metafence", "fly").returncode == 2
    [config] = re.findall(r"`(metafence config show) --config agent.yaml`", PART)
    shown = reader.run(*config.split(), "--config", "agent.yaml").stdout
    assert "renewGap" in shown and PASSWORD not in shown
    explained = reader.run("metafence", "config", "options").stdout
    assert "timing.renewGap" in explained

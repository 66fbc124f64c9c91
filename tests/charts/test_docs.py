# SPDX-License-Identifier: Apache-2.0
"""Commands for helm and kubectl in the documents: they exist, have those options, and the values that they
set are the chart's. tests/ci/check-docs does the same for `metafence …`."""

import re
import shlex
import subprocess
from functools import cache
from pathlib import Path

import helm
import pytest

FILES = [helm.REPO / "README.md", helm.METAFENCE / "README.md", *sorted((helm.REPO / "docs").rglob("*.md"))]


def shown(path: Path) -> list[str]:
    """Lines of blocks of shell, with what continues them, and what stands between backticks."""
    text = path.read_text()
    blocks = "".join(re.findall(r"^ *```sh\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE))
    plain = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    return blocks.replace("\\\n", " ").splitlines() + re.findall(r"`([^`\n]+)`", plain)


def commands(program: str) -> list[tuple[str, list[str]]]:
    """(place, words behind the program's name) of each command; what is no whole command is left out."""
    found = []
    for path in FILES:
        for line in shown(path):
            if re.match(rf" *{program} [a-z]", line):
                line = re.sub(r"\$\([^)]*\)", "NOW", line)
                words = shlex.split(line.replace("\\|", "|"), comments=True)[1:]
                found.append((f"{path.relative_to(helm.REPO)}: {line.strip()[:90]}", words))
    return found


@cache
def said(program: str, *words: str) -> str:
    argv = [helm.helm().with_name(program), *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout + done.stderr


def options(words: list[str]) -> list[str]:
    """Of the program itself: not those behind `--`."""
    own = words[: words.index("--")] if "--" in words else words
    return [word.partition("=")[0] for word in own if re.match(r"--?[a-zA-Z]", word)]


HELM = commands("helm")
KUBECTL = [c for c in commands("kubectl") if c[1][0] != "metafence"]


def test_there_are_commands():
    assert len(HELM) >= 8 and len(KUBECTL) >= 15


@pytest.mark.parametrize(("place", "words"), HELM, ids=[place for place, _ in HELM])
def test_helm_has_the_command_and_its_options(place, words):
    known = said("helm", words[0], "--help")
    assert f"helm {words[0]}" in known, place
    for option in options(words[1:]):
        assert re.search(rf"(^|[\s,]){re.escape(option)}\b", known), f"{place}: no {option}"


def sets(words: list[str]) -> list[str]:
    return [words[n + 1] for n, word in enumerate(words) if word == "--set"]


SETTING = [(place, words) for place, words in HELM if sets(words)]


@pytest.mark.parametrize(("place", "words"), SETTING, ids=[place for place, _ in SETTING])
def test_what_helm_is_told_to_set_is_accepted(place, words):
    objects = helm.metafence(*sets(words))
    assert "ConfigMap" in helm.kinds(objects)


def subcommand(words: list[str]) -> list[str]:
    """`rollout status` is one."""
    return words[:2] if words[0] in ("rollout", "create", "config") else words[:1]


@pytest.mark.parametrize(("place", "words"), KUBECTL, ids=[place for place, _ in KUBECTL])
def test_kubectl_has_the_command_and_its_options(place, words):
    command = subcommand(words)
    known = said("kubectl", *command, "--help") + said("kubectl", "options")
    for option in options(words[len(command) :]):
        assert re.search(rf"(^|[\s,]){re.escape(option)}\b", known), f"{place}: no {option}"


def test_the_parts_of_the_chart_are_named_as_it_names_them():
    """Release `metafence` in namespace `risingwave`, as the documents have it."""
    done = helm.run("template", "metafence", helm.METAFENCE, "--namespace", "risingwave", *_needed())
    assert done.returncode == 0, done.stderr
    assert "name: metafence-agent" in done.stdout and "metafence-sql-install" in done.stdout


def _needed() -> list[str]:
    return [word for value in helm.NEEDED for word in ("--set", value)]

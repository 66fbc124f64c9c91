# SPDX-License-Identifier: Apache-2.0
"""Helm, the two charts and what they render, as parsed YAML."""

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

REPO = Path(__file__).resolve().parents[2]
METAFENCE = REPO / "charts" / "metafence"
BUILD = REPO / "tests" / "e2e" / "cluster" / "build" / "build"
METASIM = REPO / "tests" / "e2e" / "charts" / "metasim"
# The least that the chart wants to know.
NEEDED = ["config.postgres.host=pg", "config.postgres.database=metadata", "config.postgres.user=rw"]

KUBE = "1.37.0"
# Helm takes a tenth of a second; a machine that is busy with other tests has needed a minute for it.
LONG_S = 300

Objects = list[dict[str, Any]]


@cache
def helm() -> Path:
    """The one that the test cluster of this tree is built with; beside it is `mutate`."""
    done = subprocess.run([BUILD, "--where"], capture_output=True, text=True, timeout=LONG_S)
    assert done.returncode == 0, done.stderr
    found = Path(done.stdout.strip()) / "helm"
    assert found.exists(), f"no {found}: run {BUILD}"
    return found


@cache
def program(name: str, folder: str) -> Path:
    root = Path(os.environ.get("METAFENCE_BIN_DIR", REPO / "build"))
    for place in (root / name, root / folder / name):
        if place.is_file():
            return place
    raise AssertionError(f"{name} not found in {root}: run ./dev build, or set METAFENCE_BIN_DIR")


def run(*words: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([helm(), *words], capture_output=True, text=True, timeout=LONG_S)


def _options(values: list[str], json_values: dict[str, Any] | None) -> list[str]:
    options = [word for value in values for word in ("--set", value)]
    for key, value in (json_values or {}).items():
        options += ["--set-json", f"{key}={json.dumps(value)}"]
    return options


def _template(
    chart: Path,
    *values: str,
    json_values: dict[str, Any] | None = None,
    kube: str = KUBE,
    apis: tuple[str, ...] = (),
) -> "subprocess.CompletedProcess[str]":
    options = _options(list(values), json_values)
    options += [word for api in apis for word in ("--api-versions", api)]
    return run("template", "rel", chart, "--namespace", "ns", "--kube-version", kube, *options)


def render(chart: Path, *values: str, **more: Any) -> Objects:
    """The objects of a release `rel` in namespace `ns`; json_values={path: value}, kube=VERSION, apis=(…)."""
    done = _template(chart, *values, **more)
    assert done.returncode == 0, done.stderr
    return [tree for tree in yaml.safe_load_all(done.stdout) if tree]


def refusal(chart: Path, *values: str, **more: Any) -> str:
    """What helm says to values that it must refuse."""
    done = _template(chart, *values, **more)
    json_values = more.get("json_values")
    assert done.returncode != 0, f"was accepted: {values} {json_values}"
    return done.stderr


def one(objects: Objects, kind: str) -> dict[str, Any]:
    found = [tree for tree in objects if tree["kind"] == kind]
    assert len(found) == 1, f"{len(found)} objects of kind {kind}"
    return found[0]


def named(objects: Objects, kind: str, name: str) -> dict[str, Any]:
    [found] = [t for t in objects if t["kind"] == kind and t["metadata"]["name"] == name]
    return found


def kinds(objects: Objects) -> set[str]:
    return {tree["kind"] for tree in objects}


def metafence(*values: str, **more: Any) -> Objects:
    return render(METAFENCE, *NEEDED, *values, **more)


def metasim(*values: str, **more: Any) -> Objects:
    return render(METASIM, *values, **more)


def pod_spec(objects: Objects) -> dict[str, Any]:
    return one(objects, "StatefulSet")["spec"]["template"]["spec"]


def sidecar(objects: Objects) -> dict[str, Any]:
    containers = pod_spec(objects)["initContainers"]
    assert [c["name"] for c in containers] == ["metafence"]
    return containers[0]


def meta(objects: Objects) -> dict[str, Any]:
    containers = pod_spec(objects)["containers"]
    assert [c["name"] for c in containers] == ["meta"]
    return containers[0]


def agent_yaml(objects: Objects) -> str:
    return one(objects, "ConfigMap")["data"]["agent.yaml"]

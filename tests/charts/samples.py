# SPDX-License-Identifier: Apache-2.0
"""Metas as others make them, and what the API server's own code makes of their pods by the chart's policy."""

import json
import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any

import helm
import yaml

FOLDER = Path(__file__).resolve().parent / "samples"
CONTROLLERS = ("StatefulSet", "Deployment", "CloneSet")
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))

Pod = dict[str, Any]


def pod(name: str) -> Pod:
    """That of samples/NAME.yaml, as its controller would create it."""
    trees = yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text())
    [template] = [t["spec"]["template"] for t in trees if t["kind"] in CONTROLLERS]
    return {"apiVersion": "v1", "kind": "Pod", **deepcopy(template)}


def container(pod: Pod, name: str = "meta") -> dict[str, Any]:
    everyone = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
    return next(c for c in everyone if c["name"] == name)


def inject(policy: dict[str, Any], *pods: Pod) -> list[Pod | None]:
    """None where the policy's conditions leave the pod alone."""
    words = json.dumps({"policy": policy, "pods": pods})
    program = helm.helm().with_name("mutate")
    done = subprocess.run([program], input=words, capture_output=True, text=True, timeout=helm.LONG_S)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["pods"]

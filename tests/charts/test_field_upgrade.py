# SPDX-License-Identifier: Apache-2.0
"""What an upgrade must leave alone: the role, which the agents write while Helm is away, and pods that
nothing was changed for."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helm
import pytest

ROLE_KEYS = ("metafence.io/role", "risingwave/meta-role")
# Where Kubernetes keeps what Helm would set back, or refuse to change.
LABELED = ("labels", "selector", "matchLabels", "matchExpressions")


def labeled(tree: Any) -> Iterator[Any]:
    """Every labels and selector part, however deep."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            if key in LABELED:
                yield value
            else:
                yield from labeled(value)
    elif isinstance(tree, list):
        for item in tree:
            yield from labeled(item)


@pytest.mark.parametrize("values", [(), ("metafence.config.fence.method=pidfd",)], ids=["shim", "pidfd"])
def test_role_is_in_no_template(values):
    trees = helm.metasim(*values)
    parts = [str(part) for tree in trees for part in labeled(tree)]
    assert len(parts) >= 5
    assert not [p for p in parts if any(key in p for key in ROLE_KEYS)]


def test_same_values_render_the_same():
    """Nothing random, no time: an upgrade without a change is none."""
    assert helm.metasim() == helm.metasim()
    assert helm.metafence() == helm.metafence()


def test_another_version_of_the_chart_restarts_no_pod(tmp_path):
    """A pod's template says nothing of the chart's version: pods stay until something of theirs changes."""
    chart = tmp_path / "metasim"
    shutil.copytree(helm.METASIM, chart)  # with the chart that its link leads to
    before = templates(chart)
    versions = 0
    for file in chart.rglob("Chart.yaml"):
        text, count = re.subn(r"(?m)^( *version: ).*$", r"\g<1>99.0.0", file.read_text())
        file.write_text(text)
        versions += count
    assert versions == 3, "two charts and a dependency"
    assert before and before == templates(chart)


def templates(chart: Path) -> list[Any]:
    return [t["spec"]["template"] for t in helm.render(chart) if t["kind"] == "StatefulSet"]

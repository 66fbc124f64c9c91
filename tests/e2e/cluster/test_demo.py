# SPDX-License-Identifier: Apache-2.0
"""./dev demo --cluster tells the truth: what it prints is what happened, and it is over in good time."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from demo_cluster import story
from harness.waiting import boot_ns
from kubelab import Cluster
from kubelab.fixtures import drop_namespace
from telling import Screen

WATCHABLE_S = 110  # it has two minutes, the start of the cluster among them


@pytest.fixture
def names(cluster: Cluster, unique_name: str) -> Iterator[tuple[str, str]]:
    pair = (f"{unique_name}-control", f"{unique_name}-guarded")
    yield pair
    for name in pair:
        drop_namespace(cluster, name)


def test_demo(
    cluster: Cluster,
    names: tuple[str, str],
    capsys: pytest.CaptureFixture[str],
    note: Callable[[str, Any], None],
) -> None:
    began = boot_ns()
    without, guarded = story(Screen(), cluster, names)
    took = (boot_ns() - began) / 1e9
    shown = capsys.readouterr().out
    assert without.old_writes > 0 and without.dead is None and without.restarts == 0, shown
    assert guarded.old_writes == 0 and guarded.new_writes > 0, shown
    assert guarded.dead is not None and guarded.dead < guarded.earliest <= guarded.takeover, shown
    assert re.search(r"old leader dead +never +\d", shown), shown
    for reason in ("LeaseDeadlineExceeded", "SessionsTerminated", "BecameFollower"):
        assert reason in shown, shown
    assert took < WATCHABLE_S
    note("seconds without the cluster's start", round(took))

# SPDX-License-Identifier: Apache-2.0
"""Never two leaders beyond the lease, whatever takes leadership away: each cause against each method, in pods
of their own. --full has many runs of each; docs/fault-matrix.md shows what came of them."""

import json
import math
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from kubelab import Cluster
from matrix import CAUSES, GROUPS, METHODS, Run, Wave, cells
from matrix.table import DOCUMENT, Row, render, results_file, rows_of

RUNS = 20  # of a cell, with --full
# So many of each cell are in the cluster at once: about 24 pods.
AT_ONCE = {"links": 1, "processes": 1, "metas": 1, "postgres": 4, "api": 4, "node": 4}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "batch" not in metafunc.fixturenames:
        return
    full = metafunc.config.getoption("--full")
    numbers = {group: math.ceil(RUNS / AT_ONCE[group]) if full else 1 for group in GROUPS}
    waves = [(group, number) for number in range(RUNS) for group in GROUPS if number < numbers[group]]
    if metafunc.config.getoption("--resume"):
        waves = [wave for wave in waves if not results_file(full, f"{wave[0]}-{wave[1]}").exists()]
    metafunc.parametrize("group,batch", waves, ids=[f"{group}-{number}" for group, number in waves])


@pytest.mark.matrix
@pytest.mark.timeout(1200)
def test_matrix(cluster: Cluster, group: str, batch: int, request: pytest.FixtureRequest) -> None:
    full = request.config.getoption("--full")
    count = AT_ONCE[group] if full else 1
    runs = [
        Run(cluster, cause, method, f"{group}-{batch}-{uuid.uuid4().hex[:8]}")
        for cause, method in cells()
        if cause.name in GROUPS[group]
        for _ in range(count)
    ]
    path = results_file(full, f"{group}-{batch}")
    path.unlink(missing_ok=True)
    problems = Wave(cluster, runs).go(path)
    assert not problems, "\n".join(problems)
    assert_promises(rows_of([path]))


def assert_promises(rows: Iterable[Row]) -> None:
    """P1 for the strong mode; with metafence-run itself stopped, for the kubelet, at the lease that ships."""
    for row in rows:
        covers = "kubelet" if row.cause.name == "metafence-run SIGSTOPped" else "permit"
        if row.method.name == covers:
            assert row.runs and not row.overlaps, row


def test_each_cell_is_in_the_document() -> None:
    text = DOCUMENT.read_text()
    for cause in CAUSES.values():
        for method in METHODS.values():
            cell = f"| {cause.name} | {method.name} |"
            assert cell in text, f"{DOCUMENT.name} has no row {cell}"


def test_groups_have_each_cause_once() -> None:
    assert sorted(name for group in GROUPS.values() for name in group) == sorted(CAUSES)


def line(method: str, margin_ms: float | None, late_ticks: int = 0) -> dict[str, Any]:
    beyond = -(margin_ms or 0.0) if late_ticks else 0.0
    figures = {"margin_ms": margin_ms, "late_ticks": late_ticks, "beyond_lease_ms": beyond}
    return {"cause": "agent SIGSTOPped", "method": method, **figures}


def test_table_hides_nothing(tmp_path: Path) -> None:
    """Overlaps and the worst run are shown, a cell without runs too, one that does not die has no margin."""
    lines = [
        line("permit", 610.4),
        line("permit", 20.0),
        line("pidfd", 300.0),
        line("pidfd", -1065.4, late_ticks=10),
        line("kubelet", 5000.0),
        line("kubelet", None),
    ]
    file = tmp_path / "some.jsonl"
    file.write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    permit, pidfd, kubelet = rows_of([file])
    assert (permit.runs, permit.overlaps, permit.worst_ms) == (2, 0, 20.0)
    assert (pidfd.runs, pidfd.overlaps, pidfd.worst_ms) == (2, 1, -1065.4)
    assert (kubelet.runs, kubelet.worst_ms, kubelet.alive) == (2, None, 1)
    text = render([file])
    assert "| agent SIGSTOPped | pidfd | 2 | 1 | -1065 |" in text and "**not covered**" in text
    assert "acted up to 1.1 s beyond its lease" in text and "1 still alive" in text
    with pytest.raises(AssertionError):
        lines.append(line("permit", -50.0, late_ticks=1))
        file.write_text("".join(f"{json.dumps(one)}\n" for one in lines))
        assert_promises(rows_of([file]))

# SPDX-License-Identifier: Apache-2.0
"""The benches say what they measured: targets that are missed are called so, and plots can be drawn. In the
full tier each runs for a few rounds; how fast anything is decides nothing here."""

import sys
from copy import deepcopy
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from harness import fakeapi

BENCH = Path(__file__).resolve().parents[1] / "bench"
sys.path.insert(0, str(BENCH))

import report  # noqa: E402
import targets  # noqa: E402

RUN = {"machine": "2 cores", "tree": "abc", "load_before": 0.1}
MEMORY = {"rss": 6144, "pss": 3000, "private": 2000, "peak": 7000}


def fence(what: str, p50: float, p99: float, worst: float) -> dict[str, Any]:
    return {"what": what, "count": 9, "p50_ms": p50, "p99_ms": p99, "worst_ms": worst, "commit_p50_ms": 1.0}


def at_rest(what: str, process: str) -> dict[str, Any]:
    counted = {"statements_per_min": 240.0, "requests_per_min": 0.0}
    return {"what": what, "processes": {process: MEMORY}, "cpu_s_per_min": {process: 0.06}, **counted}


def results() -> targets.Results:
    """Everything exactly at its target."""
    ours, peer = targets.NOTIFY, "Go sidecar, NOTIFY"
    watched = ("metafence agent", "client-go informer", "client-go informer, trimmed")
    costs = {"tps_ratio": [0.9, 0.95, 1], "p50_added_ms": [0, 0.1, 0.2]}
    return {
        "peer": {
            **RUN,
            "fences": [
                fence(ours, 5, 25, 400),
                fence(peer, 5, 25, 400),
                fence(targets.POLLING, 150, 290, 300),
                fence("Go sidecar, polling", 150, 290, 300),
            ],
            "at_rest": [at_rest(ours, "agent"), at_rest(peer, "peer")],
            "starts": [{"what": what, "ready_ms": 10, "covers_ms": 20} for what in (ours, peer)],
            "sizes": [
                {"what": "metafence", "programs": 1, "image": 8 << 20},
                {"what": "Go sidecar", "programs": 1, "image": 10 << 20},
            ],
            "writes": [{"what": ours, "changes": 3, "patches": 3, "events": 3}],
        },
        "cut": {**RUN, "cut": [{"what": "metafence", "runs": 3, "in_time": 3}]},
        "guard": {**RUN, "costs": [{"mode": "enforce", "clients": 1, **costs}]},
        "reconcile": {**RUN, "reconcile": [{"rows": 100_000, "pods": 10_000, "cpu_ms": 100, "mb": 32}]},
        "watch": {**RUN, "watch": [{"what": what, "pods": 100, "memory": MEMORY} for what in watched]},
    }


def met(found: targets.Results) -> dict[str, str]:
    return {row[0]: row[3] for row in targets.judged(found)}


def test_what_is_at_its_target_meets_it() -> None:
    assert set(met(results()).values()) == {"yes"}
    assert set(met({}).values()) == {""}


@pytest.mark.parametrize(
    ("number", "path", "value"),
    [
        (0, ("peer", "fences", 0, "p50_ms"), 5.01),
        (0, ("peer", "fences", 0, "p99_ms"), 25.01),
        (1, ("peer", "fences", 2, "worst_ms"), 300.1),
        (2, ("cut", "cut", 0, "in_time"), 2),
        (3, ("peer", "at_rest", 0, "processes", "agent"), {**MEMORY, "rss": 6145}),
        (4, ("peer", "at_rest", 0, "cpu_s_per_min", "agent"), 0.061),
        (5, ("peer", "sizes", 0, "image"), (8 << 20) + 1),
        (5, ("peer", "sizes", 0, "image"), None),
        (6, ("peer", "writes", 0, "patches"), 4),
        (6, ("peer", "writes", 0, "events"), 4),
        (6, ("peer", "writes", 0, "changes"), 0),
        (7, ("guard", "costs", 0, "tps_ratio"), [0.9, 0.949, 1]),
        (7, ("guard", "costs", 0, "p50_added_ms"), [0, 0.101, 0.2]),
        (8, ("reconcile", "reconcile", 0, "cpu_ms"), 100.1),
        (8, ("reconcile", "reconcile", 0, "mb"), 32.1),
        (8, ("reconcile", "reconcile", 0, "rows"), 10_000),
    ],
)
def test_a_missed_target_is_called_so(number: int, path: tuple[Any, ...], value: Any) -> None:
    found = deepcopy(results())
    place: Any = found
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    missed = [what for what, said in met(found).items() if said != "yes"]
    assert missed == [targets.TARGETS[number].what]


def test_times_of_a_busy_machine_are_no_verdict() -> None:
    found = deepcopy(results())
    found["peer"]["load_before"] = 1.1
    found["peer"]["fences"][0]["p50_ms"] = 5.01
    found["peer"]["at_rest"][0]["processes"]["agent"]["rss"] = 6145
    said = met(found)
    assert said[targets.TARGETS[0].what] == "the machine was busy"
    assert said[targets.TARGETS[3].what] == "**no**"


def test_the_document_is_written_between_its_markers() -> None:
    document = targets.DOCUMENT.read_text()
    text = targets.markdown(results())
    once = targets.replaced(document, text)
    assert text in once and targets.replaced(once, text) == once
    assert once.split(targets.BEGIN)[0] == document.split(targets.BEGIN)[0]
    assert once.split(targets.END)[1] == document.split(targets.END)[1]


@pytest.mark.parametrize("logs", [(False, False), (True, True)])
def test_plots_are_inside_of_their_frame(logs: tuple[bool, bool]) -> None:
    series = {"a & b": [(1.0, 0.5), (20.0, 7.0), (400.0, 900.0)], "one": [(3.0, 3.0)]}
    for drawn in (
        report.lines("t", ("x", "y"), series, logs),
        report.lines("t", ("x", "y"), {"one": [(3.0, 3.0)]}, logs, floor=0, dots=True),
        report.bars("t", "u", {"a<b": 2.0, "nothing": 0.0}),
    ):
        root = ElementTree.fromstring(drawn)
        dots = root.findall("{http://www.w3.org/2000/svg}circle")
        assert all(0 <= float(d.attrib["cx"]) <= report.WIDTH for d in dots)
        assert all(0 <= float(d.attrib["cy"]) <= report.HEIGHT for d in dots)
        assert len(dots) == drawn.count("<circle")


@pytest.mark.long
@pytest.mark.timeout(1800)  # client-go is compiled
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("peer", ["--rounds", "2", "--idle", "2", "--starts", "1"]),
        ("cut", ["--rounds", "2"]),
        ("watch", ["--pods", "20", "250", "--seconds", "2"]),
        ("idle", ["--seconds", "2"]),
    ],
)
def test_a_few_rounds(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    words: list[str],
) -> None:
    if not request.config.getoption("--full"):
        pytest.skip("in the full tier")
    import run

    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setattr(fakeapi, "BOOKMARK_S", fakeapi.BOOKMARK_S)  # which benches change
    assert run.main([name, *words]) == 0
    assert ElementTree.parse(tmp_path / f"{name}.svg").getroot() is not None
    assert "| --- |" in (tmp_path / f"{name}.md").read_text()
    if name == "cut":
        rows = [r for r in targets.read()["cut"]["cut"] if r["what"].startswith("metafence")]
        assert len(rows) == 2 and all(r["in_time"] == r["runs"] > 0 for r in rows), rows

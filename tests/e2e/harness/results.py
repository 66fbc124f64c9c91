# SPDX-License-Identifier: Apache-2.0
"""What the scenarios measured, gathered over all workers and printed as one table at the end."""

import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from .paths import REPO

VARIABLE = "METAFENCE_E2E_RESULTS"
KEPT = REPO / "build" / "results"


@dataclass(frozen=True)
class Measured:
    scenario: str
    ttl: int
    guarded: bool
    overlaps: int
    worst_margin_ms: float | None


def keep(name: str, whole: list[str], table: list[str]) -> None:
    """What a long test has to tell: the whole to build/results/NAME.txt, the table also to the run's end."""
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / f"{name}.txt").write_text("\n".join(whole) + "\n")
    path = os.environ.get(VARIABLE)
    if path:
        with open(f"{path}.kept", "a") as out:
            out.write(json.dumps([name, table]) + "\n")


def kept() -> list[tuple[str, list[str]]]:
    """Names and tables of what was kept in this run. Before table(), which ends it."""
    path = Path(os.environ[VARIABLE] + ".kept")
    if not path.exists():
        return []
    found = [json.loads(line) for line in path.read_text().splitlines()]
    path.unlink()
    return [(name, table) for name, table in found]


def begin() -> None:
    """In the controller, before workers start: they inherit the place by the environment."""
    handle, path = tempfile.mkstemp(prefix="metafence-results-")
    os.close(handle)
    os.environ[VARIABLE] = path


def record(measured: Measured) -> None:
    path = os.environ.get(VARIABLE)
    if path:
        with open(path, "a") as out:
            out.write(json.dumps(asdict(measured)) + "\n")  # one short write: whole lines


def table() -> list[str]:
    """Lines of the table; empty when nothing was measured."""
    path = Path(os.environ.pop(VARIABLE))
    rows = [Measured(**json.loads(line)) for line in path.read_text().splitlines()]
    path.unlink()
    if not rows:
        return []
    head = ("scenario", "ttl", "runs", "overlaps without", "with metafence", "worst margin ms")
    lines = [head]
    for scenario, ttl in sorted({(r.scenario, r.ttl) for r in rows}):
        mine = [r for r in rows if (r.scenario, r.ttl) == (scenario, ttl)]
        control = [r for r in mine if not r.guarded]
        guarded = [r for r in mine if r.guarded]
        margins = [r.worst_margin_ms for r in guarded if r.worst_margin_ms is not None]
        lines.append(
            (
                scenario,
                str(ttl),
                f"{len(control)}+{len(guarded)}",
                f"{sum(r.overlaps > 0 for r in control)} of {len(control)} runs",
                f"{sum(r.overlaps > 0 for r in guarded)} of {len(guarded)} runs",
                f"{min(margins):.0f}" if margins else "-",
            )
        )
    widths = [max(len(line[n]) for line in lines) for n in range(len(head))]
    return ["  ".join(w.ljust(widths[n]) for n, w in enumerate(line)).rstrip() for line in lines]

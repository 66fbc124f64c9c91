# SPDX-License-Identifier: Apache-2.0
"""The matrix as a table, from the lines that its waves left.

    PYTHONPATH=tests/e2e:tests/e2e/cluster python -m matrix.table [--write] [FOLDER]

prints that of FOLDER (build/results/matrix/full); --write puts it into docs/fault-matrix.md, too.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.paths import REPO

from .causes import CAUSES, Cause
from .methods import METHODS, Method

RESULTS = REPO / "build/results/matrix"
DOCUMENT = REPO / "docs/fault-matrix.md"
HEAD = ("cause", "method", "runs", "overlaps", "worst margin, ms", "note")


def results_dir(full: bool) -> Path:
    return RESULTS / ("full" if full else "short")


def results_file(full: bool, name: str) -> Path:
    return results_dir(full) / f"{name}.jsonl"


@dataclass(frozen=True)
class Row:
    """Of the table. overlaps: runs in which the old leader acted beyond its lease. worst_ms: between its
    death and the earliest takeover, in the worst run; negative: it died later."""

    cause: Cause
    method: Method
    runs: int
    overlaps: int
    worst_ms: float | None  # None also if one had not died when it was judged
    beyond_ms: float
    alive: int

    def cells(self) -> tuple[str, ...]:
        worst = "-" if self.worst_ms is None else f"{self.worst_ms:.0f}"
        names = (self.cause.name, self.method.name)
        return (*names, str(self.runs), str(self.overlaps), worst, note_of(self))


def rows_of(files: Iterable[Path], whole: bool = False) -> Iterator[Row]:
    """A row for each method of the causes that were run, or of all. A cell may have no runs."""
    lines = [json.loads(line) for file in files if file.exists() for line in file.read_text().splitlines()]
    seen = {line["cause"] for line in lines}
    for cause in CAUSES.values():
        for method in METHODS.values():
            mine = [x for x in lines if (x["cause"], x["method"]) == (cause.name, method.name)]
            if cause.name not in seen and not whole:
                continue
            margins = [x["margin_ms"] for x in mine]
            worst = None if not margins or None in margins else min(margins)
            overlaps = sum(x["late_ticks"] > 0 for x in mine)
            beyond = max((x["beyond_lease_ms"] for x in mine), default=0.0)
            yield Row(cause, method, len(mine), overlaps, worst, beyond, margins.count(None))


def note_of(row: Row) -> str:
    notes = []
    if row.cause.companion:
        notes.append(row.cause.companion)
    if row.method.kubelet_alone and row.cause.name != "metafence-run SIGSTOPped":
        notes.append("metafence-run stopped too")
    why = NOT_COVERED.get((row.cause.name, row.method.name))
    if why:
        notes.append(f"**not covered**: {why}")
    if row.overlaps:
        notes.append(f"acted up to {row.beyond_ms / 1000:.1f} s beyond its lease")
    if row.alive:
        notes.append(f"{row.alive} still alive when all was over")
    return "; ".join(notes)


# What a method can't cover, by what it is made of.
NOT_COVERED = {
    ("metafence-run SIGSTOPped", "permit"): "who would kill is stopped; the kubelet's probe ends it, later "
    "than a lease of 5 s",
    ("metafence-run SIGSTOPped", "pidfd"): "there is none in this mode; its part is the agent's",
    ("agent SIGSTOPped", "pidfd"): "who would kill is stopped; the kubelet, which asks it, ends meta after "
    "3 failed probes and 1 s of grace",
}


def render(files: Iterable[Path], whole: bool = False) -> str:
    """Markdown."""
    lines = [HEAD, ("---",) * len(HEAD), *(row.cells() for row in rows_of(files, whole))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def write_document(files: Iterable[Path]) -> None:
    """Its one table is replaced."""
    text = DOCUMENT.read_text()
    found = re.search(r"^\| cause \|.*\n(\|.*\n)+", text, re.MULTILINE)
    assert found, f"{DOCUMENT} has no table"
    DOCUMENT.write_text(f"{text[: found.start()]}{render(files, whole=True)}\n{text[found.end() :]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("folder", nargs="?", type=Path, default=results_dir(True), metavar="FOLDER")
    options = parser.parse_args()
    files = sorted(options.folder.glob("*.jsonl"))
    if not files:
        print(f"no results in {options.folder}: run ./dev test full -k matrix", file=sys.stderr)
        return 1
    if options.write:
        write_document(files)
    print(render(files))
    return 0


if __name__ == "__main__":
    sys.exit(main())

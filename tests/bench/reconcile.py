# SPDX-License-Identifier: Apache-2.0
"""What a pass of the reconciler costs as rows and pods grow: the program of reconcile.c, some times.

./dev bench reconcile [--runs N]
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import report

LINE = re.compile(r" *(\d+) rows +(\d+) pods .*: +([\d.]+) ms CPU, longest step ([\d.]+) ms, +([\d.]+) MB")


def program() -> Path:
    return report.REPO / "build" / "gcc" / "tests" / "bench" / "bench-reconcile"


def sizes(runs: list[str]) -> list[dict[str, Any]]:
    """Medians over the runs, by rows."""
    found: dict[tuple[int, int], list[tuple[float, float, float]]] = {}
    for text in runs:
        for rows, pods, *numbers in LINE.findall(text):
            ms, step, mb = map(float, numbers)
            found.setdefault((int(rows), int(pods)), []).append((ms, step, mb))
    names = ("cpu_ms", "longest_step_ms", "mb")
    return [
        {"rows": rows, "pods": pods}
        | {name: median(one[n] for one in all_of) for n, name in enumerate(names)}
        for (rows, pods), all_of in found.items()
    ]


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev bench reconcile", description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=7, help="(default 7)")
    args = parser.parse_args(words)
    data = report.header()
    # Its status is a verdict on this machine's moment.
    done = [subprocess.run([program()], capture_output=True, text=True) for _ in range(args.runs)]
    data["reconcile"] = sizes([d.stdout for d in done])
    if not data["reconcile"]:
        print(f"bench: {program()} printed no sizes: {done[0].stderr}", file=sys.stderr)
        return 1
    keys = ("rows", "pods", "cpu_ms", "longest_step_ms", "mb")
    rows = [[f"{r[k]:.6g}" for k in keys] for r in data["reconcile"]]
    head = ["rows", "pods", "CPU ms of a pass", "longest step, ms", "MB"]
    series = {"CPU of a pass": [(r["rows"], r["cpu_ms"]) for r in data["reconcile"]]}
    plot = report.lines("A pass of the reconciler", ("rows", "ms"), series, (True, True))
    report.deliver("reconcile", data, report.table(head, rows), plot)
    return 0

# SPDX-License-Identifier: Apache-2.0
"""Runs guard.py and delivers what it measured as the other benches do."""

import json
import tempfile
from pathlib import Path
from typing import Any

import guard
import report

QUICK = ["--rounds", "10"]  # under three minutes


def rows(costs: list[dict[str, Any]]) -> list[list[str]]:
    return [
        [
            f"{c['clients']} connections, {c['mode']}",
            *(f"{c[k]:.3f}" for k in ("p50_ms", "p99_ms")),
            f"{c['tps_ratio'][1]:.3f} ({c['tps_ratio'][0]:.3f} to {c['tps_ratio'][2]:.3f})",
            f"{c['p50_added_ms'][1]:+.3f}",
            f"{c['cpu_added_us'][1]:+.0f}",
        ]
        for c in costs
    ]


def main(words: list[str]) -> int:
    data = report.header()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "guard.json"
        status = guard.main([*QUICK, *words, "--json", str(file)])
        if status != 0:
            return status
        data |= json.loads(file.read_text())
    head = ["", "p50 ms", "p99 ms", "throughput / bare (quarters)", "p50 added, ms", "CPU added, us"]
    bars = {f"{c['clients']} conn., {c['mode']}": c["tps_ratio"][1] for c in data["costs"]}
    unit = "transactions per second / those on bare tables"
    plot = report.bars("The guard on meta-like writes", unit, bars)
    report.deliver("guard", data, report.table(head, rows(data["costs"])), plot)
    return 0

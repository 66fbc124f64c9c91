# SPDX-License-Identifier: Apache-2.0
"""The verdict of `metasim witness check`: did two act as leader beyond the lease, and by how much
margin not?"""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .paths import metasim
from .postgres import Postgres


@dataclass(frozen=True)
class Verdict:
    overlaps: int
    ticks: int
    worst_margin_ms: float | None
    takeovers: list[dict[str, Any]]
    raw: dict[str, Any]


def check_witness(postgres: Postgres, ttl: str, files: list[Path]) -> Verdict:
    argv = [metasim(), "witness", "check", "--ttl", ttl, "--dsn", postgres.dsn(), *files]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.stdout, f"witness check: exit {done.returncode}: {done.stderr}"
    raw = json.loads(done.stdout)
    # Also a new incarnation of the same pod is a successor; a lease that was given back has no margin.
    margins = [
        t["margin_ms"] for t in raw["takeovers"] if t["kind"] != "released" and t["old_last_tick_boot_ns"]
    ]
    return Verdict(raw["overlaps"], raw["ticks"], min(margins, default=None), raw["takeovers"], raw)

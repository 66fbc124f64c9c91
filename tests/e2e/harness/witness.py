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
    return Verdict(raw["overlaps"], raw["ticks"], raw["worst_margin_ms"], raw.get("takeovers") or [], raw)

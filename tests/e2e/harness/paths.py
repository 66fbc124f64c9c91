# SPDX-License-Identifier: Apache-2.0
"""Where the programs under test are. Each is looked up once, with an error that says how to get it."""

import os
from functools import cache
from pathlib import Path

REPO = Path(__file__).resolve().parents[3]


class Missing(Exception):
    pass


def _first(what: str, places: list[Path], fix: str) -> Path:
    for place in places:
        if place.is_file() and os.access(place, os.X_OK):
            return place
    raise Missing(f"{what} not found in {', '.join(map(str, places))}: {fix}")


def _built(name: str, folder: str) -> Path:
    root = Path(os.environ.get("METAFENCE_BIN_DIR", REPO / "build"))
    fix = "run ./dev build, or set METAFENCE_BIN_DIR"
    return _first(name, [root / name, root / folder / name], fix)


@cache
def metafence() -> Path:
    return _built("metafence", "agent")


@cache
def metafence_run() -> Path:
    return _built("metafence-run", "fence")


@cache
def metasim() -> Path:
    if "METASIM" in os.environ:
        return _first("metasim", [Path(os.environ["METASIM"])], "correct METASIM")
    places = [REPO / "build" / "metasim", REPO / "tests" / "e2e" / "metasim" / "metasim"]
    return _first("metasim", places, "run ./dev build, or set METASIM")


@cache
def postgres_bin(program: str) -> Path:
    if "PG_BIN" in os.environ:
        return _first(program, [Path(os.environ["PG_BIN"]) / program], "correct PG_BIN")
    versions = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int(p.parent.name), reverse=True
    )
    return _first(program, [v / program for v in versions], "run ./dev setup, or set PG_BIN")


@cache
def prometheus(program: str) -> Path:
    home = Path(os.environ.get("METAFENCE_CACHE", Path.home() / ".cache" / "metafence"))
    return _first(program, [home / "prometheus" / program], "run ./dev setup")

# SPDX-License-Identifier: Apache-2.0
"""What all benches share: where results go, tables, and plots as plain SVG."""

import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[2]
RESULTS = Path(os.environ.get("METAFENCE_BENCH_DIR", REPO / "build" / "bench"))
COLORS = ("#1b6ca8", "#c0392b", "#2e8b57", "#8e44ad", "#d68910", "#566573")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 900, 380, 70, 210, 40, 50

Series = dict[str, list[tuple[float, float]]]


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="\n" if not text else "", file=sys.stderr, flush=True)


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {memory:.0f} GiB, Linux {platform.release()}"


def tree() -> str:
    """The commit that was measured, or ""."""
    argv = ["git", "-C", str(REPO), "describe", "--always", "--dirty"]
    return subprocess.run(argv, capture_output=True, text=True).stdout.strip()


def header() -> dict[str, Any]:
    """What each result says of its run; the load tells a reader how much the times are worth."""
    return {"machine": machine(), "tree": tree(), "load_before": round(os.getloadavg()[0], 2)}


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def deliver(name: str, data: dict[str, Any], markdown: str, plot: str) -> None:
    """Prints the Markdown, and writes it, the JSON and the plot as build/bench/NAME.*."""
    progress("")
    about = f"Machine: {data['machine']}; load before the run {data['load_before']}."
    text = f"## {name}\n\n{about}\n\n{markdown}\n"
    print(text)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(data, indent=1) + "\n")
    (RESULTS / f"{name}.md").write_text(text)
    (RESULTS / f"{name}.svg").write_text(plot)
    print(f"{RESULTS / name}.json, .md, .svg")


# --- plots -----------------------------------------------------------------------------------------


def _scale(values: list[float], is_log: bool, start: float, end: float) -> Callable[[float], float]:
    def place(value: float) -> float:
        return math.log10(max(value, 1e-9)) if is_log else value

    low, high = min(map(place, values)), max(map(place, values))
    span = (high - low) or 1.0
    return lambda value: start + (place(value) - low) / span * (end - start)


def _ticks(low: float, high: float, is_log: bool) -> list[float]:
    if is_log:
        first, last = math.floor(math.log10(max(low, 1e-9))), math.ceil(math.log10(max(high, 1e-9)))
        steps = (1, 2, 5) if last - first < 4 else (1,)
        found = [step * 10.0**n for n in range(first, last + 1) for step in steps]
    else:
        step = 10 ** math.floor(math.log10((high - low) or 1))
        step *= next(m for m in (0.2, 0.5, 1, 2) if (high - low) / (step * m) <= 8)
        found = [n * step for n in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return [t for t in found if low * 0.999 <= t <= high * 1.001]


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(text)}</text>'


def _axes(
    axes: tuple[str, str],
    ranges: tuple[list[float], list[float]],
    logs: tuple[bool, bool],
    x: Callable[[float], float],
    y: Callable[[float], float],
) -> list[str]:
    parts = []
    for t in _ticks(min(ranges[0]), max(ranges[0]), logs[0]):
        parts.append(f'<path class="g" d="M{x(t):.1f} {TOP}V{HEIGHT - BOTTOM}"/>')
        parts.append(_text(x(t), HEIGHT - BOTTOM + 16, f"{t:g}", 'text-anchor="middle"'))
    for t in _ticks(min(ranges[1]), max(ranges[1]), logs[1]):
        parts.append(f'<path class="g" d="M{LEFT} {y(t):.1f}H{WIDTH - RIGHT}"/>')
        parts.append(_text(LEFT - 6, y(t) + 4, f"{t:g}", 'text-anchor="end"'))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, axes[0], 'text-anchor="middle"'))
    parts.append(_text(LEFT, TOP - 8, axes[1]))
    return parts


def lines(
    title: str,
    axes: tuple[str, str],
    series: Series,
    logs: tuple[bool, bool],
    floor: float | None = None,
    dots: bool = False,
) -> str:
    """An SVG of lines, or of dots alone. `floor`: the y axis begins there."""
    xs = [p[0] for points in series.values() for p in points]
    ys = [p[1] for points in series.values() for p in points] + ([] if floor is None else [floor])
    x, y = _scale(xs, logs[0], LEFT, WIDTH - RIGHT), _scale(ys, logs[1], HEIGHT - BOTTOM, TOP)
    parts = _axes(axes, (xs, ys), logs, x, y)
    for n, (name, points) in enumerate(series.items()):
        color = COLORS[n % len(COLORS)]
        if not dots:
            path = "L".join(f"{x(a):.1f} {y(b):.1f}" for a, b in points)
            parts.append(f'<path d="M{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        if dots or len(points) < 12:
            parts += [f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="4" fill="{color}"/>' for a, b in points]
        parts.append(_text(WIDTH - RIGHT + 12, TOP + 12 + 18 * n, name, f'fill="{color}"'))
    return _svg(title, parts)


def bars(title: str, unit: str, values: dict[str, float]) -> str:
    """An SVG of bars that lie, each with its name and value."""
    left, step = 260, (HEIGHT - TOP - BOTTOM) / max(1, len(values))
    most = max(values.values(), default=0) or 1.0
    parts = [_text(left, HEIGHT - 20, unit)]
    for n, (name, value) in enumerate(values.items()):
        y, length = TOP + n * step, max(0.0, value) / most * (WIDTH - left - 90)
        shape = f"M{left} {y:.1f}h{length:.1f}v{step * 0.7:.1f}h-{length:.1f}z"
        parts.append(f'<path d="{shape}" fill="{COLORS[n % len(COLORS)]}"/>')
        parts.append(_text(left - 8, y + step * 0.45, name, 'text-anchor="end"'))
        parts.append(_text(left + length + 6, y + step * 0.45, f"{value:.3g}"))
    return _svg(title, parts)


def shares(values: list[float]) -> list[tuple[float, float]]:
    """How much of the values (per cent) is at most that: points of a line."""
    ordered = sorted(values)
    return [(v, 100 * (n + 1) / len(ordered)) for n, v in enumerate(ordered)]


def _svg(title: str, parts: list[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
    style = "<style>.g{stroke:#8884;stroke-width:1}text{font-size:12px}</style>"
    ground = '<rect width="100%" height="100%" fill="white"/>'
    title = _text(LEFT, 18, title, 'style="font-size:15px;font-weight:bold"')
    return "\n".join([head + ">", style, ground, title, *parts, "</svg>"]) + "\n"

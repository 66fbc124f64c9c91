# SPDX-License-Identifier: Apache-2.0
"""Pictures for the documents as SVG: what a terminal showed, and series of Prometheus."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from html import escape, unescape

# --- a terminal ----------------------------------------------------------------------------------

CHAR, ROW, PAD, BAR = 7.8, 18, 16, 30
SCREEN, PLAIN = "#111827", "#e5e7eb"
COLORS = {"31": "#f87171", "32": "#4ade80", "33": "#fbbf24", "2": "#9ca3af"}
SGR = re.compile(r"\033\[([0-9;]*)m")
MONO = "DejaVu Sans Mono, Menlo, Consolas, monospace"


def plain(text: str) -> str:
    """Without colors."""
    return SGR.sub("", text)


def _spans(line: str) -> list[tuple[str, str]]:
    """(text, color) in order."""
    spans, color, at = [], PLAIN, 0
    for code in SGR.finditer(line):
        spans.append((line[at : code.start()], color))
        color, at = COLORS.get(code[1], PLAIN), code.end()
    spans.append((line[at:], color))
    return [(text, color) for text, color in spans if text]


def terminal(command: str, shown: str) -> str:
    """A window in which `command` printed `shown`."""
    lines = [f"$ {command}", *shown.rstrip("\n").replace("\r", "").split("\n")]
    width = round(max(len(plain(line)) for line in lines) * CHAR + 2 * PAD)
    height = BAR + len(lines) * ROW + PAD
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
        f' height="{height}" font-family="{MONO}" font-size="13" role="img">',
        f"<title>{escape(command)}</title>",
        f'<rect width="{width}" height="{height}" rx="6" fill="{SCREEN}"/>',
        *(f'<circle cx="{18 + 18 * n}" cy="16" r="5" fill="#374151"/>' for n in range(3)),
    ]
    for n, line in enumerate(lines):
        y, column = BAR + ROW * (n + 1) - 4, 0
        for text, color in _spans(line):
            x = round(PAD + column * CHAR, 1)
            length = round(len(text) * CHAR, 1)
            parts.append(
                f'<text class="l{n}" x="{x}" y="{y}" fill="{color}" textLength="{length}"'
                f' xml:space="preserve">{escape(text, quote=False)}</text>'
            )
            column += len(text)
    return "\n".join([*parts, "</svg>\n"])


def terminal_text(svg: str) -> str:
    """What a picture by terminal() shows, without its command."""
    lines: dict[int, str] = {}
    for number, text in re.findall(r'<text class="l(\d+)"[^>]*>([^<]*)</text>', svg):
        lines[int(number)] = lines.get(int(number), "") + unescape(text)
    last = max(lines, default=0)
    return "\n".join(lines.get(n, "") for n in range(1, last + 1))


# --- series --------------------------------------------------------------------------------------

Series = list[tuple[float, float]]  # seconds since the begin, value
INK = ["#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#4b5563"]
PANEL_W, PANEL_H, LEGEND_ROW = 470, 160, 15
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 30, 22
GREY = "#6b7280"


@dataclass(frozen=True)
class Panel:
    title: str
    query: str
    series: dict[str, Series]  # by legend

    @property
    def height(self) -> int:
        return TOP + PANEL_H + BOTTOM + LEGEND_ROW * math.ceil(len(self.series) / 2) + 14


def _label(value: float) -> str:
    return "0" if value == 0 else f"{value:.2g}" if abs(value) < 10 else f"{value:.0f}"


def _round(value: float) -> float:
    """Up to a number that reads well; value >= 0."""
    if value <= 0:
        return 0.0
    scale = 10.0 ** math.floor(math.log10(value))
    return next(step * scale for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * scale >= value * 0.999)


def _lanes(panel: Panel, x: Callable[[float], float], step: float) -> list[str]:
    """States: a lane for each series, which is there while the state is."""
    parts = []
    high = PANEL_H / len(panel.series)
    for n, points in enumerate(panel.series.values()):
        for path in _spells(points, step):
            left, right = x(path[0]), x(path[-1] + step)
            parts.append(
                f'<rect x="{left:.1f}" y="{TOP + n * high + 2:.1f}" width="{right - left:.1f}"'
                f' height="{high - 4:.1f}" fill="{INK[n % len(INK)]}"/>'
            )
    return parts


def _spells(points: Series, step: float) -> list[list[float]]:
    """Times without a gap between them."""
    spells: list[list[float]] = []
    for at, _ in points:
        if not spells or at - spells[-1][-1] > 1.5 * step:
            spells.append([])
        spells[-1].append(at)
    return spells


def _lines(
    points: Series, x: Callable[[float], float], y: Callable[[float], float], step: float
) -> list[str]:
    """Lines through the points; where one is missing, a new line."""
    paths: list[list[tuple[float, float]]] = []
    before = -math.inf
    for at, value in points:
        if not math.isfinite(value):
            continue
        if at - before > 2.5 * step:
            paths.append([])
        paths[-1].append((x(at), y(value)))
        before = at
    return [" ".join(f"{a:.1f},{b:.1f}" for a, b in path) for path in paths]


def _draw(panel: Panel, at: tuple[int, int], end: float, step: float, moments: dict[str, float]) -> list[str]:
    values = [v for points in panel.series.values() for _, v in points if math.isfinite(v)]
    high = _round(max([*values, 0])) or 1.0
    low = -_round(-min([*values, 0]))
    plot_w = PANEL_W - LEFT - RIGHT

    def x(when: float) -> float:
        return LEFT + when / end * plot_w

    def y(value: float) -> float:
        return TOP + PANEL_H - (value - low) / (high - low) * PANEL_H

    parts = [
        f'<g class="panel" transform="translate({at[0]},{at[1]})"><desc>{escape(panel.query)}</desc>',
        f'<text class="title" x="{LEFT}" y="18" font-size="13" font-weight="600">{escape(panel.title)}'
        "</text>",
    ]
    is_state = set(values) == {1.0} and len(panel.series) > 1
    for value in () if is_state else (low, (low + high) / 2, high):
        parts.append(
            f'<line x1="{LEFT}" x2="{LEFT + plot_w}" y1="{y(value):.1f}" y2="{y(value):.1f}"'
            ' stroke="#e5e7eb"/>'
            f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" font-size="10" text-anchor="end" fill="{GREY}">'
            f"{_label(value)}</text>"
        )
    parts += _lanes(panel, x, step) if is_state else []
    for name, when in moments.items():
        parts.append(
            f'<line x1="{x(when):.1f}" x2="{x(when):.1f}" y1="{TOP}" y2="{TOP + PANEL_H}" stroke="{GREY}"'
            f' stroke-dasharray="3 3"><title>{escape(name)}</title></line>'
        )
    for second in range(0, int(end) + 1, 10):
        parts.append(
            f'<text x="{x(second):.1f}" y="{TOP + PANEL_H + 15}" font-size="10" text-anchor="middle"'
            f' fill="{GREY}">{second} s</text>'
        )
    for n, (legend, points) in enumerate(panel.series.items()):
        color = INK[n % len(INK)]
        for path in [] if is_state else _lines(points, x, y, step):
            parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.6"/>')
        left = LEFT + (n % 2) * plot_w / 2
        down = TOP + PANEL_H + BOTTOM + 12 + LEGEND_ROW * (n // 2)
        parts.append(
            f'<rect x="{left:.0f}" y="{down - 8}" width="10" height="8" fill="{color}"/>'
            f'<text class="legend" x="{left + 15:.0f}" y="{down}" font-size="11">{escape(legend)}</text>'
        )
    return [*parts, "</g>"]


def dashboard(title: str, panels: list[Panel], end: float, step: float, moments: dict[str, float]) -> str:
    """All panels in two columns; `moments` are vertical lines, told above."""
    width, y = 2 * PANEL_W + 30, 58
    parts: list[str] = []
    for row in range(0, len(panels), 2):
        pair = panels[row : row + 2]
        for n, panel in enumerate(pair):
            parts += _draw(panel, (10 + n * (PANEL_W + 10), y), end, step, moments)
        y += max(panel.height for panel in pair)
    said = " · ".join(f"{when:.0f} s {name}" for name, when in moments.items())
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" width="{width}" height="{y}"'
        ' font-family="Helvetica, Arial, sans-serif" fill="#1f2937" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{y}" fill="#ffffff"/>',
        f'<text x="{LEFT + 10}" y="24" font-size="15" font-weight="600">{escape(title)}</text>',
        f'<text x="{LEFT + 10}" y="44" font-size="12" fill="{GREY}">{escape(said)}</text>',
    ]
    return "\n".join([*head, *parts, "</svg>\n"])


def drawn(svg: str) -> list[tuple[str, str]]:
    """(title, query) of each panel of a picture by dashboard()."""
    found = re.findall(r'<g class="panel"[^>]*><desc>([^<]*)</desc>\n<text class="title"[^>]*>([^<]*)<', svg)
    return [(unescape(title), unescape(query)) for query, title in found]

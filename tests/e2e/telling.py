# SPDX-License-Identifier: Apache-2.0
"""What both demos tell: the lines on the screen, what is remembered of a run, and the table at the end."""

import os
import sys
from dataclasses import dataclass

WATCH = 2.0  # seconds for which the writers are counted after the link heals
COLOR = {"red": 31, "green": 32, "yellow": 33, "bold": 1, "dim": 2}


def intro(ttl: int) -> str:
    return f"""\
Three metas share one Postgres. The row in election_leader says who leads; its owner renews it every
second, and after {ttl} s without renewal another may take it (RisingWave's default is 30 s).
"""


class Screen:
    """Plain lines; on a terminal colors and one line that counts while one looks at it."""

    def __init__(self) -> None:
        self.live = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self.color = self.live and "NO_COLOR" not in os.environ

    def paint(self, text: str, *styles: str) -> str:
        codes = ";".join(str(COLOR[s]) for s in styles)
        return f"\033[{codes}m{text}\033[0m" if self.color and codes else text

    def say(self, text: str = "", *styles: str) -> None:
        print(self.paint(text, *styles), flush=True)

    def at(self, seconds: float, text: str, *styles: str) -> None:
        self.say(f"  {seconds:5.1f} s  {self.paint(text, *styles)}")

    def update(self, text: str) -> None:
        """A line that is written over by the next one; only shown on a terminal."""
        if self.live:
            print(f"\r\033[K{text}", end="", flush=True)

    def settle(self, text: str) -> None:
        """The last state of the line that was updated."""
        print(f"{chr(13)}\033[K{text}" if self.live else text, flush=True)


@dataclass
class Run:
    """What happened in one run, in ns since the boot; None: it never did."""

    cut: int = 0
    earliest: int = 0  # last renewal of the old leader + ttl: from then on another may win
    dead: int | None = None
    takeover: int = 0
    healed: int = 0
    follows: int | None = None
    old_writes: int = 0
    new_writes: int = 0
    restarts: int = 0  # by a kubelet

    def clock(self, moment: int) -> float:
        """In seconds since the cut."""
        return (moment - self.cut) / 1e9


def writers(screen: Screen, run: Run, old: str, new: str) -> str:
    """The writes that Postgres committed to the old and the new leader since the link healed."""
    color = "red" if run.old_writes else "green"
    left = screen.paint(f"{old} (old leader) {run.old_writes:3d}", color, "bold")
    return f"           committed since then:   {left}    {new} (new leader) {run.new_writes:3d}"


def timeline(screen: Screen, one: Run, two: Run, unit: str) -> None:
    """`unit`: milliseconds or seconds."""
    form = ("{:.0f}", 1000) if unit == "milliseconds" else ("{:.1f}", 1)

    def cell(run: Run, moment: int | None) -> str:
        return "never" if moment is None else form[0].format(run.clock(moment) * form[1])

    moments = {
        "link cut": "cut",
        "old leader dead": "dead",
        "earliest takeover possible": "earliest",
        "new leader elected": "takeover",
        "link heals": "healed",
        "old leader a follower again": "follows",
    }
    rows = [(what, *(cell(run, getattr(run, name)) for run in (one, two))) for what, name in moments.items()]
    rows.append(("old leader's writes after healing", str(one.old_writes), str(two.old_writes)))
    screen.say(f"Timeline in {unit} since the cut", "bold")
    screen.say(f"  {'':36}{'without':>10}{'with':>10}", "dim")
    for what, left, right in rows:
        screen.say(f"  {what:36}{left:>10}{right:>10}")
    screen.say()

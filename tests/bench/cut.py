# SPDX-License-Identifier: Apache-2.0
"""Who is dead before another can lead, when the leader's link to Postgres is cut: with metafence, with the
Go sidecar of peer/, and alone; with the sidecar alive, and with it frozen at the moment of the cut.

    ./dev bench cut [--rounds N]

Two metas each, lease 10 s. The verdict is the witness's: the last tick of the old leader against the end of
its lease, both by the database's clock.
"""

import argparse
import os
import random
import signal
import sys
from dataclasses import asdict, dataclass
from typing import Any

import report
from contenders import Alone, Metafence, Peer
from harness import Pod, wait_for
from harness.lab import clean_after_crashes
from harness.waiting import TimedOut
from scenario import Fault, cut_link

TTL = 10


@dataclass(frozen=True)
class Cell:
    name: str
    kind: type[Alone]
    is_frozen: bool


CELLS = (
    Cell("meta alone", Alone, False),
    Cell("Go sidecar", Peer, False),
    Cell("Go sidecar, frozen", Peer, True),
    Cell("metafence", Metafence, False),
    Cell("metafence, agent frozen", Metafence, True),
)


@dataclass(frozen=True)
class Outcome:
    what: str
    round: int
    overlaps: int  # ticks of the old leader beyond its lease
    margin_ms: float | None  # from its last tick to the end of its lease; below 0: it outlived it


def cut(one: Alone, is_frozen: bool) -> tuple[Pod, Fault]:
    """Who leads now, and the end of its link."""
    old = one.cluster.wait_converged(20)
    wait_for(f"the sidecar of {one.name} knows", lambda: one.knows_leader(old), 20)
    fault = cut_link(old, "stall")
    if is_frozen:
        os.kill(one.sidecars(old)[one.sidecar], signal.SIGSTOP)
    return old, fault


def judge(one: Alone, old: Pod, fault: Fault) -> tuple[int, float | None]:
    one.cluster.wait_new_leader(old, 3 * TTL)
    fault.wait_end()
    verdict = one.cluster.witness()
    assert verdict.ticks > 0, "the witness saw nothing"
    return verdict.overlaps, verdict.worst_margin_ms


def one_round(number: int) -> list[Outcome]:
    made: list[tuple[Alone, Cell]] = []
    try:
        for cell in random.sample(CELLS, len(CELLS)):
            made.append((cell.kind(cell.name, ttl=TTL, pods=2), cell))
            made[-1][0].start()
        faults = [cut(one, cell.is_frozen) for one, cell in made]
        return [
            Outcome(cell.name, number, *judge(one, *fault))
            for (one, cell), fault in zip(made, faults, strict=True)
        ]
    finally:
        for one, _ in made:
            one.close()


def summary(outcomes: list[Outcome]) -> list[dict[str, Any]]:
    rows = []
    for cell in CELLS:
        mine = [o for o in outcomes if o.what == cell.name]
        margins = [o.margin_ms for o in mine if o.margin_ms is not None]
        rows.append(
            {
                "what": cell.name,
                "runs": len(mine),
                "in_time": sum(o.overlaps == 0 for o in mine),
                "worst_margin_ms": min(margins, default=None),
                "margin_p50_ms": report.percentile(margins, 0.5) if margins else None,
            }
        )
    return rows


def ms(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


def markdown(rows: list[dict[str, Any]]) -> str:
    said = [
        [r["what"], f"{r['in_time']} of {r['runs']}", ms(r["margin_p50_ms"]), ms(r["worst_margin_ms"])]
        for r in rows
    ]
    head = ["link of the leader cut, lease 10 s", "dead before another can lead", "margin p50, ms", "worst"]
    return report.table(head, said)


def plot(outcomes: list[Outcome]) -> str:
    series: report.Series = {cell.name: [] for cell in CELLS}
    for o in outcomes:
        if o.margin_ms is not None:
            series[o.what].append((o.round + 1, o.margin_ms))
    axes = ("round", "ms from the old leader's last tick to the end of its lease; below 0: two leaders")
    series = {name: points for name, points in series.items() if points}
    return report.lines("Link cut", axes, series, (False, False), floor=0, dots=True)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev bench cut", description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="each cell once a round (default 3)")
    args = parser.parse_args(words)
    clean_after_crashes()
    data = report.header()
    outcomes: list[Outcome] = []
    data["given_up"] = []
    for number in range(args.rounds):
        report.progress(f"cut: round {number + 1} of {args.rounds}")
        try:
            outcomes += one_round(number)
        except TimedOut as error:  # a lease of seconds on a busy machine; said, and not counted
            data["given_up"].append(str(error))
            print(f"bench cut: round {number + 1} was given up: {error}", file=sys.stderr)
    if not outcomes:
        return 1
    data["cut"] = summary(outcomes)
    data["runs"] = [asdict(o) for o in outcomes]
    said = f"\n\nRounds that were given up: {len(data['given_up'])}."
    report.deliver("cut", data, markdown(data["cut"]) + said, plot(outcomes))
    return 0

# SPDX-License-Identifier: Apache-2.0
"""Judges in which order things came to pass: nothing is reclaimed under an actor that may read it, except
where a bound is on record, and nothing waits for ever. Pure.

A recovery of the database alone resets only the nodes that meta is connected to, and no gate holds it. What
it removes under an actor of a node that was cut off is told apart: docs/recovery.md, Limits.

Which actors lived when is what compute nodes say of themselves, what was removed is what metas say; of
metafence's own books only those count that excuse something. All instants are of CLOCK_BOOTTIME.

  under actor  a table was removed while an actor of it lived, and no bound is on record
  unproven     the gate took all nodes for reset or gone, and an actor lived; it may where its node is NONE
  ungated      a purge removed tables, and the gate has no record of it
  early        a bound before maxHold
  open         the gate let a purge pass for another reason, and nothing that was done explains it
  overheld     a refusal long after maxHold
  panic        a compute node died by an empty read, and no bound is on record for that table
  stuck        something did not come to its end in time
  blind        there is too little evidence to tell
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from chaos.history import Cause, Finding

S = 10**9
# Postgres' instants are told by its wall clock, compared with ours by a question and its answer.
CLOCK_NS = S // 20
# From a commit to the line by which a meta tells of it; it may stand still in between.
TOLD_NS = 60 * S
# From the end of a refusal's time to the line that tells of it: a meta on a busy machine.
LATE_NS = 15 * S
AGENT_AWAY = "open: no agent"  # that it may be away is one of the plan's own steps
BOUNDED = ("bound", AGENT_AWAY)


@dataclass(frozen=True)
class Actor:
    """to_ns None: it lives on."""

    node: str
    address: str
    id: int
    tables: tuple[int, ...]
    from_ns: int
    to_ns: int | None = None

    def lived(self, at_ns: int) -> bool:
        return self.from_ns <= at_ns and (self.to_ns is None or at_ns < self.to_ns)

    def __str__(self) -> str:
        until = "lives on" if self.to_ns is None else f"ended {self.to_ns / S:.3f}"
        tables = ", ".join(map(str, self.tables))
        return f"actor {self.id} of {self.node} on tables {tables}: began {self.from_ns / S:.3f}, {until}"


@dataclass(frozen=True)
class Removal:
    """Of tables from Hummock, as its meta tells of it after the commit."""

    at_ns: int
    meta: str
    by: str
    tables: tuple[int, ...]
    is_database: bool = False  # in or after a recovery of the database alone

    def __str__(self) -> str:
        return f"{self.at_ns / S:.3f} {self.meta} has removed tables {self.tables} by {self.by}"


@dataclass(frozen=True)
class Passage:
    """A removal that met an open recovery and passed its gate. none: addresses of nodes that were NONE."""

    id: int
    at_ns: int
    recovery: int
    outcome: str
    tables: tuple[int, ...]
    held_ms: int
    none: tuple[str, ...] = ()

    def __str__(self) -> str:
        what = f"{self.outcome} after {self.held_ms} ms"
        return f"{self.at_ns / S:.3f} recovery {self.recovery}: tables {self.tables} passed, {what}"


@dataclass(frozen=True)
class Refusal:
    at_ns: int
    recovery: int


@dataclass(frozen=True)
class Panic:
    at_ns: int
    node: str
    table: int


@dataclass(frozen=True)
class Wait:
    """For everything to come to its end after a round."""

    what: str
    seconds: float
    missing: str = ""  # not empty: it never did


@dataclass(frozen=True)
class History:
    """held_from: of each recovery that is known, from when its maxHold counts."""

    max_hold_ns: int
    actors: tuple[Actor, ...] = ()
    removals: tuple[Removal, ...] = ()
    passages: tuple[Passage, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    held_from: tuple[tuple[int, int], ...] = ()
    panics: tuple[Panic, ...] = ()
    causes: tuple[Cause, ...] = ()
    cut_off: tuple[Cause, ...] = ()  # from metas; the name is the node's
    waits: tuple[Wait, ...] = ()


@dataclass
class Verdict:
    rounds: int = 0
    actors: int = 0
    removals: int = 0
    refusals: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)  # of passages
    panics: int = 0  # with those that a bound is on record for
    slowest_s: float = 0.0
    violations: list[Finding] = field(default_factory=list)
    explained: list[Finding] = field(default_factory=list)  # by recoveries of the database alone

    @property
    def is_clean(self) -> bool:
        return not self.violations

    def __str__(self) -> str:
        passed = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.outcomes.items()))
        head = (
            f"{'clean' if self.is_clean else f'{len(self.violations)} VIOLATIONS'}: {self.rounds} rounds,"
            f" {self.actors} actors, {self.removals} removals, {self.refusals} refusals; gate passed:"
            f" {passed or 0}; {self.panics} panics; slowest rest {self.slowest_s:.1f} s;"
            f" explained: {len(self.explained)}"
        )
        return "\n".join((head, *map(str, self.violations), *map(str, self.explained)))


def judge(history: History) -> Verdict:
    verdict = Verdict(
        rounds=len(history.waits),
        actors=len(history.actors),
        removals=len(history.removals),
        refusals=len(history.refusals),
        panics=len(history.panics),
        slowest_s=max((wait.seconds for wait in history.waits), default=0.0),
    )
    for passage in history.passages:
        verdict.outcomes[passage.outcome] = verdict.outcomes.get(passage.outcome, 0) + 1
        verdict.violations += _of_passage(history, passage)
    beyond: set[int] = set()
    for removal in history.removals:
        found = list(_of_removal(history, removal))
        if _is_beyond(history, removal):
            beyond.update(removal.tables)
            verdict.explained += found
        else:
            verdict.violations += found
    verdict.violations += _overheld(history)
    for finding, table in _panics(history):
        (verdict.explained if table in beyond else verdict.violations).append(finding)
    for wait in history.waits:
        if wait.missing:
            verdict.violations.append(
                Finding("stuck", f"after {wait.what}, not within {wait.seconds:.0f} s: {wait.missing}")
            )
    if not history.actors or not history.removals or not history.passages or not history.waits:
        verdict.violations.append(Finding("blind", str(verdict).splitlines()[0]))
    return verdict


def _is_bounded(passage: Passage) -> bool:
    return passage.outcome in BOUNDED


def _passages_of(history: History, table: int, before_ns: int) -> Iterator[Passage]:
    """By which that table went."""
    return (p for p in history.passages if table in p.tables and p.at_ns <= before_ns + CLOCK_NS)


def _told_by(history: History, removal: Removal) -> Iterator[Passage]:
    """That this removal may be."""
    for passage in history.passages:
        is_near = -CLOCK_NS <= removal.at_ns - passage.at_ns <= TOLD_NS
        if is_near and set(removal.tables) <= set(passage.tables):
            yield passage


def _of_removal(history: History, removal: Removal) -> Iterator[Finding]:
    passages = list(_told_by(history, removal))
    if removal.by == "purge" and not passages:
        yield Finding("ungated", str(removal))
    if any(map(_is_bounded, passages)):
        return
    if alive := _readers(history, removal):
        yield Finding("under actor", str(removal), tuple(map(str, alive)))


def _of_passage(history: History, passage: Passage) -> Iterator[Finding]:
    if passage.outcome == "acknowledged":
        # As sharp as the clocks: one that ends just before it, or is built right behind it, is no concern.
        around = passage.at_ns - CLOCK_NS, passage.at_ns + CLOCK_NS
        alive = [a for a in history.actors if all(map(a.lived, around)) and a.address not in passage.none]
        if alive:
            yield Finding("unproven", str(passage), tuple(map(str, alive)))
    elif passage.outcome == "bound":
        if passage.held_ms * 10**6 < history.max_hold_ns:
            yield Finding("early", str(passage))
    elif passage.outcome != AGENT_AWAY or not any(
        cause.from_ns <= passage.at_ns <= cause.to_ns for cause in history.causes
    ):
        yield Finding("open", str(passage))


def _readers(history: History, removal: Removal) -> list[Actor]:
    return [a for a in history.actors if a.lived(removal.at_ns) and set(a.tables) & set(removal.tables)]


def _is_beyond(history: History, removal: Removal) -> bool:
    """Nobody holds that one, and all who may read what it removed are on nodes that could not be reset."""
    return removal.is_database and all(
        any(c.name == actor.node and c.from_ns <= removal.at_ns <= c.to_ns for c in history.cut_off)
        for actor in _readers(history, removal)
    )


def _overheld(history: History) -> Iterator[Finding]:
    begins = dict(history.held_from)
    for refusal in history.refusals:
        begun = begins.get(refusal.recovery)
        if begun is not None and refusal.at_ns > begun + history.max_hold_ns + LATE_NS:
            what = f"{refusal.at_ns / S:.3f} recovery {refusal.recovery}"
            yield Finding("overheld", f"{what}, after {(refusal.at_ns - begun) / S:.1f} s")


def _panics(history: History) -> Iterator[tuple[Finding, int]]:
    """With the table that was read."""
    for panic in history.panics:
        passages = list(_passages_of(history, panic.table, panic.at_ns))
        if not any(map(_is_bounded, passages)):
            what = f"{panic.at_ns / S:.3f} {panic.node} by a read of table {panic.table}"
            yield Finding("panic", what, tuple(map(str, passages))), panic.table

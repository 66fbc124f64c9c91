# SPDX-License-Identifier: Apache-2.0
"""Judges what metas did: one leader acts at a time, and no write of a superseded tag. Pure.

All instants are of CLOCK_BOOTTIME, one clock for the machine with all its nodes and its Postgres, so that
neither a step of Postgres' clock nor a failover moves them. What processes say of themselves is only when
they acted; whose lease it was, and who wrote, is Postgres' own log (evidence.py).

  late        it acted after its last renewal + ttl, whether or not another led by then
  twin        it acted after a later incarnation with its id had begun to
  two         two acted at once within a lease, and nothing that was done can have taken the row away
  superseded  a write of a tag that had led, in the term of another
  returned    a tag that had been superseded was given a term
  unseen      a write of the old owner was not yet visible to the statement that moved the term, and stayed
  blind       there is too little evidence to tell
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any

SLACK_NS = 20_000_000  # /proc/uptime, by which Postgres tells CLOCK_BOOTTIME, counts in 10 ms
SHOWN = 5  # acts or writes that a finding quotes


@dataclass(frozen=True)
class Entry:
    """A line of Postgres' log. boot_ns: when; for a renewal when its lease began."""

    seq: int
    kind: str  # renewal, term or write
    boot_ns: int
    tag: str
    id: str = ""
    term: int = 0
    relation: str = ""
    operation: str = ""
    xid: int = 0
    snapshot: str = ""  # of the statement, as Postgres prints it: xmin:xmax:xip,…


@dataclass(frozen=True)
class Incarnation:
    """A meta process and when it acted as leader, ascending."""

    inc: str
    id: str
    tag: str
    pod: str
    ticks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Cause:
    """Something that may take the row from a leader inside its lease, and its time with what followed."""

    name: str
    from_ns: int
    to_ns: int


@dataclass(frozen=True)
class History:
    """logs: one for each database that was the primary, as it was last seen; what they share is in all."""

    ttl_ns: int
    incarnations: tuple[Incarnation, ...]
    logs: tuple[tuple[Entry, ...], ...]
    causes: tuple[Cause, ...] = ()
    lost: int = 0  # lines that Postgres could not write

    @classmethod
    def load(cls, tree: dict[str, Any]) -> "History":
        """From what asdict() made of it and JSON has kept."""
        acting = [Incarnation(**{**one, "ticks": tuple(one["ticks"])}) for one in tree["incarnations"]]
        return cls(
            ttl_ns=tree["ttl_ns"],
            incarnations=tuple(acting),
            logs=tuple(tuple(Entry(**entry) for entry in log) for log in tree["logs"]),
            causes=tuple(Cause(**cause) for cause in tree["causes"]),
            lost=tree["lost"],
        )


@dataclass(frozen=True)
class Finding:
    rule: str
    what: str
    evidence: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n    ".join((f"{self.rule}: {self.what}", *self.evidence))


@dataclass
class Verdict:
    acts: int = 0
    renewals: int = 0
    writes: int = 0
    terms: int = 0
    violations: list[Finding] = field(default_factory=list)
    explained: list[Finding] = field(default_factory=list)  # two at once inside a lease, and why
    worst_margin_ms: float | None = None  # between a leader's last act and its lease's end

    @property
    def is_clean(self) -> bool:
        return not self.violations

    def tree(self) -> dict[str, Any]:
        return asdict(self) | {"is_clean": self.is_clean}

    def __str__(self) -> str:
        margin = "none" if self.worst_margin_ms is None else f"{self.worst_margin_ms:.0f} ms"
        head = (
            f"{'clean' if self.is_clean else f'{len(self.violations)} VIOLATIONS'}:"
            f" {self.acts} acts of leaders, {self.renewals} renewals, {self.terms} terms,"
            f" {self.writes} writes of metadata; worst margin between a leader's last act and the end of"
            f" its lease: {margin}; two at once inside a lease, explained: {len(self.explained)}"
        )
        return "\n".join((head, *map(str, self.violations), *map(str, self.explained)))


def judge(history: History) -> Verdict:
    verdict = Verdict(
        acts=sum(len(i.ticks) for i in history.incarnations),
        renewals=len({(e.tag, e.boot_ns) for e in _all(history, "renewal")}),
        writes=len({(e.seq, e.xid) for e in _all(history, "write")}),
        terms=len({(e.tag, e.term) for e in _all(history, "term")}),
    )
    acting = sorted((i for i in history.incarnations if i.ticks), key=lambda i: i.ticks[0])
    leases = _leases(history)
    for one in acting:
        _judge_lateness(history, one, leases.get(one.tag, []), verdict)
    for old, new in combinations(acting, 2):
        _judge_pair(history, old, new, verdict)
    for log in history.logs:
        verdict.violations += _writes_of_superseded(log)
    if history.lost or not verdict.acts or not verdict.renewals or not verdict.terms:
        what = f"{history.lost} lines of Postgres' log are lost, {verdict}"
        verdict.violations.append(Finding("blind", what.splitlines()[0]))
    return verdict


def _all(history: History, kind: str) -> Iterator[Entry]:
    return (entry for log in history.logs for entry in log if entry.kind == kind)


def _leases(history: History) -> dict[str, list[int]]:
    """When leases began, ascending, by the tag that they were given."""
    found: dict[str, set[int]] = {}
    for entry in _all(history, "renewal"):
        found.setdefault(entry.tag, set()).add(entry.boot_ns)
    return {tag: sorted(begins) for tag, begins in found.items()}


def _terms(history: History, tag: str) -> str:
    terms = sorted({e.term for e in _all(history, "term") if e.tag == tag})
    return f"term {', '.join(map(str, terms))}" if terms else "no term"


def _name(history: History, one: Incarnation) -> str:
    return f"{one.pod}, incarnation {one.inc}, tag {one.tag}, {_terms(history, one.tag)}"


def _times(ticks: list[int]) -> str:
    shown = " ".join(f"{tick / 1e9:.3f}" for tick in ticks[:SHOWN])
    return f"{len(ticks)} acts, at {shown}{' …' if len(ticks) > SHOWN else ''} s since the boot"


def _judge_lateness(history: History, one: Incarnation, begins: list[int], verdict: Verdict) -> None:
    late: dict[int, list[int]] = {}  # end of a lease -> acts after it
    unknown = []
    for tick in one.ticks:
        at = bisect_right(begins, tick + SLACK_NS)
        if at == 0:
            unknown.append(tick)
            continue
        end = begins[at - 1] + history.ttl_ns
        if tick > end + SLACK_NS:
            late.setdefault(end, []).append(tick)
    if unknown:
        what = f"{_name(history, one)} acted before any renewal that Postgres knows"
        verdict.violations.append(Finding("blind", what, (_times(unknown),)))
    for end, ticks in late.items():
        others = [
            f"meanwhile {_name(history, other)}: {_times(mine)}"
            for other in history.incarnations
            if other is not one and (mine := [t for t in other.ticks if ticks[0] <= t <= ticks[-1]])
        ]
        what = f"{_name(history, one)} acted up to {(ticks[-1] - end) / 1e9:.3f} s after its lease"
        lease = f"its last renewal: {(end - history.ttl_ns) / 1e9:.3f}, its lease's end: {end / 1e9:.3f} s"
        verdict.violations.append(Finding("late", what, (lease, _times(ticks), *others)))
    if not late and not unknown:
        last = one.ticks[-1]
        margin = (begins[bisect_right(begins, last + SLACK_NS) - 1] + history.ttl_ns - last) / 1e6
        worst = verdict.worst_margin_ms
        verdict.worst_margin_ms = margin if worst is None else min(worst, margin)


def _judge_pair(history: History, old: Incarnation, new: Incarnation, verdict: Verdict) -> None:
    """`new` began to act after `old` had. Beyond a lease it is late, which is judged by itself."""
    began = new.ticks[0]
    after = list(old.ticks[bisect_right(old.ticks, began) :])
    if not after:
        return
    evidence = (
        f"{_name(history, old)}: {_times(after)}",
        f"{_name(history, new)}: {_times([t for t in new.ticks if t <= after[-1]])}",
    )
    for_ms = f"for {(after[-1] - began) / 1e6:.0f} ms"
    if old.id.lower() == new.id.lower():
        verdict.violations.append(Finding("twin", f"two incarnations of {old.id} acted {for_ms}", evidence))
        return
    reasons = [c.name for c in history.causes if c.from_ns <= began <= c.to_ns]
    what = f"{old.id} and {new.id} acted {for_ms}"
    if reasons:
        verdict.explained.append(Finding("two", f"{what}: {', '.join(reasons)}", evidence))
    else:
        verdict.violations.append(Finding("two", what, evidence))


# --- writes ----------------------------------------------------------------------------------


def is_visible(xid: int, snapshot: str) -> bool:
    """As pg_visible_in_snapshot."""
    lowest, above, running = snapshot.split(":")
    if xid < int(lowest):
        return True
    return xid < int(above) and str(xid) not in running.split(",")


@dataclass
class _Terms:
    """What a log says of terms and writes, line by line."""

    owner: Entry | None = None
    led: dict[str, int] = field(default_factory=dict)  # tag -> its newest term
    mine: list[Entry] = field(default_factory=list)  # the owner's writes
    found: dict[tuple[str, str, int], list[Entry]] = field(default_factory=dict)

    def _note(self, rule: str, tag: str, term: int, entry: Entry) -> None:
        self.found.setdefault((rule, tag, term), []).append(entry)

    def moves(self, entry: Entry) -> None:
        if self.owner is None or entry.tag != self.owner.tag:
            if entry.tag in self.led:
                self._note("returned", entry.tag, entry.term, entry)
            for write in self.mine:
                if not is_visible(write.xid, entry.snapshot):
                    self._note("unseen", write.tag, entry.term, write)
            self.mine = []
        self.owner = entry
        self.led[entry.tag] = entry.term

    def is_written(self, entry: Entry) -> None:
        if self.owner is None:
            return
        if entry.tag == self.owner.tag:
            self.mine.append(entry)
        elif entry.tag in self.led:
            self._note("superseded", entry.tag, self.owner.term, entry)


def _writes_of_superseded(log: tuple[Entry, ...]) -> list[Finding]:
    """Writers hold a lock that a takeover waits for, so that the log's order is the order of the two."""
    terms = _Terms()
    for entry in sorted(log, key=lambda entry: entry.seq):
        if entry.kind == "term":
            terms.moves(entry)
        elif entry.kind == "write":
            terms.is_written(entry)
    return [
        Finding(rule, f"{len(lines)} lines of {tag}, which led before, in term {term}", _quoted(lines))
        for (rule, tag, term), lines in terms.found.items()
    ]


def _quoted(lines: list[Entry]) -> tuple[str, ...]:
    return tuple(
        f"line {e.seq}: {f'{e.operation} of {e.relation}' if e.kind == 'write' else f'term {e.term}'} at"
        f" {e.boot_ns / 1e9:.3f} s since the boot, transaction {e.xid}"
        for e in lines[:SHOWN]
    )

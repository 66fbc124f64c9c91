# SPDX-License-Identifier: Apache-2.0
"""What a run has left behind, for the judge: lines of compute nodes and metas, and what Postgres has on
record about the gate."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import psycopg
from harness import Postgres, boot_ns
from harness.logs import Event
from harness.pod import Pod
from jobs import Node

from .judge import Actor, Panic, Passage, Refusal, Removal

Session = psycopg.Connection[Any]
RECOVERY = re.compile(r"refused in recovery (\d+) of term")
TABLE = re.compile(r" of table (\d+)")
# One list of nodes that were NONE goes with each passage of its recovery: rows go when later ones come.
PASSAGES = """SELECT p.id, extract(epoch FROM p.at)::double precision, p.recovery_id, p.outcome, p.table_ids,
    p.held_ms, coalesce((SELECT array_agg(concat(a.host, ':', a.port)) FROM metafence.acknowledgement AS a
                          WHERE a.recovery_id = p.recovery_id AND a.how = 'none' AND a.at <= p.at), '{}')
    FROM metafence.purge AS p ORDER BY p.id"""
NOW = "SELECT extract(epoch FROM clock_timestamp())::double precision"
HELD = "SELECT id, extract(epoch FROM held_from)::double precision FROM metafence.recovery"


def numbers(text: str) -> tuple[int, ...]:
    """Of a list in a witness file."""
    return tuple(int(word) for word in text.strip("[]").split())


def _ends(events: Iterable[Event], killed: dict[int, int]) -> dict[int, int]:
    """When processes ended, by pid: by themselves, or as it was seen who killed them."""
    ends = dict(killed)
    for event in events:
        if event.kind in ("panic", "exit"):
            ends[event.pid] = min(event.boot_ns, ends.get(event.pid, event.boot_ns))
    return ends


def actors(node: Node, killed: dict[int, int]) -> Iterator[Actor]:
    """All that ever began on that node. killed: pid -> when it was dead."""
    events = node.witness.events()
    ends, begun = _ends(events, killed), dict[tuple[int, int], Event]()

    def told(event: Event, to_ns: int | None) -> Actor:
        tables, number = numbers(event.fields["tables"]), int(event.fields["actor"])
        return Actor(node.name, node.address, number, tables, event.boot_ns, to_ns)

    for event in events:
        if event.kind == "actor_began":
            begun[event.pid, int(event.fields["actor"])] = event
        elif event.kind == "actor_ended":
            if began := begun.pop((event.pid, int(event.fields["actor"])), None):
                yield told(began, event.boot_ns)
    for (pid, _), began in begun.items():
        yield told(began, ends.get(pid))


def panics(node: Node) -> Iterator[Panic]:
    for event in node.panics():
        found = TABLE.search(event.fields["why"])
        yield Panic(event.boot_ns, node.name, int(found[1]) if found else 0)


def removals(pod: Pod) -> Iterator[Removal]:
    is_global: dict[int, bool] = {}  # the last recovery of each process
    for event in pod.witness.events():
        if event.kind == "recovery_marked":
            is_global[event.pid] = event.fields["global"] == "true"
        elif event.kind == "unregistered" and (tables := numbers(event.fields["tables"])):
            is_database = not is_global.get(event.pid, True)
            yield Removal(event.boot_ns, pod.name, event.fields["by"], tables, is_database)


def refusals(pod: Pod) -> Iterator[Refusal]:
    for event in pod.witness.events("unregister_failed"):
        if found := RECOVERY.search(event.fields["msg"]):
            yield Refusal(event.boot_ns, int(found[1]))


def _offset(session: Session) -> int:
    """Of CLOCK_BOOTTIME to Postgres' clock: by the quickest of some answers, on a machine that is busy."""
    best = None
    for _ in range(10):
        before = boot_ns()
        [(now,)] = session.execute(NOW).fetchall()
        took, middle = boot_ns() - before, (boot_ns() + before) // 2
        if best is None or took < best[0]:
            best = took, middle - int(now * 1e9)
    assert best is not None
    return best[1]


class Books:
    """Of the gate. What is deleted there later stays here: look at them often."""

    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres
        self.passages: dict[int, Passage] = {}
        self.held_from: dict[int, int] = {}

    def look(self) -> None:
        with self._postgres.connect() as session:
            offset = _offset(session)
            rows, held = session.execute(PASSAGES).fetchall(), session.execute(HELD).fetchall()
        for number, at, recovery, outcome, tables, held_ms, none in rows:
            if number not in self.passages:
                self.passages[number] = Passage(
                    number, int(at * 1e9) + offset, recovery, outcome, tuple(tables), held_ms, tuple(none)
                )
        for recovery, at in held:
            self.held_from[recovery] = int(at * 1e9) + offset

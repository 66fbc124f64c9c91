# SPDX-License-Identifier: Apache-2.0
"""Begins and ends the faults of a round in time, and ends them whatever happens."""

from collections.abc import Callable
from dataclasses import dataclass

from harness.waiting import boot_ns

from .plan import Fault, Round

End = Callable[[], None]


@dataclass
class Begun:
    """A fault that is under way."""

    fault: Fault
    end: End
    due_ns: int


class Schedule:
    """begin(fault, is_first): what ends it, or None when it found nothing to break. wait_until(ns, faults)
    returns at that instant of `now`; these are under way meanwhile."""

    def __init__(
        self,
        begin: Callable[[Fault, bool], End | None],
        wait_until: Callable[[int, list[Fault]], None],
        now: Callable[[], int] = boot_ns,
    ) -> None:
        self._begin, self._wait, self._now = begin, wait_until, now
        self._under_way: list[Begun] = []

    def play(self, one: Round) -> None:
        """Returns when all faults of the round are over. Each lasts as long as it should from when it had
        begun, however long that took."""
        began = self._now()
        try:
            for n, fault in enumerate(one.faults):
                at_ns = began + int(fault.at * 1e9)
                while (first := self._first_due()) and first.due_ns < at_ns:
                    self._finish(first)
                self._wait_until(at_ns)
                if end := self._begin(fault, n == 0):
                    self._under_way.append(Begun(fault, end, self._now() + int(fault.seconds * 1e9)))
            while first := self._first_due():
                self._finish(first)
        finally:
            self._end_all()

    def _first_due(self) -> Begun | None:
        return min(self._under_way, key=lambda begun: begun.due_ns, default=None)

    def _wait_until(self, end_ns: int) -> None:
        self._wait(end_ns, [begun.fault for begun in self._under_way])

    def _finish(self, begun: Begun) -> None:
        self._wait_until(begun.due_ns)
        self._under_way.remove(begun)
        begun.end()

    def _end_all(self) -> None:
        """Somebody has interrupted us, or a fault could not begin or end: the others end all the same."""
        try:
            while self._under_way:
                self._under_way.pop().end()
        finally:
            if self._under_way:
                self._end_all()

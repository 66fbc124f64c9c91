# SPDX-License-Identifier: Apache-2.0
"""Structured logs as ordered streams: wait for a line by its fields."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from .waiting import wait_for


def parse_logfmt(line: str) -> dict[str, str] | None:
    """None for a line that is not logfmt (of another program in the same file)."""
    try:
        words = shlex.split(line)
    except ValueError:
        return None
    pairs = [w.split("=", 1) for w in words if "=" in w]
    return dict(pairs) if pairs and len(pairs) == len(words) else None


@dataclass(frozen=True)
class Event:
    """One line of a witness file."""

    boot_ns: int
    kind: str
    fields: dict[str, str]

    @property
    def pid(self) -> int:
        return int(self.fields["pid"])


class LineFile:
    """A growing file of lines; each whole line is read once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0
        self._lines: list[str] = []

    def lines(self) -> list[str]:
        try:
            with open(self.path, "rb") as file:
                file.seek(self._offset)
                fresh = file.read()
        except FileNotFoundError:
            return self._lines
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self._offset += len(whole)
        self._lines += whole.decode(errors="replace").splitlines()
        return self._lines

    def tail(self, count: int) -> list[str]:
        return self.lines()[-count:]


class Log(LineFile):
    def records(self) -> list[dict[str, str]]:
        return [r for r in map(parse_logfmt, self.lines()) if r is not None]

    def find(self, after: int = 0, **fields: str) -> list[dict[str, str]]:
        """Records with all these fields; a value matches when it is contained."""
        return [
            r
            for r in map(parse_logfmt, self.lines()[after:])
            if r is not None and all(v in r.get(k, "\0") for k, v in fields.items())
        ]

    def mark(self) -> int:
        """Where the log ends now, for `after`."""
        return len(self.lines())

    def expect(self, timeout: float = 10, after: int = 0, **fields: str) -> dict[str, str]:
        found = wait_for(f"{self.path.name} says {fields}", lambda: self.find(after, **fields), timeout)
        return found[0]


class WitnessFile(LineFile):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._events: list[Event] = []
        self._parsed = 0

    def events(self, kind: str | None = None, pid: int | None = None) -> list[Event]:
        lines = self.lines()
        for line in lines[self._parsed :]:
            stamp, name, *rest = shlex.split(line) if '"' in line else line.split()
            pairs = (word.split("=", 1) for word in rest if "=" in word)
            self._events.append(Event(int(stamp), name, dict(pairs)))
        self._parsed = len(lines)
        return [e for e in self._events if (kind is None or e.kind == kind) and (pid is None or e.pid == pid)]

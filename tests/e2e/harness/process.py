# SPDX-License-Identifier: Apache-2.0
"""One child process that can't outlive the test run: it dies with the thread that started it."""

import ctypes
import os
import pwd
import signal
import subprocess
from pathlib import Path

from .waiting import wait_for

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Double-forked grandchildren become our children, so that a lab can find and end them."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _die_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


class Process:
    def __init__(
        self,
        name: str,
        argv: list[str | Path],
        log: Path,
        env: dict[str, str] | None = None,
        user: str | None = None,
        outlive: bool = False,
    ) -> None:
        self.name = name
        self.log = log
        self.started_argv = [str(a) for a in argv]
        full = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "RW_"))}
        full.update(env or {})
        extra = {}
        if user and os.geteuid() == 0:
            entry = pwd.getpwnam(user)
            extra = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        with open(log, "ab") as out:
            self._child = subprocess.Popen(
                self.started_argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=full,
                cwd=log.parent,
                process_group=0,
                preexec_fn=None if outlive else _die_with_parent,
                **extra,
            )
        self.pid = self._child.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative: ended by that signal."""
        return self._child.poll()

    @property
    def alive(self) -> bool:
        return self.exit_code is None

    def signal(self, number: int) -> None:
        if self.alive:
            self._child.send_signal(number)

    def wait(self, timeout: float) -> int:
        wait_for(f"{self.name} (pid {self.pid}) ends", lambda: not self.alive, timeout)
        return self._child.returncode

    def kill(self) -> None:
        if self.alive:
            self._child.kill()
        self._child.wait()


def children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(c) for c in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    for child in children(pid):
        found += [child, *descendants(child)]
    return found


def signal_pid(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass

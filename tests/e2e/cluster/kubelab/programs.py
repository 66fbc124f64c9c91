# SPDX-License-Identifier: Apache-2.0
"""Programs that go on when the one that started them has ended, and are found again by a file."""

import os
import pwd
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from harness.process import signal_pid
from harness.waiting import wait_for

from . import cgroups
from .layout import LabError, Layout
from .netns import inside

_children: dict[int, subprocess.Popen[bytes]] = {}


def clean_env(extra: dict[str, str] | None = None) -> dict[str, str]:
    """Of the caller's environment only what can't change what a program does here."""
    kept = ("PATH", "HOME", "LANG", "TERM", "TMPDIR", "USER")
    return {k: os.environ[k] for k in kept if k in os.environ} | (extra or {})


def _joining(group: str, user: str | None) -> Callable[[], None]:
    """What a child does before it becomes the program: it is found by its group whatever ends us."""
    account = pwd.getpwnam(user) if user else None

    def in_child() -> None:
        cgroups.join(group)
        if account:
            os.initgroups(account.pw_name, account.pw_gid)
            os.setgid(account.pw_gid)
            os.setuid(account.pw_uid)

    return in_child


def run_tracked(
    layout: Layout, argv: list[str | Path], user: str | None = None, stdin: str | None = None
) -> "subprocess.CompletedProcess[str]":
    """Runs to its end what writes to the run folder; `down` ends it, too. The status is for the caller."""
    return subprocess.run(
        argv,
        input=stdin,
        text=True,
        capture_output=True,
        cwd="/",
        env=clean_env(),
        preexec_fn=_joining(layout.name("cp"), user),
    )


def run_in(
    namespace: Path,
    argv: list[str | Path],
    timeout: float = 120,
    stdin: str | None = None,
    env: dict[str, str] | None = None,
) -> "subprocess.CompletedProcess[str]":
    """Runs to its end; the status is for the caller to look at."""
    with inside(namespace):
        return subprocess.run(
            argv, input=stdin, text=True, capture_output=True, timeout=timeout, env=clean_env(env)
        )


def reap() -> None:
    """Lets go of our own children that ended: as long as we don't, they count as processes."""
    for pid in [pid for pid, child in _children.items() if child.poll() is not None]:
        del _children[pid]


def is_running(pid: int) -> bool:
    """False also for a process that ended and waits for its parent."""
    reap()
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def _has_left(pid: int) -> bool:
    """Of a program of many threads the first may be dead while others still hold its ports."""
    try:
        return not is_running(pid) and len(os.listdir(f"/proc/{pid}/task")) <= 1
    except (FileNotFoundError, ProcessLookupError):
        return True


@dataclass
class Program:
    """One of the control plane's programs, or a node as a whole. Its file survives us."""

    layout: Layout
    name: str
    argv: list[str | Path]
    part: str = "cp"  # the network namespace it is in
    user: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    was_away: bool = False  # stopped or killed since somebody has set this to False

    @property
    def log(self) -> Path:
        return self.layout.logs / f"{self.name}.log"

    @property
    def _file(self) -> Path:
        return self.layout.dir / "pid" / self.name

    @property
    def _group(self) -> str:
        return self.layout.name("cp")

    @property
    def pid(self) -> int | None:
        """None when it does not run. The number alone could be another's by now: the group tells."""
        try:
            pid = int(self._file.read_text())
        except (FileNotFoundError, ValueError):
            return None
        return pid if is_running(pid) and cgroups.is_member(self._group, pid) else None

    @property
    def alive(self) -> bool:
        return self.pid is not None

    def start(self) -> None:
        if self.alive:
            raise LabError(f"{self.name} runs already")
        self._file.parent.mkdir(exist_ok=True)
        with open(self.log, "ab") as out, inside(self.layout.namespace(self.part)):
            child = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self.layout.dir,
                env=clean_env(self.env),
                start_new_session=True,
                preexec_fn=_joining(self._group, self.user),
            )
        _children[child.pid] = child
        self._file.write_text(str(child.pid))

    def signal(self, number: int) -> None:
        pid = self.pid
        if pid is None:
            raise LabError(f"{self.name} does not run")
        os.kill(pid, number)

    def pause(self) -> None:
        """Its sockets stay open and accept connections; no answer comes. Returns when it has stopped, which
        takes a program of many threads a moment."""
        self.was_away = True
        self.signal(signal.SIGSTOP)
        wait_for(f"{self.name} has stopped", lambda: self.paused, 30)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    @property
    def paused(self) -> bool:
        pid = self.pid
        if pid is None:
            return False
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def kill(self) -> None:
        """Ends it at once and waits until it is gone; nothing to do when it does not run."""
        self.was_away = True
        pid = self.pid
        if pid is not None:
            signal_pid(pid, signal.SIGKILL)
            wait_for(f"{self.name} (pid {pid}) is gone", lambda: _has_left(pid), 30)

    def log_tail(self, lines: int = 15) -> str:
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except FileNotFoundError:
            return "(no log)"

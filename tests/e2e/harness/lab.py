# SPDX-License-Identifier: Apache-2.0
"""A Lab: directory, ports and processes of one test, ended together whatever happens."""

import ctypes
import fcntl
import os
import shutil
import signal
import socket
import time
from functools import cache
from pathlib import Path

from .process import Process, adopt_orphans, descendants, signal_pid

PORT_FIRST, PORT_LAST, PORT_BLOCK = 25000, 29999, 20


ROOM = 4 << 30  # bytes that all labs of a run may need


@cache
def root_dir() -> Path:
    """Shared by all runs of this user. In memory where there is room: a disk that is busy with something
    else must not decide a race against the lease."""
    shm = Path("/dev/shm")
    roomy = shm.is_dir() and os.access(shm, os.W_OK) and shutil.disk_usage(shm).free > ROOM
    default = (shm if roomy else Path("/tmp")) / f"metafence-e2e-{os.geteuid()}"
    path = Path(os.environ.get("METAFENCE_E2E_DIR", default))
    path.mkdir(mode=0o755, exist_ok=True)
    return path


def ports_dir() -> Path:
    """Where port blocks are locked: one place for all users, trees and METAFENCE_E2E_DIRs."""
    path = Path("/tmp/metafence-e2e-ports")
    if not path.exists():
        path.mkdir(exist_ok=True)
        path.chmod(0o1777)
    return path


def _lock(path: Path) -> int | None:
    """An exclusive lock that the kernel drops when this process ends, or None when taken."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except PermissionError:
        return None  # another user's
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return fd
    except BlockingIOError:
        os.close(fd)
        return None


KEEP_LOGS_S = 24 * 3600


IPC_RMID = 0
_libc = ctypes.CDLL(None)


def remove_shared_memory(root: Path) -> None:
    """Of each Postgres below `root` that was killed: the System V segment by which it locks its data
    directory outlives it, and a machine has 4096 of them for everybody. None may still run."""
    for pid_file in root.glob("*/data/postmaster.pid"):
        lines = pid_file.read_text().splitlines()
        if len(lines) > 6:  # the seventh: key and id
            _libc.shmctl(int(lines[6].split()[1]), IPC_RMID, None)


def clean_after_crashes() -> None:
    """Removes directories of runs that did not come to their end (their processes died with them), and
    the logs of tests that failed more than a day ago."""
    for lock in root_dir().glob("lab-*.lock"):
        fd = _lock(lock)
        if fd is None:
            continue
        kept = lock.with_suffix(".kept")
        is_demo = lock.with_suffix("").joinpath("pids").exists()
        if not kept.exists() or (not is_demo and time.time() - kept.stat().st_mtime > KEEP_LOGS_S):
            remove_shared_memory(lock.with_suffix(""))
            shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
            kept.unlink(missing_ok=True)
            lock.unlink(missing_ok=True)
        os.close(fd)


class Lab:
    def __init__(self, name: str, keep: bool = False) -> None:
        adopt_orphans()
        self.keep = keep  # processes and directory outlive this program
        self._locks: list[int] = []
        self._processes: list[Process] = []
        self._ports: list[int] = []
        self.dir = self._own_dir(name)

    def _own_dir(self, name: str) -> Path:
        for number in range(10_000):
            path = root_dir() / f"lab-{name[:60]}-{number}"
            fd = _lock(path.with_suffix(".lock"))
            if fd is None:
                continue
            if path.exists():
                os.close(fd)  # kept by somebody
                continue
            self._locks.append(fd)
            path.mkdir(mode=0o755)
            return path
        raise RuntimeError(f"10000 directories named lab-{name}-* in {root_dir()}: remove some")

    def port(self) -> int:
        """A free loopback port; blocks are locked, so that parallel runs never collide."""
        while not self._ports:
            self._ports = self._claim_block()
        return self._ports.pop(0)

    def _claim_block(self) -> list[int]:
        for first in range(PORT_FIRST, PORT_LAST - PORT_BLOCK + 2, PORT_BLOCK):
            fd = _lock(ports_dir() / f"{first}")
            if fd is None:
                continue
            free = [p for p in range(first, first + PORT_BLOCK) if _is_free(p)]
            if len(free) == PORT_BLOCK:
                self._locks.append(fd)
                return free
            os.close(fd)
        raise RuntimeError(f"no free block of {PORT_BLOCK} ports in {PORT_FIRST}-{PORT_LAST}")

    def spawn(
        self,
        name: str,
        argv: list[str | Path],
        log: Path,
        env: dict[str, str] | None = None,
        user: str | None = None,
    ) -> Process:
        process = Process(name, argv, log, env=env, user=user, outlive=self.keep)
        self._processes.append(process)
        return process

    def pids(self) -> list[int]:
        return [p.pid for p in self._processes if p.alive]

    def close(self, keep_logs: bool = False) -> None:
        """Ends every process, also orphans that fled by double fork, and removes the directory;
        with `keep_logs` all but the databases stays. A second call does nothing."""
        if not self._locks:
            return
        for process in reversed(self._processes):
            for pid in [process.pid, *descendants(process.pid)] if process.alive else []:
                signal_pid(pid, signal.SIGKILL)
            process.kill()
        self._end_orphans()
        remove_shared_memory(self.dir)
        if keep_logs:
            for data in self.dir.glob("*/data"):
                shutil.rmtree(data, ignore_errors=True)
            self.dir.with_suffix(".kept").touch()
        else:
            shutil.rmtree(self.dir, ignore_errors=True)
            self.dir.with_suffix(".lock").unlink(missing_ok=True)
        while self._locks:
            os.close(self._locks.pop())

    def _end_orphans(self) -> None:
        for pid in descendants(os.getpid()):
            try:
                if Path(os.readlink(f"/proc/{pid}/cwd")).is_relative_to(self.dir):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
            except (FileNotFoundError, ProcessLookupError, ChildProcessError, PermissionError):
                continue  # gone in the meantime, or not ours


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            return True
        except OSError:
            return False

# SPDX-License-Identifier: Apache-2.0
"""Entering network namespaces with a single thread, so that one test process can talk to several
clusters: a socket stays for good in the namespace in which it was made."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


def enter(path: str | Path) -> None:
    """Moves the calling thread; os.setns is only in Python 3.12."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _set(fd)
    finally:
        os.close(fd)


def _set(fd: int) -> None:
    if _libc.setns(fd, CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"setns: {os.strerror(code)}")


@contextmanager
def inside(path: str | Path) -> Iterator[None]:
    """The calling thread, and what it starts, is in the namespace for the length of the block. Other
    threads are not moved."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        enter(path)
        try:
            yield
        finally:
            _set(home)
    finally:
        os.close(home)


def pids_inside(path: Path) -> list[int]:
    """Processes whose main thread is in that namespace, but for this one."""
    try:
        wanted = path.stat().st_ino
    except FileNotFoundError:
        return []
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if (entry / "ns" / "net").stat().st_ino == wanted:
                found.append(int(entry.name))
        except OSError:
            continue  # it has just ended, or hides from everybody
    return found

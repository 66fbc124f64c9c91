# SPDX-License-Identifier: Apache-2.0
"""System V shared memory: each postmaster has one small segment of it, which stays in the kernel after a
kill -9. A machine has 4096 (SHMMNI); then no Postgres starts there any more."""

import ctypes
from pathlib import Path

IPC_RMID = 0
_libc = ctypes.CDLL(None, use_errno=True)


def _keys() -> dict[int, int]:
    """By id."""
    rows = [line.split() for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]]
    return {int(row[1]): int(row[0]) for row in rows}


def remove_segment(data: Path) -> None:
    """That of a data directory's killed postmaster, which is named in the seventh line of its pid file. A
    server that ended by itself has removed both. Who is still attached, as he dies, takes it along."""
    try:
        key, number = map(int, (data / "postmaster.pid").read_text().splitlines()[6].split())
    except (FileNotFoundError, IndexError, ValueError):
        return  # no server was killed there, or before it had a segment
    if _keys().get(number) == key:
        _libc.shmctl(number, IPC_RMID, None)

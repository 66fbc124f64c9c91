# SPDX-License-Identifier: Apache-2.0
"""A lab takes with it what its servers leave in the kernel: the machine has little of it, for everybody."""

from pathlib import Path

from harness import Lab, Postgres


def segments() -> set[int]:
    """Ids of System V shared memory."""
    lines = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    return {int(line.split()[1]) for line in lines}


def test_a_killed_postgres_leaves_no_shared_memory(lab: Lab) -> None:
    postgres = Postgres(lab).create()
    lock = int((postgres.data / "postmaster.pid").read_text().splitlines()[6].split()[1])
    assert lock in segments()
    lab.close()
    assert lock not in segments()

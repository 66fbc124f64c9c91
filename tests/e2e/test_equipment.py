# SPDX-License-Identifier: Apache-2.0
"""What the tests use leaves nothing behind."""

from pathlib import Path

from harness import Lab
from harness.postgres import Postgres


def test_a_killed_postgres_leaves_no_shared_memory() -> None:
    """A machine has 4096 segments; a run that leaked one a test would be its last after a day."""
    lab = Lab("equipment")
    try:
        postgres = Postgres(lab).create()
        segment = (postgres.data / "postmaster.pid").read_text().splitlines()[6].split()

        def is_there() -> bool:
            rows = Path("/proc/sysvipc/shm").read_text().splitlines()
            return any(row.split()[:2] == segment for row in rows)

        assert is_there()
    finally:
        lab.close()
    assert not is_there()
    assert not lab.dir.exists()

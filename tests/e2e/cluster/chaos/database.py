# SPDX-License-Identifier: Apache-2.0
"""What is done to the cluster's Postgres beyond its death: its clock steps, its disk is full, a standby that
lost the last seconds takes its place."""

import os
import shutil
import struct
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psycopg
from harness.paths import postgres_bin
from harness.sysv import remove_segment
from harness.waiting import wait_for
from kubelab import LabError, Postgres
from kubelab.programs import Program, run_tracked

STANDBY_PORT = 5433
SOURCE = Path(__file__).parents[2] / "steppedclock.c"


class SteppedClock:
    """The wall clock of a Postgres that was started with it: now() and all that goes by it. A library between
    it and the C library adds to what the kernel says; the machine's own clock is everybody's and stays."""

    def __init__(self, postgres: Postgres) -> None:
        self._file = postgres.dir / "clock-step"
        library = postgres.dir / "steppedclock.so"
        compiler = os.environ.get("CC", "cc")
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
        library.chmod(0o755)
        self._file.touch(mode=0o644)
        self._file.chmod(0o644)
        self.step(0)
        postgres.program.env |= {"LD_PRELOAD": str(library), "CLOCK_STEP": str(self._file)}

    def step(self, seconds: float) -> None:
        """Off by so many seconds from now on, for whoever has mapped the file: written in place."""
        with open(self._file, "r+b") as file:
            file.write(struct.pack("=q", int(seconds * 1e6)))


class FullDisk:
    """Of a Postgres with a disk of its own (Settings.postgres_mb)."""

    def __init__(self, postgres: Postgres) -> None:
        assert postgres.disk_mb, "the machine's own disk is not ours to fill"
        self._postgres = postgres
        self._ballast = postgres.dir / "ballast"

    def fill(self) -> None:
        """To the last byte. Whether Postgres bears that or ends is its own affair."""
        block = bytes(1 << 16)
        with open(self._ballast, "ab", buffering=0) as file, suppress(OSError):  # no space left: as wanted
            while True:
                file.write(block)

    def clear(self) -> None:
        """And Postgres is started again, as a service manager does it, if it has ended."""
        self._ballast.unlink()
        if not self._postgres.program.alive:
            self._postgres.start(wait=False)


class Standby:
    """An asynchronous one, by real streaming and a real promotion; it takes the primary's place and address.
    follow(), fall_behind(), then with the primary dead take_over()."""

    def __init__(self, postgres: Postgres) -> None:
        self._primary = postgres
        self.data = postgres.dir / "standby"
        argv: list[str | Path] = [postgres_bin("postgres"), "-D", self.data]
        env = dict(postgres.program.env)
        self._program = Program(postgres.layout, "standby", argv, user="postgres", env=env)

    def _ask(self, statement: str) -> object:
        """None while it does not answer."""
        dsn = f"host={self._primary.dir} port={STANDBY_PORT} user=postgres dbname=postgres"
        try:
            with psycopg.connect(dsn, autocommit=True, connect_timeout=5) as session:
                cursor = session.execute(statement)
                return cursor.fetchall()[0][0] if cursor.description else None
        except psycopg.OperationalError:
            return None

    def follow(self) -> None:
        source = [postgres_bin("pg_basebackup"), "-h", self._primary.dir, "-U", "postgres", "-D", self.data]
        argv: list[str | Path] = [*source, "-R", "-X", "stream", "--checkpoint=fast", "--no-sync"]
        done = run_tracked(self._primary.layout, argv, "postgres")
        if done.returncode != 0:
            raise LabError(f"pg_basebackup: exit {done.returncode}: {done.stderr.strip()}")
        before = (self.data / "postgresql.conf").read_text()
        own = f"port = '{STANDBY_PORT}'\nlisten_addresses = ''\n"
        (self.data / "postgresql.conf").write_text(before + own)
        self._program.start()
        streams = "SELECT count(*) FROM pg_stat_wal_receiver WHERE status = 'streaming'"
        wait_for("the standby streams", lambda: self._ask(streams) == 1, 60)
        self._before = before

    def fall_behind(self) -> None:
        """It gets nothing more, and nobody waits for it."""
        self._ask("ALTER SYSTEM SET primary_conninfo = ''")
        self._ask("SELECT pg_reload_conf()")
        receivers = "SELECT count(*) FROM pg_stat_wal_receiver"
        wait_for("the standby receives nothing", lambda: self._ask(receivers) == 0, 20)

    def take_over(self) -> None:
        """Returns when it takes writes, at the primary's address and as its program."""
        self._program.kill()
        remove_segment(self.data)
        (self.data / "postgresql.conf").write_text(self._before)
        remove_segment(self._primary.data)
        shutil.rmtree(self._primary.data)
        self.data.rename(self._primary.data)
        (self._primary.data / "postmaster.pid").unlink(missing_ok=True)
        self._primary.start()
        assert self._primary.sql("SELECT pg_promote(true, 60)") == [(True,)]

    def close(self) -> None:
        """When it did not come to that. A second call does nothing."""
        self._program.kill()
        remove_segment(self.data)
        shutil.rmtree(self.data, ignore_errors=True)


def fail_over(postgres: Postgres, lost: Callable[[], None]) -> Callable[[], None]:
    """The primary is dead when this returns; the standby takes over in what it returns. `lost` is called
    while the primary goes on without its standby: what happens from then on is lost."""
    standby = Standby(postgres)
    try:
        standby.follow()
        standby.fall_behind()
        lost()
        postgres.kill()
    except BaseException:
        standby.close()
        raise
    return standby.take_over

# SPDX-License-Identifier: Apache-2.0
"""A private Postgres: own data directory and port, as user postgres when we are root."""

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import psycopg

from .lab import Lab, _lock, root_dir
from .paths import postgres_bin
from .process import Process, children, signal_pid
from .waiting import wait_for

DATABASE = "meta"
USER = "meta"
PASSWORD = "only for tests"

SETTINGS = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
fsync = off
full_page_writes = off
shared_buffers = 16MB
dynamic_shared_memory_type = mmap  # in the data directory: nothing stays in /dev/shm after a kill -9
max_connections = 200
wal_level = replica
log_connections = off
log_line_prefix = '%m [%p] %a '
"""

HBA = """
host all postgres 127.0.0.1/32 trust
host replication postgres 127.0.0.1/32 trust
host all all 127.0.0.1/32 scram-sha-256
"""

# What every meta does at its start before it campaigns; done ahead, so that the term trigger can be
# installed before the first meta and three first starts don't abort each other.
ELECTION_TABLES = """
CREATE TABLE IF NOT EXISTS election_member (service VARCHAR, id VARCHAR, last_heartbeat TIMESTAMPTZ,
    PRIMARY KEY (service, id));
CREATE TABLE IF NOT EXISTS election_leader (service VARCHAR, id VARCHAR, last_heartbeat TIMESTAMPTZ,
    PRIMARY KEY (service));
"""


def _as_postgres(argv: list[str | Path]) -> None:
    user = {"user": "postgres", "group": "postgres", "extra_groups": []}
    extra: dict[str, Any] = user if os.geteuid() == 0 else {}
    done = subprocess.run(argv, cwd="/", capture_output=True, text=True, **extra)
    if done.returncode != 0:
        raise RuntimeError(f"{argv[0]}: exit {done.returncode}: {done.stderr.strip()}")


def _template() -> Path:
    """An initialized data directory, made once per user and machine and copied by each test."""
    version = postgres_bin("postgres").parent.parent.name
    home = root_dir() / f"template-{version}"
    done = home / "done"
    lock = wait_for("template lock", lambda: _lock(home.with_suffix(".lock")), 120)
    try:
        if not done.exists():
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir()
            if os.geteuid() == 0:
                shutil.chown(home, "postgres")
            initdb = [postgres_bin("initdb"), "-D", home / "data", "-U", "postgres", "-A", "trust"]
            _as_postgres([*initdb, "-E", "UTF8", "--locale=C", "--no-sync", "--wal-segsize=1"])
            done.touch()
    finally:
        os.close(lock)
    return home / "data"


class Postgres:
    def __init__(self, lab: Lab, name: str = "pg") -> None:
        self.lab = lab
        self.port = lab.port()
        self.dir = lab.dir / name
        self.data = self.dir / "data"
        self.log = self.dir / "postgres.log"
        self.dir.mkdir(mode=0o755)
        self._process: Process | None = None

    def create(self) -> "Postgres":
        """Starts it with role and database of the metas and the election tables."""
        subprocess.run(["cp", "-a", _template(), self.data], check=True)
        with open(self.data / "postgresql.conf", "a") as conf:
            conf.write(SETTINGS + f"port = {self.port}\n")
        (self.data / "pg_hba.conf").write_text(HBA)
        self.start()
        self.sql(f"CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'", database="postgres")
        self.sql(f"CREATE DATABASE {DATABASE} OWNER {USER}", database="postgres")
        with self.connect(user=USER) as session:
            session.execute(ELECTION_TABLES)
        return self

    @property
    def pid(self) -> int:
        """Of the postmaster."""
        assert self._process is not None
        return self._process.pid

    def start(self, wait: bool = True) -> None:
        argv: list[str | Path] = [postgres_bin("postgres"), "-D", self.data]
        self._process = self.lab.spawn("postgres", argv, self.log, user="postgres")
        if wait:
            self.wait_ready()

    def wait_ready(self, timeout: float = 30) -> None:
        def answers() -> bool:
            assert self._process is not None and self._process.alive, self.log.read_text()[-2000:]
            try:
                self.connect(database="postgres").close()
                return True
            except psycopg.OperationalError:
                return False

        wait_for(f"postgres on port {self.port} answers", answers, timeout)

    def stop(self, mode: str = "immediate") -> None:
        """As pg_ctl stop -m immediate | fast."""
        assert self._process is not None
        self._process.signal({"immediate": signal.SIGQUIT, "fast": signal.SIGINT}[mode])
        self._process.wait(30)

    def restart(self, mode: str = "immediate") -> None:
        self.stop(mode)
        self.start()

    def freeze(self) -> None:
        """SIGSTOP for all its processes: connections stay open, nothing answers."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: int) -> None:
        for pid in [self.pid, *children(self.pid)]:
            signal_pid(pid, number)

    def dsn(self, user: str = "postgres", database: str = DATABASE) -> str:
        return f"host=127.0.0.1 port={self.port} user={user} dbname={database}"

    def url(self, user: str = "postgres", database: str = DATABASE) -> str:
        return f"postgres://{user}@127.0.0.1:{self.port}/{database}?sslmode=disable"

    def connect(self, user: str = "postgres", database: str = DATABASE) -> "psycopg.Connection[Any]":
        password = {"password": PASSWORD} if user == USER else {}
        return psycopg.connect(self.dsn(user, database), autocommit=True, connect_timeout=5, **password)

    def sql(
        self, statement: str, *values: Any, user: str = "postgres", database: str = DATABASE
    ) -> list[tuple[Any, ...]]:
        """Runs one statement in a session of its own; rows if it has some."""
        with self.connect(user, database) as session:
            cursor = session.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

    def owner(self) -> str | None:
        """The id in the election row."""
        rows = self.sql("SELECT id FROM election_leader")
        return rows[0][0] if rows else None

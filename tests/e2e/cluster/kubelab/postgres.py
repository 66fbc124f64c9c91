# SPDX-License-Identifier: Apache-2.0
"""The Postgres beside the control plane, with a database for each test. Pods reach it by address and
password, tests by a socket in the run folder."""

import secrets
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
from harness.paths import metasim, postgres_bin
from harness.postgres import ELECTION_TABLES
from harness.process import children, signal_pid
from harness.waiting import wait_for

from .layout import CONTROL_PLANE, EVERYTHING, POSTGRES_PORT, LabError, Layout
from .programs import Program, clean_env, is_running, run_tracked

SETTINGS: Mapping[str, str] = {
    "listen_addresses": f"127.0.0.1,{CONTROL_PLANE}",
    "port": str(POSTGRES_PORT),
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
    "dynamic_shared_memory_type": "mmap",  # in its own folder, which goes with it
    "max_connections": "200",
    "password_encryption": "scram-sha-256",
    "log_line_prefix": "%m [%p] %d %a ",
}
ACCESS = f"local all all trust\nlocal replication all trust\nhost all all {EVERYTHING} scram-sha-256\n"


def make_data(layout: Layout, folder: Path, settings: Mapping[str, str], access: str) -> None:
    """A new data directory that belongs to the user `postgres`; its parents must be passable."""
    folder.mkdir(parents=True)
    shutil.chown(folder, "postgres", "postgres")
    initdb = [postgres_bin("initdb"), "-D", folder, "-U", "postgres", "-A", "trust", "-E", "UTF8"]
    done = run_tracked(layout, [*initdb, "--locale=C", "--no-sync", "--wal-segsize=1"], "postgres")
    if done.returncode != 0:
        raise LabError(f"initdb: exit {done.returncode}: {done.stderr.strip()}")
    with open(folder / "postgresql.conf", "a") as conf:
        conf.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
    (folder / "pg_hba.conf").write_text(access)


class Postgres:
    def __init__(self, layout: Layout, disk_mb: int = 0) -> None:
        self.layout, self.disk_mb = layout, disk_mb
        self.dir = layout.dir / "pg"
        self.data = self.dir / "data"
        argv: list[str | Path] = [postgres_bin("postgres"), "-D", self.data]
        self.program = Program(layout, "postgres", argv, user="postgres")

    def create(self) -> None:
        self.dir.mkdir(mode=0o750)
        if self.disk_mb:
            argv = ["mount", "-t", "tmpfs", "-o", f"size={self.disk_mb}m", "tmpfs", self.dir]
            subprocess.run(argv, check=True)
        shutil.chown(self.dir, "root", "postgres")
        self.dir.chmod(0o770)
        make_data(self.layout, self.data, {**SETTINGS, "unix_socket_directories": str(self.dir)}, ACCESS)

    def start(self, wait: bool = True) -> None:
        self.program.start()
        if wait:
            self.wait_ready()

    def wait_ready(self, timeout: float = 60) -> None:
        def answers() -> bool:
            if not self.program.alive:
                raise LabError(f"postgres ended; its log says:\n{self.program.log_tail()}")
            try:
                self.connect().close()
                return True
            except psycopg.OperationalError:
                return False

        wait_for("postgres answers", answers, timeout)

    def stop(self, mode: str = "immediate") -> None:
        """As pg_ctl stop -m immediate | fast."""
        family = self._family()
        self.program.signal({"immediate": signal.SIGQUIT, "fast": signal.SIGINT}[mode])
        wait_for("postgres has ended", lambda: not any(map(is_running, family)), 30)

    def kill(self) -> None:
        """-9 for the postmaster and all its children: no session is ended by word."""
        family = self._family()
        for pid in family:
            signal_pid(pid, signal.SIGKILL)
        wait_for("postgres is gone", lambda: not any(map(is_running, family)), 30)

    def restart(self, mode: str = "immediate") -> None:
        self.stop(mode)
        self.start()

    def pause(self) -> None:
        """Connections stay open, nothing answers."""
        for pid in self._family():
            signal_pid(pid, signal.SIGSTOP)

    def resume(self) -> None:
        for pid in self._family():
            signal_pid(pid, signal.SIGCONT)

    def _family(self) -> list[int]:
        pid = self.program.pid
        if pid is None:
            raise LabError("postgres does not run")
        return [pid, *children(pid)]

    def dsn(self, user: str = "postgres", database: str = "postgres") -> str:
        """For programs outside the cluster's namespaces."""
        return f"host={self.dir} port={POSTGRES_PORT} user={user} dbname={database}"

    def connect(self, user: str = "postgres", database: str = "postgres") -> "psycopg.Connection[Any]":
        return psycopg.connect(self.dsn(user, database), autocommit=True, connect_timeout=5)

    def sql(self, statement: str, *values: Any, database: str = "postgres") -> list[tuple[Any, ...]]:
        """One statement in a session of its own; rows if it has some."""
        with self.connect(database=database) as session:
            cursor = session.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []


class Access:
    """A database as metas are given one: they reach it at `host`:`port` with `user` and `password`. Tests
    reach it through the server's socket as whoever they like."""

    port = POSTGRES_PORT

    def __init__(self, host: str, name: str, socket_dir: Path) -> None:
        self.host, self.name, self.user = host, name, name
        self.password = secrets.token_urlsafe(12)
        self._socket_dir = socket_dir

    @property
    def endpoint(self) -> str:
        """As metas take it."""
        return f"{self.host}:{self.port}"

    def dsn(self, user: str = "postgres") -> str:
        """For programs outside the cluster's namespaces."""
        return f"host={self._socket_dir} port={self.port} user={user} dbname={self.name}"

    def connect(self, user: str = "postgres") -> "psycopg.Connection[Any]":
        return psycopg.connect(self.dsn(user), autocommit=True, connect_timeout=5)

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """One statement in a session of its own; rows if it has some."""
        with self.connect() as session:
            cursor = session.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

    def owner(self) -> str | None:
        """The id in the election row."""
        rows = self.sql("SELECT id FROM election_leader")
        return rows[0][0] if rows else None

    def install_election(self, witness: bool = True) -> None:
        """The election tables, which three first starts at once would fight over, and the log of renewals by
        which two leaders are told."""
        with self.connect(self.user) as session:
            session.execute(ELECTION_TABLES)
        if not witness:
            return
        argv = [metasim(), "witness", "install", "--dsn", self.dsn(self.user)]
        done = subprocess.run(argv, capture_output=True, text=True, env=clean_env(), timeout=60)
        if done.returncode != 0:
            raise LabError(f"witness install: exit {done.returncode}: {done.stderr.strip()}")


class Database(Access):
    """One in the Postgres beside the control plane, with an owner of the same name."""

    def __init__(self, server: Postgres, name: str) -> None:
        super().__init__(CONTROL_PLANE, name, server.dir)
        self.server = server

    def create(self, witness: bool = True) -> "Database":
        self.server.sql(f"CREATE ROLE {self.user} LOGIN PASSWORD '{self.password}'")
        self.server.sql(f"CREATE DATABASE {self.name} OWNER {self.user}")
        self.install_election(witness)
        return self

    def drop(self) -> None:
        self.server.sql(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")
        self.server.sql(f"DROP ROLE IF EXISTS {self.user}")

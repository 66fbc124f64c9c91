# SPDX-License-Identifier: Apache-2.0
"""Compute nodes beside a cluster of metas with a registry of workers."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

from harness import Cluster, Pod, wait_for
from harness.logs import WitnessFile
from harness.paths import metasim
from harness.postgres import DATABASE, PASSWORD, USER

# What a meta with workers runs with: no actors to place, so that recoveries need no compute node.
WORKERS = ["--workers=head", "--max-heartbeat-interval=3600s", "--jobs=0", "--reconnect-limit=1s"]


def with_registry(cluster: Cluster, release: str = "head") -> None:
    """The registry's tables before the first start, so that the installation guards them."""
    dsn = f"host=127.0.0.1 port={cluster.postgres.port} user={USER} password={PASSWORD!r} dbname={DATABASE}"
    argv = [str(metasim()), "schema", "--version", release]
    subprocess.run(argv, env={"METASIM_DSN": dsn}, check=True, capture_output=True, timeout=60)


class Compute:
    """A process that registers under one address, and again when it is started again."""

    def __init__(self, cluster: Cluster, name: str, host: str = "127.0.0.1") -> None:
        self.cluster, self.name, self.host = cluster, name, host
        self.port = cluster.lab.port()  # others reach it there
        self.listen_port = self.port
        self.dir = cluster.lab.dir / name
        self.dir.mkdir(mode=0o755)
        self.witness = WitnessFile(self.dir / "witness")
        self._process: Any = None

    def start(self, *flags: str) -> "Compute":
        metas = ",".join(f"http://127.0.0.1:{pod.service_port}" for pod in self.cluster.pods)
        argv: list[str | Path] = [metasim(), "compute-node", "--meta-address", metas]
        argv += ["--listen-addr", f"127.0.0.1:{self.listen_port}"]
        argv += ["--advertise-addr", f"{self.host}:{self.port}"]
        argv += ["--witness", self.witness.path, *flags]
        self._process = self.cluster.lab.spawn(self.name, argv, self.dir / "log")
        return self

    def kill(self) -> None:
        """As a node that loses its power."""
        self._process.signal(signal.SIGKILL)
        self._process.wait(10)

    @property
    def alive(self) -> bool:
        return bool(self._process is not None and self._process.alive)

    def worker_id(self) -> int | None:
        """The id of its row; None: there is none."""
        rows = self.cluster.postgres.sql(
            "SELECT worker_id FROM worker WHERE host = %s AND port = %s", self.host, self.port
        )
        return int(rows[0][0]) if rows else None

    def wait_running(self, timeout: float = 20) -> int:
        def running() -> int | None:
            rows = self.cluster.postgres.sql(
                "SELECT worker_id FROM worker WHERE host = %s AND port = %s AND status = 'RUNNING'",
                self.host,
                self.port,
            )
            return int(rows[0][0]) if rows else None

        return wait_for(f"{self.name} runs", running, timeout)


def ask(leader: Pod, *words: str) -> "subprocess.CompletedProcess[str]":
    """One RPC by hand."""
    argv = [metasim(), "call", leader.id, *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60)


def call(leader: Pod, verb: str, host: str, port: int = 4567) -> Any:
    """… that has to be answered well."""
    done = ask(leader, verb, f"{host}:{port}")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def aborts(cluster: Cluster) -> list[str]:
    """Why leaders have aborted, if any did: none of what an agent calls may be a reason."""
    return [e.fields.get("why", "?") for pod in cluster.pods for e in pod.witness.events("abort")]


def deeds(cluster: Cluster, action: str | None = None) -> list[tuple[Any, ...]]:
    """Rows of metafence.reconcile: action, worker id, reason, outcome."""
    rows = cluster.postgres.sql(
        "SELECT action, worker_id, reason, outcome FROM metafence.reconcile ORDER BY id"
    )
    return [r for r in rows if action in (None, r[0])]

# SPDX-License-Identifier: Apache-2.0
"""Metas with a registry of workers, and the compute nodes in it."""

import json
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.paths import metasim
from harness.waiting import boot_ns, wait_for
from jobs import VERIFY
from kubelab import Cluster, Database, Store

from .deployment import CHART, TTL, Deployment, Values, config, merged
from .meta import Meta
from .pod import SimPod

ROUTINE = ("tick", "write", "renew", "trim", "heartbeat")
COMMITTED = 'last_committed_barrier_time{database_id="1"}'
FAILURES = 'recovery_failure_cnt{recovery_type="database 1"}'


class Compute(SimPod):
    """One compute pod."""

    container = "compute"

    def worker(self, since_ns: int = 0) -> str | None:
        """The id with which it was activated last."""
        done = self.events("activated", since_ns)
        return done[-1].fields["worker"] if done else None

    def crash(self) -> None:
        """Ends it without a good-bye, and its next process does not register: its row stays."""
        since = boot_ns()
        self.hold_at("start")
        self.signal("metasim", signal.SIGKILL)
        wait_for(f"{self}'s next process waits", lambda: self.events("paused", since), 30)

    def wait_worker(self, since_ns: int, timeout: float) -> str:
        return wait_for(f"{self} is activated", lambda: self.worker(since_ns), timeout)


@dataclass(frozen=True)
class Row:
    """Of table worker."""

    worker: int
    host: str
    port: int
    status: str

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


def make_catalog(cluster: Cluster, database: Database | Store, release: str) -> None:
    """The tables of a release of RisingWave."""
    owner = database.dsn(database.user)
    argv: list[str | Path] = [metasim(), "schema", "--version", release, "--dsn", owner]
    done = cluster.run(argv, timeout=60)
    assert done.returncode == 0, f"metasim schema: {done.stderr}"


class Registry(Deployment):
    """Metas of a release of RisingWave's catalog (v2.6, v3.0 or head) and `computes` compute pods. Their
    tasks wait at pause points, see hold_at()."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        database: Database | Store,
        release: str = "v3.0",
        metas: int = 2,
        computes: int = 1,
        flags: tuple[str, ...] = (),
        guard: str = "enforce",
        recovery: str = "observe",
        guarded: bool = True,
        values: Values | None = None,
    ) -> None:
        own: Values = {
            "replicas": metas,
            "flags": [f"--workers={release}", "--pause-dir=/witness", "--reconnect-limit=1s", *flags],
            "compute": {"replicas": computes},
        }
        if recovery == "enforce":  # its default of resetBeforeStart is for a longer lease
            own = merged(own, config(recovery={"mode": recovery, "resetBeforeStart": f"{TTL - 2:g}s"}))
        super().__init__(cluster, namespace, database, guarded, merged(own, values or {}))
        self.release, self.guard, self.recovery = release, guard, recovery
        self._computes: dict[str, Compute] = {}  # also those that are gone, by uid

    def start(self, timeout: float = 90) -> Meta:
        """The tables are there before the guard, as where metafence comes to a running cluster."""
        make_catalog(self.cluster, self.database, self.release)
        return super().start(timeout)

    def install_sql(self) -> None:
        super().install_sql()
        if self.recovery == "enforce":
            self.database.sql(VERIFY)

    # --- pods --------------------------------------------------------------------------------

    def computes(self) -> list[Compute]:
        """Those that the API server lists now and that have a node, by name."""
        selector = "risingwave/component=compute"
        found = self.cluster.core.list_namespaced_pod(
            self.namespace, label_selector=selector, _request_timeout=10
        )
        pods = sorted((p for p in found.items if p.spec.node_name), key=lambda p: p.metadata.name)
        for pod in pods:
            if pod.metadata.uid not in self._computes:
                self._computes[pod.metadata.uid] = Compute(self.cluster, pod, self.dir)
        return [self._computes[pod.metadata.uid] for pod in pods]

    def wait_computes(self, count: int, timeout: float = 60) -> list[Compute]:
        """So many, all of them activated."""

        def activated() -> list[Compute] | None:
            found = self.computes()
            return found if len(found) == count and all(c.worker() for c in found) else None

        return self.wait(f"{count} compute nodes are activated", activated, timeout)

    def connect_computes(self, leader: Meta, count: int) -> list[Compute]:
        """As wait_computes, and the leader has a control stream to each: when a compute node is activated its
        name need not be known yet, and the leader gives up soon. In a recovery it does not."""
        computes = self.wait_computes(count)
        since = boot_ns()
        leader.call("recover", timeout=60)
        wanted = {compute.worker() for compute in computes}

        def connected() -> bool:
            return wanted <= {e.fields["worker"] for e in leader.events("stream_connected", since)}

        self.wait("the leader has all control streams", connected, 60)
        return computes

    def join(self, computes: int, **values: Any) -> list[Compute]:
        """So many compute pods, made after the metas; `values` of the chart's compute."""
        self.values = merged(self.values, {"compute": {"replicas": computes, **values}})
        path = self.dir / "joined.json"
        path.write_text(json.dumps(self.values))
        self.cluster.helm("upgrade", "meta", CHART, "--namespace", self.namespace, "--values", path)
        return self.wait_computes(computes)

    def scale(self, computes: int) -> None:
        self.cluster.kubectl("scale", "statefulset/compute", "-n", self.namespace, f"--replicas={computes}")

    # --- what there is of workers ------------------------------------------------------------

    def rows(self) -> list[Row]:
        found = self.database.sql("SELECT worker_id, host, port, status FROM worker ORDER BY worker_id")
        return [Row(*row) for row in found]

    def mutations(self, after: int = 0) -> list[dict[str, Any]]:
        """metafence's log of what happened to the rows."""
        names = ("id", "operation", "worker_id", "tag", "owned_term", "term")
        found = self.database.sql(
            f"SELECT {', '.join(names)} FROM metafence.mutation WHERE id > %s ORDER BY id", after
        )
        return [dict(zip(names, row, strict=True)) for row in found]

    def deeds(self) -> list[tuple[str, int | None, str]]:
        """What metafence did about rows and leaders: action, worker, reason."""
        return self.database.sql("SELECT action, worker_id, reason FROM metafence.reconcile ORDER BY id")

    @staticmethod
    def active(meta: Meta, since_ns: int = 0) -> dict[int, str]:
        """A leader's map of active workers: endpoint by id."""
        seen = meta.events("active", since_ns)
        words = re.findall(r"(\d+)@([^\s\]]+)", seen[-1].fields["workers"]) if seen else []
        return {int(worker): address for worker, address in words}

    def describe(self) -> str:
        lines = [super().describe(), f"rows {self.rows()}"]
        for pod in [*self._metas.values(), *self._computes.values()]:
            kept = [line for line in pod.witness.lines() if line.split()[1] not in ROUTINE]
            lines += [f"--- {pod}", *kept[-40:]]
        return "\n".join(lines)

# SPDX-License-Identifier: Apache-2.0
"""Three metas from the chart, with metafence or as they are without it, and what an operator asks of them."""

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

from harness.paths import REPO, metafence, metasim
from harness.waiting import TimedOut, wait_for
from kubelab import Cluster, Database, Store
from kubernetes import client

from .meta import Meta
from .recorder import LabelRecorder

CHART = REPO / "tests/e2e/charts/metasim"
TTL = 10.0
Values = dict[str, Any]


def merged(base: Values, over: Values) -> Values:
    """As helm does with several -f."""
    result = deepcopy(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both else value
    return result


def config(**sections: Any) -> Values:
    """Values that change agent.yaml."""
    return {"metafence": {"config": sections}}


class Deployment:
    """One release of the tests' chart in a namespace that is there, on a database that is there."""

    guard, recovery = "enforce", "observe"

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        database: Database | Store,
        guarded: bool = True,
        values: Values | None = None,
    ) -> None:
        self.cluster, self.namespace, self.database = cluster, namespace, database
        self.guarded = guarded
        self.dir = cluster.layout.dir / "deployments" / namespace
        self.dir.mkdir(parents=True, exist_ok=True)
        self.values = merged(self._own_values(), values or {})
        self.recorder = LabelRecorder(cluster, namespace)
        self._metas: dict[str, Meta] = {}  # also those that are gone, by uid

    def _own_values(self) -> Values:
        database = self.database
        postgres = {
            "host": database.host,
            "port": database.port,
            "database": database.name,
            "user": database.user,
        }
        return {
            "guarded": self.guarded,
            "postgres": {"password": database.password},
            "metafence": {"config": {"postgres": postgres}},
        }

    @property
    def ttl(self) -> float:
        text = self.values["metafence"]["config"].get("election", {}).get("ttl", f"{TTL:g}s")
        return float(text.removesuffix("s"))

    # --- making it ---------------------------------------------------------------------------

    def install(self) -> "Deployment":
        path = self.dir / "values.json"
        path.write_text(json.dumps(self.values))
        self.cluster.helm("install", "meta", CHART, "--namespace", self.namespace, "--values", path)
        return self

    def install_sql(self) -> None:
        """Before the first meta starts, so that the first term has an owner."""
        secret = self.dir / "password"
        secret.touch(mode=0o600)
        secret.write_text(self.database.password)
        own = self._own_values()["metafence"]["config"]["postgres"]
        if isinstance(self.database, Store):  # no DNS outside of pods
            pod = self.cluster.pod(self.database.namespace, self.database.pod_name)
            own["host"] = pod.status.pod_ip
        postgres = {**own, "sslmode": "disable", "passwordFile": str(secret)}
        path = self.dir / "install.yaml"
        path.write_text(json.dumps({"id": "meta-0.meta:5690", "postgres": postgres}))
        modes = ["--guard", self.guard, "--recovery", self.recovery]
        done = self.cluster.run([metafence(), "sql", "install", *modes, "--config", path])
        assert done.returncode == 0, f"sql install: {done.stderr}"

    def start(self, timeout: float = 90) -> Meta:
        """Schema, release, and three metas of which one leads; the leader."""
        if self.guarded:
            self.install_sql()
        self.install()
        self.recorder.start()
        return self.wait_converged(timeout)

    def close(self) -> None:
        self.recorder.stop()

    # --- pods --------------------------------------------------------------------------------

    def read_pods(self) -> list[client.V1Pod]:
        selector = "risingwave/component=meta"
        found = self.cluster.core.list_namespaced_pod(
            self.namespace, label_selector=selector, _request_timeout=10
        )
        return sorted(found.items, key=lambda pod: pod.metadata.name)

    def refresh(self) -> list[Meta]:
        """The metas that the API server lists now."""
        return self.adopt(self.read_pods())

    def adopt(self, pods: list[client.V1Pod]) -> list[Meta]:
        """The metas of pods that were listed by somebody else, for many deployments at once."""
        listed = []
        for pod in pods:
            if not pod.spec.node_name:
                continue
            meta = self._metas.setdefault(pod.metadata.uid, Meta(self.cluster, pod, self.dir))
            listed.append(meta)
        self._listed = listed
        return listed

    @property
    def metas(self) -> list[Meta]:
        """As last listed: also while the API server is away."""
        return self._listed

    @property
    def everyone(self) -> list[Meta]:
        """Also those that are gone."""
        return list(self._metas.values())

    def meta(self, name: str) -> Meta:
        return next(m for m in self.metas if m.name == name)

    def pod(self, meta: Meta) -> client.V1Pod:
        return meta.read()

    def leaders(self) -> list[Meta]:
        return [m for m in self.metas if m.acts_as_leader]

    def others(self, meta: Meta) -> list[Meta]:
        return [m for m in self.metas if m is not meta]

    # --- waiting -----------------------------------------------------------------------------

    def unsettled(self, labelled: bool) -> str:
        """What is missing; empty when there is nothing."""
        replicas = self.values.get("replicas", 3)
        pods = self.read_pods()
        metas = self.refresh()
        if len(metas) != replicas:
            return f"{len(metas)} pods"
        for pod in pods:
            ready = [c.status for c in pod.status.conditions or [] if c.type == "Ready"]
            if ready != ["True"]:
                return f"{pod.metadata.name} is not ready"
        leaders = self.leaders()
        if len(leaders) != 1 or self.database.owner() != leaders[0].id:
            return f"leaders {leaders}, owner {self.database.owner()}"
        for meta in metas:
            wanted = "leader" if meta is leaders[0] else "follower"
            if wanted == "follower" and not meta.is_follower:
                return f"{meta} does not follow"
            if self.guarded:
                status = meta.status()
                if status is None or status["role"] != wanted or not status["armed"]:
                    return f"{meta} says {status and status['role']}"
            if labelled:
                label = next(p for p in pods if p.metadata.uid == meta.uid).metadata.labels
                if label.get("metafence.io/role") != wanted:
                    return f"{meta} is labelled {label.get('metafence.io/role')}"
        return ""

    def wait_converged(self, timeout: float, labelled: bool | None = None) -> Meta:
        """Three ready pods, exactly one leader, the others follow; agents and labels agree."""
        with_labels = self.guarded if labelled is None else labelled
        missing = ""

        def settled() -> bool:
            nonlocal missing
            missing = self.unsettled(with_labels)
            return not missing

        try:
            wait_for("one leader, others follow", settled, timeout, every=0.2)
        except TimedOut as error:
            raise TimedOut(f"{error}: {missing}\n{self.describe()}") from None
        return self.leaders()[0]

    def wait(self, what: str, probe: Callable[[], Any], timeout: float, every: float = 0.05) -> Any:
        """As wait_for, with the state of the metas in the error."""
        try:
            return wait_for(what, probe, timeout, every)
        except TimedOut as error:
            raise TimedOut(f"{error}\n{self.describe()}") from None

    def wait_new_leader(self, old: Meta, timeout: float) -> Meta:
        """Another pod than `old` acts as leader."""
        return self.wait(
            f"another leader than {old}",
            lambda: next((m for m in self.leaders() if m is not old), None),
            timeout,
        )

    # --- judging -----------------------------------------------------------------------------

    def witness_files(self) -> list[Path]:
        return [m.witness.path for m in self.everyone if m.witness.path.exists()]

    def verdict(self) -> dict[str, Any]:
        """Did two act as leader? See `metasim witness check`."""
        dsn = self.database.dsn()
        argv = [metasim(), "witness", "check", "--ttl", f"{self.ttl:g}s", "--dsn", dsn, *self.witness_files()]
        done = self.cluster.run(argv, timeout=60)
        assert done.stdout, f"witness check: exit {done.returncode}: {done.stderr}"
        return json.loads(done.stdout)

    def events(self, meta: Meta | None = None) -> list[dict[str, Any]]:
        """What metafence told Kubernetes, oldest first; as in events.k8s.io/v1, where the client library's
        class refuses events of the older kind."""
        answer = client.EventsV1Api(self.cluster.api).list_namespaced_event(
            self.namespace, _request_timeout=10, _preload_content=False
        )
        mine = [
            event
            for event in json.loads(answer.data)["items"]
            if event.get("reportingController") == "metafence.io/agent"
            and (meta is None or event["regarding"]["uid"] == meta.uid)
        ]
        return sorted(mine, key=lambda event: event["eventTime"])

    @property
    def account(self) -> str:
        return f"system:serviceaccount:{self.namespace}:metafence"

    def describe(self) -> str:
        lines = []
        for meta in self._metas.values():
            status = meta.status() if self.guarded else None
            keys = ("rule", "role", "armed", "row", "meta", "last_fence")
            brief = status and {k: status.get(k) for k in keys}
            lines.append(
                f"{meta}: process={meta.meta_process} acts_as_leader={meta.acts_as_leader} "
                f"follower={meta.is_follower} {brief or ''}"
            )
        lines.append(self.recorder.describe())
        return "\n".join(lines)

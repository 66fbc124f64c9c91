# SPDX-License-Identifier: Apache-2.0
"""`metafence doctor` names each misconfiguration that is planted, and says nothing on a good installation.

Three installations: one on Kubernetes (the fake API server, with pods as charts/metafence makes them), one
without, and one where nothing works. Each plant is made, looked at and taken back.
The lease is 30 s: nothing here is about time."""

import json
from collections.abc import Callable
from typing import Any

from doctor_faults import CONFIG_FAULTS, GOOD_TOML, MIGRATIONS, SPEC_FAULTS, TOML_FAULTS, sql_faults
from harness import Cluster, Lab, Pod
from harness.postgres import PASSWORD, USER
from kube import Kube, Open
from pooler import Pooler
from scenario import Make

Plant = tuple[str, Callable[[], None], Callable[[], None]]  # check that names it, how to make and undo it


def doctor(pod: Pod, *words: str) -> dict[str, str]:
    """check -> level of what is not good; the worst of each check."""
    toml = pod.dir / "risingwave.toml"
    given = ["--meta-config", str(toml)] if toml.exists() else []
    done = pod.cli("doctor", "-o", "json", *given, *words, timeout=60)
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert report["good"] == (report["counts"]["failed"] == 0) == (done.returncode == 0), report
    assert PASSWORD not in done.stdout + done.stderr
    found: dict[str, str] = {}
    for finding in report["findings"]:
        if finding["level"] in ("warning", "failed"):
            assert finding["fix"], finding
            found[finding["check"]] = max(found.get(finding["check"], "failed"), finding["level"])
    return found


def looked_at(pod: Pod) -> set[str]:
    done = pod.cli("doctor", "-o", "json", "--meta-config", str(pod.dir / "risingwave.toml"))
    return {f["check"] for f in json.loads(done.stdout)["findings"] if f["level"] == "ok"}


def prepare(made: Cluster) -> Pod:
    """A good installation: its leader, with the metas' TOML and a ledger of migrations."""
    made.postgres.sql(MIGRATIONS, user=USER)
    made.postgres.sql("INSERT INTO seaql_migrations VALUES ('m20251223_120000_log', 0)", user=USER)
    leader = made.start()
    leader.wait_status("all members are known", lambda s: s["members"] == len(made.pods), 10)
    for pod in made.pods:
        (pod.dir / "risingwave.toml").write_text(GOOD_TOML)
    return leader


def check_plants(pod: Pod, plants: list[Plant]) -> None:
    assert doctor(pod) == {}
    for check, plant, undo in plants:
        plant()
        try:
            found = doctor(pod)
        finally:
            undo()
        assert check in found, (check, found)
        assert len(found) <= 2, (check, found)  # and little else
    assert doctor(pod) == {}


# --- Postgres, agent, metafence-run -------------------------------------------------------------


def sql_plant(made: Cluster, check: str, plant: str, undo: str) -> Plant:
    return check, lambda: made.postgres.sql(plant) and None, lambda: made.postgres.sql(undo) and None


def file_plant(pod: Pod, check: str, old: str, new: str) -> Plant:
    path = pod.dir / "risingwave.toml"
    return (
        check,
        lambda: path.write_text(GOOD_TOML.replace(old, new)) and None,
        lambda: path.write_text(GOOD_TOML) and None,
    )


def config_plant(pod: Pod, check: str, section: str, key: str, value: Any) -> Plant:
    """In the file alone: the agent goes on with what it has read at its start."""
    before = pod.config[section].get(key)

    def write(wanted: Any) -> None:
        pod.config[section][key] = wanted
        if wanted is None:
            del pod.config[section][key]
        pod.write_config()

    return check, lambda: write(value), lambda: write(before)


def cli_plant(pod: Pod, check: str, plant: list[str], undo: list[str]) -> Plant:
    def run(words: list[str]) -> None:
        done = pod.cli(*words)
        assert done.returncode == 0, done

    return check, lambda: run(plant), lambda: run(undo)


def test_names_what_is_wrong_without_kubernetes(cluster: Make, lab: Lab) -> None:
    made = cluster(ttl=30, pods=2)
    leader = prepare(made)
    plants = [sql_plant(made, *fault) for fault in sql_faults(USER, "meta")]
    plants += [file_plant(leader, *fault) for fault in TOML_FAULTS]
    plants += [config_plant(leader, *fault) for fault in CONFIG_FAULTS]
    plants += [
        cli_plant(leader, "cover.paused", ["pause", "--for", "10m", "--reason", "plant"], ["resume"]),
    ]
    check_plants(leader, plants)
    _a_pooler(made, leader, lab)
    _an_untagged_meta(made, leader)
    _rights(made, leader)
    assert leader.kills() == 0


def _a_pooler(made: Cluster, leader: Pod, lab: Lab) -> None:
    with Pooler(made.postgres, "meta", lab.port()) as pooler:
        port = leader.config["postgres"]["port"]
        leader.config["postgres"]["port"] = pooler.port
        leader.write_config()
        assert doctor(leader)["postgres.pooler"] == "failed"
        leader.config["postgres"]["port"] = port
        leader.write_config()


def _an_untagged_meta(made: Cluster, leader: Pod) -> None:
    with made.postgres.connect(user=USER):
        assert doctor(leader) == {"postgres.tags": "failed"}


def _rights(made: Cluster, leader: Pod) -> None:
    made.postgres.sql(f"CREATE ROLE lookout LOGIN PASSWORD '{PASSWORD}'")
    leader.config["postgres"]["user"] = "lookout"
    leader.write_config()
    assert "postgres.rights" in doctor(leader)
    leader.config["postgres"]["user"] = USER
    leader.write_config()


def test_names_what_is_wrong_with_one_meta_alone(cluster: Make) -> None:
    """No schema, one replica, an agent on built-in values, no metafence-run, no Postgres."""
    made = cluster(ttl=30, pods=1, run_flags=["--when-agent-lost=hold"])
    leader = made.start(sql=False)
    leader.wait_status("armed", lambda s: s["armed"] and s["members"] == 1, 10)
    found = doctor(leader)
    wanted = {"postgres.schema", "cover.tags", "replicas", "shim.agent-lost"}
    assert wanted <= found.keys(), found
    table = leader.cli("doctor")
    assert "metafence sql install" in table.stdout and "✗ postgres.schema" in table.stdout, table.stdout
    assert "\033[" not in table.stdout

    leader.kill_agent()
    good = leader.config["timing"]["margin"]
    leader.config["timing"]["margin"] = "never"
    leader.start_agent()
    leader.wait_status("built-in", lambda s: not s["config"]["valid"], 10)
    leader.config["timing"]["margin"] = good
    leader.write_config()
    assert doctor(leader)["agent.config"] == "failed"

    leader.kill()
    leader.start_agent()
    leader.wait_status("no fence", lambda s: "NoFence" in s["not_covered"], 10)
    made.postgres.stop()
    found = doctor(leader, "--timeout", "2s")
    assert {"cover.fence", "postgres"} <= found.keys(), found


# --- the pod -------------------------------------------------------------------------------------


def pod_spec(pod: Pod) -> dict[str, Any]:
    """As charts/metafence makes it, with the paths and ports of this test."""
    flags = [str(f) for f in pod._run_argv()[1:]]
    run = "/run/metafence/metafence-run"
    mounts = [{"name": "metafence", "mountPath": str(pod.dir)}]

    def shim(kind: str, **more: Any) -> dict[str, Any]:
        return {"exec": {"command": [run, "probe", kind, "--state", str(pod.dir / "state")]}, **more}

    def http(path: str, **more: Any) -> dict[str, Any]:
        return {"httpGet": {"path": path, "port": "metafence"}, **more}

    meta = {
        "name": "meta",
        "command": [run, *flags, "/risingwave/bin/risingwave"],
        "args": ["meta-node"],
        "env": [{"name": "RW_ADVERTISE_ADDR", "value": pod.id}],
        "volumeMounts": mounts,
        "startupProbe": shim("startup"),
        "readinessProbe": shim("readiness"),
        "livenessProbe": shim("liveness", terminationGracePeriodSeconds=1),
    }
    sidecar = {
        "name": "metafence",
        "restartPolicy": "Always",
        "ports": [{"name": "metafence", "containerPort": pod.http_port}],
        "volumeMounts": mounts,
        "startupProbe": http("/startupz"),
        "readinessProbe": http("/readyz", periodSeconds=5, failureThreshold=6),
        "livenessProbe": http("/livez"),
        "securityContext": {"runAsUser": 65532},
    }
    return {
        "securityContext": {"runAsUser": 65532},
        "initContainers": [sidecar],
        "containers": [meta],
        "volumes": [{"name": "metafence", "emptyDir": {"medium": "Memory"}}],
    }


class Install:
    """A good one whose pods can be bent."""

    def __init__(self, made: Kube, start: Callable[[Cluster], Pod] = prepare) -> None:
        self.made = made
        self.api = made.api
        for n, pod in enumerate(self.made.pods):
            self.api.delete_pod(pod.name)
            pod.config["podName"] = f"meta-{n}"
            self.api.add_pod(f"meta-{n}", pod.uid)
        for n, pod in enumerate(self.made.pods):
            self.api.pods[f"meta-{n}"].body["spec"] = pod_spec(pod)
        self.leader = start(made.cluster)

    def spec_plant(self, check: str, change: Callable[[dict[str, Any]], Any], n: int = 0) -> Plant:
        """`change` bends a fresh spec of pod n."""

        def put(bent: bool) -> None:
            spec = pod_spec(self.made.pods[n])
            if bent:
                change(spec)
            with self.api.lock:
                self.api.pods[f"meta-{n}"].body["spec"] = spec

        return check, lambda: put(True), lambda: put(False)

    def api_plant(self, check: str, name: str, bad: Any, good: Any) -> Plant:
        return check, lambda: setattr(self.api, name, bad), lambda: setattr(self.api, name, good)


def test_names_what_is_wrong_on_kubernetes(kube: Open) -> None:
    there = Install(kube(ttl=30, pods=2))
    plants = [there.spec_plant(check, change) for check, change in SPEC_FAULTS]
    plants += [
        there.spec_plant("siblings", lambda s: s.pop("initContainers"), n=1),
        there.api_plant("rbac", "lacking", {("patch", "pods")}, set()),
        there.api_plant("policy", "has_policy", False, True),
    ]
    check_plants(there.leader, plants)
    looked = looked_at(there.leader)
    assert {"rbac", "policy", "siblings", "pod.users", "probe.liveness", "label.labeler"} <= looked, looked
    _the_operators_labeler(there)
    there.api.break_by("403")
    assert "rbac" in doctor(there.leader)
    there.api.heal()


def _the_operators_labeler(there: Install) -> None:
    """It writes another role than the one that is true; then it agrees."""
    there.api.set_label("meta-0", "risingwave/meta-role", "follower", "operator")
    there.leader.wait_status("differs", lambda s: s["kubernetes"]["label"]["role_label_differs"], 10)
    assert doctor(there.leader) == {"label.labeler": "warning"}
    there.api.set_label("meta-0", "risingwave/meta-role", "leader", "operator")
    there.leader.wait_status("agrees", lambda s: not s["kubernetes"]["label"]["role_label_differs"], 10)
    assert doctor(there.leader) == {}


def test_forms(cluster: Make) -> None:
    """Without an agent and without a configuration: all four forms say so."""
    pod = cluster(ttl=30, pods=1).pods[0]
    (pod.dir / "agent.yaml").write_text("id: [\n")
    for form in ("table", "wide", "json", "yaml"):
        done = pod.cli("doctor", "-o", form)
        assert done.returncode == 1 and "agent.yaml" in done.stdout, done
        assert ("without a valid configuration" in done.stdout) == (form != "table"), done.stdout

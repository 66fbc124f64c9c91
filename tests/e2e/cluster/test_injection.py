# SPDX-License-Identifier: Apache-2.0
"""Pods as others make them (tests/charts/samples, with metasim for RisingWave) are fenced after `helm
install` and one label; with an own user, as root, and without stable names."""

import base64
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness.waiting import boot_ns, hold, wait_for
from kubelab import Cluster, Database, images
from kubelab.manifests import container, pod
from kubernetes import client
from metas import Deployment, Meta, is_handed_over
from metas.deployment import TTL
from metas.faults import take_row

REPO = Path(__file__).resolve().parents[3]
CHART = REPO / "charts" / "metafence"
SAMPLES = REPO / "tests" / "charts" / "samples"
LABEL = {"metafence.io/inject": "true"}
SECRET = "meta-postgres"
QUIET_S = 8.0  # what should not be would begin within a second
# As in the values of the tests' own chart.
PROFILE: dict[str, Any] = {
    "fullnameOverride": "metafence",
    "image": {"registry": "metafence.test", "repository": "metafence", "tag": "e2e", "pullPolicy": "Never"},
    "injection": {"command": ["/usr/bin/metasim"], "user": images.UID},  # metasim's image has a user
    "config": {
        "postgres": {"sslmode": "disable", "connectTimeout": "500ms", "queryTimeout": "500ms"},
        "election": {"ttl": f"{TTL:g}s"},
        "timing": {"poll": "200ms", "renewGap": "2s", "margin": "500ms", "killBudget": "500ms"},
    },
}
FLAGS = [
    f"--lease={TTL:g}s",
    f"--acquire-timeout={TTL:g}s",
    f"--idle-timeout={TTL:g}s",
    "--connect-timeout=2s",
    "--tie=campaign",
    "--witness=/witness/$(WITNESS_POD).$(WITNESS_UID)",
]
WITNESS_ENV = [
    {"name": "WITNESS_POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    {"name": "WITNESS_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
]

Note = Callable[[str, Any], None]
Tree = dict[str, Any]


class Foreign(Deployment):
    """Metas of a sample, and the release `metafence` of the chart itself."""

    shape: str
    own_id: Callable[[client.V1Pod], str]

    def adopt(self, pods: list[client.V1Pod]) -> list[Meta]:
        metas = super().adopt(pods)
        for each in pods:
            for meta in metas:
                if meta.uid == each.metadata.uid:
                    meta.id = self.own_id(each)
        return metas

    def apply(self, labels: dict[str, str], user: int | None = None) -> None:
        """The sample's objects with metasim in them; `labels` and `user` are the pods'."""
        for tree in yaml.safe_load_all((SAMPLES / f"{self.shape}.yaml").read_text()):
            tree["metadata"]["namespace"] = self.namespace
            if "template" in tree.get("spec", {}):
                template = tree["spec"]["template"]
                template["metadata"]["labels"] |= labels
                self._fill(template["spec"])
                if user is not None:
                    template["spec"]["securityContext"] = {"runAsUser": user}
            self.cluster.apply(tree)

    def secret(self) -> Tree:
        words = {"username": self.database.user, "password": self.database.password}
        data = {key: base64.b64encode(word.encode()).decode() for key, word in words.items()}
        name = {"name": SECRET, "namespace": self.namespace}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": name, "data": data}

    def _fill(self, spec: Tree) -> None:
        for each in [*spec.get("initContainers", []), *spec["containers"]]:
            each["imagePullPolicy"] = "Never"
            if each["image"].startswith("risingwavelabs/"):
                each["image"] = images.METASIM.reference
        [meta] = [c for c in spec["containers"] if c["name"] == "meta"]
        words = meta.setdefault("command", []) if "args" not in meta else meta["args"]
        words += FLAGS
        if meta.get("command"):
            meta["command"][0] = "/usr/bin/metasim"
        where = {
            "RW_SQL_ENDPOINT": f"{self.database.host}:{self.database.port}",
            "RW_SQL_DATABASE": self.database.name,
        }
        for entry in meta["env"]:
            if entry["name"] in where:
                entry["value"] = where[entry["name"]]
        meta["env"] += WITNESS_ENV
        meta.setdefault("volumeMounts", []).append({"name": "witness", "mountPath": "/witness"})
        spec.setdefault("volumes", []).append({"name": "witness", "emptyDir": {}})

    def profile(self, **more: Any) -> Path:
        path = self.dir / "profile.json"
        path.write_text(json.dumps({**PROFILE, **more}))
        return path

    def postgres(self) -> dict[str, str]:
        """The database by the names that the README gives to its parts."""
        database = self.database
        return {
            "config.postgres.host": database.host,
            "config.postgres.database": database.name,
            "config.postgres.user": database.user,
        }

    def helm_install(self, **more: Any) -> None:
        sets = [word for key, value in self.postgres().items() for word in ("--set", f"{key}={value}")]
        sets += ["--set", f"passwordSecret.name={SECRET}"]
        here = ("--namespace", self.namespace, "--values", self.profile(**more))
        self.cluster.helm("install", "metafence", CHART, *here, *sets)
        wait_for("the policy is in force", self.injects, 20)

    def injects(self) -> bool:
        """The API server takes up to a second until it knows a new policy."""
        asked = pod(self.namespace, "probe", container("meta", images.PAUSE), labels=LABEL)
        words = ("create", "--dry-run=server", "-o", "json", "-f", "-")
        made = json.loads(self.cluster.kubectl(*words, stdin=json.dumps(asked)))
        return [c["name"] for c in made["spec"].get("initContainers", [])] == ["metafence"]

    def wait_covered(self) -> Meta:
        """Every pod has the sidecar, agents and labels agree, and nothing is without cover."""
        self.guarded = True
        leader = self.wait_converged(120)
        for read in self.read_pods():
            assert read.spec.init_containers[0].name == "metafence", f"{read.metadata.name} has no sidecar"
        for meta in self.metas:
            meta.wait_status("is covered", lambda status: status["not_covered"] == [], 30)
        return leader


@pytest.fixture
def foreign(cluster: Cluster, namespace: str, database: Database, request: pytest.FixtureRequest):
    """foreign(shape, own_id, level): metas of that sample; `level` of pod security is the namespace's."""
    made: list[Foreign] = []

    def make(shape: str, own_id: Callable[[client.V1Pod], str], level: str = "privileged") -> Foreign:
        cluster.kubectl(
            "label", "namespace", namespace, f"pod-security.kubernetes.io/enforce={level}", "--overwrite"
        )
        metas = Foreign(cluster, namespace, database)
        metas.shape, metas.own_id = shape, own_id
        metas.recorder.start()
        cluster.apply(metas.secret())
        made.append(metas)
        return metas

    yield make
    for metas in made:
        if "metafence" in cluster.helm("list", "--namespace", namespace, "--short"):
            cluster.helm("uninstall", "metafence", "--namespace", namespace)
        metas.close()


def assert_fenced(metas: Foreign, old: Meta, note: Note) -> Meta:
    """Leadership moves: the old leader dies and is a follower again, nobody having touched it."""
    was, since = old.incarnation, boot_ns()
    new = take_row(metas, old)
    assert metas.wait_converged(60) is new
    assert old.incarnation != was, "the old leader's process is the same"
    assert old.kubelet_restarts() == 0, "metafence-run starts meta again, not the kubelet"
    assert is_handed_over(metas.recorder.roles(old.uid, since)), metas.recorder.describe(since)
    assert metas.verdict()["overlaps"] == 0
    note("killed by", [e["reason"] for e in metas.events(old) if e["action"] == "KilledContainer"])
    return new


# --- as a new user -------------------------------------------------------------------------------


def readme_commands(metas: Foreign, file: Path, heading: str) -> list[list[str]]:
    """The commands under that heading, with this test's namespace, database and profile."""
    text = file.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    blocks = "".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)).replace("\\\n", " ")
    commands = [shlex.split(line, comments=True) for line in blocks.splitlines()]
    for command in commands:
        for at, word in enumerate(command):
            for key, value in metas.postgres().items():
                word = re.sub(rf"{re.escape(key)}=[^,]*", f"{key}={value}", word)
            command[at] = {"risingwave": metas.namespace, "charts/metafence": str(CHART)}.get(word, word)
        if command[:2] == ["helm", "install"]:
            command += ["--values", str(metas.profile())]
    return commands


@pytest.mark.timeout(600)
def test_the_readme_on_metas_of_the_operator(foreign, note: Note) -> None:
    """Three metas that run already. The commands as the README has them, and each is fenced."""
    metas = foreign("operator", lambda pod: f"{pod.metadata.name}.rw-meta:5690")
    metas.guarded = False
    metas.apply(labels={})
    metas.wait_converged(120)
    commands = readme_commands(metas, CHART / "README.md", "Install")
    assert [c[:2] for c in commands] == [
        ["helm", "install"],
        ["kubectl", "patch"],
        ["kubectl", "rollout"],
        ["helm", "test"],
        ["kubectl", "get"],
        ["kubectl", "exec"],
    ]
    said = {}
    for program, *words in commands:
        run = {"helm": metas.cluster.helm, "kubectl": metas.cluster.kubectl}[program]
        if words[0] == "patch":
            wait_for("the policy is in force", metas.injects, 20)
        timeout = 300 if words[0] == "rollout" else 120
        said[words[0]] = run(*words, timeout=timeout)
        if words[0] == "rollout":
            metas.wait_covered()
    assert re.search(r"^not covered +-$", said["exec"], re.MULTILINE), said["exec"]
    assert said["get"].count("follower") == 2 and said["get"].count("leader") == 1, said["get"]
    assert_fenced(metas, metas.wait_covered(), note)


# --- other shapes --------------------------------------------------------------------------------


@pytest.mark.timeout(600)
def test_metas_of_risingwaves_chart_as_root_and_an_upgrade(foreign, note: Note) -> None:
    """As root, with an account of their own that they keep. Then an upgrade with other values and a
    rollback while somebody leads: no process ends, nobody is without cover."""
    metas = foreign(
        "helm-chart",
        lambda pod: f"{pod.metadata.name}.rw-risingwave-meta-headless.{pod.metadata.namespace}.svc:5690",
    )
    account = "rw-risingwave"
    metas.helm_install(serviceAccount={"others": [account]})
    metas.apply(LABEL, user=0)
    leader = metas.wait_covered()
    assert {read.spec.service_account_name for read in metas.read_pods()} == {account}
    uids = {meta.uid: meta.incarnation for meta in metas.metas}
    since = boot_ns()

    def nothing_happened() -> None:
        assert {meta.uid: meta.incarnation for meta in metas.refresh()} == uids
        for meta in metas.metas:
            assert (meta.status() or {"not_covered": []})["not_covered"] == [], f"{meta} lost its cover"

    here = ("--namespace", metas.namespace)
    changes = (
        "--set",
        "config.timing.poll=100ms",
        "--set",
        "config.election.ttl=20s",
        "--set",
        "run.maxKills=5",
    )
    metas.cluster.helm("upgrade", "metafence", CHART, *here, "--reuse-values", *changes)
    hold(QUIET_S, nothing_happened)
    metas.cluster.helm("rollback", "metafence", "1", *here)
    hold(QUIET_S, nothing_happened)
    for meta in metas.metas:
        role = "leader" if meta is leader else "follower"
        assert metas.recorder.roles(meta.uid, since) == [role], metas.recorder.describe(since)
        assert meta.kubelet_restarts() == meta.kubelet_restarts("metafence") == 0
    assert_fenced(metas, leader, note)


@pytest.mark.timeout(600)
def test_metas_without_stable_names_under_restricted(foreign, note: Note) -> None:
    """A Deployment whose pods name their user, have no token, and advertise addresses."""
    metas = foreign("deployment", lambda pod: f"{pod.status.pod_ip}:5690", level="restricted")
    metas.helm_install()
    metas.apply(LABEL)
    assert_fenced(metas, metas.wait_covered(), note)


@pytest.mark.timeout(600)
def test_an_agent_that_knows_nothing_harms_nobody(foreign, note: Note) -> None:
    """A broken configuration, so no Postgres, and an API server that refuses all: the metas lead and follow
    as without metafence, and each agent says what it misses."""
    metas = foreign("deployment", lambda pod: f"{pod.status.pod_ip}:5690", level="restricted")
    metas.helm_install(rbac={"create": False})
    here = ("--namespace", metas.namespace)
    broken = json.dumps({"data": {"agent.yaml": "postgres: {host: [\n"}})
    metas.cluster.kubectl("patch", "configmap", "metafence-agent", *here, "--type=merge", "--patch", broken)
    metas.apply(LABEL)
    metas.guarded = False
    metas.wait_converged(120)
    uids = {meta.uid: meta.incarnation for meta in metas.metas}

    def nothing_happened() -> None:
        assert {meta.uid: meta.incarnation for meta in metas.refresh()} == uids

    hold(2 * metas.ttl, nothing_happened)
    for meta in metas.metas:
        assert meta.kubelet_restarts() == meta.kubelet_restarts("metafence") == 0
        status = meta.wait_status("answers", lambda status: True, 10)
        assert "Unarmed" in status["not_covered"] and not status["config"]["valid"], status
        assert "agent.yaml" in status["config"]["error"]
        assert "ConfigInvalid" in metas.cluster.kubectl("logs", *here, meta.name, "-c", "metafence")
    note("leader", metas.leaders()[0].name)

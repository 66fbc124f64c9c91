# SPDX-License-Identifier: Apache-2.0
"""`metafence doctor` in a pod of a real Kubernetes: nothing has failed in a good installation, and each of
18 planted misconfigurations is named with its fix. The plants are those of doctor_faults.py, made in the
cluster's own ways: objects of its API, pods of another shape, statements in Postgres, files in the volume."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml
from doctor_faults import CONFIG_FAULTS, GOOD_TOML, MIGRATIONS, SPEC_FAULTS, TOML_FAULTS, sql_faults
from harness.waiting import wait_for
from kubelab import images
from kubelab.api import CommandError
from metas import Meta
from metas.deployment import TTL
from test_injection import LABEL, Foreign, foreign

__all__ = ["foreign"]  # the fixture

BENT = ("probe.liveness", "probe.sidecar", "pod.process-namespace", "pod.id")  # metas that start all the same
TOML = GOOD_TOML.replace("secs = 30", f"secs = {TTL:g}")
Note = Callable[[str, Any], None]
Tree = dict[str, Any]


class Looked:
    """A pod, and the files that doctor is given there."""

    def __init__(self, metas: Foreign, meta: Meta) -> None:
        self.metas, self.meta = metas, meta
        here = ("-n", metas.namespace)
        found = metas.cluster.kubectl("get", "configmap", "metafence-agent", *here, "-o", "json")
        self.config: Tree = yaml.safe_load(json.loads(found)["data"]["agent.yaml"])
        self.toml = TOML

    def findings(self, level: str) -> dict[str, str]:
        """check -> fix, of that level."""
        (self.meta.volume / "doctor.yaml").write_text(yaml.safe_dump(self.config))
        (self.meta.volume / "doctor.toml").write_text(self.toml)
        words = ["doctor", "-o", "json", "--config", "/run/metafence/doctor.yaml"]
        words += ["--meta-config", "/run/metafence/doctor.toml"]
        try:
            said = self.meta.cli(*words)
        except CommandError as error:  # exit 1: something failed; the report is in what was said
            text = str(error)
            said = text[text.index("{") : text.rindex("}") + 1]
        return {f["check"]: f["fix"] for f in json.loads(said)["findings"] if f["level"] == level}

    def names(self, check: str) -> None:
        found = {**self.findings("warning"), **self.findings("failed")}
        assert found.get(check), (check, found)


@contextmanager
def config_fault(looked: Looked, section: str, key: str, value: Any) -> Iterator[None]:
    before = json.loads(json.dumps(looked.config))
    looked.config.setdefault(section, {})[key] = value
    yield
    looked.config = before


@contextmanager
def toml_fault(looked: Looked, good: str, bad: str) -> Iterator[None]:
    looked.toml = TOML.replace(good, bad)
    yield
    looked.toml = TOML


@contextmanager
def sql_fault(metas: Foreign, plant: str, undo: str) -> Iterator[None]:
    metas.database.sql(plant)
    try:
        yield
    finally:
        metas.database.sql(undo)


@contextmanager
def without(metas: Foreign, kind: str, name: str, change: Callable[[Tree], Any] | None) -> Iterator[None]:
    """That object changed, or gone."""
    here = () if "policy" in kind else ("-n", metas.namespace)
    kubectl = metas.cluster.kubectl
    was: Tree = json.loads(kubectl("get", kind, name, *here, "-o", "json"))
    for field in ("resourceVersion", "uid", "creationTimestamp", "managedFields"):
        was["metadata"].pop(field, None)
    if change is None:
        kubectl("delete", kind, name, *here)
    else:
        bent = json.loads(json.dumps(was))
        change(bent)
        metas.cluster.apply(bent)
    try:
        yield
    finally:
        metas.cluster.apply(was)


def can_not_patch(role: Tree) -> None:
    [rule] = [r for r in role["rules"] if r["resources"] == ["pods"]]
    rule["verbs"].remove("patch")


class Shapes:
    """The StatefulSet with the injected parts in its template, so that they can be bent: a pod that has the
    sidecar is left alone by the policy."""

    def __init__(self, metas: Foreign) -> None:
        self.metas = metas
        self.here = ("-n", metas.namespace)
        self.good = self._spec()

    def _spec(self) -> Tree:
        pod = json.loads(self.metas.cluster.kubectl("get", "pod", "rw-meta-0", *self.here, "-o", "json"))
        spec: Tree = pod["spec"]
        for field in ("nodeName", "hostname", "subdomain", "tolerations", "priority", "preemptionPolicy"):
            spec.pop(field, None)
        spec["volumes"] = [v for v in spec["volumes"] if not v["name"].startswith("kube-api-access")]
        for each in [*spec.get("initContainers", []), *spec["containers"]]:
            mounts = each.get("volumeMounts", [])
            each["volumeMounts"] = [m for m in mounts if not m["name"].startswith("kube-api-access")]
        return spec

    def remake(self, bend: Callable[[Tree], Any], injected: bool = True) -> Meta:
        """Pod 0 anew, by a template whose spec is bent; it runs with its agent, if it has one."""
        spec = json.loads(json.dumps(self.good))
        bend(spec)
        label: Tree = {"op": "remove", "path": "/spec/template/metadata/labels/metafence.io~1inject"}
        if injected:
            label |= {"op": "add", "value": "true"}
        patch = json.dumps([{"op": "replace", "path": "/spec/template/spec", "value": spec}, label])
        kubectl = self.metas.cluster.kubectl
        kubectl("patch", "statefulset", "rw-meta", *self.here, "--type=json", "--patch", patch)
        old = next(m for m in self.metas.refresh() if m.name == "rw-meta-0")
        kubectl("delete", "pod", "rw-meta-0", *self.here, "--grace-period=30")

        def anew() -> Meta | None:
            found = [m for m in self.metas.refresh() if m.name == "rw-meta-0" and m.uid != old.uid]
            if not found or (injected and found[0].status() is None):
                return None
            return found[0]

        return wait_for("pod 0 is made anew", anew, 90)


@pytest.fixture
def installed(foreign: Callable[..., Foreign]) -> Foreign:
    """As the README has it, on metas of the operator; updates of the StatefulSet are by hand."""
    metas = foreign("operator", lambda pod: f"{pod.metadata.name}.rw-meta:5690")
    metas.helm_install()
    with metas.database.connect(metas.database.user) as session:
        session.execute(MIGRATIONS)
        session.execute("INSERT INTO seaql_migrations VALUES ('m20251223_120000_log', 0)")
    metas.apply(LABEL, user=images.UID)  # doctor knows users by what pods say of them
    metas.wait_covered()
    here = ("-n", metas.namespace)
    by_hand = json.dumps({"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}})
    metas.cluster.kubectl("patch", "statefulset", "rw-meta", *here, "--type=merge", "--patch", by_hand)
    return metas


@pytest.mark.timeout(900)
def test_names_each_misconfiguration(installed: Foreign, note: Note) -> None:
    metas = installed
    looked = Looked(metas, next(m for m in metas.refresh() if m.name == "rw-meta-0"))
    assert looked.findings("failed") == {}
    note("warnings on a good installation", sorted(looked.findings("warning")))
    named = []

    def check(name: str) -> None:
        looked.names(name)
        named.append(name)

    for name, plant, undo in sql_faults(metas.database.user, metas.database.name):
        with sql_fault(metas, plant, undo):
            check(name)
    for name, good, bad in TOML_FAULTS:
        if good.startswith("secs"):
            good, bad = f"secs = {TTL:g}", f"secs = {TTL / 2:g}"
        else:
            bad = f"= {TTL:g}"
        with toml_fault(looked, good, bad):
            check(name)
    for name, section, key, value in CONFIG_FAULTS:
        with config_fault(looked, section, key, value):
            check(name)
    looked.meta.cli("pause", "--for", "10m", "--reason", "plant")
    looked.meta.wait_status("is paused", lambda s: "Paused" in s["not_covered"], 20)
    check("cover.paused")
    looked.meta.cli("resume")
    with without(metas, "role", "metafence", can_not_patch):
        wait_for("the right is gone", lambda: "rbac" in looked.findings("failed"), 30)
        check("rbac")
    policy = f"metafence.{metas.namespace}.metafence"
    with without(metas, "validatingadmissionpolicybinding", policy, None):
        wait_for("the policy is unbound", lambda: "policy" in looked.findings("warning"), 30)
        check("policy")
    named += _shapes(metas, looked)
    assert len(set(named)) >= 15, named
    note("named", len(set(named)))
    assert looked.findings("failed") == {}, "everything was taken back"


def _shapes(metas: Foreign, looked: Looked) -> list[str]:
    """Pods of another shape, one after the other; then a sibling without a sidecar."""
    named, shapes = [], Shapes(metas)
    for name, bend in SPEC_FAULTS:
        if name in BENT:
            looked.meta = shapes.remake(bend)
            looked.names(name)
            named.append(name)
    assert set(named) == set(BENT)

    def bare(spec: Tree) -> None:
        spec["initContainers"] = [c for c in spec["initContainers"] if c["name"] != "metafence"]

    shapes.remake(bare, injected=False)
    looked.meta = next(m for m in metas.refresh() if m.name == "rw-meta-1")
    wait_for("the sibling is seen", lambda: "siblings" in looked.findings("failed"), 60)
    named.append("siblings")
    looked.meta = shapes.remake(lambda spec: None)
    metas.wait_converged(120)
    return named

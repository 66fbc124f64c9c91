# SPDX-License-Identifier: Apache-2.0
"""The chart's policy alone holds an agent to its own pod: here its account may do everything about pods, and
asks as the agent does, with the token of one pod."""

import http.client
import json
import ssl
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from harness.waiting import wait_for
from kubelab import Cluster, images
from kubelab.fixtures import drop_namespace, make_namespace
from kubelab.layout import API_PORT, CONTROL_PLANE

NAMESPACE = f"policy-{uuid.uuid4().hex[:6]}"
POLICY = f"metafence.{NAMESPACE}.metafence"
CHART = Path(__file__).resolve().parents[3] / "charts" / "metafence"
ROLE, OPERATORS_ROLE = "metafence.io/role", "risingwave/meta-role"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True)
class Answer:
    code: int
    message: str


@dataclass
class Asker:
    """Requests with one token, in the control plane's namespace. Nothing that is allowed happens: dry run."""

    cluster: Cluster
    token: str
    tls: ssl.SSLContext = field(init=False)

    def __post_init__(self) -> None:
        self.tls = ssl.create_default_context(cafile=str(self.cluster.layout.pki / "ca.crt"))

    def ask(self, verb: str, path: str, body: Any = None, kind: str = MERGE) -> Answer:
        with self.cluster.inside():
            link = http.client.HTTPSConnection(CONTROL_PLANE, API_PORT, context=self.tls, timeout=20)
            link.connect()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
        url = f"/api/v1/namespaces/{NAMESPACE}/{path}"
        if verb != "GET":
            url += ("&" if "?" in path else "?") + "dryRun=All"
        link.request(verb, url, json.dumps(body) if body is not None else None, headers)
        reply = link.getresponse()
        text = reply.read()
        link.close()
        try:
            tree = json.loads(text)
        except ValueError:
            return Answer(reply.status, text.decode(errors="replace"))
        return Answer(reply.status, tree.get("message", "") if tree.get("kind") == "Status" else "")

    def patch(self, pod: str, body: Any, kind: str = MERGE) -> Answer:
        return self.ask("PATCH", f"pods/{pod}", body, kind)


def _statefulset(name: str, replicas: int) -> dict[str, Any]:
    labels = {"app": name}
    container = {
        "name": "c",
        "image": images.PAUSE.reference,
        "imagePullPolicy": "Never",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    pod = {
        "serviceAccountName": "metafence",
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "serviceName": name,
            "replicas": replicas,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _bare_pod(name: str) -> dict[str, Any]:
    template = _statefulset(name, 1)["spec"]["template"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {ROLE: "leader"}},
        "spec": template["spec"],
    }


def _everything_about_pods(account: str) -> list[dict[str, Any]]:
    about = {"apiGroup": "rbac.authorization.k8s.io"}
    rule = {"apiGroups": [""], "resources": ["*"], "verbs": ["*"]}
    api, meta = "rbac.authorization.k8s.io/v1", {"name": f"all-{account}", "namespace": NAMESPACE}
    return [
        {"apiVersion": api, "kind": "Role", "metadata": meta, "rules": [rule]},
        {
            "apiVersion": api,
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {**about, "kind": "Role", "name": meta["name"]},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}],
        },
    ]


class Lab:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.me = Asker(cluster, self.token("metafence", "set-0"))
        self.uid = {pod: self.cluster.pod(NAMESPACE, pod).metadata.uid for pod in ("set-0", "set-1")}

    def token(self, account: str, pod: str = "") -> str:
        bound = ["--bound-object-kind", "Pod", "--bound-object-name", pod] if pod else []
        return self.cluster.kubectl("-n", NAMESPACE, "create", "token", account, *bound).strip()


def _install(cluster: Cluster) -> None:
    make_namespace(cluster, NAMESPACE, "restricted")
    values = ["postgres.host=pg", "postgres.database=d", "postgres.user=u"]
    options = [word for value in values for word in ("--set", f"config.{value}")]
    options += ["--set", "fullnameOverride=metafence", "--set", "sqlInstall.enabled=false"]  # no such host
    cluster.helm("install", "mf", CHART, "-n", NAMESPACE, *options)
    cluster.kubectl("-n", NAMESPACE, "create", "serviceaccount", "someone")
    cluster.apply(*_everything_about_pods("metafence"), *_everything_about_pods("someone"))
    cluster.apply(_statefulset("set", 2), _statefulset("other", 1), _bare_pod("set-9"))


def _label(cluster: Cluster, pod: str, **roles: str) -> None:
    names = {"own": ROLE, "operators": OPERATORS_ROLE}
    words = [f"{names[which]}={role}" for which, role in roles.items()]
    cluster.kubectl("-n", NAMESPACE, "label", "--overwrite", "pod", pod, *words)


def _wait_in_force(lab: Lab) -> None:
    body = {"metadata": {"labels": {ROLE: "leader"}}}
    wait_for("the policy is in force", lambda: lab.me.patch("other-0", body).code == 403, 30, every=0.1)


@pytest.fixture(scope="module")
def lab(shared_cluster: Cluster) -> Iterator[Lab]:
    cluster = shared_cluster
    try:
        _install(cluster)
        for name in ("set-0", "set-1", "other-0", "set-9"):
            cluster.kubectl(
                "-n", NAMESPACE, "wait", "--for=create", f"pod/{name}", "--timeout=30s", timeout=40
            )
        cluster.kubectl(
            "-n", NAMESPACE, "wait", "--for=condition=Ready", "pod", "--all", "--timeout=60s", timeout=70
        )
        annotate = ["annotate", "pod", "set-0", "set-1", "example.com/a=1", "metafence.io/fence=why"]
        cluster.kubectl("-n", NAMESPACE, *annotate)
        _label(cluster, "set-0", own="follower", operators="follower")
        _label(cluster, "set-1", own="leader", operators="leader")
        lab = Lab(cluster)
        _wait_in_force(lab)
        yield lab
    finally:
        cluster.helm("uninstall", "mf", "-n", NAMESPACE, "--ignore-not-found")
        drop_namespace(cluster, NAMESPACE)


def test_policy_compiles_without_a_warning(lab):
    def checked() -> dict[str, Any] | None:
        tree = json.loads(lab.cluster.kubectl("get", "validatingadmissionpolicy", POLICY, "-o", "json"))
        status = tree.get("status", {})
        return status if status.get("observedGeneration") == tree["metadata"]["generation"] else None

    status = wait_for("the policy is checked", checked, 30, every=0.2)
    assert not status.get("typeChecking", {}).get("expressionWarnings"), status


# --- the own pod ---------------------------------------------------------------------------------


def _labels(**pairs: str | None) -> dict[str, Any]:
    return {"metadata": {"labels": pairs}}


def _apply(lab: Lab, pod: str, labels: dict[str, str]) -> Answer:
    """As the agent writes a role."""
    meta = {"name": pod, "uid": lab.uid[pod], "labels": labels}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": meta}
    return lab.me.patch(f"{pod}?fieldManager=metafence&force=true", body, APPLY)


@pytest.mark.parametrize("role", ["leader", "follower", "unknown"])
def test_own_role(lab, role):
    assert _apply(lab, "set-0", {ROLE: role, OPERATORS_ROLE: role}).code == 200
    assert lab.me.patch("set-0", _labels(**{ROLE: role})).code == 200


def test_own_role_may_go(lab):
    assert lab.me.patch("set-0", _labels(**{ROLE: None})).code == 200


@pytest.mark.parametrize("value", ["reason", None])
def test_own_orders(lab, value):
    body = {"metadata": {"uid": lab.uid["set-0"], "annotations": {"metafence.io/fence": value}}}
    assert lab.me.patch("set-0", body).code == 200


OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"}


@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        (_labels(app="x"), MERGE, "no label but"),
        (_labels(app=None), MERGE, "no label but"),
        (_labels(fresh="x"), MERGE, "no label but"),
        (_labels(**{"metafence.io/other": "x"}), MERGE, "no label but"),
        (_labels(**{ROLE: "boss"}), MERGE, "leader, follower or unknown"),
        ({"metadata": {"annotations": {"example.com/a": "2"}}}, MERGE, "no annotation but"),
        ({"metadata": {"annotations": {"example.com/a": None}}}, MERGE, "no annotation but"),
        ({"metadata": {"annotations": {"fresh": "1"}}}, MERGE, "no annotation but"),
        ({"metadata": {"finalizers": ["example.com/f"]}}, MERGE, "finalizers"),
        ({"metadata": {"ownerReferences": None}}, MERGE, "owners"),
        ({"metadata": {"ownerReferences": [OWNER]}}, MERGE, "owners"),
        ({"spec": {"activeDeadlineSeconds": 100}}, MERGE, "spec"),
        ({"spec": {"containers": [{"name": "c", "image": "evil"}]}}, STRATEGIC, "spec"),
        ([{"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}], JSON_PATCH, "spec"),
    ],
)
def test_nothing_else_about_the_own_pod(lab, body, kind, says):
    answer = lab.me.patch("set-0", body, kind)
    assert answer.code in (403, 422)
    assert POLICY in answer.message
    assert says in answer.message


# --- other pods ----------------------------------------------------------------------------------


def test_siblings_role_may_be_cleared(lab):
    assert lab.me.patch("set-1", _labels(**{ROLE: "unknown"})).code == 200
    assert _apply(lab, "set-1", {ROLE: "unknown", OPERATORS_ROLE: "unknown"}).code == 200


@pytest.mark.parametrize("operators", ["follower", None], ids=["another's", "missing"])
def test_siblings_second_label_may_be_of_another_mind(lab, operators):
    """Both are written in one request, as long as one of them says leader."""
    lab.cluster.kubectl("-n", NAMESPACE, "label", "pod", "set-1", f"{OPERATORS_ROLE}-")
    if operators:
        _label(lab.cluster, "set-1", operators=operators)
    try:
        assert _apply(lab, "set-1", {ROLE: "unknown", OPERATORS_ROLE: "unknown"}).code == 200
    finally:
        _label(lab.cluster, "set-1", operators="leader")


@pytest.mark.parametrize(
    ("now", "body", "says"),
    [
        ("leader", _labels(**{ROLE: "follower"}), "from leader to unknown"),
        ("leader", _labels(**{ROLE: None}), "from leader to unknown"),
        ("leader", _labels(**{ROLE: "unknown", "app": "x"}), "no label but"),
        ("leader", _labels(**{ROLE: "unknown", OPERATORS_ROLE: "follower"}), "from leader to unknown"),
        ("follower", _labels(**{ROLE: "leader"}), "from leader to unknown"),
        ("unknown", _labels(**{ROLE: "leader"}), "from leader to unknown"),
        ("follower", _labels(**{ROLE: "unknown"}), "from leader to unknown"),
        ("leader", {"metadata": {"annotations": {"metafence.io/fence": "x"}}}, "no annotation but"),
        ("leader", {"metadata": {"annotations": {"metafence.io/fence": None}}}, "no annotation but"),
        ("leader", {"spec": {"activeDeadlineSeconds": 100}}, "spec"),
    ],
)
def test_nothing_else_about_a_sibling(lab, now, body, says):
    _label(lab.cluster, "set-1", own=now, operators=now)
    try:
        answer = lab.me.patch("set-1", body)
        assert answer.code == 403
        assert says in answer.message
    finally:
        _label(lab.cluster, "set-1", own="leader", operators="leader")


@pytest.mark.parametrize("pod", ["other-0", "set-9"], ids=["another set", "only named like a sibling"])
def test_foreign_pods(lab, pod):
    _label(lab.cluster, pod, own="leader")
    for role in ("leader", "unknown"):
        body = {"metadata": {"labels": {ROLE: role}, "annotations": {"metafence.io/x": "1"}}}
        answer = lab.me.patch(pod, body)
        assert answer.code == 403
        assert "token is bound to" in answer.message


def test_a_token_that_is_bound_to_no_pod(lab):
    answer = Asker(lab.cluster, lab.token("metafence")).patch("set-0", _labels(**{ROLE: "leader"}))
    assert answer.code == 403
    assert "token is bound to" in answer.message


def test_other_accounts_are_none_of_its_business(lab):
    other = Asker(lab.cluster, lab.token("someone"))
    assert other.patch("set-0", _labels(fresh="x")).code == 200
    assert other.ask("DELETE", "pods/other-0").code == 200


# --- deletes, subresources, creates --------------------------------------------------------------


def _delete(lab: Lab, pod: str, uid: str | None, grace: int | None) -> Answer:
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"]}
    if uid is not None:
        options["preconditions"] = {"uid": uid}
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    return lab.me.ask("DELETE", f"pods/{pod}", options, "application/json")


def test_own_pod_may_be_deleted_with_grace(lab):
    assert _delete(lab, "set-0", lab.uid["set-0"], 1).code == 200
    assert _delete(lab, "set-0", lab.uid["set-0"], None).code == 200


@pytest.mark.parametrize(
    ("pod", "uid_of", "grace", "says"),
    [
        ("set-0", None, 1, "uid as precondition"),
        ("set-0", "set-0", 0, "grace period"),
        ("set-1", "set-1", 1, "token is bound to"),
        ("set-1", "set-1", 0, "token is bound to"),
    ],
)
def test_no_other_delete(lab, pod, uid_of, grace, says):
    answer = _delete(lab, pod, lab.uid[uid_of] if uid_of else None, grace)
    assert answer.code == 403
    assert says in answer.message


def test_no_delete_of_many(lab):
    answer = lab.me.ask("DELETE", "pods?labelSelector=app%3Dset")
    assert answer.code == 403
    assert POLICY in answer.message


EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "set-0"}}


@pytest.mark.parametrize(
    ("verb", "path", "body", "kind"),
    [
        ("PATCH", "pods/set-0/status", {"status": {"message": "x"}}, MERGE),
        ("PATCH", "pods/set-0/ephemeralcontainers", {"spec": {"ephemeralContainers": []}}, MERGE),
        ("POST", "pods/set-0/eviction", EVICTION, "application/json"),
        ("GET", "pods/set-0/exec?command=x&stdout=true", None, MERGE),
        ("GET", "pods/set-0/proxy/", None, MERGE),
    ],
)
def test_no_subresource(lab, verb, path, body, kind):
    answer = lab.me.ask(verb, path, body, kind)
    assert answer.code == 403
    assert "no subresource" in answer.message


def test_no_new_pod(lab):
    answer = lab.me.ask("POST", "pods", _bare_pod("fresh"), "application/json")
    assert answer.code == 403
    assert "no new pod" in answer.message

# SPDX-License-Identifier: Apache-2.0
"""Chart metafence by itself: objects, rights, the policy for agents, documents."""

import re
import subprocess
from typing import Any

import helm
import pytest
import yaml


@pytest.mark.parametrize("chart", [helm.METAFENCE, helm.METASIM], ids=["metafence", "metasim"])
def test_lint(chart):
    needed = [word for value in helm.NEEDED for word in ("--set", value)] if chart == helm.METAFENCE else []
    done = helm.run("lint", "--strict", chart, *needed)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout and "ERROR" not in done.stdout, done.stdout


def test_objects_and_their_names():
    objects = helm.metafence()
    names = {(tree["kind"], tree["metadata"]["name"]) for tree in objects}
    assert names == {
        ("ServiceAccount", "rel-metafence"),
        ("Role", "rel-metafence"),
        ("RoleBinding", "rel-metafence"),
        ("ConfigMap", "rel-metafence-agent"),
        ("ValidatingAdmissionPolicy", "metafence.ns.rel-metafence"),
        ("ValidatingAdmissionPolicyBinding", "metafence.ns.rel-metafence"),
        ("MutatingAdmissionPolicy", "metafence.ns.rel-metafence"),
        ("MutatingAdmissionPolicyBinding", "metafence.ns.rel-metafence"),
        ("Job", "rel-metafence-sql-install"),
        ("Pod", "rel-metafence-test-config"),
        ("Pod", "rel-metafence-test-database"),
    }


def test_labels_and_namespace_of_every_object():
    objects = helm.metafence("commonLabels.team=data", "commonAnnotations.owner=me")
    for tree in objects:
        labels = tree["metadata"]["labels"]
        wanted = {"name", "instance", "version", "component", "part-of", "managed-by"}
        assert {f"app.kubernetes.io/{name}" for name in wanted} <= labels.keys(), tree["kind"]
        assert labels["helm.sh/chart"].startswith("metafence-")
        assert labels["team"] == "data"
        assert tree["metadata"]["annotations"]["owner"] == "me"
        cluster_wide = "AdmissionPolicy" in tree["kind"]
        assert tree["metadata"].get("namespace") == (None if cluster_wide else "ns")


# --- rights --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "verbs"),
    [
        ((), ["get", "list", "watch", "patch", "delete"]),
        (("config.fence.deletePod=true",), ["get", "list", "watch", "patch", "delete"]),
        (("config.fence.deletePod=false",), ["get", "list", "watch", "patch"]),
        (
            ("config.fence.deletePod=false", "config.recovery.killNodes=true"),
            ["get", "list", "watch", "patch"],
        ),
        (
            (
                "config.fence.deletePod=false",
                "config.recovery.killNodes=true",
                "config.recovery.mode=enforce",
            ),
            ["get", "list", "watch", "patch", "delete"],
        ),
    ],
)
def test_role_has_these_verbs_and_no_more(values, verbs):
    role = helm.one(helm.metafence(*values), "Role")
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": verbs},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list"]},
        {"apiGroups": ["apps", "apps.kruise.io"], "resources": ["statefulsets"], "verbs": ["list"]},
        {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]},
    ]


def test_role_is_bound_to_the_account_of_the_namespace():
    binding = helm.one(helm.metafence(), "RoleBinding")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "rel-metafence", "namespace": "ns"}]
    assert binding["roleRef"]["kind"] == "Role"
    assert binding["roleRef"]["name"] == "rel-metafence"


def test_existing_account_is_used_everywhere():
    objects = helm.metafence("serviceAccount.create=false", "serviceAccount.name=meta")
    assert "ServiceAccount" not in helm.kinds(objects)
    assert helm.one(objects, "RoleBinding")["subjects"][0]["name"] == "meta"
    condition = helm.one(objects, "ValidatingAdmissionPolicy")["spec"]["matchConditions"][0]
    assert condition["expression"].endswith(" in ['system:serviceaccount:ns:meta']")


def test_accounts_that_pods_have_already_get_the_rights_and_the_policy():
    objects = helm.metafence(json_values={"serviceAccount.others": ["rw", "rel-metafence"]})
    assert [s["name"] for s in helm.one(objects, "RoleBinding")["subjects"]] == ["rel-metafence", "rw"]
    condition = helm.one(objects, "ValidatingAdmissionPolicy")["spec"]["matchConditions"][0]["expression"]
    assert "'system:serviceaccount:ns:rel-metafence', 'system:serviceaccount:ns:rw'" in condition


def test_account_that_exists_has_to_be_named():
    said = helm.refusal(helm.METAFENCE, *helm.NEEDED, "serviceAccount.create=false")
    assert "serviceAccount.name" in said


def test_rbac_can_be_left_to_others():
    assert not {"Role", "RoleBinding"} & helm.kinds(helm.metafence("rbac.create=false"))


# --- policy --------------------------------------------------------------------------------------


def test_policy_fails_closed_for_our_account_only():
    objects = helm.metafence()
    spec = helm.one(objects, "ValidatingAdmissionPolicy")["spec"]
    assert spec["failurePolicy"] == "Fail"
    assert [c["expression"] for c in spec["matchConditions"]] == [
        "request.userInfo.username in ['system:serviceaccount:ns:rel-metafence']"
    ]
    [rule] = spec["matchConstraints"]["resourceRules"]
    assert set(rule["operations"]) == {"CREATE", "UPDATE", "DELETE", "CONNECT"}
    assert rule["resources"] == ["pods", "pods/*"]
    binding = helm.one(objects, "ValidatingAdmissionPolicyBinding")["spec"]
    assert binding == {"policyName": "metafence.ns.rel-metafence", "validationActions": ["Deny", "Audit"]}


@pytest.mark.parametrize(
    ("label", "keys"),
    [
        (None, "['metafence.io/role', 'risingwave/meta-role']"),
        ("example.com/role", "['metafence.io/role', 'example.com/role']"),
        ("", "['metafence.io/role']"),
    ],
)
def test_policy_allows_the_labels_that_the_agent_writes(label, keys):
    more: dict[str, Any] = {} if label is None else {"config.kubernetes": {"roleLabel": label}}
    policy = helm.one(helm.metafence(json_values=more), "ValidatingAdmissionPolicy")
    variables = {v["name"]: v["expression"] for v in policy["spec"]["variables"]}
    assert variables["roleKeys"] == keys


def test_policy_allows_the_delete_of_another_pod_only_to_who_has_opted_in():
    def texts(*values):
        spec = helm.one(helm.metafence(*values), "ValidatingAdmissionPolicy")["spec"]
        return [v["expression"] for v in spec["variables"] + spec["validations"]]

    plain = texts()
    assert texts("config.recovery.mode=enforce") == texts("config.recovery.killNodes=true") == plain
    assert not any("isCompute" in text or "resourceVersion" in text for text in plain)
    opted = texts("config.recovery.mode=enforce", "config.recovery.killNodes=true")
    assert any("variables.isOwn || variables.isCompute" in text for text in opted)
    assert any("'risingwave/component'" in text and "== 'compute'" in text for text in opted)
    assert any("preconditions.?uid.orValue('') == oldObject.metadata.uid" in text for text in opted)
    assert any("preconditions.?resourceVersion.hasValue()" in text for text in opted)


@pytest.mark.parametrize(
    ("kube", "values", "there"),
    [
        ("1.30.0", (), True),
        ("1.29.0", (), False),
        ("1.34.0", ("admissionPolicy.enabled=false",), False),
    ],
)
def test_policy_is_there_when_the_cluster_can_and_it_is_wanted(kube, values, there):
    kinds = helm.kinds(helm.metafence(*values, kube=kube))
    assert ("ValidatingAdmissionPolicy" in kinds) == there
    assert ("ValidatingAdmissionPolicyBinding" in kinds) == there


def test_older_cluster_is_refused():
    assert "1.29" in helm.refusal(helm.METAFENCE, *helm.NEEDED, kube="1.28.9")


# --- documents -----------------------------------------------------------------------------------


def test_the_statefulset_of_the_readme_renders(tmp_path):
    readme = (helm.METAFENCE / "README.md").read_text()
    part = readme.partition("## Into a StatefulSet")[2]
    template, values = re.findall(r"```yaml\n(.*?)```", part, re.DOTALL)[:2]
    chart = tmp_path / "meta"
    (chart / "templates").mkdir(parents=True)
    (chart / "charts").mkdir()
    (chart / "charts" / "metafence").symlink_to(helm.METAFENCE)
    (chart / "templates" / "metas.yaml").write_text(template)
    (chart / "values.yaml").write_text(values)
    (chart / "Chart.yaml").write_text(
        "{apiVersion: v2, name: meta, version: 0.1.0, dependencies: [{name: metafence, version: 0.1.0}]}"
    )
    objects = helm.render(chart)
    assert helm.sidecar(objects)["name"] == "metafence"
    assert helm.meta(objects)["command"][-2:] == ["--", "/risingwave/bin/risingwave"]
    assert helm.meta(objects)["args"] == ["meta-node"]


def test_version_of_chart_and_program_are_one():
    done = subprocess.run(
        [helm.program("metafence", "agent"), "version"], capture_output=True, text=True, timeout=20
    )
    version = yaml.safe_load((helm.METAFENCE / "Chart.yaml").read_text())["appVersion"]
    assert version in done.stdout

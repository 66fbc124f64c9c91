# SPDX-License-Identifier: Apache-2.0
"""The MutatingAdmissionPolicy: what it makes of pods as others make them, by the API server's own CEL."""

import json
import re
import subprocess
from typing import Any

import helm
import pytest
import samples
import yaml

RUN = "/run/metafence/metafence-run"
SECRET = "passwordSecret.name=meta-postgres"
IDS = {
    "operator": "$(POD_NAME).rw-meta:5690",
    "helm-chart": "$(POD_NAME).rw-risingwave-meta-headless.$(POD_NAMESPACE).svc:5690",
    "deployment": "$(POD_IP):5690",
    "kruise-statefulset": "$(POD_NAME).rw-meta:5690",
    "cloneset": "$(POD_IP):5690",
}


def policy(*values: str, **more: Any) -> dict[str, Any]:
    return helm.one(helm.metafence(SECRET, *values, **more), "MutatingAdmissionPolicy")


def injected(name: str, *values: str, **more: Any) -> samples.Pod:
    [pod] = samples.inject(policy(*values, **more), samples.pod(name))
    assert pod is not None
    return pod


@pytest.fixture(scope="module")
def shims() -> dict[str, samples.Pod]:
    pods = samples.inject(policy(), *map(samples.pod, samples.NAMES))
    return {name: pod for name, pod in zip(samples.NAMES, pods, strict=True) if pod}


@pytest.fixture(scope="module")
def pidfds() -> dict[str, samples.Pod]:
    pods = samples.inject(policy("config.fence.method=pidfd"), *map(samples.pod, samples.NAMES))
    return {name: pod for name, pod in zip(samples.NAMES, pods, strict=True) if pod}


def env(container: dict[str, Any]) -> dict[str, Any]:
    found = {entry["name"]: entry for entry in container["env"]}
    assert len(found) == len(container["env"]), "a name is there twice"
    return found


# --- each shape ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", samples.NAMES)
def test_sidecar_is_the_first_of_the_init_containers(shims, name):
    """And the same as in the chart's templates, but for the user and the id."""
    sidecar = shims[name]["spec"]["initContainers"][0]
    template = helm.sidecar(helm.metasim("metafence.image.tag=", "metafence.image.registry=docker.io"))
    assert sidecar["name"] == "metafence" and sidecar["restartPolicy"] == "Always"
    for key in (
        "args",
        "ports",
        "startupProbe",
        "readinessProbe",
        "livenessProbe",
        "volumeMounts",
        "resources",
    ):
        assert sidecar[key] == template[key], key
    assert [c["name"] for c in shims[name]["spec"]["initContainers"][1:]] == [
        c["name"] for c in samples.pod(name)["spec"].get("initContainers", [])
    ]


@pytest.mark.parametrize("name", samples.NAMES)
def test_command_is_wrapped_whatever_stood_where(shims, name):
    meta, before = samples.container(shims[name]), samples.container(samples.pod(name))
    wrapped = meta["command"][meta["command"].index("--") + 1 :]
    assert meta["command"][0] == RUN
    assert wrapped == before.get("command", ["/risingwave/bin/risingwave"])
    assert [*wrapped, *meta.get("args", [])] == ["/risingwave/bin/risingwave", "meta-node"]
    assert f"--host-id={IDS[name]}" in meta["command"]
    assert env(samples.container(shims[name], "metafence"))["METAFENCE_ID"]["value"] == IDS[name]


@pytest.mark.parametrize("name", samples.NAMES)
def test_environment_stays_and_the_uid_is_the_pods(shims, name):
    """First, so that others may refer to it; a variable of that name that says something else goes."""
    meta, before = samples.container(shims[name]), samples.container(samples.pod(name))
    assert meta["env"][0] == {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}
    kept = [entry["name"] for entry in before["env"] if entry["name"] != "POD_UID"]
    assert [entry["name"] for entry in meta["env"][1:]] == kept
    assert "--pod-uid=$(POD_UID)" in meta["command"]


@pytest.mark.parametrize("name", samples.NAMES)
def test_all_three_probes_are_metafence_runs(shims, name):
    meta = samples.container(shims[name])
    for kind in ("startup", "readiness", "liveness"):
        probe = meta[f"{kind}Probe"]
        assert probe["exec"]["command"] == [RUN, "probe", kind, "--state", "/run/metafence/state"]
        assert "tcpSocket" not in probe and "initialDelaySeconds" not in probe
    assert meta["livenessProbe"]["terminationGracePeriodSeconds"] == 1


@pytest.mark.parametrize("name", samples.NAMES)
def test_both_share_a_directory_in_memory_and_keep_their_volumes(shims, name):
    spec, before = shims[name]["spec"], samples.pod(name)["spec"]
    old = before.get("volumes", [])
    assert [v["name"] for v in spec["volumes"]] == [
        *(v["name"] for v in old), "metafence", "metafence-config", "metafence-token",
    ]  # fmt: skip
    volumes = {v["name"]: v for v in spec["volumes"]}
    assert volumes["metafence"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "16Mi"}
    assert volumes["metafence-config"]["configMap"]["name"] == "rel-metafence-agent"
    mounts = samples.container(shims[name])["volumeMounts"]
    assert mounts[-1] == {"name": "metafence", "mountPath": "/run/metafence"}
    assert len(mounts) == 1 + len(samples.container(samples.pod(name)).get("volumeMounts", []))


@pytest.mark.parametrize(
    ("name", "uid"),
    [("operator", 0), ("helm-chart", 0), ("deployment", 65532), ("kruise-statefulset", 0), ("cloneset", 0)],
)
def test_sidecar_is_metas_user(shims, name, uid):
    """Only the same user may connect to metafence-run. Without capabilities, also as root."""
    context = samples.container(shims[name], "metafence")["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"], context["runAsNonRoot"]) == (uid, uid, uid != 0)
    assert context["capabilities"] == {"drop": ["ALL"]} and context["readOnlyRootFilesystem"] is True
    assert not [word for word in samples.container(shims[name])["command"] if "peer-uid" in word]


@pytest.mark.parametrize(
    ("name", "account"),
    [
        ("operator", "rel-metafence"),
        ("helm-chart", "rw-risingwave"),
        ("deployment", "rel-metafence"),
        ("kruise-statefulset", "rel-metafence"),
        ("cloneset", "rel-metafence"),
    ],
)
def test_a_pod_without_an_account_gets_ours_and_others_keep_theirs(shims, name, account):
    assert shims[name]["spec"]["serviceAccountName"] == account


def test_the_default_account_is_kept_where_it_is_listed():
    pod = injected("operator", json_values={"serviceAccount.others": ["default"]})
    assert pod["spec"].get("serviceAccountName", "default") == "default"


@pytest.mark.parametrize("name", samples.NAMES)
def test_nothing_else_changes(shims, name):
    """Probes, command, environment and mounts of meta; sidecar, volumes and account of the pod."""

    def rest(pod: samples.Pod) -> dict[str, Any]:
        spec = {k: v for k, v in pod["spec"].items() if k not in ("volumes", "serviceAccountName")}
        spec["initContainers"] = [c for c in spec.get("initContainers", []) if c["name"] != "metafence"]
        ours = {
            "command",
            "env",
            "volumeMounts",
            "startupProbe",
            "readinessProbe",
            "livenessProbe",
            "resources",
        }
        for container in spec["containers"]:
            if container["name"] == "meta":
                for key in ours:
                    container.pop(key, None)
            container.pop("resources", None)  # empty ones are written out
        for container in spec["initContainers"]:
            container.pop("resources", None)
        return spec

    assert rest(shims[name]) == rest(samples.pod(name))


@pytest.mark.parametrize("name", samples.NAMES)
def test_password_is_nowhere_but_in_the_secret(shims, name):
    entry = env(samples.container(shims[name], "metafence"))["PGPASSWORD"]
    assert entry["valueFrom"] == {"secretKeyRef": {"name": "meta-postgres", "key": "password"}}


# --- once, and not for others --------------------------------------------------------------------


@pytest.mark.parametrize("values", [(), ("config.fence.method=pidfd",)], ids=["shim", "pidfd"])
def test_a_pod_that_has_it_is_left_alone(values):
    """Reinvoked, or a copy of a pod that was injected."""
    ours = policy(*values)
    once = samples.inject(ours, *map(samples.pod, samples.NAMES))
    assert all(once)
    assert samples.inject(ours, *(pod for pod in once if pod)) == [None] * len(samples.NAMES)


def test_a_pod_without_meta_is_left_alone():
    pod = samples.pod("deployment")
    pod["spec"]["containers"] = pod["spec"]["containers"][:1]
    assert samples.inject(policy(), pod) == [None]


def test_only_labeled_pods_of_the_namespace_are_asked_about():
    constraints = policy(json_values={"injection.selector": {"risingwave/name": "rw"}})["spec"][
        "matchConstraints"
    ]
    assert constraints["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "ns"}}
    wanted = {"metafence.io/inject": "true", "risingwave/name": "rw"}
    assert constraints["objectSelector"] == {"matchLabels": wanted}
    [rule] = constraints["resourceRules"]
    assert (rule["operations"], rule["resources"]) == (["CREATE"], ["pods"])


def test_a_pod_that_wants_no_root_and_names_no_user_is_left_alone():
    """Its sidecar would be root: pod security refuses the whole pod, or metafence-run its agent."""
    for place in ("pod", "container"):
        pod = samples.pod("operator")
        context = pod["spec"] if place == "pod" else samples.container(pod)
        context["securityContext"] = {"runAsNonRoot": True}
        assert samples.inject(policy(), pod) == [None], place
        # With a user it is known whom the sidecar has to be: the pod's, or the one that the values name.
        [made] = samples.inject(policy("injection.user=1000"), pod)
        assert made and samples.container(made, "metafence")["securityContext"]["runAsUser"] == 1000
        context["securityContext"]["runAsUser"] = 7
        [made] = samples.inject(policy(), pod)
        assert made and samples.container(made, "metafence")["securityContext"]["runAsUser"] == 7


def test_whoever_else_wants_no_root_is_no_reason():
    pod = samples.pod("deployment")
    pod["spec"].pop("securityContext", None)
    for each in pod["spec"]["containers"]:
        each["securityContext"] = {"runAsNonRoot": each["name"] != "meta"}
    assert samples.inject(policy(), pod) != [None]


# --- by annotations ------------------------------------------------------------------------------


def with_image(image: str) -> samples.Pod:
    pod = samples.pod("operator")
    pod["metadata"]["annotations"] = {"metafence.io/image": image, "other.io/image": "other"}
    return pod


CHARTS_OWN = "docker.io/metafence/metafence:0.1.0"
DIGEST = f"@sha256:{'a' * 64}"


@pytest.mark.parametrize(
    "image",
    [
        "metafence/metafence",
        "docker.io/metafence/metafence:0.2.0-rc1",
        "registry.example:5000/a/b_c/metafence:V1",
        f"registry.example/metafence{DIGEST}",
        f"registry.example/metafence:1{DIGEST}",
    ],
)
def test_a_pod_may_have_an_image_of_its_own(image):
    [pod] = samples.inject(policy(), with_image(image))
    assert pod is not None
    assert samples.container(pod, "metafence")["image"] == image
    assert samples.container(pod)["image"] == samples.container(samples.pod("operator"))["image"]


@pytest.mark.parametrize(
    "image",
    ["", "0.2.0", ":0.2.0", "a/b:", "a/B", "a/b c", "a//b", "https://a/b", f"a/b@sha256:{'a' * 63}", "a/b\n"],
)
def test_what_is_no_image_does_not_keep_a_pod_from_starting(image):
    [pod] = samples.inject(policy(), with_image(image))
    assert pod is not None
    assert samples.container(pod, "metafence")["image"] == CHARTS_OWN


def annotated() -> dict[str, str]:
    """Variable -> annotation, by the agent's own table."""
    program = helm.program("metafence", "agent")
    shown = subprocess.run(
        [program, "config", "options", "-o", "json"], capture_output=True, text=True, check=True, timeout=20
    )
    return {o["environment"]: o["annotation"] for o in json.loads(shown.stdout) if "annotation" in o}


def test_options_of_a_pod_reach_its_agent(shims, pidfds):
    paths = {name: f"metadata.annotations['{key}']" for name, key in annotated().items()}
    wanted = {name: {"fieldRef": {"fieldPath": path}} for name, path in paths.items()}
    assert len(wanted) == 4
    for pod in [*shims.values(), *pidfds.values()]:
        found = env(samples.container(pod, "metafence"))
        for entry in found.values():  # what the API's types write out
            entry.get("valueFrom", {}).get("fieldRef", {}).pop("apiVersion", None)
        assert {name: found[name]["valueFrom"] for name in wanted} == wanted
    template = env(helm.sidecar(helm.metasim()))
    assert {name: template[name]["valueFrom"] for name in wanted} == wanted


def test_readme_has_each_annotation():
    text = (helm.METAFENCE / "README.md").read_text().partition("## Install")[2].partition("\n## ")[0]
    rows = "".join(line for line in text.splitlines() if line.startswith("| `metafence.io/"))
    assert set(re.findall(r"metafence\.io/[a-z-]+", rows)) == {*annotated().values(), "metafence.io/image"}
    assert len(annotated()) + 1 < 12, "too many to know them"


# --- by values -----------------------------------------------------------------------------------


def test_options_reach_metafence_run():
    values = {"run": {"restart": "container", "requireAgent": True}, "config.election.ttl": "20s"}
    words = samples.container(injected("operator", json_values=values))["command"]
    assert {"--restart=container", "--require-agent", "--ttl=20s"} <= set(words)


def test_id_container_command_and_user_can_be_said():
    pod = samples.pod("operator")
    container = samples.container(pod)
    container["name"] = "risingwave"
    del container["command"]
    values = {
        "id": "$(POD_NAME).other:5690",
        "injection.container": "risingwave",
        "injection.command": ["/rw", "--x"],
        "injection.user": 1000,
    }
    [made] = samples.inject(policy(json_values=values), pod)
    assert made is not None
    command = samples.container(made, "risingwave")["command"]
    assert command[-3:] == ["--", "/rw", "--x"] and "--host-id=$(POD_NAME).other:5690" in command
    sidecar = samples.container(made, "metafence")
    assert env(sidecar)["METAFENCE_ID"]["value"] == "$(POD_NAME).other:5690"
    assert sidecar["securityContext"]["runAsUser"] == 1000


def test_a_containers_user_wins_over_its_pods():
    pod = samples.pod("deployment")
    samples.container(pod)["securityContext"] |= {"runAsUser": 7, "runAsGroup": 8}
    [made] = samples.inject(policy(), pod)
    assert made is not None
    context = samples.container(made, "metafence")["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"]) == (7, 8)


def test_a_meta_without_an_address_is_injected_all_the_same():
    """Its agent says what it misses and harms nothing; a pod that does not start would."""
    pod = samples.pod("operator")
    meta = samples.container(pod)
    meta["env"] = [e for e in meta["env"] if e["name"] != "RW_ADVERTISE_ADDR"]
    [made] = samples.inject(policy(), pod)
    assert made is not None
    assert env(samples.container(made, "metafence"))["METAFENCE_ID"].get("value", "") == ""
    assert not [word for word in samples.container(made)["command"] if "host-id" in word]


def test_registry_and_extras_reach_the_pod():
    values = {
        "imagePullSecrets": [{"name": "registry"}],
        "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
        "extraVolumeMounts": [{"name": "ca", "mountPath": "/ca", "readOnly": True}],
        "extraEnv": [{"name": "X", "value": 'a "quoted" <text> & \\'}],
    }
    pod = injected("helm-chart", json_values=values)
    assert pod["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert pod["spec"]["volumes"][-1] == {"name": "ca", "configMap": {"name": "ca"}}
    sidecar = samples.container(pod, "metafence")
    assert sidecar["volumeMounts"][-1] == {"name": "ca", "mountPath": "/ca", "readOnly": True}
    assert env(sidecar)["X"]["value"] == 'a "quoted" <text> & \\'


# --- pidfd ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", samples.NAMES)
def test_pidfd_shares_the_pid_namespace_and_asks_the_agent(pidfds, name):
    pod, before = pidfds[name], samples.pod(name)
    assert pod["spec"]["shareProcessNamespace"] is True
    meta, was = samples.container(pod), samples.container(before)
    for key in ("command", "args", "env", "volumeMounts", "startupProbe", "readinessProbe"):
        assert strip(meta.get(key)) == strip(was.get(key)), key
    assert meta["livenessProbe"] == {
        "httpGet": {"path": "/meta/livez", "port": 9690},
        "periodSeconds": 1,
        "timeoutSeconds": 1,
        "failureThreshold": 3,
        "terminationGracePeriodSeconds": 1,
    }


def strip(tree: Any) -> Any:
    """Without what the API's types write out."""
    if isinstance(tree, dict):
        return {key: strip(value) for key, value in tree.items() if key != "divisor"}
    return [strip(value) for value in tree] if isinstance(tree, list) else tree


# --- where it can't be ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kube", "apis", "version"),
    [
        ("1.37.0", (), "v1"),
        ("1.36.0", (), "v1"),
        ("1.35.0", ("admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy",), "v1beta1"),
        ("1.35.0", (), None),
        ("1.29.0", (), None),
    ],
)
def test_version_of_the_policy_is_what_the_cluster_serves(kube, apis, version):
    found = [t for t in helm.metafence(kube=kube, apis=apis) if t["kind"].startswith("MutatingAdmission")]
    versions = {t["apiVersion"] for t in found}
    assert versions == ({f"admissionregistration.k8s.io/{version}"} if version else set())
    assert len(found) == (2 if version else 0)


def test_it_can_be_left_out():
    assert not [k for k in helm.kinds(helm.metafence("injection.enabled=false")) if k.startswith("Mutating")]


def test_failure_policy_is_a_choice():
    assert policy()["spec"]["failurePolicy"] == "Ignore"
    assert policy("injection.failurePolicy=Fail")["spec"]["failurePolicy"] == "Fail"


def readme_snippets() -> tuple[dict[str, Any], dict[str, Any]]:
    """Values for RisingWave's chart, and a part of the operator's resource."""
    text = (helm.METAFENCE / "README.md").read_text()
    part = text.partition("## Without injection")[2].partition("\n## ")[0]
    chart, resource = (yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", part, re.DOTALL))
    return chart["metaComponent"], resource["spec"]["components"]["meta"]["nodeGroups"][0]["template"]["spec"]



@pytest.mark.parametrize("which", [0, 1], ids=["helm-chart", "operator"])
def test_snippets_of_the_readme_are_what_would_be_injected(which):
    """The agent as an ordinary container, which has no order of starts; so without metafence-run."""
    snippet = readme_snippets()[which]
    pod = injected(
        ["helm-chart", "operator"][which], "config.fence.method=pidfd", "fullnameOverride=metafence"
    )
    wanted = samples.container(pod, "metafence")
    del wanted["restartPolicy"], wanted["resources"]
    [found] = snippet["additionalContainers"]
    found.pop("resources", None)
    assert found == wanted
    assert snippet["shareProcessNamespace"] is True
    volumes = snippet["extraVolumes"] if which == 0 else snippet["volumes"]
    assert volumes == [v for v in pod["spec"]["volumes"] if v["name"].startswith("metafence")]

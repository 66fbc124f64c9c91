# SPDX-License-Identifier: Apache-2.0
"""What the chart brings beside the pods: SQL install, tests, alerts, dashboard, network policy, notes."""

import json
import re
import shlex
import shutil
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import helm
import pytest
import yaml

SERVICES = ("monitoring.coreos.com/v1/ServiceMonitor",)
MONITORED = ("monitoring.coreos.com/v1/PodMonitor", "monitoring.coreos.com/v1/PrometheusRule")
RULES = yaml.safe_load((helm.METAFENCE / "files" / "rules.yaml").read_text())
DASHBOARD = json.loads((helm.METAFENCE / "files" / "dashboard.json").read_text())
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"] if "alert" in rule]


# --- the SQL install and the tests of helm -------------------------------------------------------


def job(*values: str, **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    found = helm.one(helm.metafence(*values, **more), "Job")
    [container] = found["spec"]["template"]["spec"]["containers"]
    return found, container


def test_schema_comes_with_each_install_and_upgrade():
    found, container = job()
    assert found["metadata"]["annotations"] == {
        "helm.sh/hook": "post-install,post-upgrade,post-rollback",
        "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded",
    }
    assert container["args"] == ["sql", "install", "--config", "/etc/metafence/install.yaml"]
    assert found["spec"]["activeDeadlineSeconds"] == 120
    assert "Job" not in helm.kinds(helm.metafence("sqlInstall.enabled=false"))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (("sqlInstall.guard=observe",), ["--guard", "observe"]),
        (("sqlInstall.guard=off",), ["--guard", "off"]),
        (("sqlInstall.recovery=enforce", "config.recovery.mode=enforce"), ["--recovery", "enforce"]),
        (("sqlInstall.user=owner",), ["--agent-role", "rw"]),
    ],
)
def test_mode_and_roles_are_arguments(values, words):
    assert job(*values)[1]["args"][4:] == words


def test_a_bare_off_is_a_mode_too():
    assert job(json_values={"sqlInstall.guard": False})[1]["args"][4:] == ["--guard", "off"]


def password(container: dict[str, Any]) -> dict[str, Any] | None:
    found = [e["valueFrom"]["secretKeyRef"] for e in container["env"] if e["name"] == "PGPASSWORD"]
    return found[0] if found else None


def test_password_of_the_installer_is_its_own():
    agents = ["passwordSecret.name=agents", "passwordSecret.key=k"]
    assert password(job(*agents)[1]) == {"name": "agents", "key": "k"}
    owners = ["sqlInstall.user=owner", "sqlInstall.passwordSecret.name=owners"]
    assert password(job(*agents, *owners)[1]) == {"name": "owners", "key": "password"}
    assert password(job()[1]) is None


def test_installer_reads_where_the_database_is_and_in_which_role(tmp_path):
    values = {
        "sqlInstall.user": "owner",
        "sqlInstall.passwordSecret.name": "owners",
        "config.postgres.passwordFile": "/agents/password",
        "config.postgres.sslmode": "require",
        "config.election.leaderTable": "rw.election_leader",
        "config.timing.poll": "100ms",
    }
    objects = helm.metafence(json_values=values)
    text = helm.named(objects, "ConfigMap", "rel-metafence-agent")["data"]["install.yaml"]
    tree = yaml.safe_load(text)
    assert tree["postgres"]["user"] == "owner" and tree["postgres"]["sslmode"] == "require"
    assert tree["election"]["leaderTable"] == "rw.election_leader"
    assert "passwordFile" not in text
    assert yaml.safe_load(helm.agent_yaml(objects))["postgres"]["user"] == "rw"
    file = tmp_path / "install.yaml"
    file.write_text(text)
    env = {entry["name"]: entry["value"] for entry in job()[1]["env"] if "value" in entry}
    validate = [helm.program("metafence", "agent"), "config", "validate", "--config", file]
    done = subprocess.run(validate, env=env, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr


def test_installer_takes_the_lease_that_the_agents_take(tmp_path):
    """It has no use for it, but refuses a lease that is too short for the other times."""
    values = {
        "config.election.ttl": "5s",
        "config.postgres.connectTimeout": "200ms",
        "config.postgres.queryTimeout": "200ms",
        "config.timing": {"poll": "100ms", "renewGap": "1500ms", "margin": "300ms", "killBudget": "300ms"},
    }
    objects = helm.metafence(json_values=values)
    file = tmp_path / "install.yaml"
    file.write_text(helm.named(objects, "ConfigMap", "rel-metafence-agent")["data"]["install.yaml"])
    validate = [helm.program("metafence", "agent"), "config", "validate", "--config", file]
    done = subprocess.run(validate, env={"METAFENCE_ID": "m:1"}, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr


def test_pods_that_run_once_satisfy_restricted_and_have_no_token():
    objects = helm.metafence()
    specs = [t["spec"] for t in objects if t["kind"] == "Pod"]
    specs.append(helm.one(objects, "Job")["spec"]["template"]["spec"])
    assert len(specs) == 3
    for spec in specs:
        [container] = spec["containers"]
        assert container["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        assert "metafence.io/inject" not in str(spec)


def test_helm_test_asks_for_configuration_and_schema():
    pods = {t["metadata"]["name"]: t for t in helm.metafence() if t["kind"] == "Pod"}
    words = {name: pod["spec"]["containers"][0]["args"][:2] for name, pod in pods.items()}
    assert words == {
        "rel-metafence-test-config": ["config", "validate"],
        "rel-metafence-test-database": ["sql", "status"],
    }
    assert {p["metadata"]["annotations"]["helm.sh/hook"] for p in pods.values()} == {"test"}


# --- alerts --------------------------------------------------------------------------------------


def test_monitors_are_made_where_their_kinds_are():
    both = {"PodMonitor", "PrometheusRule"}
    assert not both & helm.kinds(helm.metafence())
    assert both <= helm.kinds(helm.metafence(apis=MONITORED))
    never = ("podMonitor.enabled=never", "prometheusRule.enabled=never")
    assert not both & helm.kinds(helm.metafence(*never, apis=MONITORED))


def test_pods_are_scraped_at_the_port_that_the_sidecar_names(shim):
    values = {"podMonitor.labels": {"release": "prometheus"}, "podMonitor.interval": "5s"}
    monitor = helm.one(helm.metafence(json_values=values, apis=MONITORED), "PodMonitor")
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint == {"port": "metafence", "path": "/metrics", "interval": "5s"}
    assert endpoint["port"] in [port["name"] for port in helm.sidecar(shim)["ports"]]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"


def test_a_service_monitor_sees_the_labeled_pods_also_those_that_are_not_ready():
    values = {"serviceMonitor": {"enabled": "auto", "labels": {"release": "prometheus"}, "interval": "5s"}}
    assert "Service" not in helm.kinds(helm.metafence(apis=SERVICES)), "of the default"
    objects = helm.metafence(json_values=values, apis=SERVICES)
    service, monitor = helm.one(objects, "Service"), helm.one(objects, "ServiceMonitor")
    assert service["spec"]["selector"] == {"metafence.io/inject": "true"}
    assert service["spec"]["publishNotReadyAddresses"] is True
    [port] = service["spec"]["ports"]
    assert port["port"] == port["targetPort"] == 9690
    [endpoint] = monitor["spec"]["endpoints"]
    assert endpoint == {"port": port["name"], "path": "/metrics", "interval": "5s"}
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["metadata"]["labels"]["release"] == "prometheus"


def test_no_agent_is_scraped_twice():
    """One leader would be two."""
    both = ("serviceMonitor.enabled=auto",)
    said = helm.refusal(helm.METAFENCE, *helm.NEEDED, *both, apis=(*MONITORED, *SERVICES))
    assert "set podMonitor.enabled to never" in said
    kinds = helm.kinds(helm.metafence(*both, "podMonitor.enabled=never", apis=(*MONITORED, *SERVICES)))
    assert "ServiceMonitor" in kinds and "PodMonitor" not in kinds


def test_rules_are_those_of_the_file_with_runbooks_where_they_are():
    values = {"prometheusRule.runbooks": "https://wiki.example/metafence"}
    rule = helm.one(helm.metafence(json_values=values, apis=MONITORED), "PrometheusRule")
    found = [r["annotations"].pop("runbook_url") for g in rule["spec"]["groups"] for r in g["rules"]]
    assert found == [f"https://wiki.example/metafence/{alert['alert']}.md" for alert in ALERTS]
    plain = helm.one(helm.metafence(apis=MONITORED), "PrometheusRule")["spec"]
    assert plain == RULES


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_alerts_say_what_is_wrong_and_where_to_read_on(alert):
    assert re.fullmatch(r"Metafence[A-Z]\w+", alert["alert"])
    assert alert["labels"]["severity"] in ("critical", "warning")
    assert {"summary", "description", "runbook_url"} == set(alert["annotations"])
    assert alert["annotations"]["runbook_url"].endswith(f"/{alert['alert']}.md")


def sources() -> str:
    folders = [helm.REPO / "agent", helm.REPO / "fence"]
    return "".join(path.read_text() for folder in folders for path in folder.rglob("*.c"))


def test_each_reason_for_no_cover_has_an_alert():
    report = (helm.REPO / "agent" / "report.c").read_text()
    reasons = set(re.findall(r'case NOT_COVERED_\w+: return "(\w+)";', report))
    assert len(reasons) >= 7
    told = {r for a in ALERTS for r in re.findall(r'metafence_not_covered\{reason="(\w+)"\}', a["expr"])}
    assert told == reasons


def expressions() -> list[str]:
    panels = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    return [alert["expr"] for alert in ALERTS] + panels


def test_alerts_and_dashboard_ask_for_metrics_that_there_are():
    known = set(re.findall(r'"(metafence_[a-z_]+)"', sources()))
    asked = {name for text in expressions() for name in re.findall(r"\bmetafence_[a-z_]+", text)}
    assert len(asked) >= 12
    assert {re.sub(r"_(total|bucket|info)$", "", name) for name in asked} <= known


def test_dashboard_is_a_configmap_for_grafanas_sidecar():
    assert len([t for t in helm.metafence() if t["kind"] == "ConfigMap"]) == 1
    found = helm.named(helm.metafence("dashboard.enabled=true"), "ConfigMap", "rel-metafence-dashboard")
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(found["data"]["metafence.json"]) == DASHBOARD


# --- network policy ------------------------------------------------------------------------------


def test_network_policy_closes_nothing_of_metas_own():
    peers = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    values = {
        "networkPolicy.enabled": True,
        "networkPolicy.metricsFrom": peers,
        "config.meta.servicePort": 5790,
    }
    spec = helm.one(helm.metafence(json_values=values), "NetworkPolicy")["spec"]
    assert spec["podSelector"] == {"matchLabels": {"metafence.io/inject": "true"}}
    assert spec["policyTypes"] == ["Ingress"]
    metas, agents = spec["ingress"]
    assert metas == {"ports": [{"port": 5790}, {"port": 1250}, {"port": 5691}]}
    assert agents == {"ports": [{"port": 9690}], "from": peers}
    assert "NetworkPolicy" not in helm.kinds(helm.metafence())


# --- notes ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def noted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`helm install` shows notes for its own version of Kubernetes only: here they are an object of the
    chart."""
    chart = tmp_path_factory.mktemp("notes") / "metafence"
    shutil.copytree(helm.METAFENCE, chart)
    notes = (chart / "templates" / "NOTES.txt").read_text()
    (chart / "templates" / "notes.yaml").write_text("kind: Notes\ntext: |\n" + textwrap.indent(notes, "  "))
    return chart


def notes(chart: Path, *values: str, **more: Any) -> str:
    return helm.one(helm.render(chart, *helm.NEEDED, *values, **more), "Notes")["text"]


@pytest.mark.parametrize(
    ("kube", "values", "says"),
    [
        ("1.34.0", (), "policy           metafence.ns.rel-metafence"),
        ("1.29.0", (), "NOT in force: the policy that holds an agent to its own pod"),
        ("1.34.0", ("admissionPolicy.enabled=false",), "NOT in force, by admissionPolicy.enabled"),
        ("1.37.0", (), 'metafence.io/inject: "true"'),
        ("1.35.0", (), "NOT in force: injection by label. Kubernetes v1.35.0 has no MutatingAdmissionPolicy"),
        ("1.37.0", ("injection.enabled=false",), "Put the parts into the pods' template"),
        ("1.37.0", ("config.fence.method=pidfd",), "weaker"),
        ("1.37.0", ("sqlInstall.enabled=false",), "sql install --config /etc/metafence/agent.yaml"),
        ("1.37.0", (), "SQL schema       installed in metadata at pg"),
        ("1.37.0", ("config.recovery.mode=enforce",), "upgrade with sqlInstall.recovery=enforce"),
        (
            "1.37.0",
            ("config.recovery.mode=enforce", "sqlInstall.recovery=enforce"),
            "The schema does already: until then its gate stays open",
        ),
        ("1.37.0", (), "No alert comes from this release"),
        ("1.37.0", (), "Not covered: uploads and deletes in the object store"),
    ],
)
def test_notes_say_what_is_in_force_and_what_is_not(noted, kube, values, says):
    assert says in notes(noted, *values, kube=kube)


def test_notes_name_only_what_is_there(noted):
    assert "No alert" not in notes(noted, apis=MONITORED)
    assert "injection        " not in notes(noted, kube="1.35.0")
    assert "NOT in force" not in notes(noted)
    assert "Ordered recovery" not in notes(noted)


# --- what some installations want besides ---------------------------------------------------------


def test_a_budget_for_the_metas_that_are_labeled():
    assert "PodDisruptionBudget" not in helm.kinds(helm.metafence())
    spec = helm.one(helm.metafence("podDisruptionBudget.enabled=true"), "PodDisruptionBudget")["spec"]
    assert spec == {"maxUnavailable": 1, "selector": {"matchLabels": {"metafence.io/inject": "true"}}}
    assert "maxUnavailable" in helm.refusal(
        helm.METAFENCE, *helm.NEEDED, "podDisruptionBudget.maxUnavailable=0"
    )


def test_objects_of_ones_own():
    tree = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": '{{ include "metafence.fullname" . }}-own'},
    }
    found = helm.named(helm.metafence(json_values={"extraObjects": [tree]}), "Secret", "rel-metafence-own")
    assert found["apiVersion"] == "v1"


def test_the_metas_may_live_in_another_namespace():
    """All of it is there, also what the policies are bound to."""
    objects = helm.metafence("namespaceOverride=metas", "podDisruptionBudget.enabled=true")
    assert {t["metadata"].get("namespace") for t in objects} == {"metas", None}
    assert "'system:serviceaccount:metas:rel-metafence'" in str(objects)
    text = yaml.safe_dump_all(objects)
    assert "kubernetes.io/metadata.name: metas" in text and "metafence.metas.rel-metafence" in text
    assert not re.search(r"\bns\b", text), "the release's namespace is left somewhere"


@pytest.mark.parametrize("values", sorted((helm.METAFENCE / "ci").glob("*.yaml")), ids=lambda path: path.stem)
def test_sets_of_values_for_chart_testing(values):
    done = helm.run("lint", "--strict", helm.METAFENCE, "--values", values)
    assert done.returncode == 0, done.stdout
    done = helm.run("template", "rel", helm.METAFENCE, "--kube-version", helm.KUBE, "--values", values)
    assert done.returncode == 0 and "MutatingAdmissionPolicy" in done.stdout, done.stderr


def test_plain_manifests_and_the_kustomize_component(tmp_path):
    """As the README has it: the metas of the operator get the label, and all that helm renders is there."""
    readme = (helm.METAFENCE / "README.md").read_text()
    part = readme.partition("\n## Plain manifests, Kustomize\n")[2].partition("\n## ")[0]
    [shell] = re.findall(r"```sh\n(.*?)```", part, re.DOTALL)
    [kustomization] = re.findall(r"```yaml\n(.*?)```", part, re.DOTALL)
    words = shlex.split(shell.replace("\\\n", " ").splitlines()[0])
    assert words[:2] == ["helm", "template"] and words[-2:] == [">", "metafence.yaml"]
    words = [str(helm.METAFENCE) if word == "charts/metafence" else word for word in words[1:-2]]
    done = helm.run(*words)
    assert done.returncode == 0, done.stderr
    (tmp_path / "metafence.yaml").write_text(done.stdout)
    shutil.copy(helm.REPO / "tests" / "charts" / "samples" / "operator.yaml", tmp_path / "metas.yaml")
    shutil.copytree(helm.REPO / "charts" / "kustomize", tmp_path / "charts" / "kustomize")
    (tmp_path / "kustomization.yaml").write_text(kustomization)
    argv = [helm.helm().with_name("kubectl"), "kustomize", tmp_path]
    made = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert made.returncode == 0, made.stderr
    objects = list(yaml.safe_load_all(made.stdout))
    template = helm.one(objects, "StatefulSet")["spec"]["template"]
    assert template["metadata"]["labels"]["metafence.io/inject"] == "true"
    assert {"MutatingAdmissionPolicy", "ConfigMap", "Role", "ServiceAccount"} <= helm.kinds(objects)
    assert "Job" not in helm.kinds(objects) and "Pod" not in helm.kinds(objects)

# SPDX-License-Identifier: Apache-2.0
"""Metrics, alerts and runbooks: what rules and documents name is exported by the real agent, promtool finds
nothing to say about either, each alert fires when it should and has its runbook, and a real Prometheus that
scrapes healthy agents raises none."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from harness import Lab, wait_for
from harness.paths import prometheus
from harness.waiting import TimedOut
from kube import Kube, Open, supersede
from promserver import RULES, Prometheus, panels
from workerpods import prepared

ROOT = Path(__file__).parents[2]
RUNBOOKS = ROOT / "docs" / "runbooks"
# Pending on a machine that has no time for the agents of a test.
OF_THE_MACHINE = {"MetafenceAgentSlow", "MetafencePostgresSlow"}
HEADINGS = ["## Meaning", "## Impact", "## Diagnosis", "## Mitigation"]
NAME = re.compile(r"\b(?:metafence|leader_election|process)_[a-z0-9_]+[a-z0-9]\b")
# What looks like a metric in the documents and is a name in Postgres.
NO_METRICS = {"metafence_guard", "metafence_term", "metafence_key", "metafence_hold", "metafence_run"}

sys.path.insert(0, str(ROOT / "tests" / "rules"))
import alerts  # noqa: E402


def rules() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def promtool(*words: str | Path, given: str | None = None) -> None:
    argv = [prometheus("promtool"), *words]
    done = subprocess.run(argv, input=given, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "lint" not in done.stdout, done


def families(page: str) -> set[str]:
    """Names of families and of their samples."""
    named = set(re.findall(r"^# TYPE (\S+)", page, re.MULTILINE))
    return named | set(re.findall(r"^([a-z_0-9]+)[{ ]", page, re.MULTILINE))


def value(page: str, sample: str) -> float:
    found = re.search(rf"^{re.escape(sample)} (\S+)$", page, re.MULTILINE)
    assert found, f"no {sample}"
    return float(found[1])


def page_of(pod: Any) -> str:
    status, text = pod.probe("/metrics", timeout=20)
    assert status == 200
    return str(text)


def test_each_alert_fires_when_it_should(tmp_path: Path) -> None:
    named = rules()
    assert {case.alert for case in alerts.CASES} == set(named), "each alert has its case"
    promtool("check", "rules", RULES)
    tests = tmp_path / "tests.yaml"
    tests.write_text(alerts.dump(alerts.promtool_tests(RULES, named)))
    promtool("test", "rules", tests)


def test_each_alert_has_its_runbook() -> None:
    found = {path.stem for path in RUNBOOKS.glob("Metafence*.md")}
    assert found == set(rules()), "one runbook an alert"
    index = (RUNBOOKS / "README.md").read_text()
    for name, rule in rules().items():
        text = (RUNBOOKS / f"{name}.md").read_text()
        assert [line for line in text.splitlines() if line.startswith("#")] == [f"# {name}", *HEADINGS], name
        assert all(part.strip() for part in re.split(r"^#.*$", text, flags=re.MULTILINE)[2:]), name
        assert rule["annotations"]["runbook_url"].endswith(f"/docs/runbooks/{name}.md")
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert f"[{name}]({name}.md) | {rule['labels']['severity']} |" in index, name


@pytest.fixture
def made(kube: Open) -> Kube:
    """With a worker, so that the reconciler has something to say."""
    return prepared(kube, ["10.9.8.1"], pods=2, ttl=30)[0]


def test_what_is_named_is_exported(made: Kube, lab: Lab) -> None:
    leader = made.start()
    page = wait_for("the reconciler's metrics", lambda: _whole_page(made), 60)
    promtool("check", "metrics", given=page)
    exported = families(page)
    documents = [RULES, *ROOT.glob("docs/**/*.md"), *(ROOT / "charts/metafence/files").glob("*.json")]
    for path in documents:
        named = set(NAME.findall(path.read_text())) - NO_METRICS
        missing = {n for n in named if n not in exported and n != "process_"}
        assert not missing, f"{path.relative_to(ROOT)} names {missing}"
    _labels_are_those_of_the_reference(page)
    _a_real_prometheus(made, lab)
    # Detection and decision -> confirmed death are measured.
    supersede(made, leader)
    count = 'metafence_detection_duration_seconds_count{reason="Superseded"}'
    wait_for("detection is measured", lambda: value(page_of(leader), count) == 1, 20)
    died = 'metafence_fence_duration_seconds_count{method="permit"}'
    wait_for("the death is confirmed", lambda: value(page_of(leader), died) == 1, 20)
    assert value(page_of(leader), "metafence_split_brain_seconds_total") > 0


def _labels_are_those_of_the_reference(page: str) -> None:
    text = (ROOT / "docs" / "reference.md").read_text().split("## Metrics", 1)[1].split("\n## ", 1)[0]
    listed = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", text, re.MULTILINE))
    for name, labels in re.findall(r"^(\w+?)(?:_bucket|_sum|_count)?(?:{(.*)})? \S+$", page, re.MULTILINE):
        found = set(re.findall(r'(\w+)="', labels)) - {"le"}
        assert found == set(filter(None, listed[name].strip().split(", "))), name


def _whole_page(made: Kube) -> str | None:
    """The leader's, when the term is known and the guard was looked at."""
    page = page_of(made.pods[0])
    late = ("election_term", "guard_unguarded_tables", "lease_deadline_seconds", "token_age_seconds")
    late += ("reconcile_held", "reconcile_rows", "reconcile_recovering_seconds", "recovery_step")
    return page if {f"metafence_{name}" for name in late} <= families(page) else None


def _no_alert(server: Prometheus) -> None:
    """Not even pending, but for what a busy machine is."""
    seen: set[str] = set()

    def is_calm() -> bool:
        seen.clear()
        seen.update(alert["metric"]["alertname"] for alert in server.ask("query", query="ALERTS")["result"])
        return not seen - OF_THE_MACHINE

    try:
        wait_for("no alert is raised", is_calm, 60)
    except TimedOut as error:
        raise AssertionError(f"raised beside healthy agents: {seen}") from error


def _a_real_prometheus(made: Kube, lab: Lab) -> None:
    server = Prometheus(lab, made.pods)

    def is_judged() -> bool:
        groups = (server.ask("rules") or {"groups": []})["groups"]
        judged = [rule for group in groups for rule in group["rules"]]
        assert all(rule["health"] != "err" for rule in judged), judged
        return bool(judged) and all(rule["health"] == "ok" for rule in judged)

    healthy = "sum(metafence_is_leader) == 1 and sum(up) == 2"
    wait_for("both agents are scraped, one leads", lambda: server.holds(healthy), 60)
    wait_for("every rule is evaluated", is_judged, 60)
    _no_alert(server)
    for panel, query in panels():
        shown = lambda q=query: (server.ask("query", query=q) or {"result": []})["result"]  # noqa: E731
        wait_for(f"data of panel {panel['title']}: {query}", shown, 60)
    server.process.kill()


def test_enforcing_without_the_schema_is_shown(kube: Open) -> None:
    made, _ = prepared(kube, ["10.9.8.1"], pods=2, ttl=30, release="v3.0")
    for pod in made.pods:
        pod.config["recovery"] = {"mode": "enforce"}
    made.start()

    def wait_shown(wanted: int) -> None:
        name = "metafence_recovery_not_enforced"
        for pod in made.pods:
            wait_for(f"{name} {wanted}", lambda p=pod: f"\n{name} {wanted}\n" in page_of(p), 60)

    wait_shown(1)
    mode = "UPDATE metafence.setting SET value = '{}' WHERE name = 'recovery'"
    made.cluster.postgres.sql(mode.format("enforce"))
    wait_shown(0)
    made.cluster.postgres.sql(mode.format("off"))
    wait_shown(1)

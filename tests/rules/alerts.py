# SPDX-License-Identifier: Apache-2.0
"""When each alert of charts/metafence/files/rules.yaml fires, and when not; for `promtool test rules`.

A case is an alert, series that raise it, for how long they have to last, and series that must not raise it.
Every series has namespace and pod; a value is promtool's notation, one a 15 s step."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

POD = 'namespace="rw",pod="meta-0"'
STEP_S = 15


@dataclass(frozen=True)
class Case:
    alert: str
    bad: dict[str, str]  # series -> values
    good: dict[str, str]
    at: str = "12m"  # when it has to fire
    not_yet: str | None = None  # and when not, although it is bad
    labels: dict[str, str] = field(default_factory=lambda: {"namespace": "rw", "pod": "meta-0"})


def series(name: str, labels: str = "", who: str = POD) -> str:
    return f"{name}{{{','.join(part for part in (who, labels) if part)}}}"


def flag(alert: str, name: str, labels: str = "", bad: int = 1, **more: Any) -> Case:
    """Of a gauge that is 0 or 1."""
    one = series(name, labels)
    shown = {"namespace": "rw", "pod": "meta-0"}
    if labels:
        key, value = labels.split("=")
        shown[key] = value.strip('"')
    return Case(alert, {one: f"{bad}x300"}, {one: f"{1 - bad}x300"}, labels=shown, **more)


def not_covered(reason: str, **more: Any) -> Case:
    return flag(f"Metafence{more.pop('name', reason)}", "metafence_not_covered", f'reason="{reason}"', **more)


def histogram(name: str, slow: bool) -> dict[str, str]:
    """A hundred observations a step: of 2 s, or of 1 ms."""
    rise = {"0.001": 0 if slow else 100, "0.5": 0 if slow else 100, "2.5": 100, "+Inf": 100}
    return {series(f"{name}_bucket", f'le="{le}"'): f"0+{step}x300" for le, step in rise.items()}


LAG, QUERY = "metafence_loop_lag_seconds", "metafence_postgres_query_duration_seconds"
LEADER = series("metafence_is_leader")
OTHER = series("metafence_is_leader", who='namespace="rw",pod="meta-1"')
DEADLINE = series("metafence_lease_deadline_seconds")
SPLIT = series("metafence_split_brain_seconds_total")
ATTEMPTS = 'method="permit",reason="Superseded",result="confirmed"'
MANUAL = 'method="permit",reason="Manual",result="confirmed"'
INFO = series("metafence_build_info", 'version="1"')
NOT_DONE = series("metafence_reconcile_actions_total", 'action="delete",result="not_done"')
META = series("kube_pod_container_info", 'container="meta"', 'namespace="rw",pod="meta-9"')
SIDECAR = series("kube_pod_init_container_info", 'container="metafence"', 'namespace="rw",pod="meta-9"')
UNGUARDED = series("metafence_guard_unguarded_tables")
DIVERGED = series("metafence_reconcile_divergence", 'kind="lost_row"')
HELD = series("metafence_reconcile_held")
UP = series("up", 'container="metafence"')
PURGES_HELD = series("metafence_recovery_held")
UNPROVEN = series("metafence_recovery_unproven_total")
DROPPED_AGE = series("metafence_recovery_dropped_age_seconds")


def by_result(name: str, **each: str) -> dict[str, str]:
    return {series(f"metafence_recovery_{name}_total", f'result="{r}"'): values for r, values in each.items()}


def rounds(failed: int, done: int) -> dict[str, str]:
    name = "metafence_reconcile_rounds_total"
    return {
        series(name, 'result="failed"'): f"0+{failed}x300",
        series(name, 'result="done"'): f"0+{done}x300",
    }


CASES = [
    not_covered("Paused", at="31m", not_yet="29m"),
    not_covered("Unarmed", not_yet="4m"),
    not_covered("AgentBlind", not_yet="30s"),
    not_covered("SingleReplicaHeld", not_yet="30s"),
    not_covered("NoFence", not_yet="4m"),
    not_covered("FenceUnusable", not_yet="4m"),
    not_covered("Untagged", not_yet="9m"),
    not_covered("UntaggedWriters", not_yet="9m"),
    Case("MetafenceReconcileHeld", {HELD: "3x300"}, {HELD: "0x300"}, at="31m", not_yet="29m"),
    flag("MetafencePooled", "metafence_postgres_pooled", not_yet="9m"),
    flag("MetafenceNotFenced", "metafence_not_fenced"),
    flag("MetafenceManualFence", "metafence_manual_fence", at="61m", not_yet="59m"),
    flag("MetafenceConfigInvalid", "metafence_config_valid", bad=0),
    flag("MetafencePostgresDown", "metafence_postgres_up", bad=0, not_yet="30s"),
    flag("MetafenceGuardOff", "metafence_guard_enforcing", bad=0, at="61m", not_yet="59m"),
    flag("MetafenceKubernetesDown", "metafence_kube_up", bad=0, not_yet="4m"),
    flag("MetafenceLabelMismatch", "metafence_role_label_differs", not_yet="4m"),
    flag("MetafenceLabelNotWritten", "metafence_label_confirmed", bad=0, not_yet="4m"),
    Case("MetafenceGuardIncomplete", {UNGUARDED: "2x300"}, {UNGUARDED: "0x300"}),
    Case(
        "MetafenceDiverged",
        {DIVERGED: "1x300"},
        {DIVERGED: "0x300"},
        labels={"namespace": "rw", "pod": "meta-0", "kind": "lost_row"},
    ),
    Case(
        "MetafenceRecoverySlow",
        {series("metafence_reconcile_memory", 'state="Stuck"'): "1x300"},
        {series("metafence_reconcile_memory", 'state="Fine"'): "1x300"},
        labels={"namespace": "rw", "pod": "meta-0", "state": "Stuck"},
    ),
    Case(
        "MetafenceAgentDown",
        {UP: "0x300"},
        {UP: "1x300"},
        labels={"namespace": "rw", "pod": "meta-0", "container": "metafence"},
    ),
    Case("MetafenceAgentSlow", histogram(LAG, True), histogram(LAG, False)),
    Case("MetafencePostgresSlow", histogram(QUERY, True), histogram(QUERY, False)),
    Case("MetafenceSplitBrain", {SPLIT: "0x40 0+0.5x260"}, {SPLIT: "0x40 0.4x260"}),  # a fence's 400 ms
    Case(
        "MetafenceTwoLeaders",
        {LEADER: "1x300", OTHER: "1x300"},
        {LEADER: "1x300", OTHER: "0x300"},
        labels={"namespace": "rw"},
    ),
    Case(
        "MetafenceNoLeader",
        {LEADER: "0x300", OTHER: "0x300"},
        {LEADER: "0x300", OTHER: "1x300"},
        labels={"namespace": "rw"},
        not_yet="2m",
    ),
    Case(
        "MetafenceFenceStorm",
        {series("metafence_fence_attempts_total", ATTEMPTS): "0x40 0+1x260"},
        {series("metafence_fence_attempts_total", MANUAL): "0x40 0+1x260"},
    ),
    Case(
        "MetafenceLeaseNearDeadline",
        {DEADLINE: "26x20 4x280", LEADER: "1x300"},
        {DEADLINE: "26x20 4 4 26x280", LEADER: "1x300"},  # one late read is nothing
    ),
    Case(
        "MetafencePodWithoutSidecar",
        {META: "1x300", INFO: "1x300"},
        {META: "1x300", SIDECAR: "1x300", INFO: "1x300"},
        labels={"namespace": "rw", "pod": "meta-9", "container": "meta"},
    ),
    Case(
        "MetafenceReconcileNotDone",
        {NOT_DONE: "0x20 0+1x280"},
        {NOT_DONE: "0x20 1x280"},
        labels={"namespace": "rw", "pod": "meta-0", "action": "delete"},
    ),
    Case(
        "MetafenceReconcileFailing",
        rounds(1, 0),
        rounds(0, 1),
        labels={"namespace": "rw", "pod": "meta-0", "result": "failed"},
    ),
    flag("MetafenceRecoveryNotEnforced", "metafence_recovery_not_enforced", not_yet="9m"),
    Case(
        "MetafencePurgeHeld",
        {PURGES_HELD: "1 1 0 1 1 1 0x1 1x293"},  # between two refusals it may seem to be over
        {PURGES_HELD: "0 1 0 1x1 0x296"},  # what nearly every recovery does, for a moment
        at="2m",
    ),
    Case("MetafencePurgeUnproven", {UNPROVEN: "0x40 1x260"}, {UNPROVEN: "1x300"}),
    Case(
        "MetafenceResetsFailing",
        {
            PURGES_HELD: "1x300",
            **by_result("resets", not_sent="0+2x300", unknown="0+1x300", answered="4x300"),
        },
        {PURGES_HELD: "1x20 0x280", **by_result("resets", not_sent="0+2x20 40x280", answered="4+1x300")},
    ),
    Case(
        "MetafenceResetsNotRecorded",
        by_result("acknowledgements", failed="0x40 0+1x260", done="0x300"),
        by_result("acknowledgements", failed="0x40 1x260", done="0x40 1x260"),  # the next attempt did it
    ),
    Case(
        "MetafenceDropsPending", {DROPPED_AGE: "0+15x300"}, {DROPPED_AGE: "300x300"}, at="20m", not_yet="14m"
    ),
]


def promtool_tests(rules: Path, alerts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The file of `promtool test rules`; `alerts` are the rules by name, for what each shows."""
    groups = []
    for case in CASES:
        rule = alerts[case.alert]
        shown = {key: _expand(text, case.labels) for key, text in rule["annotations"].items()}
        fires = [{"exp_labels": {**rule["labels"], **case.labels}, "exp_annotations": shown}]
        looks: list[tuple[str | None, list[Any]]] = [(case.at, fires)]
        looks += [(case.not_yet, [])] if case.not_yet else []
        groups.append(_group(case.bad, case, looks))
        groups.append(_group(case.good, case, [(case.at, [])]))
    return {"rule_files": [str(rules)], "evaluation_interval": "30s", "tests": groups}


def _group(data: dict[str, str], case: Case, looks: list[tuple[str | None, list[Any]]]) -> dict[str, Any]:
    return {
        "interval": f"{STEP_S}s",
        "input_series": [{"series": name, "values": values} for name, values in data.items()],
        "alert_rule_test": [
            {"eval_time": at, "alertname": case.alert, "exp_alerts": alerts} for at, alerts in looks
        ],
    }


def _expand(text: str, labels: dict[str, str]) -> str:
    for key in ("namespace", "pod", "kind", "action"):
        text = text.replace(f"{{{{ $labels.{key} }}}}", labels.get(key, ""))
    return text


def dump(tests: dict[str, Any]) -> str:
    return json.dumps(tests, indent=1)  # JSON is YAML

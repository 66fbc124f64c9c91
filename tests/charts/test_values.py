# SPDX-License-Identifier: Apache-2.0
"""What the chart refuses, with place and fix, and that it knows exactly the options of the programs."""

import json
import re
import subprocess
from typing import Any

import generate
import helm
import pytest

SCHEMA = json.loads((helm.METAFENCE / "values.schema.json").read_text())


def refusal(values: dict[str, Any], *words: str) -> str:
    needed = [word for word in helm.NEEDED if word.partition("=")[0] not in values]
    return helm.refusal(helm.METAFENCE, *needed, *words, json_values=values)


# --- one bad value -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"typo": 1}, "'typo' not allowed"),
        ({"run": {"restart": "sometimes"}}, "/run/restart"),
        ({"run": {"restrat": "container"}}, "'restrat' not allowed"),
        ({"run": {"killWindow": 10}}, "/run/killWindow"),
        ({"config.elections": {"ttl": "10s"}}, "'elections' not allowed"),
        ({"config.id": "meta-0:5690"}, "'id' not allowed"),
        ({"config.notify": "yes"}, "/config/notify"),
        ({"config.timing": {"poll": {"every": "1s"}}}, "/config/timing/poll"),
        ({"config.timing.pol": "1s"}, "'pol' not allowed"),
        ({"config.timing.poll": "1 s"}, "/config/timing/poll"),
        ({"config.timing.poll": "5ms"}, "config.timing.poll: 5ms is out of range: 10ms to 1h"),
        ({"config.election.ttl": "25h"}, "config.election.ttl: 25h is out of range: 1s to 24h"),
        ({"config.postgres.port": "5432"}, "/config/postgres/port"),
        ({"config.postgres.port": 70000}, "/config/postgres/port"),
        ({"config.postgres.passwordFile": "password"}, "/config/postgres/passwordFile"),
        ({"config.kubernetes.namespace": "other"}, "'namespace' not allowed"),
        ({"config.reconcile.mode": "on"}, "/config/reconcile/mode"),
        ({"config.recovery.mode": "on"}, "/config/recovery/mode"),
        ({"config.recovery.maxHold": "1s"}, "config.recovery.maxHold: 1s is out of range: 2s to 1h"),
        ({"config.fence": {"method": "pidf"}}, "/config/fence/method"),
        ({"config.fence": {"metafenceRun": "/x"}}, "'metafenceRun' not allowed"),
        ({"config.fence": {"socket": "/tmp/fence.sock"}}, "config.fence.socket"),
        ({"config.control": {"socket": "/tmp/agent.sock"}}, "config.control.socket"),
        ({"config.postgres.host": ""}, "config.postgres.host"),
        ({"config.postgres.user": ""}, "config.postgres.user"),
        ({"image": {"digest": "sha256:123"}}, "/image/digest"),
        ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
        ({"probes.sidecar.readiness": {"periodSeconds": 0}}, "periodSeconds"),
        ({"probes.meta.liveness": {"period": 1}}, "'period' not allowed"),
        ({"id": "meta-0"}, "/id"),
        ({"resources": {"limit": {}}}, "'limit' not allowed"),
        ({"injection.failurePolicy": "ignore"}, "/injection/failurePolicy"),
        ({"injection.command": []}, "/injection/command"),
        ({"injection.user": "root"}, "/injection/user"),
        ({"injection.lable": {}}, "'lable' not allowed"),
        ({"sqlInstall.guard": "strict"}, "/sqlInstall/guard"),
        ({"sqlInstall.recovery": "on"}, "/sqlInstall/recovery"),
        ({"securityContext.runAsUserName": "x"}, "'runAsUserName' not allowed"),
        ({"podMonitor.enabled": True}, "/podMonitor/enabled"),
        ({"run": {"maxKills": 11}}, "/run/maxKills"),
        ({"run": {"killWindow": "0s"}}, "run.killWindow: 0s is out of range: 1s to 24h"),
        ({"run": {"metricsPort": 5690}}, "they must differ"),
        ({"extraEnv": [{"value": "x"}]}, "/extraEnv/0"),
    ],
    ids=lambda value: " ".join(map(str, value.items())) if isinstance(value, dict) else "",
)
def test_bad_values_are_refused_by_place(values, says):
    assert says in refusal(values)


# --- values that can't go together ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (
            {"config.fence.method": "pidfd", "run": {"restart": "container", "maxKills": 2}},
            "run: maxKills, restart is said to metafence-run, which config.fence.method pidfd does without",
        ),
        (
            {"passwordSecret.name": "x", "config.postgres.passwordFile": "/x"},
            "passwordSecret.name and config.postgres.passwordFile",
        ),
        ({"config.postgres.passwordFile": "/x"}, "sqlInstall.passwordSecret.name: the Job can't read"),
        (
            {"config.kubernetes.enabled": False, "config.fence.deletePod": True},
            "config.fence.deletePod and config.kubernetes.enabled off",
        ),
        (
            {"config.kubernetes.enabled": False, "config.recovery.killNodes": True},
            "config.recovery.killNodes and config.kubernetes.enabled off",
        ),
        ({"config.kubernetes.roleLabel": "metafence.io/role"}, "name another label"),
        ({"config.http.address": "127.0.0.1"}, "config.http.address"),
        ({"sqlInstall.user": "rw"}, "sqlInstall.user: rw is the agents' role already"),
        (
            {"sqlInstall.recovery": "enforce"},
            "sqlInstall.recovery enforce and config.recovery.mode observe: the gate would stay open",
        ),
        (
            {"sqlInstall.recovery": "enforce", "config.recovery.mode": False},
            "sqlInstall.recovery enforce and config.recovery.mode off",
        ),
        (
            {"config.fence.method": "pidfd", "config.recovery.mode": "enforce"},
            "config.recovery.mode: enforce does as observe with config.fence.method pidfd",
        ),
        (
            {"prometheusRule.enabled": "always"},
            "prometheusRule.enabled: always, but this cluster has no PrometheusRule",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_contradictions_are_refused_with_the_fix(values, says):
    assert says in refusal(values)


# --- the timing inequality -----------------------------------------------------------------------


def test_a_lease_too_short_is_refused_with_its_numbers_and_the_fix():
    said = refusal({"config.election.ttl": "13s"})
    numbers = (
        "2*(connectTimeout 2s + queryTimeout 2s) + poll 250ms + renewGap 3s + margin 2s + killBudget 500ms"
    )
    assert f"config: {numbers} = 13.75s is not below ttl 13s: shorten these" in said
    assert "config.election.ttl above 13.75s" in said


def test_a_reset_longer_than_the_lease_is_refused_with_its_numbers_and_the_fix():
    said = refusal({"config.recovery": {"mode": "enforce", "resetBeforeStart": "27500ms"}})
    numbers = "resetBeforeStart 27500ms + margin 2s + killBudget 500ms = 30s is not below ttl 30s"
    assert f"config: {numbers}: shorten config.recovery.resetBeforeStart" in said
    said = refusal({"config.recovery": {"mode": "enforce", "maxHold": "21s"}})
    assert "config: initTimeout 20s + 1s is not below maxHold 21s: shorten config.recovery" in said


# Each is one at which agent and chart must say the same.
ENFORCE = {"recovery.mode": "enforce"}
LEASES = [
    {"election.ttl": "13750ms"},
    {"election.ttl": "13751ms"},
    {"election.ttl": "14s", "timing.margin": "2250ms"},
    {"election.ttl": "14s", "timing.margin": "2249ms"},
    {"timing.poll": "16250ms"},
    {"timing.poll": "16249ms"},
    {"postgres.queryTimeout": "10125ms"},
    {"postgres.queryTimeout": "10124999us"},
    {"recovery.resetBeforeStart": "30s"},
    {**ENFORCE, "recovery.resetBeforeStart": "27500ms"},
    {**ENFORCE, "recovery.resetBeforeStart": "27499ms"},
    {**ENFORCE, "election.ttl": "18s", "timing.margin": "2500ms"},
    {**ENFORCE, "election.ttl": "18s", "timing.margin": "2499ms"},
    {**ENFORCE, "recovery.maxHold": "21s"},
    {**ENFORCE, "recovery.maxHold": "21001ms"},
    {**ENFORCE, "recovery.initTimeout": "59s"},
    {"recovery.initTimeout": "59s"},
]


@pytest.mark.parametrize("lease", LEASES, ids=lambda lease: " ".join(f"{k}={v}" for k, v in lease.items()))
def test_chart_and_agent_draw_the_same_line(lease, tmp_path):
    file = tmp_path / "agent.yaml"
    tree: dict[str, Any] = {"id": "m:1", "postgres": {"host": "h", "database": "d", "user": "u"}}
    for key, value in lease.items():
        section, _, name = key.partition(".")
        tree.setdefault(section, {})[name] = value
    file.write_text(json.dumps(tree))
    agent = subprocess.run(
        [helm.program("metafence", "agent"), "config", "validate", "--config", file],
        capture_output=True, text=True, timeout=20,
    )  # fmt: skip
    values = {f"config.{key}": value for key, value in lease.items()}
    if agent.returncode == 0:
        assert helm.metafence(json_values=values)
    else:
        [line] = set(re.findall("is not below (?:ttl|recovery.maxHold)", agent.stderr))
        assert line.replace("recovery.", "") in refusal(values)


def test_what_values_say_of_ordered_recovery_is_what_an_injected_agent_takes(tmp_path):
    said = {"mode": "enforce", "policy": "hold", "maxHold": "2m"}
    said |= {"resetBeforeStart": "12s", "initTimeout": "30s", "killNodes": True, "killAfter": "45s"}
    known = {key for key in generate.options() if key.startswith("recovery.")}
    assert known == {f"recovery.{name}" for name in said}, "an option that this test does not set"
    file = tmp_path / "agent.yaml"
    objects = helm.metafence(json_values={"config.recovery": said, "sqlInstall.recovery": "enforce"})
    file.write_text(helm.agent_yaml(objects))
    done = subprocess.run(
        [helm.program("metafence", "agent"), "config", "show", "-o", "json", "--config", file],
        env={"METAFENCE_ID": "m:1"}, capture_output=True, text=True, timeout=20,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    for name, value in said.items():
        assert shown[f"recovery.{name}"]["value"] == value
        assert shown[f"recovery.{name}"]["source"].startswith("file")


# --- one table of options ------------------------------------------------------------------------


@pytest.mark.parametrize("path", generate.made(), ids=lambda path: path.name)
def test_generated_files_are_as_they_would_be_made(path):
    assert path.read_text() == generate.made()[path], "run tests/charts/generate.py --write"


def _objects(tree: Any, path: str = "") -> list[tuple[str, dict[str, Any]]]:
    """Every schema of an object, with its path."""
    found = [(path, tree)] if isinstance(tree, dict) and tree.get("type") == "object" else []
    children = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return found + [entry for key, child in children for entry in _objects(child, f"{path}/{key}")]


def test_no_object_takes_what_is_not_listed():
    """But parts of Kubernetes' own objects, which the API server looks at, and maps of texts."""
    loose = {path for path, tree in _objects(SCHEMA) if tree.get("additionalProperties", True) is True}
    prefix = "/properties/"
    assert loose == {
        prefix + "global",
        prefix + "extraEnv/items/properties/valueFrom",
        prefix + "extraVolumes/items",
        prefix + "extraObjects/items",
        prefix + "networkPolicy/properties/metricsFrom/items",
    }


def test_words_that_yaml_takes_for_booleans_reach_the_agent():
    values = {"config.kubernetes.enabled": False, "config.reconcile.mode": False}
    text = helm.agent_yaml(helm.metafence(json_values=values))
    assert 'enabled: "off"' in text and 'mode: "off"' in text
    assert 'enabled: "on"' in helm.agent_yaml(helm.metafence(json_values={"config.kubernetes.enabled": True}))


def test_options_that_templates_read_exist():
    text = "".join(p.read_text() for p in (helm.METAFENCE / "templates").glob("*.*"))
    read = {f"{section}.{key}" for section, key in re.findall(r'dig "(\w+)" "(\w+)"', text)}
    read |= {f"{section}.{key}" for section, key in re.findall(r'\(list "(\w+)" "(\w+)" "', text)}
    read |= set(re.findall(r'"key" "(\w+\.\w+)"', text))
    assert len(read) >= 9
    assert read <= set(generate.options())


def test_every_option_of_metafence_run_that_can_be_set_exists():
    words = {"restart": "container", "whenAgentLost": "hold", "requireAgent": True, "maxKills": 4}
    words |= {"killWindow": "5m", "databaseHold": "10s", "metricsPort": 1251, "dashboardPort": 5692}
    assert set(SCHEMA["properties"]["run"]["properties"]) == set(words)
    command = helm.meta(helm.metasim(json_values={"metafence.run": words}))["command"]
    run = helm.program("metafence-run", "fence")
    # Without a command it has understood all options and misses the last thing.
    options = [word.replace("$(POD_UID)", "12345678") for word in command[1 : command.index("--")]]
    done = subprocess.run([run, *options], capture_output=True, text=True, timeout=20)
    assert done.returncode == 2
    assert "COMMAND" in done.stderr or "command" in done.stderr, done.stderr
    bad = subprocess.run([run, *options, "--no-such"], capture_output=True, text=True, timeout=20)
    assert "no-such" in bad.stderr


def test_every_option_of_metafence_run_can_be_set():
    """But for those that the chart knows from elsewhere."""
    program = helm.program("metafence-run", "fence")
    shown = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=20).stdout
    options = set(re.findall(r"^  --([a-z-]+)", shown, re.MULTILINE))
    ours = {"socket", "state", "pod-uid", "peer-uid", "host-id", "ttl", "margin", "kill-budget"}
    ours.add("service-port")
    assert ours < options
    keys = {re.sub("([A-Z])", r"-\1", key).lower() for key in SCHEMA["properties"]["run"]["properties"]}
    assert keys == options - ours


# --- documents -----------------------------------------------------------------------------------


def _paths(tree: Any, path: str = "") -> set[str]:
    if not isinstance(tree, dict) or not tree or path in generate.documented():
        return {path}
    return {found for key, value in tree.items() for found in _paths(value, f"{path}.{key}".lstrip("."))}


def test_every_value_has_a_comment():
    values = generate.yaml.safe_load(generate.VALUES.read_text())
    assert _paths(values) <= set(generate.documented())

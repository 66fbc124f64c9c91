# SPDX-License-Identifier: Apache-2.0
"""docs/upgrading.md on a cluster, its commands as they stand there: an upgrade, the way back, and the end.
Between processes and with another schema the same is in tests/e2e/test_upgrade.py."""

from collections.abc import Callable
from typing import Any

import pytest
from harness.waiting import boot_ns
from metas import Meta
from test_injection import LABEL, REPO, Foreign, foreign, readme_commands

__all__ = ["foreign"]  # the fixture

GUIDE = REPO / "docs" / "upgrading.md"
Note = Callable[[str, Any], None]


@pytest.fixture
def covered(foreign: Callable[..., Foreign]) -> Foreign:
    metas = foreign("operator", lambda pod: f"{pod.metadata.name}.rw-meta:5690")
    metas.helm_install()
    metas.apply(LABEL)
    metas.wait_covered()
    return metas


def run(metas: Foreign, command: list[str]) -> str:
    program, *words = command
    return {"helm": metas.cluster.helm, "kubectl": metas.cluster.kubectl}[program](*words, timeout=600)


def section(metas: Foreign, heading: str, *verbs: str) -> list[list[str]]:
    """Its commands of helm and kubectl with one of these verbs, in order."""
    found = [c for c in readme_commands(metas, GUIDE, heading) if c and c[0] in ("helm", "kubectl")]
    chosen = [c for c in found if c[1] in verbs]
    assert {c[1] for c in chosen} == set(verbs), (heading, found)
    return chosen


def incarnations(metas: Foreign) -> dict[str, str | None]:
    return {meta.uid: meta.incarnation for meta in metas.refresh()}


def kills(metas: Foreign) -> list[dict[str, Any]]:
    """Also of pods that are gone: their events stay."""
    return [event for event in metas.events() if event["action"] == "KilledContainer"]


def roll(metas: Foreign, commands: list[list[str]], since: int, note: Note) -> None:
    """The rolling restart of those commands: each pod is another, nobody was fenced for it."""
    before = set(incarnations(metas))
    for command in commands:
        run(metas, command)
    metas.wait_covered()
    assert not before & set(incarnations(metas)), "a pod was not made anew"
    assert kills(metas) == []
    note("rolled in s", round((boot_ns() - since) / 1e9, 1))


@pytest.mark.timeout(900)
def test_upgrade_and_the_way_back(covered: Foreign, note: Note) -> None:
    metas = covered
    for heading, verb in (("Upgrade", "upgrade"), ("Go back", "rollback")):
        before = incarnations(metas)
        # The guide's second rollback is for another schema, which there is none of here.
        for command in section(metas, heading, verb)[:1]:
            run(metas, command)
        if verb == "upgrade":
            run(metas, section(metas, heading, "test")[0])
        assert incarnations(metas) == before, "helm restarted a meta"
        rollout = section(metas, heading, "rollout")
        if not [c for c in rollout if "status" in c]:
            rollout += [c for c in section(metas, "Upgrade", "rollout") if "status" in c]
        roll(metas, rollout, boot_ns(), note)
    assert metas.verdict()["overlaps"] == 0


@pytest.mark.timeout(900)
def test_the_end(covered: Foreign) -> None:
    """The schema goes while a pod has the sidecar, then the label, then the release; the metas stay."""
    metas = covered
    leader: Meta = metas.wait_converged(60)
    assert "metafence sql uninstall --config /etc/metafence/agent.yaml`" in GUIDE.read_text()
    leader.cli("sql", "uninstall", "--config", "/etc/metafence/agent.yaml")
    assert metas.database.sql("SELECT to_regnamespace('metafence') IS NULL") == [(True,)]
    for command in section(metas, "Take it out", "patch", "rollout", "uninstall"):
        run(metas, command)
    metas.guarded = False
    metas.wait_converged(120)
    for pod in metas.read_pods():
        assert not [c for c in pod.spec.init_containers or [] if c.name == "metafence"], pod.metadata.name
    kubectl = metas.cluster.kubectl
    policies = "validatingadmissionpolicies,mutatingadmissionpolicies"
    assert metas.namespace not in kubectl("get", policies, "-o", "name")
    here = ("-n", metas.namespace, "-o", "name")
    left = kubectl("get", "configmaps,roles,rolebindings,serviceaccounts,jobs", *here)
    assert "metafence" not in left, left

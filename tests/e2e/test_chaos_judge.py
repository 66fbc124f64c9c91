# SPDX-License-Identifier: Apache-2.0
"""The judge of ./dev chaos on real metas that nobody fences: a zombie and a twin are found with what they
did, and the guard alone is seen to keep their writes out."""

import sys

import pytest
from bare import BareCluster
from harness import Lab, boot_ns, wait_for
from harness.paths import REPO
from scenario import FULL_RATE, cut_link, wait_error, writes_beside

sys.path.append(str(REPO / "tests/e2e/cluster"))
from chaos import evidence  # noqa: E402
from chaos.history import History, Verdict, judge  # noqa: E402


def judged(made: BareCluster) -> Verdict:
    found = [one for pod in made.pods for one in evidence.incarnations(pod.witness, pod.name)]
    log = evidence.read(made.postgres)
    return judge(History(int(made.ttl * 1e9), tuple(found), (log,), lost=evidence.lost(made.postgres)))


def rules(verdict: Verdict) -> set[str]:
    return {finding.rule for finding in verdict.violations}


def begin(lab: Lab, guard: str = "enforce") -> BareCluster:
    made = BareCluster(lab, guard, ttl=5, pods=2)
    evidence.install(made.postgres)
    made.start()
    evidence.watch_writes(made.postgres, ["witness_tick"])
    leader = made.pods[0]
    wait_for("its writes are noted", lambda: judged(made).writes >= FULL_RATE, 20)
    verdict = judged(made)
    assert verdict.is_clean and verdict.terms == 1 and verdict.renewals > 0, verdict
    assert verdict.acts >= len(leader.witness.events("tick")) - FULL_RATE
    return made


FOUND = {"observe": {"late", "two", "superseded"}, "enforce": {"late", "two"}}


@pytest.fixture(autouse=True)
def only_in_full(pytestconfig: pytest.Config) -> None:
    if not pytestconfig.getoption("--full"):
        pytest.skip("with --full, as what it judges")


@pytest.mark.parametrize("guard", FOUND)
def test_a_zombie(lab: Lab, guard: str) -> None:
    made = begin(lab, guard)
    old, new = made.pods
    pid, fault = old.meta_pid, cut_link(old, "stall")
    new.wait_leading(20)
    fault.wait_end()
    wait_error(old, pid, fault)
    since = boot_ns()
    old.proxy.heal()
    if guard == "observe":
        writes_beside(old, pid, since, timeout=30)
    wait_for("it acts on", lambda: sum(e.boot_ns > since for e in old.witness.events("tick", pid)) > 20, 20)
    verdict = judged(made)
    assert rules(verdict) == FOUND[guard], verdict
    late = next(str(finding) for finding in verdict.violations if finding.rule == "late")
    assert f"{old.name}, incarnation" in late and f"meanwhile {new.name}" in late, late
    assert old.tag in late and "term 1" in late and new.tag in late and "term 2" in late, late


def test_twins(lab: Lab) -> None:
    made = begin(lab)
    elder = made.pods[0]
    twin = made.new_pod("twin", advertise=elder.id)
    made.pods.append(twin)
    twin.start().wait_leading(20)
    wait_for("both act, and that is seen", lambda: "twin" in rules(judged(made)), 20, every=0.5)

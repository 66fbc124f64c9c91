# SPDX-License-Identifier: Apache-2.0
"""Ordered recovery under 1,000 random interleavings of drop, create, cancel, alter, recover, fence, handover,
kills, restarts and cuts of metas, agents, compute nodes and links: nothing is reclaimed before RESET, NONE or
GONE except at a recorded bound, and nothing waits for ever. With --full. METAFENCE_INTERLEAVINGS: on each
cluster; METAFENCE_INTERLEAVE_SEED: of the first; METAFENCE_INTERLEAVE_ROUND: this one alone."""

import os
from collections.abc import Callable, Iterator

import pytest
from harness import Lab, boot_ns, results
from harness.nameserver import Nameserver
from interleave import plan
from interleave.judge import Verdict, judge
from interleave.world import World
from kube import Open

ROUNDS = int(os.environ.get("METAFENCE_INTERLEAVINGS", "50"))  # on each cluster
FIRST = int(os.environ.get("METAFENCE_INTERLEAVE_SEED", "0"))
ONLY = int(os.environ.get("METAFENCE_INTERLEAVE_ROUND", "0"))
CLUSTERS = 20

Run = Callable[..., Verdict]


@pytest.fixture(autouse=True)
def only_in_full(pytestconfig: pytest.Config) -> None:
    if not pytestconfig.getoption("--full"):
        pytest.skip("with --full")


@pytest.fixture
def run(kube: Open, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """run(seed, rounds, mode=…): the verdict; the timeline can be followed in build/results."""
    names = Nameserver(lab.dir)
    monkeypatch.setenv("METASIM_NAMESERVER", names.address)

    def go(seed: int, rounds: list[plan.Round], **options: str) -> Verdict:
        results.KEPT.mkdir(parents=True, exist_ok=True)
        name = f"rw27111-random-{seed}{''.join(options.values())}"
        with open(results.KEPT / f"{name}.timeline", "w", buffering=1) as timeline:
            world = World(kube, lab, monkeypatch, names, seed, lambda s: print(s, file=timeline), **options)
            began = boot_ns()
            try:
                world.go(rounds)
            finally:
                verdict = judge(world.history())
                rate = len(world.waits) / ((boot_ns() - began) / 60e9)
                said = f"seed {seed}: {rate:.1f} a minute, {world.missed} steps found nothing; {verdict}"
                print(said, file=timeline)
                results.keep(name, [said], [said])
        return verdict

    yield go
    names.close()


@pytest.mark.long
@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize("seed", range(FIRST, FIRST + CLUSTERS))
def test_nothing_is_reclaimed_too_early_and_nothing_waits_for_ever(run: Run, seed: int) -> None:
    verdict = run(seed, [plan.interleaving(seed, ONLY)] if ONLY else list(plan.interleavings(seed, ROUNDS)))
    assert verdict.is_clean, verdict


def test_control_without_a_gate_the_judge_sees_it(run: Run) -> None:
    """RECOVER while the DROP is pending, and nobody refuses the purge."""
    chunk = plan.Fault("busy", 0, 8, (("which", "newest"),))
    opening = plan.Fault("create", 0, 0, (("actors", "1"), ("how", "foreground")))
    drop, recover = plan.Fault("drop", 1, 0, (("which", "newest"),)), plan.Fault("recover", 3, 0)
    verdict = run(0, [plan.Round(1, (opening, chunk, drop, recover))], mode="observe")
    assert {finding.rule for finding in verdict.violations} == {"open", "under actor", "panic"}, verdict

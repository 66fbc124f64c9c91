# SPDX-License-Identifier: Apache-2.0
"""Ordered recovery under 1,000 random interleavings of drop, create, cancel, alter, recover, fence, handover,
kills, restarts and cuts of metas, agents, compute nodes and links: nothing is reclaimed before RESET, NONE or
GONE except at a recorded bound, and nothing waits for ever. Only with --full. METAFENCE_INTERLEAVINGS: on each
cluster; METAFENCE_INTERLEAVE_SEED: of the first; METAFENCE_INTERLEAVE_ROUND: this one alone."""

import os
from collections.abc import Iterator

import pytest
from harness import Lab, boot_ns, results
from harness.nameserver import Nameserver
from interleave import plan
from interleave.judge import judge
from interleave.world import World
from kube import Open

ROUNDS = int(os.environ.get("METAFENCE_INTERLEAVINGS", "50"))  # on each cluster
FIRST = int(os.environ.get("METAFENCE_INTERLEAVE_SEED", "0"))
ONLY = int(os.environ.get("METAFENCE_INTERLEAVE_ROUND", "0"))
CLUSTERS = 20


@pytest.fixture
def names(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nameserver]:
    server = Nameserver(lab.dir)
    monkeypatch.setenv("METASIM_NAMESERVER", server.address)
    yield server
    server.close()


@pytest.mark.long
@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize("seed", range(FIRST, FIRST + CLUSTERS))
def test_nothing_is_reclaimed_too_early_and_nothing_waits_for_ever(
    seed: int,
    kube: Open,
    lab: Lab,
    names: Nameserver,
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
) -> None:
    if not pytestconfig.getoption("--full"):
        pytest.skip("with --full")
    rounds = [plan.interleaving(seed, ONLY)] if ONLY else list(plan.interleavings(seed, ROUNDS))
    world = World(kube, lab, names, monkeypatch, seed)
    began = boot_ns()
    try:
        world.go(rounds)
    finally:
        verdict = judge(world.history())
        minutes = (boot_ns() - began) / 60e9
        rate = f"seed {seed}: {len(world.waits) / minutes:.1f} a minute, {world.missed} steps found nothing; "
        results.keep(f"rw27111-random-{seed}", [*world.timeline, rate + str(verdict)], [rate + str(verdict)])
    assert verdict.is_clean, "\n".join([*world.timeline[-60:], str(verdict)])

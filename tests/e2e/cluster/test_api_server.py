# SPDX-License-Identifier: Apache-2.0
"""The API server is down, slow, or answers nonsense: nobody is killed for it, probes are answered, leadership
moves as ever, and the labels are right soon after its return."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from harness.waiting import boot_ns, hold
from kubelab import Database
from kubelab.controlplane import ControlPlane
from metas import BrokenApi, Deployment, Prober
from metas.faults import take_row
from metas.meta import Meta

Deploy = Callable[..., Deployment]
Note = Callable[[str, Any], None]
PROBE_MS = 500.0
LABELS_S = 10.0
SHORT_S, LONG_S = 45.0, 600.0
ANSWERS_S = 12.0  # more than the age at which an answer of the API is no fact any more


@contextmanager
def _alone(plane: ControlPlane) -> Iterator[None]:
    """Controllers and scheduler end when they can't renew their leases, and are started again: those here
    hold none, so they don't do it by themselves."""
    parts = (plane.controllers, plane.scheduler)
    for program in parts:
        program.kill()
    yield
    plane.wait_ready()
    for program in parts:
        program.start()


@contextmanager
def down(metas: Deployment) -> Iterator[None]:
    plane = metas.cluster.plane
    with _alone(plane):
        plane.apiserver.kill()
        yield
        plane.apiserver.start()


@contextmanager
def slow(metas: Deployment) -> Iterator[None]:
    """It takes connections and requests and answers nothing, until it answers all at once."""
    plane = metas.cluster.plane
    with _alone(plane):
        plane.apiserver.pause()
        yield
        plane.apiserver.resume()


def fences(metas: Deployment) -> dict[str, int]:
    return {m.name: m.run_status()["fences"] for m in metas.metas}


def assert_unharmed(
    metas: Deployment, leader: Meta, incarnations: dict[str, str | None], before: dict[str, int]
) -> None:
    assert fences(metas) == before, metas.describe()
    assert {m.name: m.incarnation for m in metas.metas} == incarnations
    assert metas.leaders() == [leader]


def assert_quick(prober: Prober) -> None:
    """But for what the machine itself made everybody wait."""
    starved_ms = prober.starvation.worst * 1e3
    assert prober.slowest_ms() < PROBE_MS + starved_ms, f"{prober.slowest()}, starved {starved_ms:.0f} ms"


def wait_labels(metas: Deployment, new: Meta) -> float:
    """Seconds until all labels are as they should be."""
    began = boot_ns()

    def right() -> bool:
        now = {m.name: metas.recorder.now(m.uid) for m in metas.metas}
        return all(
            c is not None and c.role == c.operators_role == ("leader" if name == new.name else "follower")
            for name, c in now.items()
        )

    metas.wait("labels are right", right, LABELS_S)
    return (boot_ns() - began) / 1e9


@pytest.mark.parametrize("fault", [down, slow])
@pytest.mark.timeout(LONG_S + 300)
def test_away(
    deploy: Deploy, database: Database, note: Note, request: pytest.FixtureRequest, fault: Any
) -> None:
    length = LONG_S if request.config.getoption("--full") else SHORT_S
    metas = deploy(database=database)
    old = metas.start()
    addresses = {m.ip for m in metas.metas}  # known before nobody can be asked
    assert len(addresses) == 3
    incarnations, before = {m.name: m.incarnation for m in metas.metas}, fences(metas)
    with fault(metas), Prober(metas.metas) as prober:
        hold(length, lambda: assert_unharmed(metas, old, incarnations, before))
        assert prober.bad() == []
        new = take_row(metas, old)
        metas.wait(f"{old} follows", lambda: old.is_follower, 60)
    took = wait_labels(metas, new)
    assert_quick(prober)
    assert fences(metas) == {m.name: int(m is old) for m in metas.metas}
    assert {m.name: m.kubelet_restarts() for m in metas.metas} == {m.name: 0 for m in metas.metas}
    assert {m.name: m.kubelet_restarts("metafence") for m in metas.metas} == {m.name: 0 for m in metas.metas}
    assert metas.wait_converged(60) is new
    note("API server away for, s", length)
    note("slowest probe, ms", round(prober.slowest_ms()))
    note("labels right after its return, s", round(took, 2))


def test_nonsense(deploy: Deploy, database: Database, note: Note) -> None:
    metas = deploy(database=database)
    leader = metas.start()
    addresses = [m.ip for m in metas.metas]
    for kind in ("500", "403", "garbage"):
        since, before = boot_ns(), fences(metas)
        incarnations = {m.name: m.incarnation for m in metas.metas}
        with BrokenApi(metas.cluster, addresses, kind) as api, Prober(metas.metas) as prober:
            hold(ANSWERS_S, lambda: assert_unharmed(metas, leader, incarnations, before))
            metas.wait("it was asked", lambda: api.answered >= 10, 30)
            old, leader = leader, take_row(metas, leader)
            metas.wait(f"{old} follows", lambda: old.is_follower, 60)
        took = wait_labels(metas, leader)
        assert_quick(prober)
        assert fences(metas) == before | {old.name: before[old.name] + 1}
        assert metas.recorder.two_leaders_s(since) < LABELS_S
        note(f"{kind}: answers", api.answered)
        note(f"{kind}: slowest probe, ms", round(prober.slowest_ms()))
        note(f"{kind}: labels right after its return, s", round(took, 2))
    assert metas.wait_converged(60) is leader
    assert {m.name: m.kubelet_restarts("metafence") for m in metas.metas} == {m.name: 0 for m in metas.metas}

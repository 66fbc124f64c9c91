# SPDX-License-Identifier: Apache-2.0
"""The other ways to end a meta: pidfd without metafence-run, the kubelet by meta's probes, and in the end the
API server, which is asked to delete the pod."""

import signal
from collections.abc import Callable
from typing import Any

import pytest
from harness.waiting import boot_ns, hold_until
from kubelab import CONTROL_PLANE, POSTGRES_PORT, Database
from metas import Deployment, Meta, is_handed_over
from metas.deployment import config, merged
from metas.faults import wait_renewal

Deploy = Callable[..., Deployment]
Note = Callable[[str, Any], None]
PIDFD = config(fence={"method": "pidfd"})
CONVERGED_S = 120.0  # with the kubelet's ways to notice and to start again


def assert_nobody_overlapped(metas: Deployment) -> None:
    verdict = metas.verdict()
    assert verdict["ticks"] > 0 and verdict["unknown_ticks"] == 0, "the witness saw too little"
    assert verdict["overlaps"] == 0, verdict


def dead_ns(meta: Meta) -> int | None:
    """When its agent knew that the fenced process is dead."""
    status = meta.status()
    return status["last_fence"]["dead_boot_ns"] if status and status["last_fence"] else None


def ended_by(meta: Meta) -> int:
    """Exit status of the meta container's former process."""
    statuses = meta.read().status.container_statuses
    return next(s.last_state.terminated.exit_code for s in statuses if s.name == "meta")


def wait_other_incarnation(metas: Deployment, meta: Meta, incarnation: str | None, timeout: float) -> int:
    """When its process was seen to be gone."""
    metas.wait(
        f"the process of {meta} is gone",
        lambda: meta.incarnation != incarnation or meta.meta_process is None,
        timeout,
    )
    return boot_ns()


def test_pidfd(deploy: Deploy, database: Database, note: Note) -> None:
    """Leadership lost: killed by pidfd from the sidecar, started again by the kubelet, and labelled so."""
    metas = deploy(database=database, values=PIDFD)
    old = metas.start()
    assert old.program("metafence-run") is None
    incarnation = old.incarnation
    wait_renewal(old)
    since = boot_ns()
    with metas.cluster.block(old.read(), CONTROL_PLANE, POSTGRES_PORT):
        wait_other_incarnation(metas, old, incarnation, metas.ttl + 2)
        dead = metas.wait("its death is seen", lambda: dead_ns(old), 5)
        earliest = old.events("renew", 0, incarnation)[-1].boot_ns + int(metas.ttl * 1e9)
        assert dead < earliest, (dead, earliest)
        new = metas.wait_new_leader(old, metas.ttl + 10)
        hold_until(since + int((metas.ttl + 4) * 1e9))
    assert metas.wait_converged(CONVERGED_S) is new
    said = metas.recorder.describe(since)
    assert is_handed_over(metas.recorder.roles(old.uid, since)), said
    assert metas.recorder.roles(new.uid, since).count("leader") == 1, said
    assert metas.recorder.two_leaders_s() == 0, said
    assert old.kubelet_restarts() >= 1
    assert [m.kubelet_restarts() for m in metas.others(old)] == [0, 0]
    assert_nobody_overlapped(metas)
    note("dead before the earliest takeover, ms", (earliest - dead) // 10**6)
    note("restarts of the old leader's container", old.kubelet_restarts())


def test_kubelet_ends_a_meta_whose_agent_is_frozen(deploy: Deploy, database: Database, note: Note) -> None:
    """pidfd mode has no other guard than the agent: the kubelet asks it, and takes silence for a no."""
    metas = deploy(database=database, values=PIDFD)
    old = metas.start()
    incarnation, since = old.incarnation, boot_ns()
    old.signal("metafence", signal.SIGSTOP)
    gone = wait_other_incarnation(metas, old, incarnation, 30)
    last = old.events("renew", 0, incarnation)[-1].boot_ns
    assert gone < last + int(metas.ttl * 1e9), "inside its lease"
    metas.wait("the kubelet counts it", lambda: old.kubelet_restarts() >= 1, 20)
    metas.wait(
        "the frozen agent is replaced, too", lambda: old.kubelet_restarts("metafence") == 1, CONVERGED_S
    )
    metas.wait_converged(CONVERGED_S)
    assert_nobody_overlapped(metas)
    note("meta ended after the agent froze, s", round((gone - since) / 1e9, 2))


@pytest.mark.long
def test_kubelet_ends_a_frozen_guard(deploy: Deploy, database: Database, note: Note) -> None:
    """metafence-run is stopped, so nobody can permit or kill: its probe, which reads the state alone, fails
    when the deadline has passed. With the numbers that ship; a backstop, later than the lease."""
    metas = deploy(database=database, values=config(election={"ttl": "30s"}))
    old = metas.start()
    incarnation, since = old.incarnation, boot_ns()
    old.signal("metafence-run", signal.SIGSTOP)
    gone = wait_other_incarnation(metas, old, incarnation, 30 + 3 * 5 + 20)
    assert (gone - since) / 1e9 > 20, "not before the deadline"
    metas.wait("the kubelet counts it", lambda: old.kubelet_restarts() == 1, 20)
    assert ended_by(old) == 137
    assert metas.wait_converged(CONVERGED_S) is not None
    assert [m.kubelet_restarts() for m in metas.others(old)] == [0, 0]
    assert_nobody_overlapped(metas)
    note("meta ended after metafence-run froze, s", round((gone - since) / 1e9, 1))


def test_api_server_deletes_the_pod(deploy: Deploy, database: Database, note: Note) -> None:
    """The lease can't be proven any more, metafence-run is stopped and the kubelet doesn't look: the agent
    asks for its own pod's end, with time for the kubelet to end the processes before the twin starts. It is
    too late for the lease, and said so."""
    blind = {"metafence": {"probes": {"meta": {"liveness": {"failureThreshold": 1000}}}}}
    metas = deploy(database=database, values=merged(config(timing={"confirmAfter": "5s"}), blind))
    old = metas.start()
    mark, since = metas.cluster.audit.mark(), boot_ns()
    incarnation = old.incarnation
    old.signal("metafence-run", signal.SIGSTOP)
    with metas.cluster.block(old.read(), CONTROL_PLANE, POSTGRES_PORT):
        metas.wait("NotFenced is said", lambda: (old.status() or {}).get("not_fenced"), metas.ttl + 10)
        assert old.probe("/readyz").status == 503
        metas.wait("its pod is no more", lambda: metas.refresh() and old not in metas.metas, 60)
    twin = metas.wait(
        "the twin's pod", lambda: next((m for m in metas.refresh() if m.name == old.name), None), 60
    )
    metas.wait_converged(CONVERGED_S)
    assert not old.processes()
    last = old.events("tick", 0, incarnation)[-1].boot_ns
    first = [e.boot_ns for e in twin.events("start")]
    assert first and first[0] > last, "the twin started beside it"
    deletes = metas.cluster.audit.writes(mark, user=metas.account, verb="delete")
    assert [(d.name, d.pod) for d in deletes if d.succeeded] == [(old.name, old.name)], deletes
    note("pod's last act after metafence-run froze, s", round((last - since) / 1e9, 1))

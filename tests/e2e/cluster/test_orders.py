# SPDX-License-Identifier: Apache-2.0
"""What people do with kubectl: orders by annotation, and labels taken off by hand."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from harness.waiting import boot_ns, hold
from kubelab import Database
from metas import Deployment, Meta
from metas.faults import take_row

Deploy = Callable[..., Deployment]
Note = Callable[[str, Any], None]
FENCE, PAUSE = "metafence.io/fence", "metafence.io/pause-until"
REPAIRED_S = 10.0


def annotate(metas: Deployment, meta: Meta, *words: str) -> None:
    metas.cluster.kubectl("annotate", "pod", meta.name, "-n", metas.namespace, "--overwrite", *words)


def reasons(metas: Deployment, meta: Meta) -> set[str]:
    return {event["reason"] for event in metas.events(meta)}


def test_orders_by_annotation(deploy: Deploy, database: Database, note: Note) -> None:
    metas = deploy(database=database)
    old = metas.start()

    since = boot_ns()
    annotate(metas, old, f"{FENCE}=maintenance of its node")
    metas.wait(f"{old} is down", lambda: old.meta_process is None, 10)
    note("dead after kubectl annotate, s", round((boot_ns() - since) / 1e9, 2))
    new = metas.wait_new_leader(old, metas.ttl + 10)
    status = old.status()
    assert status is not None and status["meta"]["hold_reason"] == "Manual", status
    assert metas.recorder.roles(old.uid, since) == ["leader", "unknown"], metas.recorder.describe(since)
    annotate(metas, old, f"{FENCE}-")
    assert metas.wait_converged(60) is new
    assert "ManualFence" in reasons(metas, old)

    # By the command, which writes the annotation; taken back by kubectl.
    new.cli("fence", "--reason", "by the command")
    metas.wait("the annotation is there", lambda: (new.read().metadata.annotations or {}).get(FENCE), 10)
    metas.wait(f"{new} is down", lambda: new.meta_process is None, 10)
    third = metas.wait_new_leader(new, metas.ttl + 10)
    annotate(metas, new, f"{FENCE}-")
    assert metas.wait_converged(60) is third

    # Paused: nobody is killed, and it is said.
    end = datetime.now(UTC) + timedelta(seconds=20)
    annotate(metas, third, f"{PAUSE}={end:%Y-%m-%dT%H:%M:%SZ}")
    third.wait_status("paused", lambda s: "Paused" in s["not_covered"], 10)
    fences = third.run_status()["fences"]
    take_row(metas, third)
    metas.wait("the pause is over", lambda: datetime.now(UTC) > end, 30)
    assert third.run_status()["fences"] == fences, "killed in the pause"
    metas.wait_converged(60)
    assert {"Operator", "Expired"} <= reasons(metas, third), reasons(metas, third)


def test_labels_taken_off_by_hand(deploy: Deploy, database: Database, note: Note) -> None:
    """No event of the election brings them back: the watch does."""
    metas = deploy(database=database)
    leader = metas.start()
    follower = metas.others(leader)[0]
    hold(1)
    for meta, role in ((leader, "leader"), (follower, "follower")):
        since = boot_ns()
        metas.cluster.kubectl("label", "pod", meta.name, "-n", metas.namespace, "metafence.io/role-")

        def back(meta: Meta = meta, role: str = role, since: int = since) -> bool:
            changes = [c for c in metas.recorder.changes(since) if c.uid == meta.uid]
            return len(changes) >= 2 and changes[0].role is None and changes[-1].role == role

        metas.wait(f"{meta} is labelled again", back, REPAIRED_S)
        note(f"{role} labelled again after, s", round((boot_ns() - since) / 1e9, 2))
    # A lie is corrected as well.
    since = boot_ns()
    metas.cluster.kubectl(
        "label", "pod", follower.name, "-n", metas.namespace, "metafence.io/role=leader", "--overwrite"
    )

    def corrected() -> bool:
        change = metas.recorder.now(follower.uid)
        return change is not None and change.boot_ns > since and change.role == "follower"

    metas.wait("the false leader is none any more", corrected, REPAIRED_S)
    assert metas.recorder.two_leaders_s() < REPAIRED_S

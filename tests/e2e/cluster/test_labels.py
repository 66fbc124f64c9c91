# SPDX-License-Identifier: Apache-2.0
"""What metafence writes to the API server, counted in the server's own audit log."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from harness.waiting import boot_ns, hold
from kubelab import Database
from metas import Deployment, Meta, OperatorLabeler
from metas.faults import take_row

Deploy = Callable[..., Deployment]
Note = Callable[[str, Any], None]
QUIET_S = 12.0  # what was in doubt on a busy machine has been written once more


def count_writes(metas: Deployment, old: Meta, note: Note) -> tuple[Meta, list[str]]:
    """Moves leadership and compares each pod's writes with its role changes: the new leader, and what was
    more or less than one patch and one event for each."""
    hold(QUIET_S)
    audit = metas.cluster.audit
    mark, since = audit.mark(), boot_ns()
    told = {m.uid: len(metas.events(m)) for m in metas.metas}
    new = take_row(metas, old)
    assert metas.wait_converged(60) is new
    writes = audit.writes(mark, user=metas.account)
    assert {w.resource for w in writes} == {"pods", "events"}, writes
    problems = []
    for meta in metas.metas:
        roles = metas.recorder.roles(meta.uid, since)
        patches = [w for w in writes if w.resource == "pods" and w.name == meta.name]
        assert {w.pod for w in patches} <= {meta.name}, "everybody his own"
        said = metas.events(meta)[told[meta.uid] :]
        assert all(e["note"].startswith("[fence]") for e in said)
        created = [w for w in writes if w.resource == "events" and w.pod == meta.name]
        changed = [e for e in said if e["action"] == "ChangedRole"]
        # What was said within the last minute, at the start, is not said again.
        changes = len(roles) - 1
        if len(patches) != changes or len(changed) > changes or len(created) != len(said):
            problems.append(f"{meta}: {roles}, {patches}, {[e['reason'] for e in said]}, {created}")
        who = "old" if meta is old else "new" if meta is new else "third"
        counts = Counter(f"{e['action']}/{e['reason']}" for e in said)
        note(f"{who}: {' '.join(roles)}: {len(patches)} patches", dict(counts))
    return new, problems


def test_writes_per_role_change(deploy: Deploy, database: Database, note: Note) -> None:
    """One patch of the labels and one event. A server that takes more than half a second for one is asked
    again: where the machine is too busy for the count, leadership moves once more."""
    metas = deploy(database=database)
    leader = metas.start()
    problems = [""]
    for _ in range(3):
        if problems:
            leader, problems = count_writes(metas, leader, note)
    assert not problems, "\n".join(problems)


@pytest.mark.timeout(900)
def test_no_fight(deploy: Deploy, database: Database, note: Note, request: pytest.FixtureRequest) -> None:
    """An operator's labeler rewrites its label every 2 s, and is wrong. It may: ours is another."""
    length = 600.0 if request.config.getoption("--full") else 20.0
    metas = deploy(database=database)
    old = metas.start()
    wrong = {m.name: "follower" if m is old else "leader" for m in metas.metas}
    audit = metas.cluster.audit

    def ours(since: int) -> int:
        return len([w for w in audit.writes(since, user=metas.account) if w.resource == "pods"])

    with OperatorLabeler(metas.cluster, metas.namespace, wrong, always=True) as labeler:
        metas.wait("the labeler has had its way", lambda: labeler.writes >= 3, 20)
        hold(QUIET_S)
        mark, since, before = audit.mark(), boot_ns(), labeler.writes
        hold(length)
        assert labeler.writes - before >= length, "it wrote each 2 s to each of three"
        assert ours(mark) <= length / 60, "no fight"
        note(f"writes in {length:g} s: the labeler's", labeler.writes - before)
        note(f"writes in {length:g} s: ours", ours(mark))
        for meta in metas.metas:
            role = "leader" if meta is old else "follower"
            assert metas.recorder.roles(meta.uid, since) == [role], metas.recorder.describe(since)
            assert meta.labels()["risingwave/meta-role"] == wrong[meta.name]

        mark, since = audit.mark(), boot_ns()
        new = take_row(metas, old)
        assert metas.wait_converged(60) is new
        changes = sum(len(metas.recorder.roles(m.uid, since)) - 1 for m in metas.metas)
        assert ours(mark) <= 2 * changes, "each change may be refused once for the operator's key"
        assert metas.recorder.two_leaders_s() == 0, metas.recorder.describe(since)
        note("writes for so many role changes", f"{ours(mark)} for {changes}")
    managers = [e for m in metas.metas for e in metas.events(m) if e["reason"] == "ForeignManager"]
    assert managers, "somebody should hear of the other writer"

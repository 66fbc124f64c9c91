# SPDX-License-Identifier: Apache-2.0
"""Calls that abort a leader whose memory lacks a row: DeleteWorkerNode in each release, ListAllNodes and each
global recovery up to v3.0.3. The agent makes none of them where the leader may not know a row."""

import pytest
from computes import aborts, ask, deeds
from harness import wait_for
from workerpods import (
    PORT,
    Open,
    add_worker_pod,
    end_pod,
    only_tombstones,
    pod_of,
    prepared,
    wait_judged,
)

FOREIGN = 4711


@pytest.mark.parametrize(
    "release, verb", [("head", "delete"), ("v3.0", "delete"), ("v3.0", "list"), ("v3.0", "recover")]
)
def test_what_would_abort_the_leader_is_not_called(kube: Open, release: str, verb: str) -> None:
    """A row that was written while the guard was off: nothing shows that the leader does not know it. Its pod
    ends, and that is proven: the agent buries it and asks for nothing. The same leader is asked by hand."""
    alive, foreign = "10.9.8.1", "10.9.8.2"
    flags = [f"--workers={release}", "--max-heartbeat-interval=3600s", "--jobs=0", "--reconnect-limit=1s"]
    k, _ = prepared(kube, [alive], "compute", ttl=30, meta_flags=flags, release=release)
    add_worker_pod(k.api, pod_of(foreign), foreign, "compute")
    leader, sql = k.cluster.start(), k.cluster.postgres.sql
    wait_judged(leader)

    def write() -> None:
        sql(
            "INSERT INTO worker VALUES (%s, 'COMPUTE_NODE', %s, %s, 'RUNNING', 900)", FOREIGN, foreign, PORT
        )
        sql(
            "INSERT INTO worker_property (worker_id, is_streaming, is_serving, is_unschedulable)"
            " VALUES (%s, true, true, false)",
            FOREIGN,
        )

    only_tombstones(k.cluster, leader, meanwhile=write)
    wait_judged(leader, 2)
    end_pod(k.api, pod_of(foreign))
    buried = "SELECT worker_id FROM metafence.tombstone WHERE outcome IS NULL"
    wait_for("it is proven gone", lambda: sql(buried) == [(FOREIGN,)], 60)
    wait_judged(leader, 4)
    began = leader.incarnations
    assert {d[0] for d in deeds(k.cluster)} <= {"bury", "unbury"}
    assert not leader.witness.events("worker_deleted") and not aborts(k.cluster)
    assert {e.fields["reason"] for e in leader.witness.events("recovery_start")} == {"bootstrap"}

    words = (verb, f"{foreign}:{PORT}") if verb == "delete" else (verb,)
    assert ask(leader, *words).returncode != 0
    wait_for("the leader dies of it", lambda: aborts(k.cluster), 20)
    assert str(FOREIGN) in aborts(k.cluster)[0]
    wait_for("it starts again", lambda: leader.incarnations > began, 60)

# SPDX-License-Identifier: Apache-2.0
"""rw#27111: a global recovery reclaims a dropped job's tables before the compute nodes have reset; an actor
that saw no abort reads nothing where there was something, and the whole compute node panics. Here with real
processes and a real Postgres, the report's sequence step by step: create, a long chunk, DROP behind it,
RECOVER, the read after the chunk. Control runs show that the equipment does it; the others that an agent
with recovery.mode enforce prevents it."""

from collections.abc import Callable

import pytest
from harness import Cluster, Pod, boot_ns, hold, wait_for
from jobs import PATIENCE, SIGABRT, Jobs, Pending, await_event, make_pending, since

Make = Callable[..., Cluster]
TTL = 30  # a lease that a busy machine does not outlast


def unguarded(cluster: Make, release: str = "head", nodes: int = 2, *flags: str) -> tuple[Jobs, Pod]:
    jobs = Jobs(cluster(pods=1, ttl=TTL, guarded=False), release)
    return jobs, jobs.start(nodes, *flags)


# --- control: what RisingWave does alone ---


@pytest.mark.parametrize("release", ["v2.6", "v3.0", "head"])
def test_control_the_compute_node_dies_by_an_empty_read(cluster: Make, release: str) -> None:
    """RECOVER takes the tables while the actor still runs; its next read finds nothing."""
    jobs, leader = unguarded(cluster, release)
    p = make_pending(jobs, leader)
    at = boot_ns()
    recovered = jobs.recover(leader)
    gone = await_event(leader.witness, "unregistered", at, by="purge")
    assert gone.fields["tables"] == str(p.job.tables).replace(",", "")
    removed = await_event(p.node.witness, "version_removed", at)
    begun = await_event(p.node.witness, "reset_begin", at)
    assert begun.boot_ns > gone.boot_ns, "the streams open after the purge"
    p.busy.release()
    assert p.node.ended_by() == SIGABRT
    reads = since(p.node.witness, "read", removed.boot_ns)
    assert [(r.fields["rows"], r.fields["table"]) for r in reads] == [("0", str(p.job.tables[1]))]
    assert [e.fields["why"] for e in p.node.panics()]
    assert "0 rows" in (p.node.dir / "log").read_text()
    recovered.succeeds()
    assert all(n.alive for n in jobs.nodes if n is not p.node)


def test_control_without_drop_and_recover_the_same_update_passes(cluster: Make) -> None:
    jobs, leader = unguarded(cluster)
    job = jobs.create(leader, "mv")
    node = next(n for n in jobs.nodes if n.running(job))
    busy, at = node.make_busy(job), boot_ns()
    busy.release()
    await_event(node.witness, "chunk_done", at)
    read = since(node.witness, "read", at, table=str(job.tables[1]))
    assert read and all(r.fields["rows"] != "0" for r in read)
    assert node.alive and not node.panics() and jobs.tables(leader) == sorted(job.tables)


def test_control_a_new_leader_does_the_same(cluster: Make) -> None:
    """Each change of leaders is a global recovery: what a fencing tool must not cause."""
    jobs = Jobs(cluster(pods=2, ttl=5, guarded=False))
    leader = jobs.start(2)
    p = make_pending(jobs, leader)
    leader.kill()
    at = boot_ns()
    other = next(pod for pod in jobs.cluster.pods if pod is not leader)
    await_event(other.witness, "unregistered", at, by="purge")
    await_event(p.node.witness, "reset_begin", at)
    p.busy.release()
    assert p.node.ended_by() == SIGABRT and p.node.panics()

# SPDX-License-Identifier: Apache-2.0
"""What scenarios do to an election."""

from typing import Any

import psycopg
from harness.waiting import boot_ns, wait_for
from kubelab import CONTROL_PLANE, POSTGRES_PORT, Block

from .deployment import Deployment
from .meta import Meta


def wait_renewal(old: Meta) -> None:
    """A moment after a renewal and the trim that follows it: nearly a second until the next."""
    since = boot_ns()
    wait_for(f"{old} renews", lambda: old.events("trim", since), 5)


def take_row(metas: Deployment, old: Meta) -> Meta:
    """Deletes the leader's lease until another has taken it: the new leader. The old leader takes it again if
    it is the first to look; right after its renewal the others are."""

    def deleted() -> bool:
        wait_renewal(old)
        metas.database.sql("DELETE FROM election_leader")
        wait_for("somebody took the row", metas.database.owner, 5)
        return metas.database.owner() != old.id

    wait_for("another takes the row", deleted, 30)
    return metas.wait_new_leader(old, 10)


def cut_link(metas: Deployment, old: Meta) -> Block:
    """All packets between the old leader's pod and Postgres are lost. In the middle between two campaigns: a
    cut in one that is under way ends differently (it hangs, and the old leader leaves after the cut)."""
    wait_renewal(old)
    return metas.cluster.block(old.read(), CONTROL_PLANE, POSTGRES_PORT)


def wait_campaign_error(old: Meta, incarnation: str | None, began_ns: int, ttl: float) -> None:
    """Its campaign has failed, which makes it a zombie: one that knows no lease any more and acts on."""
    wait_for(f"{old}'s campaign fails", lambda: old.events("err", began_ns, incarnation), 2 * ttl + 10)


CAMPAIGNS = """SELECT host(client_addr), pid FROM pg_stat_activity
 WHERE datname = current_database() AND wait_event_type = 'Lock'
   AND query LIKE 'INSERT INTO election_leader%'"""


FRESH = "SELECT true FROM election_leader WHERE last_heartbeat > now() - make_interval(secs => %s)"


def supersede(metas: Deployment, old: Meta) -> Meta:
    """Makes the leader a zombie: its lease runs out while its campaign waits in Postgres, and that statement
    fails. Another leads then, and the old leader does not know it and acts on. The new leader."""
    since = boot_ns()
    for _ in range(20):
        expire_and_cancel(metas, old)
        # Until then the row is as it was left, with the old leader's id.
        wait_for("somebody has the row", lambda: metas.database.sql(FRESH, metas.ttl / 2), 5)
        if metas.database.owner() != old.id:  # else its next campaign was the first
            break
    else:
        raise AssertionError(f"{old} took its lease again, each time")
    assert old.events("err", since), f"{old}'s campaign did not fail"
    return metas.wait_new_leader(old, 20)


def waiting_campaigns(judge: psycopg.Connection[Any]) -> dict[str, int]:
    """The sessions whose campaign waits for a lock, by their address."""
    return dict(judge.execute(CAMPAIGNS).fetchall())


def expire_and_cancel(metas: Deployment, old: Meta) -> None:
    """Once: all campaigns wait behind a lock; when it goes, the lease is over and the old leader's is
    canceled, so that the others' are ahead."""
    with metas.database.connect() as judge, metas.database.connect() as session, session.transaction():
        session.execute("LOCK TABLE election_leader IN EXCLUSIVE MODE")  # who only reads goes on

        def waiting() -> dict[str, int] | None:
            found = waiting_campaigns(judge)
            return found if {m.ip for m in metas.metas} <= found.keys() else None

        pids = wait_for("all campaigns wait for the lock", waiting, 10)
        session.execute(
            "UPDATE election_leader SET last_heartbeat = now() - make_interval(secs => %s)", [2 * metas.ttl]
        )
        judge.execute("SELECT pg_cancel_backend(%s)", [pids[old.ip]])
        # Else the lock may be its before it hears of the cancel, which then meets a trigger that bears it.
        wait_for("its campaign has failed", lambda: pids[old.ip] not in waiting_campaigns(judge).values(), 10)


def supersede_by_link(metas: Deployment, old: Meta) -> Meta:
    """As supersede(), in real life's way and time: its link to Postgres is cut for longer than its lease."""
    incarnation, since = old.incarnation, boot_ns()
    block = cut_link(metas, old)
    new = metas.wait_new_leader(old, 2 * metas.ttl + 20)
    if not metas.guarded:
        wait_campaign_error(old, incarnation, since, metas.ttl)
    block.lift()
    return new

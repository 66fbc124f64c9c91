# SPDX-License-Identifier: Apache-2.0
"""What the old leader's agent has proven gone, and its leader could not be asked to remove, is removed by the
takeover, before the new leader reads the table."""

import re
import signal

from computes import WORKERS, aborts, call, deeds
from harness import wait_for
from workerpods import Open, end_pod, only_tombstones, pod_of, prepared, wait_judged

CALM = {"confirmAfter": "4s", "maxPercent": 100}
TOO_SLOW = "void: no time left"


def test_buried_by_the_old_leaders_agent_removed_once_by_the_takeover(kube: Open) -> None:
    """One of three rows: the other two endpoints register between the last look of the old leader's agent and
    the takeover, one by its old id, one by another. The takeover after that touches nothing."""
    alive, dead, again, replaced = hosts = [f"10.9.8.{n}" for n in range(4)]
    k, ids = prepared(kube, hosts, "compute", pods=2, meta_flags=WORKERS, reconcile=CALM)
    old, sql = k.cluster.start(), k.cluster.postgres.sql
    only_tombstones(k.cluster, old)
    wait_judged(old)
    for host in (dead, again, replaced):
        end_pod(k.api, pod_of(host))
    wait_for(
        "three are buried",
        lambda: sql("SELECT count(*) FROM metafence.tombstone WHERE outcome IS NULL") == [(3,)],
        60,
    )
    assert not old.witness.events("worker_deleted") and not deeds(k.cluster, "delete")

    assert old.agent is not None
    old.agent.signal(signal.SIGSTOP)  # it takes nothing back any more
    assert call(old, "register", again)["worker"] == ids[again]
    call(old, "delete", replaced)
    new_id = call(old, "register", replaced)["worker"]
    old.kill()
    sql("DELETE FROM election_leader")  # nobody has to wait for the lease
    new = k.cluster.wait_new_leader(old, 30)

    decided = "SELECT worker_id, outcome, decided_at FROM metafence.tombstone ORDER BY worker_id"
    first = sql(decided)
    wanted = {ids[alive], ids[again], new_id}
    if TOO_SLOW in {outcome for _, outcome, _ in first}:
        # This machine took longer than a takeover may: what is not decided then stays.
        assert {row[0] for row in sql("SELECT worker_id FROM worker")} - {ids[dead]} == wanted
        return
    assert [(worker, outcome) for worker, outcome, _ in first] == [
        (ids[dead], "removed"),
        (ids[again], "changed"),
        (ids[replaced], "void: the row was written since"),
    ]
    assert {row[0] for row in sql("SELECT worker_id FROM worker")} == wanted
    loaded = new.witness.events("registry_loaded")[0].fields["ids"]
    assert {int(i) for i in re.findall(r"\d+", loaded)} == wanted, "the new leader read the table before"
    [(tag,)] = sql(
        "SELECT tag FROM metafence.mutation WHERE operation = 'DELETE' AND worker_id = %s", ids[dead]
    )
    assert tag == new.witness.events("start")[-1].fields["tag"], "it is its takeover that removes"

    # The endpoint is back, and leadership moves once more: what was decided is decided.
    back = call(new, "register", dead)["worker"]
    pid = new.meta_pid
    new.signal_meta(signal.SIGTERM)  # it resigns, and is started again
    wait_for("it leads again", lambda: new.meta_pid != pid and new.acts_as_leader, 40)
    assert sql("SELECT true FROM metafence.term WHERE term >= 3")
    assert sql(decided) == first
    assert {row[0] for row in sql("SELECT worker_id FROM worker")} == wanted | {back}
    assert not aborts(k.cluster)

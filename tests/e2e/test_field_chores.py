# SPDX-License-Identifier: Apache-2.0
"""What the agent does beside its duty may take as long as it likes."""

from harness import boot_ns, hold, wait_for
from kube import AFTER_FAULT_S, Open


def test_fence_beside_stuck_chores(kube: Open) -> None:
    """At the moment when leadership moves the record of deaths is locked, and no request to the API is
    answered: the old leader is dead as fast as ever."""
    made = kube()
    old = made.start()
    pid = old.meta_pid
    heir = made.pods[1]
    made.api.break_by("hang")
    with made.cluster.postgres.connect() as blocker, blocker.transaction():
        blocker.execute("LOCK TABLE metafence.death, metafence.setting IN EXCLUSIVE MODE")
        hold(1)
        lost = boot_ns()
        made.cluster.postgres.sql(
            "UPDATE election_leader SET id = %s, last_heartbeat = now()", heir.id
        )
        wait_for("the old leader is dead", lambda: old.meta_pid != pid or not old.meta_alive, 5, 0.01)
        took = (boot_ns() - lost) / 1e9
        wait_for("it follows again", lambda: old.is_follower, 3 * made.cluster.ttl)
    print(f"dead after {took * 1000:.0f} ms")
    assert took < 1, f"{took:.3f} s: a poll and a kill take 0.4 s"
    leader = made.cluster.wait_converged(3 * made.cluster.ttl)
    assert old.kills() == 1
    made.api.heal()
    made.wait_labels(leader, AFTER_FAULT_S)
    wait_for(
        "the death is recorded in the end",
        lambda: made.cluster.postgres.sql("SELECT count(*) FROM metafence.death")[0][0] >= 1,
        10,
    )

# SPDX-License-Identifier: Apache-2.0
"""A killed process is not yet silent (m1): its statement that waits on a lock commits later, unless its
session is ended. "Confirmed dead" includes that."""

import signal

from harness import Cluster, Pod, wait_for
from scenario import Make

LATE = "SELECT count(*) FROM witness_tick WHERE pid = %s AND n > %s"


def kill_while_writing(made: Cluster, leader: Pod, kill: str) -> int:
    """Ends the leader while its INSERT waits on a lock; how many of its rows came after its death."""
    pid = leader.meta_pid
    assert pid is not None
    with made.postgres.connect() as blocker, blocker.transaction():
        blocker.execute("LOCK TABLE witness_tick IN EXCLUSIVE MODE")
        wait_for("an INSERT of the leader waits", lambda: waiting_inserts(made) > 0, 5)
        newest = blocker.execute("SELECT max(n) FROM witness_tick WHERE pid = %s", (pid,)).fetchone()
        if kill == "fence":
            assert leader.cli("fence", "--reason", "test").returncode == 0
            leader.wait_status(
                "confirmed dead, sessions gone",
                lambda s: s["last_fence"] and s["last_fence"]["confirmed"],
                5,
            )
        else:
            leader.signal_meta(signal.SIGKILL)
            leader.main.wait(5)
    wait_for("no INSERT waits any more", lambda: waiting_inserts(made) == 0, 5)
    assert newest is not None
    return made.postgres.sql(LATE, pid, newest[0])[0][0]


def waiting_inserts(made: Cluster) -> int:
    return made.postgres.sql(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE wait_event_type = 'Lock' AND query ILIKE 'insert into witness_tick%%'"
    )[0][0]


def test_control_a_dead_leader_still_commits(cluster: Make) -> None:
    made = cluster(ttl=5, guarded=False, pods=1)
    assert kill_while_writing(made, made.start(), "SIGKILL") > 0


def test_sessions_of_a_fenced_leader_are_ended(cluster: Make) -> None:
    made = cluster(ttl=5, pods=1)
    assert kill_while_writing(made, made.start(), "fence") == 0

# SPDX-License-Identifier: Apache-2.0
"""After losing leadership a meta is a working follower again within seconds, with no human (P3).

That three metas with one leader are there 2 x ttl after the end of a fault is part of each zombie
scenario; here are the deliberate fences, and the limit that slows down a storm of kills.
"""

import signal

from harness import boot_ns, wait_for
from scenario import Make

BACK_WITHIN = 3.0  # seconds from the release to a working follower


def test_ten_manual_fences_in_a_row(cluster: Make) -> None:
    made = cluster(ttl=5)
    made.start()
    took = []
    for _ in range(10):
        old = made.leaders()[0]
        pid = old.meta_pid
        assert old.cli("fence", "--reason", "exercise").returncode == 0
        wait_for("the fenced meta is dead", lambda: old.meta_pid == pid and not old.meta_alive, 2)
        made.wait_new_leader(old, made.ttl + 3)
        assert old.meta_pid == pid, "it was started again before the release"
        released = boot_ns()
        assert old.cli("unfence").returncode == 0
        wait_for(f"{old.name} follows", lambda: old.is_follower, BACK_WITHIN)
        took.append((boot_ns() - released) / 1e9)
    print("seconds from the release to the follower:", [f"{t:.2f}" for t in took])
    made.wait_converged(made.ttl)
    assert made.witness().overlaps == 0


def test_a_storm_of_kills_delays_the_next_start(cluster: Make) -> None:
    """Kills beyond the limit cost time before the next start, never a life without proof."""
    made = cluster(ttl=5, pods=1, run_flags=["--max-kills=2"])
    pod = made.start()
    for kill in range(1, 4):
        pod.wait_status("leads", lambda s: s["rule"] == "Leader" and s["engaged"], 10)
        pid = pod.meta_pid
        pod.signal_meta(signal.SIGSTOP)  # else it may see the row first, and leave by itself
        made.postgres.sql("UPDATE election_leader SET id = 'other:1', last_heartbeat = now()")
        wait_for("the superseded meta is dead", lambda: pod.meta_pid != pid or not pod.meta_alive, 2)
        made.postgres.sql("DELETE FROM election_leader")
        wait_for(f"kill {kill} is counted", lambda n=kill: pod.kills() == n, 2)
    held = pod.wait_status("held by the storm limit", lambda s: s["meta"]["hold_reason"] == "Storm", 3)
    assert 0 < held["meta"]["hold_ms_left"] <= 10_000, held["meta"]
    assert not pod.meta_alive
    began = boot_ns()
    pod.wait_status("leads again", lambda s: s["rule"] == "Leader", 15)
    assert (boot_ns() - began) / 1e9 > 5, "the delay was not kept"

# SPDX-License-Identifier: Apache-2.0
"""Metas that are hard to kill: below a shell that forwards nothing, with a daemon child that keeps the
port, in a session of their own, deaf for TERM. The fence ends the whole tree; whoever is left would go
on acting as leader."""

import pytest
from harness import wait_for
from scenario import Case, Fault, Make, judge

SWITCHES = ["--wrapper-shell", "--double-fork", "--setsid", "--ignore-term"]


@pytest.mark.parametrize("switch", SWITCHES)
def test_nothing_of_the_tree_survives(cluster: Make, switch: str) -> None:
    made = cluster(ttl=5, meta_flags=[switch])
    old = made.start()
    wait_for("the leader is covered", lambda: (old.status() or {}).get("rule") == "Leader", 5)
    tree = {e.pid for e in old.witness.events()}
    fault = Fault.begins(made.ttl)
    old.proxy.order("mode stall")
    made.wait_new_leader(old, made.ttl + 3)
    assert not [pid for pid in tree if _lives(pid)], "a process of the old leader survived"
    fault.wait_end()
    old.proxy.heal()
    made.wait_converged(2 * made.ttl)
    judge(f"b3 with {switch}", made, Case(5, True, 0))


def _lives(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False

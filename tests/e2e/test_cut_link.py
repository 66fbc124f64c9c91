# SPDX-License-Identifier: Apache-2.0
"""The leader's link to Postgres is cut for longer than its lease.

The leader notices nothing: its campaign waits in the connection pool until the moment at which the
lease ends, fails with one error, and starts over as if it had never led. Another meta is elected by
then. When the link heals the old one reads "leader is somebody else", says so at INFO, and goes on
writing for ever. With metafence it is dead before the other can be elected, and follows afterwards.

  b3 stalled   packets vanish
  b5 reset     a load balancer answers with RST: errors from the first second
  b6 old-dead  idle connections die silently, new ones work: nobody is cut off, and still two lead
"""

import pytest
from harness import Cluster, Pod, boot_ns, wait_for
from scenario import Case, Make, cut_link, judge, knows_better_and_acts_on, wait_error, writes_beside


@pytest.mark.smoke_when_short
def test_stalled(cluster: Make, zombie_case: Case) -> None:
    _cut(cluster, zombie_case, "b3 link stalled", "stall")


def test_reset(cluster: Make, zombie_case: Case) -> None:
    _cut(cluster, zombie_case, "b5 link reset", "reset")


def _cut(make: Make, case: Case, name: str, mode: str) -> None:
    cluster = make(ttl=case.ttl, guarded=case.guarded)
    old = cluster.start()
    pid = old.meta_pid
    fault = cut_link(old, mode)
    cluster.wait_new_leader(old, case.ttl + 3)
    fault.wait_end()
    if not case.guarded:
        wait_error(old, pid, fault)
    old.proxy.heal()
    if case.guarded:
        cluster.wait_converged(2 * case.ttl)
    else:
        writes_beside(old, pid, since_ns=boot_ns())
    judge(name, cluster, case)


def test_old_connections_dead(cluster: Make, zombie_case: Case) -> None:
    case = zombie_case
    make = cluster(ttl=case.ttl, guarded=case.guarded)
    old = make.start()
    pid = old.meta_pid
    cut_until_lost(make, old)
    make.wait_successor(old, pid, case.ttl + 3)
    if case.guarded:
        make.wait_converged(2 * case.ttl)
    else:
        # A second idle connection may be dead too: then it takes another acquire time-out. (An INSERT that
        # was on its way hangs for as long as TCP is patient, so that not every run goes on to write.)
        knows_better_and_acts_on(old, pid, timeout=2 * case.ttl + 5)
    judge("b6 idle connections dead", make, case)


def cut_until_lost(cluster: Cluster, old: Pod) -> None:
    """Its time-out and the end of its lease come nearly at once. Where the leader is a moment faster and
    renews on a new connection, it is cut again."""
    pid = old.meta_pid
    for _ in range(5):
        fault = cut_link(old, "old-dead")

        def outcome(began_ns: int = fault.began_ns) -> str | None:
            if old.meta_pid != pid or not old.meta_alive or any(p is not old for p in cluster.leaders()):
                return "lost"
            renewed = [e for e in old.witness.events("renew", pid) if e.boot_ns > began_ns]
            return "kept" if renewed else None

        if wait_for("the lease is lost or kept", outcome, 2 * cluster.ttl) == "lost":
            return
    raise AssertionError(f"{old.name} kept its lease five times")

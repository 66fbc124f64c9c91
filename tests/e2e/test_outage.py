# SPDX-License-Identifier: Apache-2.0
"""Postgres is down for longer than the lease (b9).

After the outage whoever reconnects first takes the row; a leader that is not first is a zombie (12 of
16 times in a free run). Here the draw is decided: the leader's reconnect is held back until another
leads. With metafence the leader is dead before Postgres is even back.
"""

from harness import boot_ns
from scenario import Case, Fault, Make, judge, wait_error, writes_beside


def test_postgres_down(cluster: Make, zombie_case: Case) -> None:
    case = zombie_case
    made = cluster(ttl=case.ttl, guarded=case.guarded)
    old = made.start()
    pid = old.meta_pid
    fault = Fault.begins(case.ttl)
    made.postgres.stop("immediate")
    fault.wait_end()
    old.proxy.order("mode reset")
    made.postgres.start()
    made.wait_new_leader(old, case.ttl + 3)
    if not case.guarded:
        wait_error(old, pid, fault)
    old.proxy.heal()
    if case.guarded:
        made.wait_converged(2 * case.ttl)
    else:
        writes_beside(old, pid, since_ns=boot_ns())
    judge("b9 postgres down", made, case)

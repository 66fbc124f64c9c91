# SPDX-License-Identifier: Apache-2.0
"""All connections of the leader's pool are busy for longer than the lease (b12).

Postgres and network are healthy. One data statement that waits on a lock holds the only connection,
so that the campaign finds none until the acquire time-out: one error, and the leader is a zombie.
"""

from harness import boot_ns
from scenario import Case, Fault, Make, judge, wait_error, writes_beside


def test_pool_of_one_is_busy(cluster: Make, zombie_case: Case) -> None:
    case = zombie_case
    made = cluster(ttl=case.ttl, guarded=case.guarded, meta_flags=["--pool-max=1", "--block-pool=1"])
    old = made.start()
    pid = old.meta_pid
    fault = Fault.begins(case.ttl)
    with made.postgres.connect() as blocker, blocker.transaction():
        blocker.execute("LOCK TABLE metasim_data IN EXCLUSIVE MODE")
        fault.wait_end()
        if not case.guarded:
            wait_error(old, pid, fault)
    made.wait_successor(old, pid, case.ttl + 3)
    if case.guarded:
        made.wait_converged(2 * case.ttl)
    else:
        writes_beside(old, pid, since_ns=boot_ns())
    judge("b12 pool is full", made, case)

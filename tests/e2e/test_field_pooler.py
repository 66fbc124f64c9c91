# SPDX-License-Identifier: Apache-2.0
"""The agent reaches Postgres through a pooler in transaction mode: each of its statements may run on a
backend that others have left in any state, and others run on what it leaves."""

import psycopg
from harness import boot_ns, hold, wait_for
from harness.postgres import DATABASE
from pooler import Poisoner, Pooler
from scenario import Make


def test_transaction_pooling(cluster: Make) -> None:
    made = cluster(ttl=5)
    old = made.pods[0]
    with Pooler(made.postgres, DATABASE, made.lab.port()) as pooler:
        made.install_sql()
        old.config["postgres"]["port"] = pooler.port
        old.config["election"]["leaderTable"] = "public.election_leader"
        old.config["election"]["memberTable"] = "public.election_member"
        leader = made.start(sql=False)
        assert leader is old
        pid = old.meta_pid
        said = old.agent_log.expect(msg="through a pooler", level="warn")
        assert "postgres.host" in said["fix"]
        status = old.wait_status("polls", lambda s: s["database"]["pooled"], 5)
        assert not status["database"]["listening"]
        with Poisoner(pooler):
            hold(2 * made.ttl)
            assert old.meta_pid == pid and old.kills() == 0, old.agent_log.tail(5)
            made.wait_converged(3)
            # Nothing of ours is left for the next client.
            pooler.run("RESET ALL")
            hold(1)
            where = f"host=127.0.0.1 port={pooler.port} user=x sslmode=disable gssencmode=disable"
            with psycopg.connect(where, autocommit=True) as client:
                assert client.execute("SHOW statement_timeout").fetchone() == ("0",)
            # And lost leadership is seen all the same.
            lost = boot_ns()
            made.postgres.sql(
                "UPDATE election_leader SET id = %s, last_heartbeat = now()", made.pods[1].id
            )
            wait_for("the old leader is dead", lambda: old.meta_pid != pid or not old.meta_alive, 3, 0.01)
            print(f"dead {(boot_ns() - lost) / 1e6:.0f} ms after it lost")
            made.wait_converged(3 * made.ttl)
        assert old.kills() == 1

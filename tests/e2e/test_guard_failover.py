# SPDX-License-Identifier: Apache-2.0
"""Failover to an asynchronous standby, by real streaming and a real promotion.

With the last term on it, the new primary's timeline alone tells that this is not the database which granted
the term: the leader is restarted. Without it two lead until the first read after the reconnect, which nothing
can prevent; how long that was is measured here, apart from all other takeovers. Both never survive it.
"""

import os
import shutil

import pytest
from harness import Cluster, Lab, Pod, boot_ns, hold, wait_for
from harness.paths import postgres_bin
from harness.postgres import Postgres, _as_postgres
from scenario import Make


class Standby:
    """A hot standby of the cluster's Postgres, which takes over its address when it is promoted."""

    def __init__(self, lab: Lab, made: Cluster) -> None:
        self.made = made
        self.postgres = Postgres(lab, "standby")
        if os.geteuid() == 0:
            shutil.chown(self.postgres.dir, "postgres")
        source = ["-h", "127.0.0.1", "-p", str(made.postgres.port), "-U", "postgres"]
        _as_postgres(
            [postgres_bin("pg_basebackup"), *source, "-D", self.postgres.data, "-R", "-X", "stream"]
            + ["--checkpoint=fast", "--no-sync"]
        )
        self._set(f"port = {self.postgres.port}")
        self.postgres.start()
        wait_for(
            "the standby streams", lambda: self._asks("SELECT count(*) FROM pg_stat_wal_receiver") == 1, 20
        )

    def _set(self, line: str) -> None:
        with open(self.postgres.data / "postgresql.conf", "a") as conf:
            conf.write(line + "\n")

    def _asks(self, query: str) -> object:
        return self.postgres.sql(query)[0][0]

    def has_term(self, term: int) -> bool:
        return self._asks("SELECT coalesce(max(term), 0) FROM metafence.term") == term

    def cut_off(self) -> None:
        """It gets nothing more, and nobody waits for it."""
        self.postgres.sql("ALTER SYSTEM SET primary_conninfo = ''")
        self.postgres.sql("SELECT pg_reload_conf()")
        wait_for(
            "the standby receives nothing",
            lambda: self._asks("SELECT count(*) FROM pg_stat_wal_receiver") == 0,
            20,
        )

    def promote(self) -> int:
        """The primary is gone, this one answers at its address; when it took writes."""
        primary = self.made.postgres
        primary.stop("immediate")
        self.postgres.stop("fast")
        self.postgres.port = primary.port
        self._set(f"port = {primary.port}")
        self.postgres.start()
        assert self._asks("SELECT pg_promote(true, 60)") is True
        self.made.postgres = self.postgres
        assert self._asks("SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)") == "00000002"
        return boot_ns()


def died_at(pod: Pod, pid: int | None) -> int:
    """When that process of the pod was dead, as metafence-run has noted it."""
    wait_for(f"pid {pid} of {pod.name} is dead", lambda: pod.meta_pid != pid or not pod.meta_alive, 40)

    def noted() -> int | None:
        death = pod.shim_status()["last_death"]
        return int(death["dead_ns"]) if death and death["incarnation"] else None

    return wait_for("its death is noted", noted, 10)


LEFT = "meta ended by itself"


def why_it_ended(pod: Pod, mark: int) -> str | None:
    """The rule of its fence, or LEFT."""
    fences = [record for record in pod.agent_log.find(mark, msg="fence") if "rule" in record]
    if fences:
        return fences[0]["rule"]
    return LEFT if pod.agent_log.find(mark, msg=LEFT) else None


def only_one_leads(made: Cluster) -> None:
    leaders = made.leaders()
    assert len(leaders) <= 1, made.describe()


@pytest.mark.long
def test_nothing_is_lost(cluster: Make, lab: Lab) -> None:
    """The row still names the leader, its term is there: it is restarted all the same, for what it holds in
    memory may be newer than this database."""
    made = cluster(ttl=30)
    leader = made.start()
    standby = Standby(lab, made)
    wait_for("the term has arrived", lambda: standby.has_term(1), 20)
    pid, mark = leader.meta_pid, leader.agent_log.mark()
    promoted = standby.promote()
    dead = died_at(leader, pid)
    record = leader.agent_log.expect(after=mark, msg="fence")
    assert record["rule"] == "DatabaseReplaced", record
    print(f"failover without a loss: the leader is dead {(dead - promoted) / 1e6:.0f} ms after the promotion")
    made.wait_converged(60)
    hold(3, lambda: only_one_leads(made))
    now = made.postgres.sql("SELECT timeline FROM metafence.term")
    assert now == [("00000002",)], "the new term is the new database's"


@pytest.mark.long
def test_the_last_term_is_lost(cluster: Make, lab: Lab) -> None:
    """The standby knows the leader before: that pod wins at once, beside the leader of the lost term."""
    made = cluster(ttl=30)
    old = made.start()
    standby = Standby(lab, made)
    wait_for("the term has arrived", lambda: standby.has_term(1), 20)
    standby.cut_off()
    lost = made.pods[1]
    before = old.meta_pid
    made.postgres.sql("UPDATE election_leader SET id = %s, last_heartbeat = now()", lost.id)
    lost.wait_leading(20)
    wait_for("the old leader is a follower", lambda: old.meta_pid != before and old.is_follower, 40)
    made.wait_converged(40)
    assert standby.has_term(1), "the standby has the second term"
    pid, mark = lost.meta_pid, lost.agent_log.mark()
    promoted = standby.promote()
    dead = died_at(lost, pid)
    # Who is quicker with the new database is a draw: meta leaves by itself when it reads the other's id.
    rule = wait_for("it is said why", lambda: why_it_ended(lost, mark), 10)
    assert rule in ("DatabaseReplaced", "Superseded", LEFT), rule
    new = made.wait_converged(60)
    assert new.meta_pid != pid, "the leader of the lost term survived"
    began = new.wait_leading(1).boot_ns
    window_ms = max(0.0, (dead - began) / 1e6)
    print(
        f"failover that lost the last term: {rule}, two leaders for {window_ms:.0f} ms; the lost"
        f" one was dead {(dead - promoted) / 1e6:.0f} ms after the promotion"
    )
    assert window_ms < 5000, "a reconnect, a poll and a kill"
    hold(5, lambda: only_one_leads(made))

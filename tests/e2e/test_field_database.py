# SPDX-License-Identifier: Apache-2.0
"""A database that answers in part: writes refused, a stopped postmaster, locks, no free slot, a link that
only one of meta and agent has. What counts is a row that is seen to advance, and nothing else."""

import os
import signal
from typing import Any

import psycopg
import pytest
from harness import Cluster, Pod, Proxy, boot_ns, hold, wait_for
from scenario import Case, Make, judge

GUARDED = Case(5, True, 0)


def death_of(pod: Pod, timeout: float) -> dict[str, Any]:
    """As metafence-run has noted it."""

    def died() -> dict[str, Any] | None:
        death = pod.shim_status()["last_death"]
        return death if death and death["incarnation"] else None

    return wait_for(f"{pod.name} has died", died, timeout)


def test_renewals_refused_while_reads_work(cluster: Make) -> None:
    """The row goes on naming the leader, and ages. No other id has to appear for it to be fenced."""
    made = cluster(ttl=5)
    old = made.start()
    since = boot_ns()
    made.postgres.sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN"
        f" IF current_setting('application_name') LIKE 'metafence:{old.uid[:8]}:%' THEN"
        " RAISE insufficient_privilege; END IF; RETURN NEW; END$$;"
        "CREATE TRIGGER a_refuse BEFORE INSERT OR UPDATE ON election_leader FOR EACH ROW"
        " EXECUTE FUNCTION refuse()"
    )
    death = death_of(old, made.ttl + 1)
    assert death["reason"] == "LeaseExpired", death
    assert made.owner() is old, "nobody else had to win first"
    assert int(death["dead_ns"]) - since < made.ttl * 1e9
    made.wait_new_leader(old, made.ttl + 3)
    wait_for(f"{old.name} follows", lambda: old.is_follower, 3 * made.ttl)
    judge("A03 renewals refused", made, GUARDED)


@pytest.mark.parametrize("how", ["deleted", "moved"])
def test_lease_withdrawn_early(cluster: Make, how: str) -> None:
    """Taken away by the store or by a person while the holder is healthy: nobody waits for a lease then, and
    what can be promised is one look and one kill."""
    made = cluster(ttl=5)
    old = made.start()
    other = made.pods[1]
    pid = old.meta_pid
    beat = "SELECT last_heartbeat FROM election_leader"
    before = made.postgres.sql(beat)
    # Right after a renewal: the next one would tell meta itself before an agent looks.
    wait_for("a renewal", lambda: made.postgres.sql(beat) != before, made.ttl, every=0.01)
    with made.postgres.connect() as session, session.transaction():
        if how == "deleted":
            session.execute("DELETE FROM election_leader")
            session.execute(
                "INSERT INTO election_leader SELECT service, id, now() FROM election_member WHERE id = %s",
                [other.id],
            )
        else:
            session.execute("UPDATE election_leader SET id = %s, last_heartbeat = now()", [other.id])
    withdrawn = boot_ns()
    took = (int(death_of(old, 3)["dead_ns"]) - withdrawn) / 1e9
    print(f"dead {took * 1000:.1f} ms after the lease was withdrawn")
    assert took < 1, f"{took:.3f} s: a poll and a kill take 0.4 s"
    made.wait_converged(3 * made.ttl)
    assert old.meta_pid != pid
    assert [p.kills() for p in made.pods] == [1, 0, 0]


def test_postmaster_stopped(cluster: Make) -> None:
    """Nobody can log in any more, sessions that stand go on: the row advances, so nobody is killed."""
    made = cluster(ttl=5)
    leader = made.start()
    pid = leader.meta_pid
    os.kill(made.postgres.pid, signal.SIGSTOP)
    try:
        hold(made.ttl + 3)
        if leader.kills():  # only where its pool wanted one more session, and the renewals ended with it
            renewed = leader.witness.events("renew", pid)[-1].boot_ns
            dead = leader.shim_status()["last_death"]["dead_ns"]
            assert dead - renewed > made.ttl * 1e9 / 2, "killed although it renewed"
        else:
            assert leader.meta_pid == pid and leader.meta_alive
    finally:
        os.kill(made.postgres.pid, signal.SIGCONT)
    made.wait_converged(3 * made.ttl)
    assert sum(p.kills() for p in made.pods) <= 1
    judge("A15 postmaster stopped", made, GUARDED)


def test_the_agents_backends_stopped(cluster: Make) -> None:
    """Their sessions hang, new ones work: each agent opens another in time."""
    made = cluster(ttl=5)
    leader = made.start()
    pid = leader.meta_pid
    backends = [
        row[0]
        for row in made.postgres.sql("SELECT pid FROM pg_stat_activity WHERE application_name = 'metafence'")
    ]
    assert len(backends) >= 3
    for backend in backends:
        os.kill(backend, signal.SIGSTOP)
    try:
        hold(2 * made.ttl)
        made.wait_converged(3)
    finally:
        for backend in backends:
            os.kill(backend, signal.SIGCONT)
    assert leader.meta_pid == pid and [p.kills() for p in made.pods] == [0, 0, 0]


def test_whole_database_stopped(cluster: Make) -> None:
    """Kernel and connections are alive, the server is not."""
    made = cluster(ttl=5)
    old = made.start()
    made.postgres.freeze()
    try:
        death = death_of(old, made.ttl + 1)
        hold(made.ttl)
    finally:
        made.postgres.thaw()
    assert death["reason"] == "LeaseExpired", death
    made.wait_converged(4 * made.ttl)
    assert [p.kills() for p in made.pods] == [1, 0, 0]
    judge("A15 database stopped", made, GUARDED)


def test_election_row_locked(cluster: Make) -> None:
    """Somebody went away in a transaction with the table's lock: no proof for anybody. The deadline counts,
    followers stay, and all is well again with the lock's end."""
    made = cluster(ttl=5)
    old = made.start()
    with made.postgres.connect() as blocker, blocker.transaction():
        blocker.execute("LOCK TABLE election_leader IN ACCESS EXCLUSIVE MODE")
        death = death_of(old, made.ttl + 1)
        hold(made.ttl)
    assert death["reason"] == "LeaseExpired", death
    made.wait_converged(4 * made.ttl)
    assert [p.kills() for p in made.pods] == [1, 0, 0]
    judge("B12 table locked", made, GUARDED)


def test_outage_costs_the_leader_alone(cluster: Make) -> None:
    """Down for everybody, back with latency: there is one to fence, and one leader soon after."""
    made = cluster(ttl=5)
    old = made.start()
    followers = {p.name: p.meta_pid for p in made.pods[1:]}
    made.postgres.stop("immediate")
    hold(2 * made.ttl)
    for pod in made.pods:
        pod.proxy.order("latency 5")
    assert [p.kills() for p in made.pods] == [1, 0, 0]
    made.postgres.start()
    began = boot_ns()
    made.wait_converged(4 * made.ttl)
    print(f"one leader {(boot_ns() - began) / 1e9:.1f} s after the return")
    # A winner that its agent has not read yet may be fenced as it engages; nobody who follows is.
    still = [p for p in made.pods[1:] if p.meta_pid == followers[p.name]]
    assert still, "a follower was restarted for nothing"
    assert old.kills() == 1
    judge("H02 outage for all", made, GUARDED)


# --- slots ---


Sessions = list["psycopg.Connection[Any]"]


def fill(made: Cluster, held: Sessions) -> None:
    """Idle clients take every connection slot that is left to them."""
    while True:
        try:
            held.append(made.postgres.connect(user="meta"))
        except psycopg.OperationalError as error:
            assert "too many" in str(error) or "remaining connection slots" in str(error), error
            return


RESERVED = 3  # slots for the superuser, by default


def agents_sessions(admin: "psycopg.Connection[Any]") -> int:
    counted = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'metafence'"
    row = admin.execute(counted).fetchone()
    assert row is not None
    return row[0]


def test_no_free_slot(cluster: Make) -> None:
    """With a session nothing happens; without one the agent asks again and again, but not in a rush, and a
    refusal is told as such. Never more than three sessions an agent, one of them for recoveries."""
    # A pool that wants one more connection when there is none loses its lease by that alone.
    made = cluster(ttl=5, pods=2, meta_flags=["--pool-max=1"])
    with open(made.postgres.data / "postgresql.conf", "a") as conf:
        conf.write("max_connections = 50\n")
    made.postgres.restart("fast")
    leader = made.start()
    pid, kills = leader.meta_pid, leader.kills()
    held: Sessions = []
    with made.postgres.connect() as admin:  # in a slot that is kept for the superuser
        fill(made, held)
        hold(made.ttl + 2)
        assert leader.meta_pid == pid and leader.kills() == kills
        assert agents_sessions(admin) <= 3 * len(made.pods)

        def all_are_out() -> bool:
            """Awake, an agent would be quicker than we are with the slot that it has just lost. Who logs in
            meanwhile has a slot and is not seen."""
            ends = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            admin.execute(f"{ends} WHERE application_name = 'metafence'")
            fill(made, held)
            seen = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
            return agents_sessions(admin) == 0 and admin.execute(seen).fetchone() == (50 - RESERVED,)

        for pod in made.pods:
            pod.agent.signal(signal.SIGSTOP)
        wait_for("no agent has a session", all_are_out, 3)
        for pod in made.pods:
            pod.agent.signal(signal.SIGCONT)
        before, began = made.postgres.log.read_text().count("FATAL"), boot_ns()
        leader.wait_status("refusal is told", lambda s: s["not_covered"], 10)
        hold(made.ttl + 2)
        refused = made.postgres.log.read_text().count("FATAL") - before
        took = (boot_ns() - began) / 1e9
        assert refused < 10 * took, f"{refused} attempts in {took:.0f} s"
        assert agents_sessions(admin) <= 3 * len(made.pods)
        for session in held:
            session.close()
        made.wait_converged(3 * made.ttl)
        assert agents_sessions(admin) <= 3 * len(made.pods)
        leader.wait_status("covered", lambda s: not s["not_covered"], 10)
    judge("B11 no free slot", made, GUARDED)


# --- one of the two ---


def agents_own_link(made: Cluster, pod: Pod) -> Proxy:
    link = Proxy(made.lab, made.postgres.port, pod.dir, "agent-link")
    pod.config["postgres"]["port"] = link.port
    return link


def test_only_meta_is_cut_off(cluster: Make) -> None:
    """The agent reads well that nobody renews."""
    made = cluster(ttl=5)
    old = made.pods[0]
    agents_own_link(made, old)
    made.start()
    old.proxy.order("mode stall")
    death = death_of(old, made.ttl + 1)
    assert death["reason"] in ("LeaseExpired", "Superseded"), death
    made.wait_new_leader(old, made.ttl + 3)
    old.proxy.heal()
    made.wait_converged(4 * made.ttl)
    judge("H03 meta cut off", made, GUARDED)


def test_only_the_agent_is_cut_off(cluster: Make) -> None:
    """It can't prove anything, so a healthy leader is fenced at its deadline: once. The pod doesn't take the
    lease back, it is said why it is not covered, and leadership stays elsewhere."""
    made = cluster(ttl=5)
    old = made.pods[0]
    link = agents_own_link(made, old)
    made.start()
    link.order("mode stall")
    death = death_of(old, made.ttl + 1)
    assert death["reason"] == "LeaseExpired", death
    new = made.wait_new_leader(old, made.ttl + 3)
    new_pid = new.meta_pid

    def settled() -> None:
        assert old.kills() <= 1, "fenced again and again"
        assert new.meta_pid == new_pid and new.acts_as_leader, "leadership goes back and forth"

    hold(4 * made.ttl, settled)
    assert (old.status() or {})["database"]["state"] != "answers"
    link.heal()
    assert made.wait_converged(4 * made.ttl) is new
    judge("H03 agent cut off", made, GUARDED)


def test_now_the_one_now_the_other(cluster: Make) -> None:
    """Meta and agent lose the database in turn, each for less than a lease: no storm, one leader after."""
    made = cluster(ttl=5)
    old = made.pods[0]
    link = agents_own_link(made, old)
    made.start()
    for _ in range(4):
        for side in (old.proxy, link):
            side.order("mode stall")
            hold(2.5)
            side.heal()
    made.wait_converged(4 * made.ttl)
    assert sum(p.kills() for p in made.pods) <= 3
    judge("H03 in turn", made, GUARDED)


def test_slow_answers_are_told(cluster: Make) -> None:
    """Before they cost anything: a healthy leader lives with an answer that takes most of its time-out, and
    its agent says so, once."""
    made = cluster(ttl=5)
    leader = made.start()
    pid = leader.meta_pid
    leader.proxy.order("latency 40")  # there and back: 80 of 200 ms
    leader.agent_log.expect(msg="Postgres answers slowly", level="warn")
    hold(2 * made.ttl)
    assert leader.meta_pid == pid and [p.kills() for p in made.pods] == [0, 0, 0]
    assert len(leader.agent_log.find(msg="Postgres answers slowly")) <= 2
    leader.proxy.order("latency 0")
    leader.agent_log.expect(msg="Postgres answers in time again")

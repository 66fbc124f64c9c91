# SPDX-License-Identifier: Apache-2.0
"""The triggers alone, beneath real election loops: no agent kills anybody here. The right incarnation owns
the term every time, no election loop gets an error, and a leader that lost writes nothing more."""

import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest
from bare import BareCluster, TaggedPod
from harness import Lab, boot_ns, hold, wait_for
from harness.postgres import PASSWORD, USER
from scenario import cut_link, wait_error


def assert_quiet(made: BareCluster) -> None:
    """Nobody noticed our triggers, and none of them had to give way."""
    assert not made.errors(), made.errors()[:3]
    counters = made.counters()
    for name in ("takeover_without_lock", "unrecorded", "unreadable", "unlocked"):
        assert counters[name] == 0, counters
    print(f"slowest move of a term: {made.slowest_move_ms():.1f} ms; {counters['takeover']} takeovers")


def restart_dead(made: BareCluster) -> None:
    for pod in made.pods:
        if not pod.meta_alive:
            pod.start()


def assert_silent(made: BareCluster, tag: str, seconds: float = 1.0) -> None:
    """Not a row of that incarnation appears any more."""
    before = made.ticks_of(tag)
    hold(seconds)
    assert made.ticks_of(tag) == before, f"{tag} writes on"


def refused(pod: TaggedPod, pid: int | None, since_ns: int) -> int:
    """Statements of that process that the guard refused since."""
    return sum(
        e.boot_ns > since_ns and e.fields["db"] == "err" and "MF001" in e.fields.get("msg", "")
        for e in pod.witness.events("write", pid)
    )


# --- k: who owns the term ---


def force(made: BareCluster, how: str, leader: TaggedPod) -> None:
    sql = made.postgres.sql
    if how == "kill":
        leader.signal_meta(signal.SIGKILL)
    elif how == "term":
        leader.signal_meta(signal.SIGTERM)
    elif how == "delete":
        sql("DELETE FROM election_leader")
    else:
        sql("UPDATE election_leader SET last_heartbeat = now() - interval '1 min'")


def owner_and_term(made: BareCluster) -> tuple[TaggedPod, int]:
    """Both of one moment: what was done to the row before may still move it to another."""
    while True:
        leader = made.wait_owner(15)
        term, tag, _ = made.term()
        if tag == leader.tag:
            return leader, term


def test_k1_forced_handovers(lab: Lab, request: pytest.FixtureRequest) -> None:
    """By a kill, TERM, a deleted and a back-dated row. The last two may as well leave the old leader (c2, d):
    then its term just goes on."""
    made = BareCluster(lab, ttl=5, pods=3)
    made.start()
    rounds = 13 if request.config.getoption("--full") else 2
    for how in ("term", "delete", "backdate", "kill") * rounds:
        leader, term = owner_and_term(made)
        pid, tag = leader.meta_pid, leader.tag
        force(made, how, leader)
        if how in ("kill", "term"):
            wait_for("its process ends", lambda leader=leader: not leader.meta_alive, 10)
        new = made.wait_owner(15, among=[p for p in made.pods if p is not leader] if how == "kill" else None)
        if new.tag != tag:
            assert made.term()[0] > term
            owned = made.postgres.sql("SELECT superseded FROM metafence.tag WHERE tag = %s", tag)
            assert owned == [(True,)]
            assert_silent(made, tag, 0.3)
            wait_for(
                "the old process has left", lambda p=leader, i=pid: p.meta_pid != i or not p.meta_alive, 10
            )
        else:
            assert how in ("delete", "backdate"), how
        restart_dead(made)
    assert_quiet(made)


def test_k2_restarts_inside_the_lease(lab: Lab) -> None:
    """Same id, another incarnation: the term moves with it, each time, and it writes at once."""
    made = BareCluster(lab, ttl=5, pods=2)
    leader = made.start()
    for number in range(2, 6):
        before = leader.tag
        leader.signal_meta(signal.SIGKILL)
        leader.main.wait(5)
        leader.start()
        assert made.wait_owner(10) is leader
        assert made.term() == (number, leader.tag, leader.id)
        wait_for("it writes", lambda: made.ticks_of(leader.tag) > 0, 5)
        assert_silent(made, before, 0.3)
    assert_quiet(made)
    assert made.counters()["refused"] == 0


def test_k3_a_person_writes_the_row(lab: Lab) -> None:
    """psql renews, moves the heartbeat back and forth: no incarnation of anything."""
    made = BareCluster(lab, ttl=30, pods=2)
    leader = made.start()
    tags = made.postgres.sql("SELECT count(*) FROM metafence.tag")
    for value in ("now()", "now() + interval '20s'", "now() - interval '20s'", "NULL"):
        made.postgres.sql(f"UPDATE election_leader SET last_heartbeat = {value}")
        wait_for(
            "the leader renews again",
            lambda: made.postgres.sql(
                "SELECT true FROM election_leader l, metafence.renewal r WHERE r.tag = %s AND"
                " l.last_heartbeat = r.heartbeat",
                leader.tag,
            ),
            10,
        )
        assert made.term() == (1, leader.tag, leader.id)
    assert made.postgres.sql("SELECT count(*) FROM metafence.tag") == tags
    assert_quiet(made)


# --- i: two processes with one id ---


def test_i1_twins(lab: Lab) -> None:
    """The younger owns the term. The elder acts on, and nothing of it comes in."""
    made = BareCluster(lab, ttl=5, pods=2)
    elder = made.start()
    pid = elder.meta_pid
    twin = made.new_pod("twin", advertise=elder.id)
    made.pods.append(twin)
    twin.start().wait_leading(10)
    assert made.wait_owner(10) is twin
    since = boot_ns()
    wait_for("the elder is refused", lambda: refused(elder, pid, since) >= 5, 10)
    assert_silent(made, elder.tag, 2 * made.ttl)
    assert made.term() == (2, twin.tag, twin.id) and elder.acts_as_leader
    assert_quiet(made)


@pytest.mark.parametrize("dying", ["elder", "younger"])
def test_i2_a_dying_twin_resigns(lab: Lab, dying: str) -> None:
    """It takes the shared row along. Whoever is next owns the term rightly, without an error anywhere."""
    made = BareCluster(lab, ttl=5, pods=2)
    elder = made.start()
    twin = made.new_pod("twin", advertise=elder.id)
    made.pods.append(twin)
    twin.start().wait_leading(10)
    made.wait_owner(10, among=[twin])
    gone = elder if dying == "elder" else twin
    gone.signal_meta(signal.SIGTERM)
    assert gone.main.wait(10) == 0
    if dying == "elder":  # the younger inserts itself again, or the third was faster
        owner = made.wait_owner(10, among=[twin, made.pods[1]])
        assert made.term()[0] == (2 if owner is twin else 3)
    else:  # what is left of the pair is superseded: it can't have the row
        owner = made.wait_owner(10, among=[made.pods[1]])
        hold(made.ttl + 1)
        assert made.wait_owner(1) is owner
    for pod in (elder, twin):
        if pod is not owner:
            assert_silent(made, pod.tag, 0.5)
    assert_quiet(made)


# --- b14: a zombie ---


def test_b14_zombie_without_an_agent(lab: Lab) -> None:
    """Nobody kills it. It is refused everywhere; when the true leader dies it campaigns first, as often as it
    likes: its lease does not live, and the next candidate leads at once."""
    made = BareCluster(lab, ttl=5, pods=3)
    old = made.start()
    pid = old.meta_pid
    fault = cut_link(old, "stall")
    true = made.wait_owner(made.ttl + 10, among=made.pods[1:])
    fault.wait_end()
    wait_error(old, pid, fault)
    healed = boot_ns()
    old.proxy.heal()
    wait_for("the zombie is refused", lambda: refused(old, pid, healed) >= 10, 15)
    before = made.ticks_of(old.tag)
    third = next(p for p in made.pods[1:] if p is not true)
    true.kill()
    killed = boot_ns()
    assert made.wait_owner(made.ttl + 5, among=[third]) is third
    took = (third.wait_leading(1).boot_ns - killed) / 1e9
    print(f"next leader {took:.2f} s after the death (lease {made.ttl} s)")
    # Now without any other candidate.
    third.kill()

    def is_nobodys() -> None:
        assert made.term()[1] == third.tag, "the zombie owns a term again"

    hold(2 * made.ttl, is_nobodys)
    lease = made.postgres.sql("SELECT now() - last_heartbeat > '5s' FROM election_leader")
    assert lease == [(True,)], "the zombie holds the lease"
    assert made.ticks_of(old.tag) == before, "a row of the zombie came in"
    assert made.counters()["held"] > 0
    third.start()
    assert made.wait_owner(made.ttl + 10, among=[third]) is third
    assert made.counters()["takeover_without_lock"] == 0


def test_frozen_leader_writes_nothing_when_it_runs_again(lab: Lab) -> None:
    """f1: what it has on its way when it runs again comes milliseconds later; nobody kills that fast."""
    made = BareCluster(lab, ttl=5, pods=2)
    old = made.start()
    old.signal_meta(signal.SIGSTOP)
    try:
        made.wait_owner(made.ttl + 10, among=made.pods[1:])
        before = made.ticks_of(old.tag)
    finally:
        old.signal_meta(signal.SIGCONT)
    wait_for("it has left", lambda: not old.meta_alive, 15)
    assert made.ticks_of(old.tag) == before
    assert made.counters()["takeover_without_lock"] == 0


# --- l, m: in flight at the takeover ---


def session_of(made: BareCluster, pod: TaggedPod) -> "psycopg.Connection":
    """One more session of that incarnation's pool."""
    where = made.postgres.dsn(USER)
    return psycopg.connect(where, password=PASSWORD, application_name=pod.tag, autocommit=True)


def end_of(writer: "psycopg.Connection", statement: str) -> None:
    with pytest.raises(psycopg.errors.AdminShutdown):
        writer.execute(statement)


@pytest.mark.parametrize("what", ["idle", "row lock", "5 s statement", "hung client"])
def test_in_flight_at_the_takeover(lab: Lab, what: str) -> None:
    """The old leader's transaction is under way when another wins: it is ended, whatever it does, and the
    takeover waits for half a second at most."""
    made = BareCluster(lab, ttl=5, pods=2)
    old = made.start()
    with made.postgres.connect() as blocker, closing(session_of(made, old)) as writer:
        tick = writer.execute("SELECT min(n) FROM witness_tick WHERE tag = %s", [old.tag]).fetchone()
        assert tick is not None
        late = f"UPDATE witness_tick SET boot_ns = -1 WHERE n = {tick[0]} AND tag = '{old.tag}'"
        if what == "row lock":
            blocker.execute("BEGIN")
            blocker.execute(f"SELECT FROM witness_tick WHERE n = {tick[0]} FOR UPDATE")
        if what in ("idle", "hung client"):
            writer.execute("BEGIN")
            writer.execute(late)
        pid = writer.info.backend_pid
        if what == "hung client":  # the process stands still, its sessions with it
            old.signal_meta(signal.SIGSTOP)
        else:
            old.signal_meta(signal.SIGKILL)
        if what == "5 s statement":
            late += " AND pg_sleep(5) IS NOT NULL"
        ended = None
        if what in ("row lock", "5 s statement"):
            hold(made.ttl - 1.5)  # so that it is under way when the lease ends
            ended = ThreadPoolExecutor(1).submit(end_of, writer, late)
            seen = (
                "SELECT true FROM pg_stat_activity WHERE pid = %s AND wait_event IN ("
                "'PgSleep', 'transactionid')"
            )
            wait_for("it is under way", lambda: made.postgres.sql(seen, pid), 3)
        new = made.wait_owner(made.ttl + 10, among=[made.pods[1]])
        assert made.postgres.sql("SELECT true FROM pg_stat_activity WHERE pid = %s", pid) == []
        print(f"{what}: the term moved after {made.slowest_move_ms():.0f} ms")
        assert made.slowest_move_ms() < 1500, "300 + 100 + 50 ms, and the machine"
        if what == "row lock":
            blocker.execute("COMMIT")
        if ended:
            ended.result(15)
        hold(0.5)
        assert made.postgres.sql("SELECT count(*) FROM witness_tick WHERE boot_ns = -1") == [(0,)]
        assert made.term() == (2, new.tag, new.id)
        counters = made.counters()
        assert (counters["ended"], counters["takeover_without_lock"]) == (1, 0), counters
        assert not made.errors(), made.errors()[:3]


def test_m1_statement_of_a_killed_process(lab: Lab) -> None:
    """It waits for a lock when its process is killed; its session does not know. The lock goes when another
    leads: it is refused. (Without the guard it commits: test_sessions.py.)"""
    made = BareCluster(lab, ttl=5, pods=2)
    old = made.start()
    pid = old.meta_pid
    with made.postgres.connect() as blocker, blocker.transaction():
        blocker.execute("LOCK TABLE witness_tick IN EXCLUSIVE MODE")
        waits = "SELECT pid FROM pg_stat_activity WHERE application_name = %s AND wait_event_type = 'Lock'"
        wait_for("an INSERT of the leader waits", lambda: made.postgres.sql(waits, old.tag), 10)
        newest = blocker.execute("SELECT max(n) FROM witness_tick WHERE pid = %s", (pid,)).fetchone()
        assert newest is not None
        old.signal_meta(signal.SIGKILL)
        old.main.wait(5)
        wait_for("the term has moved", lambda: made.term()[1] == made.pods[1].tag, made.ttl + 10)
    wait_for("nothing of it waits any more", lambda: not made.postgres.sql(waits, old.tag), 10)
    late = made.postgres.sql("SELECT count(*) FROM witness_tick WHERE pid = %s AND n > %s", pid, newest[0])
    assert late == [(0,)]
    assert made.counters()["takeover_without_lock"] == 0


def test_m2_campaign_of_a_killed_process(lab: Lab) -> None:
    """It waits for the row when its process dies, and renews after its death. The takeover comes a second
    later than it could; term and row are right all the same."""
    made = BareCluster(lab, ttl=5, pods=2)
    old = made.start()
    with made.postgres.connect() as blocker, blocker.transaction():
        blocker.execute("SELECT FROM election_leader FOR UPDATE")
        waits = (
            "SELECT pid FROM pg_stat_activity WHERE application_name = %s AND wait_event_type = 'Lock'"
            " AND query ILIKE '%%election_leader%%'"
        )
        wait_for("its campaign waits", lambda: made.postgres.sql(waits, old.tag), 10)
        old.signal_meta(signal.SIGKILL)
        old.main.wait(5)
    new = made.wait_owner(made.ttl + 10, among=[made.pods[1]])
    assert made.term() == (2, new.tag, new.id)
    assert_quiet(made)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_old_snapshot(lab: Lab, level: str) -> None:
    """A transaction that began before the takeover and writes after it, at a level that would not see it."""
    made = BareCluster(lab, ttl=5, pods=2)
    old = made.start()
    with closing(session_of(made, old)) as zombie:
        zombie.execute(f"BEGIN ISOLATION LEVEL {level}")
        zombie.execute("SELECT count(*) FROM witness_tick")
        old.signal_meta(signal.SIGKILL)
        made.wait_owner(made.ttl + 10, among=[made.pods[1]])
        with pytest.raises(psycopg.errors.SerializationFailure):
            zombie.execute("DELETE FROM witness_tick")
        zombie.execute("ROLLBACK")
        zombie.execute(f"BEGIN ISOLATION LEVEL {level}")
        with pytest.raises(psycopg.Error) as refusal:
            zombie.execute("DELETE FROM witness_tick")
        assert refusal.value.sqlstate == "MF001"
        zombie.execute("ROLLBACK")
    assert_quiet(made)

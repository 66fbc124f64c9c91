# SPDX-License-Identifier: Apache-2.0
"""rw#27092, "stale in-memory worker entries can survive an SQL-election leader handoff", by the ten steps of
the report's own test plan. Steps 4 to 7 are where two processes race in real life; here each waits for the
other at a pause point.

 1  two metas, one compute node, which runs a job           6  the new leader loads its workers
 2  the compute node dies, its row stays                    7  the old leader goes on and deletes
 3  the old leader's checker finds the row expired          8  the compute node registers again
 4  ... and waits with what it has loaded                   9  one endpoint: how many ids?
 5  another meta takes the lease                           10  does recovery end?
"""

import re
import signal
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from harness.waiting import boot_ns, wait_for
from kubelab import Cluster, Database
from kubelab.fixtures import drop_namespace, make_namespace, save_evidence
from metas import CallFailed, Compute, Meta, Registry
from metas.faults import supersede, supersede_by_link
from metas.registry import COMMITTED, FAILURES, Row

Note = Callable[[str, Any], None]
Enlist = Callable[..., Registry]
EXPIRY = ("--max-heartbeat-interval=5s",)
CHECKER = "checker-loaded"
RESETS = 6
CURED_S = 10.0
WAITING_DELETES = """SELECT pid FROM pg_stat_activity WHERE datname = current_database()
   AND wait_event_type = 'Lock' AND query LIKE 'DELETE FROM worker %'"""


HANDOFFS = {"error": supersede, "link": supersede_by_link}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "handoff" in metafunc.fixturenames:
        wanted = list(HANDOFFS) if metafunc.config.getoption("--full") else ["error"]
        metafunc.parametrize("handoff", wanted)


@dataclass
class Story:
    """Where the ten steps have come to."""

    metas: Registry
    old: Meta
    incarnation: str  # of the old leader
    compute: Compute
    worker: int  # the id that the row has before the handoff
    leader: Meta  # since step 6 the new one
    back: int = 0  # boot_ns of step 8

    @property
    def address(self) -> str:
        return f"{self.compute.name}.compute:5688"

    @property
    def rows(self) -> dict[int, str]:
        return {row.worker: row.address for row in self.metas.rows()}


def expire(metas: Registry, old: Meta) -> Story:
    """Steps 1 to 4. No other meta's checker deletes anything: what is shown is the old leader's."""
    for meta in metas.metas:
        meta.hold_at(CHECKER)
    [compute] = metas.wait_computes(1)
    incarnation = old.incarnation
    assert incarnation is not None
    metas.wait("its job runs", lambda: old.events("database_running", 0, incarnation), 30)
    [row] = metas.rows()
    assert row.status == "RUNNING" and str(row.worker) == compute.worker()
    story = Story(metas, old, incarnation, compute, row.worker, old)
    compute.hold_at("start")  # its container starts again; the process waits
    compute.signal("metasim", signal.SIGKILL)
    loaded = metas.wait("the checker has loaded it", lambda: old.events("paused", 0, incarnation), 30)
    assert loaded[-1].fields["workers"] == f"[{row.worker}@{story.address}]"
    return story


def hand_over(story: Story, handoff: str = "error") -> None:
    """Steps 5 and 6."""
    since = boot_ns()
    story.leader = HANDOFFS[handoff](story.metas, story.old)
    loaded = story.leader.events("registry_loaded", since)[-1]
    assert loaded.fields["ids"] == f"[{story.worker}]", loaded
    story.metas.wait("its first recovery", lambda: story.leader.events("recovery_done", since), 30)


def late_delete(story: Story, outcome: str) -> Any:
    """Step 7: what became of it, as the old leader saw it."""
    assert story.old.incarnation == story.incarnation, "the old leader is gone"
    since = boot_ns()
    story.old.let_go(CHECKER)
    return story.metas.wait(
        f"the old leader's delete: {outcome}",
        lambda: story.old.events(outcome, since, story.incarnation),
        20,
    )[-1]


def come_back(story: Story) -> int:
    """Step 8: the compute node's id now."""
    story.back = boot_ns()
    story.compute.let_go("start")
    return int(story.compute.wait_worker(story.back, 60))


def wait_recovered(story: Story) -> int:
    """Step 10; since when its job runs, with barriers that are committed."""
    leader, metas = story.leader, story.metas
    running = metas.wait("recovery ends", lambda: leader.events("database_running", story.back), 60)[
        -1
    ].boot_ns
    first = metas.wait("a barrier is committed", lambda: leader.metric(COMMITTED), 30)
    metas.wait("barriers are committed", lambda: leader.metric(COMMITTED) > first, 30)
    return running


def assert_all_well(story: Story, worker: int) -> None:
    """Steps 9 and 10: one endpoint, one id, one control stream, and recovery ends."""
    running = wait_recovered(story)
    assert [w for w, address in story.rows.items() if address == story.address] == [worker]
    assert story.metas.active(story.leader) == {worker: story.address}
    assert not story.compute.events("stream_reset", running), "its control stream was taken away"
    assert not story.leader.events("database_failed", running)
    assert {a["worker"] for a in story.leader.call("actors")} == {worker}


def leave(story: Story) -> None:
    """The old leader ends, as one does that has learned of its successor, and starts again as a follower. Of
    the two kinds of harm that it does only the one to metadata is the guard's: until its end it takes the
    compute nodes' control streams."""
    story.old.signal("metasim", signal.SIGTERM)
    story.metas.wait(f"{story.old} follows", lambda: story.old.is_follower, 60)


def pause(meta: Meta) -> None:
    meta.cli("pause", "--for", "30m", "--reason", "only the guard")
    meta.wait_status("is paused", lambda s: "Paused" in s["not_covered"], 10)


def tag_of(story: Story) -> str:
    return story.old.events("start", 0, story.incarnation)[-1].fields["tag"]


# --- without metafence -----------------------------------------------------------------------


def test_rw27092_control(enlist: Enlist, handoff: str, note: Note) -> None:
    metas = enlist(guarded=False, flags=EXPIRY)
    story = expire(metas, metas.start())
    compute = story.compute
    hand_over(story, handoff)
    assert late_delete(story, "worker_deleted").fields["worker"] == str(story.worker)
    assert story.rows == {}
    leader = story.leader
    leader.hold_at("stream-reconnect")  # else the dead id may get as far as a commit, whose failure heals it
    worker = come_back(story)
    assert worker != story.worker and story.rows == {worker: story.address}
    both = {story.worker: story.address, worker: story.address}
    metas.wait("one endpoint has two ids", lambda: metas.active(leader) == both, 20)
    leader.let_go("stream-reconnect")

    # A list by an operator aborts the one that lacks the row, here the old leader: that ends it.
    with pytest.raises(CallFailed):
        story.old.call("list")
    aborts = wait_for("it aborts", lambda: story.old.events("abort", 0, story.incarnation), 10)
    assert f"Invalid worker: {worker}, worker not found" in aborts[0].fields["why"], aborts
    alone = boot_ns()

    def resets() -> list[Any]:
        return compute.events("stream_reset", alone)

    metas.wait(f"{RESETS} resets", lambda: len(resets()) >= RESETS, 60)
    for identity in both:
        opened = [e for e in leader.events("stream_connected", alone) if e.fields["worker"] == str(identity)]
        assert len(opened) >= 2, f"streams of worker {identity}: {opened}"
    rate = len(resets()) / ((boot_ns() - alone) / 1e9)
    count, failures = len(resets()), leader.metric(FAILURES)
    metas.wait("and no end", lambda: len(resets()) > count and leader.metric(FAILURES) > failures, 30)
    assert not leader.events("database_running"), "recovery has ended"
    assert leader.metric(COMMITTED) == 0
    assert metas.active(leader) == both
    actors = {a["worker"] for a in leader.call("actors")}
    assert story.worker in actors, f"actors are placed on {actors}"
    note("control streams reset, a second", round(rate, 2))


# --- the guard alone -------------------------------------------------------------------------


@dataclass(frozen=True)
class Evidence:
    """Of one run in which metafence-run never acts, so that the guard is alone: what the criteria judge."""

    story: Story
    tag: str  # of the old leader
    refusals: dict[str, str]  # what the old leader tried, and what it was told
    rows_before: list[Row]
    rows_after: list[Row]  # after all that it tried
    mutations: list[dict[str, Any]]  # of the rows, from the handoff to the end
    worker: int  # the compute node's id after it came back
    active: dict[int, str]  # the new leader's map in the end
    rows: dict[int, str]  # and the table
    listed: list[dict[str, Any]]  # what the new leader answers to ListAllNodes
    resets: int  # of the compute node's control stream since its job runs
    streams: int  # that were open at the same time in the end
    committed: tuple[float, float]  # the new leader's last committed barrier, twice
    aborts: list[Any]  # of the new leader
    fences: int  # of the old leader
    extra: dict[str, Any] = field(default_factory=dict)


@contextmanager
def scene(cluster: Cluster, name: str, **options: Any) -> Iterator[Registry]:
    """As namespace, database and enlist, for what several tests look at."""
    name = f"{name}-{uuid.uuid4().hex[:6]}"
    make_namespace(cluster, name, "restricted")
    database = Database(cluster.postgres, "t_" + name.replace("-", "_")).create()
    registry = Registry(cluster, name, database, flags=EXPIRY, **options)
    try:
        yield registry
    except BaseException:
        print(f"pods, events and logs are kept in {save_evidence(cluster, name)}")
        raise
    finally:
        registry.close()
        drop_namespace(cluster, name)
        database.drop()


def try_everything(story: Story) -> dict[str, str]:
    """What the old leader does to the table, and what it is told."""
    told = {"delete of the expired": late_delete(story, "expiry_failed").fields["msg"]}
    for words in (("delete", story.address), ("register", story.address), ("register", "other.compute:5688")):
        with pytest.raises(CallFailed) as refused:
            story.old.call(*words)
        told[" ".join(words)] = str(refused.value)
    return told


def collect(story: Story) -> Evidence:
    """Steps 5 to 10 with the old leader's fence paused."""
    metas, old = story.metas, story.old
    tag, fences = tag_of(story), old.run_status()["fences"]
    pause(old)
    hand_over(story)
    [(mark,)] = metas.database.sql("SELECT coalesce(max(id), 0) FROM metafence.mutation")
    before = metas.rows()
    refusals = try_everything(story)
    after = metas.rows()
    assert old.incarnation == story.incarnation, "the guard was not alone"
    leave(story)
    worker = come_back(story)
    running = wait_recovered(story)
    leader, compute = story.leader, story.compute
    first = leader.metric(COMMITTED)
    wait_for("more barriers", lambda: leader.metric(COMMITTED) > first, 30)
    born = compute.events("start", story.back - int(600e9))[-1].boot_ns
    streams = len(compute.events("stream_open", born)) - len(compute.events("stream_reset", born))
    return Evidence(
        story=story,
        tag=tag,
        refusals=refusals,
        rows_before=before,
        rows_after=after,
        mutations=metas.mutations(mark),
        worker=worker,
        active=metas.active(leader),
        rows=story.rows,
        listed=leader.call("list"),
        resets=len(compute.events("stream_reset", running)),
        streams=streams - len(compute.events("stream_end", born)),
        committed=(first, leader.metric(COMMITTED)),
        aborts=leader.events("abort"),
        fences=old.run_status()["fences"] - fences,
    )


@pytest.fixture(scope="module")
def guard_alone(shared_cluster: Cluster) -> Evidence:
    with scene(shared_cluster, "rw27092-guard-alone") as metas:
        story = expire(metas, metas.start())
        try:
            return collect(story)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{metas.describe()}") from None


def test_rw27092_guard_only(guard_alone: Evidence, note: Note) -> None:
    e = guard_alone
    story, message = e.story, e.refusals["delete of the expired"]
    assert (
        f"metafence: DELETE of worker refused: key worker_id={story.worker}, session {e.tag} led term 1,"
        " the term is 2" in message
    ), message
    assert "MF001" in message, message
    assert e.fences == 0 and e.worker == story.worker
    assert e.rows == e.active == {story.worker: story.address}
    assert (e.resets, e.streams) == (0, 1) and e.committed[1] > e.committed[0] > 0
    back_s = (story.leader.events("database_running", story.back)[-1].boot_ns - story.back) / 1e9
    note("job runs after the compute node is back, s", round(back_s, 2))


# --- the report's criteria -------------------------------------------------------------------


def test_rw27092_criterion_1_old_leader_changes_no_worker(guard_alone: Evidence) -> None:
    """A leader that was superseded can't change the workers' rows any more, whatever it tries."""
    e = guard_alone
    assert len(e.refusals) == 4
    for what, told in e.refusals.items():
        assert "metafence: " in told and " refused: " in told and e.tag in told, f"{what}: {told}"
    assert e.rows_after == e.rows_before != []
    assert e.mutations and e.tag not in {m["tag"] for m in e.mutations}, e.mutations


def test_rw27092_criterion_3_one_id_for_one_endpoint(guard_alone: Evidence) -> None:
    """Also after it registers again: in the table, in the leader's map, and for the control stream."""
    e = guard_alone
    assert list(e.active.values()) == [e.story.address]
    assert list(e.rows) == list(e.active) == [e.worker]
    assert (e.resets, e.streams) == (0, 1)


def test_rw27092_criterion_4_leader_knows_what_the_table_says(guard_alone: Evidence) -> None:
    """The new leader's memory and the table agree about which workers there are."""
    e = guard_alone
    assert {n["worker"]: n["host"] for n in e.listed} == e.rows == e.active
    assert not e.story.leader.events("worker_unknown"), "asked for a worker that its memory lacks"
    assert not e.story.compute.events("unknown_worker", e.story.back)


def test_rw27092_criterion_5_recovery_ends(guard_alone: Evidence) -> None:
    """Nobody has to call RECOVER or restart anything: initial barriers are injected and collected."""
    e = guard_alone
    leader, back = e.story.leader, e.story.back
    assert leader.events("database_running", back) and e.committed[1] > e.committed[0] > 0
    asked = [r.fields["reason"] for r in leader.events("recovery_start", back)]
    assert "adhoc recovery" not in asked, asked


def test_rw27092_criterion_6_list_can_not_panic(guard_alone: Evidence) -> None:
    """Up to v3.0.3 a row that a leader's memory lacks aborts it when it lists workers, as it does in each
    global recovery. The old leader tried to add such a row."""
    e = guard_alone
    assert "register other.compute:5688" in e.refusals
    assert e.listed and not e.aborts
    assert {n["worker"] for n in e.listed} == {e.worker}


# --- the fence, with and without the guard ---------------------------------------------------


def assert_dead(story: Story) -> None:
    """The old leader's process is no more, and another runs in its pod."""
    old = story.old
    story.metas.wait(f"{old} is fenced and follows", lambda: old.is_follower, 60)
    assert old.incarnation != story.incarnation
    assert story.rows == {story.worker: story.address}
    assert not old.events("worker_deleted", 0, story.incarnation)


def acted_beside_ms(story: Story) -> int:
    elected = story.leader.events("elected")[-1].boot_ns
    last = story.old.events("tick", 0, story.incarnation)[-1].boot_ns
    return max(0, last - elected) // 10**6


def delete_in_flight(story: Story) -> None:
    """Steps 5 to 7 when the delete has reached Postgres before the handoff: it waits there for a lock on its
    row. A statement whose client is killed goes on waiting, and commits."""
    metas = story.metas
    with metas.database.connect() as judge, metas.database.connect() as holder, holder.transaction():
        holder.execute("SELECT FROM worker WHERE worker_id = %s FOR UPDATE", [story.worker])
        story.old.let_go(CHECKER)

        def pids() -> list[int]:
            return [pid for (pid,) in judge.execute(WAITING_DELETES)]

        [pid] = wait_for("the delete waits in Postgres", pids, 20)
        hand_over(story)
        wait_for("its session is ended", lambda: pid not in pids(), 20)


@pytest.mark.parametrize("guard", ["off", "enforce"], ids=["fence_only", "both"])
def test_rw27092_fenced(enlist: Enlist, guard: str, handoff: str, note: Note) -> None:
    metas = enlist(guard=guard, flags=EXPIRY)
    story = expire(metas, metas.start())
    hand_over(story, handoff)
    assert_dead(story)
    assert not story.old.events("resumed", 0, story.incarnation), "it came to its delete"
    note("old leader's last act after the other was elected, ms", acted_beside_ms(story))
    assert come_back(story) == story.worker
    assert_all_well(story, story.worker)

    # Once more, the other way round, with the delete in flight.
    story = expire(metas, story.leader)
    delete_in_flight(story)
    assert_dead(story)
    assert come_back(story) == story.worker
    assert_all_well(story, story.worker)
    assert metas.verdict()["overlaps"] == 0
    if guard == "enforce":
        [(without,)] = metas.database.sql(
            "SELECT value FROM metafence.counters() WHERE name = 'takeover_without_lock'"
        )
        assert without == 0


# --- observe: damage, and its cure -----------------------------------------------------------


@dataclass(frozen=True)
class Cured:
    """One run in which the old leader was let write, and the new leader's agent mended what that did."""

    story: Story
    seen: list[tuple[str, str]]  # what the guard would have refused: table, operation
    foreign: int  # the id of a row that the old leader added
    restart_s: float  # until the new leader had loaded it
    kept_lease: bool  # by that restart
    listed: list[int]  # ids that the new leader lists after it
    cure_s: float  # from when the endpoint had another id in the table, to the end of a global recovery
    worker: int
    recoveries: int  # that were asked for since then
    restarted_again: bool
    deeds: list[tuple[str, int | None, str]]  # metafence's record: action, worker, reason


def add_foreign_row(story: Story) -> tuple[int, float]:
    """The old leader adds a row. Its id, and how long it took until the new leader had loaded it."""
    leader, since = story.leader, boot_ns()
    foreign = story.old.call("register", "stranger.compute:5688")["worker"]

    def loaded() -> list[Any]:
        found = leader.events("registry_loaded", since)
        return [e for e in found if str(foreign) in re.findall(r"\d+", e.fields["ids"])]

    done = story.metas.wait("the new leader starts again and loads the row", loaded, 60)
    story.metas.wait("it leads", lambda: leader.acts_as_leader, 30)
    return foreign, (done[0].boot_ns - since) / 1e9


def damage_and_cure(story: Story) -> Cured:
    metas, old = story.metas, story.old
    tag = tag_of(story)
    pause(old)
    hand_over(story)
    foreign, restart_s = add_foreign_row(story)
    leader = story.leader
    kept_lease = metas.database.owner() == leader.id
    listed = [n["worker"] for n in leader.call("list")]
    assert late_delete(story, "worker_deleted").fields["worker"] == str(story.worker)
    leave(story)
    incarnation = leader.incarnation
    worker = come_back(story)
    registered = leader.events("worker_added", story.back)[0].boot_ns

    def asked() -> list[Any]:
        return [e for e in leader.events("recovery_start", registered) if "adhoc" in e.fields["reason"]]

    began = metas.wait("a global recovery was asked for", asked, 60)[0].boot_ns
    ended = metas.wait("it is over", lambda: leader.events("recovery_done", began), 60)[0].boot_ns
    wait_recovered(story)
    return Cured(
        story=story,
        seen=metas.database.sql(
            "SELECT DISTINCT relation, operation FROM metafence.observed WHERE tag = %s", tag
        ),
        foreign=foreign,
        restart_s=restart_s,
        kept_lease=kept_lease,
        listed=listed,
        cure_s=(ended - registered) / 1e9,
        worker=worker,
        recoveries=len(asked()),
        restarted_again=leader.incarnation != incarnation,
        deeds=metas.deeds(),
    )


@pytest.fixture(scope="module")
def cured(shared_cluster: Cluster) -> Cured:
    with scene(shared_cluster, "rw27092-observe", guard="observe") as metas:
        story = expire(metas, metas.start())
        try:
            result = damage_and_cure(story)
            assert_all_well(story, result.worker)
            return result
        except AssertionError as error:
            raise AssertionError(f"{error}\n{metas.describe()}") from None


def test_rw27092_observe(cured: Cured, note: Note) -> None:
    """What enforce would refuse happens and is recorded. The damage is seen from the log of the rows, and
    mended without a restart: a global recovery reads the table anew."""
    assert {("worker", "DELETE"), ("worker", "INSERT")} <= set(cured.seen), cured.seen
    assert cured.worker not in (cured.story.worker, cured.foreign), "the endpoint has its old id"
    assert cured.recoveries == 1 and not cured.restarted_again, cured
    assert cured.cure_s <= CURED_S
    assert "recover" in {action for action, _, _ in cured.deeds}, cured.deeds
    note("memory and table differed for, s", round(cured.cure_s, 2))


def test_rw27092_criterion_6_observed_row_can_not_panic(cured: Cured, note: Note) -> None:
    """Where such a row may come to be, the leader is restarted before it lists: it loads the row."""
    assert cured.foreign in cured.listed and cured.kept_lease
    assert not cured.story.leader.events("abort")
    assert cured.restart_s <= CURED_S
    assert "restart" in {action for action, _, _ in cured.deeds}, cured.deeds
    note("the leader knew the foreign row after, s", round(cured.restart_s, 2))

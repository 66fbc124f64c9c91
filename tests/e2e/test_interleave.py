# SPDX-License-Identifier: Apache-2.0
"""The plan of the random interleavings is the seed's alone, and their judge sees what was planted: without a
cluster."""

from dataclasses import replace
from functools import cache

import pytest
from harness.logs import Event
from interleave import evidence, plan
from interleave.deeds import Deeds
from interleave.judge import (
    CLOCK_NS,
    LATE_NS,
    TOLD_NS,
    Actor,
    Cause,
    History,
    Panic,
    Passage,
    Refusal,
    Removal,
    S,
    Verdict,
    Wait,
    judge,
)

SEEDS, ROUNDS = range(40), 50
MS = S // 1000


@cache
def every_round() -> list[plan.Round]:
    return [one for seed in SEEDS for one in plan.interleavings(seed, ROUNDS)]


# --- the plan --------------------------------------------------------------------------------


def test_a_seed_is_a_plan_and_each_round_can_be_made_alone() -> None:
    for seed in SEEDS:
        rounds = list(plan.interleavings(seed, ROUNDS))
        assert rounds == [plan.interleaving(seed, number) for number in range(1, ROUNDS + 1)]
    assert len({one.faults for one in every_round()}) == len(every_round())


def test_each_kind_with_each_detail_is_reached() -> None:
    faults = [fault for one in every_round() for fault in one.faults]
    seen = {(f.kind, *pair) for f in faults for pair in (f.detail or (("", ""),))}
    kinds = [*plan.KINDS, plan.OPENING, plan.CHUNK, plan.DROP]
    wanted = {(k.name, name, value) for k in kinds for name, values in k.choices for value in values}
    wanted |= {(k.name, "", "") for k in kinds if not k.choices}
    assert seen == wanted


def test_a_round_opens_with_a_job_in_a_chunk_and_all_else_comes_meanwhile() -> None:
    for one in every_round():
        first, second, *others = one.faults
        assert (first.kind, first.at, first["how"]) == ("create", 0, "foreground")
        assert (second.kind, second.at) == ("busy", 0) and second.seconds > 0
        assert len(others) > plan.STEPS[0] and "create" in {f.kind for f in others}
        assert [f.at for f in others] == sorted(f.at for f in others) and others[-1].at <= plan.WITHIN_S


def test_every_fault_ends_in_bounded_time() -> None:
    for one in every_round():
        for fault in one.faults:
            kind = plan.BY_NAME[fault.kind]
            assert fault.seconds <= max(kind.longest, plan.CHUNK.longest) or fault.seconds == plan.ENDLESS_S


def test_most_rounds_drop_and_some_chunks_outlast_the_hold() -> None:
    rounds = every_round()
    dropping = sum(any(f.kind == "drop" for f in one.faults) for one in rounds)
    endless = sum(one.faults[1].seconds == plan.ENDLESS_S for one in rounds)
    assert dropping > 0.8 * len(rounds) and 0.05 * len(rounds) < endless < 0.2 * len(rounds)


def test_only_agents_that_kill_are_killed_for_it() -> None:
    for seed in SEEDS:
        kinds = {fault.kind for one in plan.interleavings(seed, ROUNDS) for fault in one.faults}
        assert ("killer_killed" in kinds) == plan.has_kills(seed)


def test_each_kind_can_be_done() -> None:
    for name in plan.BY_NAME:
        assert callable(getattr(Deeds, name))
    assert set(plan.KEEPS_AGENTS) <= set(plan.BY_NAME)


# --- the judge -------------------------------------------------------------------------------

FREE, BUSY = "127.0.0.1:25001", "meta-store.test:25002"


def good() -> History:
    """A job on tables 11 and 12 is dropped, and refused at 101 s and 102 s; its actor is reset at 103 s, it
    is purged at 104 s. What stays runs on tables 21 and 22, and is built anew behind the purge."""
    actors = (
        Actor("c1", FREE, 1, (21, 22), 90 * S, 100 * S),
        Actor("c2", BUSY, 2, (11, 12), 95 * S, 103 * S),
        Actor("c1", FREE, 3, (21, 22), 105 * S),
    )
    return History(
        max_hold_ns=15 * S,
        actors=actors,
        removals=(Removal(104 * S + 5 * MS, "m1", "purge", (11, 12)),),
        passages=(Passage(1, 104 * S, 7, "acknowledged", (11, 12), 4000),),
        refusals=(Refusal(101 * S, 7), Refusal(102 * S, 7)),
        held_from=((7, 100 * S),),
        waits=(Wait("round 1", 9.5),),
    )


def with_passage(history: History, **changes: object) -> History:
    return replace(history, passages=(replace(history.passages[0], **changes),))  # type: ignore[arg-type]


def unended(history: History, to_ns: int | None = None) -> History:
    """The dropped job's actor ends at that moment, or lives on."""
    first, second, *others = history.actors
    return replace(history, actors=(first, replace(second, to_ns=to_ns), *others))


def rules(verdict: Verdict) -> list[str]:
    return [finding.rule for finding in verdict.violations]


def test_a_good_history_is_clean() -> None:
    verdict = judge(good())
    assert verdict.is_clean, verdict
    assert (verdict.rounds, verdict.actors, verdict.removals, verdict.refusals) == (1, 3, 1, 2)
    assert verdict.outcomes == {"acknowledged": 1} and verdict.slowest_s == 9.5


def test_a_removal_under_a_living_actor() -> None:
    verdict = judge(unended(good()))
    assert rules(verdict) == ["unproven", "under actor"], verdict
    for word in ("m1", "(11, 12)", "by purge", "actor 2 of c2", "lives on"):
        assert word in str(verdict.violations[1]), verdict


@pytest.mark.parametrize("by", ["drop", "replace", "dirty", "pre-applied", "post-collect"])
def test_whoever_removes_no_actor_may_live(by: str) -> None:
    history = replace(good(), removals=(Removal(102 * S, "m1", by, (12,)),), passages=())
    assert "under actor" in rules(judge(history))
    assert "under actor" not in rules(judge(unended(history, 102 * S)))


@pytest.mark.parametrize(("after_ns", "is_seen"), [(0, False), (1, True)])
def test_an_actor_that_ends_at_that_moment_reads_no_more(after_ns: int, is_seen: bool) -> None:
    history = unended(good(), good().removals[0].at_ns + after_ns)
    assert ("under actor" in rules(judge(history))) == is_seen


def test_an_actor_of_other_tables_is_no_concern_of_a_drop() -> None:
    """It is of a purge, unless its node was NONE."""
    one = Actor("c1", FREE, 4, (31,), 90 * S)
    history = replace(good(), actors=(*good().actors, one))
    assert rules(judge(history)) == ["unproven"]
    assert judge(with_passage(history, none=(FREE,))).is_clean
    assert rules(judge(with_passage(history, none=(BUSY,)))) == ["unproven"]


def test_none_does_not_excuse_an_actor_of_what_is_removed() -> None:
    assert rules(judge(with_passage(unended(good()), none=(BUSY,)))) == ["under actor"]


def test_an_actor_that_is_built_behind_the_purge_proves_nothing() -> None:
    *before, built = good().actors
    at_ns = good().passages[0].at_ns - CLOCK_NS
    assert judge(replace(good(), actors=(*before, replace(built, from_ns=at_ns + 1)))).is_clean
    assert rules(judge(replace(good(), actors=(*before, replace(built, from_ns=at_ns))))) == ["unproven"]


@pytest.mark.parametrize(("after_ns", "is_seen"), [(0, False), (1, True)])
def test_an_actor_that_has_ended_just_before_proves_nothing(after_ns: int, is_seen: bool) -> None:
    passed = replace(good().passages[0], at_ns=103 * S - CLOCK_NS - after_ns)
    assert rules(judge(replace(good(), passages=(passed,)))) == (["unproven"] if is_seen else [])


def test_a_bound_excuses_what_it_was_for() -> None:
    bound = with_passage(unended(good()), outcome="bound", held_ms=15000)
    died = replace(bound, panics=(Panic(106 * S, "c2", 12),))
    verdict = judge(died)
    assert verdict.is_clean and verdict.panics == 1, verdict
    other = replace(died, panics=(Panic(106 * S, "c2", 21),))
    assert rules(judge(other)) == ["panic"], "a table that it did not remove"
    before = replace(died, panics=(Panic(103 * S, "c2", 12),))
    assert rules(judge(before)) == ["panic"], "it had not yet"


@pytest.mark.parametrize(("held_ms", "is_early"), [(14999, True), (15000, False)])
def test_a_bound_before_its_time(held_ms: int, is_early: bool) -> None:
    verdict = judge(with_passage(good(), outcome="bound", held_ms=held_ms))
    assert rules(verdict) == (["early"] if is_early else [])


def test_a_panic_without_a_bound() -> None:
    verdict = judge(replace(good(), panics=(Panic(106 * S, "c2", 12),)))
    assert rules(verdict) == ["panic"] and "table 12" in str(verdict.violations[0])
    assert "acknowledged" in str(verdict.violations[0]), "by which purge it went"


def beyond(is_database: bool = True) -> History:
    """What the database's recovery removes under an actor of a node that is cut off, which dies of it."""
    removal = replace(good().removals[0], by="pre-applied", is_database=is_database)
    cut_off = (Cause("c2", 100 * S, 110 * S),)
    panics = (Panic(106 * S, "c2", 12),)
    history = unended(replace(good(), removals=(removal,), cut_off=cut_off, panics=panics), 106 * S)
    return with_passage(history, tables=(31,), at_ns=80 * S)


def test_what_nobody_holds_is_told_apart() -> None:
    verdict = judge(beyond())
    assert verdict.is_clean and [f.rule for f in verdict.explained] == ["under actor", "panic"], verdict


@pytest.mark.parametrize(
    "history",
    [
        beyond(is_database=False),
        replace(beyond(), cut_off=(Cause("c1", 100 * S, 110 * S),)),
        replace(beyond(), cut_off=(Cause("c2", 100 * S, 104 * S),)),
    ],
    ids=["a global recovery", "another node", "before"],
)
def test_only_of_a_node_that_could_not_be_reset(history: History) -> None:
    verdict = judge(history)
    assert rules(verdict) == ["under actor", "panic"] and not verdict.explained


def test_a_purge_without_a_record() -> None:
    assert rules(judge(replace(good(), passages=()))) == ["ungated", "blind"]
    assert rules(judge(with_passage(good(), tables=(11,)))) == ["ungated"]
    late = replace(good(), removals=(replace(good().removals[0], at_ns=104 * S + TOLD_NS + 1),))
    assert rules(judge(late)) == ["ungated"]
    ordinary = replace(good(), removals=(*good().removals, Removal(120 * S, "m1", "drop", (41,))))
    assert judge(ordinary).is_clean


@pytest.mark.parametrize("outcome", ["open: no agent", "observed", "failed: 22012", "open: no session tag"])
def test_a_gate_that_is_open_wants_a_cause(outcome: str) -> None:
    history = with_passage(good(), outcome=outcome)
    assert rules(judge(history)) == ["open"]
    cause = Cause("agent_killed", 95 * S, 110 * S)
    assert judge(replace(history, causes=(cause,))).is_clean == (outcome == "open: no agent")
    assert rules(judge(replace(history, causes=(replace(cause, to_ns=104 * S - 1),)))) == ["open"]


@pytest.mark.parametrize(("late_ns", "is_late"), [(0, False), (1, True)])
def test_a_refusal_long_after_max_hold(late_ns: int, is_late: bool) -> None:
    history = replace(good(), refusals=(Refusal(100 * S + 15 * S + LATE_NS + late_ns, 7),))
    assert rules(judge(history)) == (["overheld"] if is_late else [])


def test_who_waits_for_ever() -> None:
    verdict = judge(replace(good(), waits=(Wait("round 1", 240.2, "an answer to recover"),)))
    assert rules(verdict) == ["stuck"]
    assert "round 1" in str(verdict.violations[0]) and "an answer to recover" in str(verdict.violations[0])


@pytest.mark.parametrize("lacking", ["actors", "removals", "passages", "waits"])
def test_who_can_t_tell_does_not_call_it_clean(lacking: str) -> None:
    assert "blind" in rules(judge(replace(good(), **{lacking: ()})))  # type: ignore[arg-type]


# --- the evidence ----------------------------------------------------------------------------


class FakeNode:
    """One with these lines in its witness file."""

    name, address = "c1", FREE

    def __init__(self, *events: Event) -> None:
        self._events = list(events)
        self.witness = self

    def events(self, kind: str | None = None) -> list[Event]:
        return [event for event in self._events if kind in (None, event.kind)]

    def panics(self) -> list[Event]:
        return self.events("panic")


def line(at: int, kind: str, pid: int, **fields: str) -> Event:
    return Event(at, kind, {**fields, "pid": str(pid)})


BEGAN = {"actor": "5", "fragment": "101", "tables": "[11 12]"}


@pytest.mark.parametrize(
    ("lines", "killed", "ends"),
    [
        ([line(20, "actor_ended", 1, actor="5", fragment="101")], {}, 20),
        ([line(20, "actor_ended", 1, actor="6", fragment="101")], {}, None),
        ([line(20, "actor_ended", 2, actor="5", fragment="101")], {}, None),
        ([line(30, "panic", 1, why="…")], {}, 30),
        ([line(30, "panic", 1, why="…")], {1: 35}, 30),
        ([line(40, "exit", 1, code="0")], {}, 40),
        ([], {1: 50}, 50),
        ([], {2: 50}, None),
    ],
)
def test_an_actor_ends_with_its_process_at_the_latest(
    lines: list[Event], killed: dict[int, int], ends: int | None
) -> None:
    node = FakeNode(line(10, "actor_began", 1, **BEGAN), *lines)
    [actor] = evidence.actors(node, killed)  # type: ignore[arg-type]
    assert actor == Actor("c1", FREE, 5, (11, 12), 10, ends)


def test_an_actor_of_the_same_id_is_another_one() -> None:
    ended = {"actor": "5", "fragment": "101"}
    node = FakeNode(
        line(10, "actor_began", 1, **BEGAN),
        line(20, "actor_ended", 1, **ended),
        line(30, "actor_began", 1, **BEGAN),
    )
    assert [(a.from_ns, a.to_ns) for a in evidence.actors(node, {})] == [(10, 20), (30, None)]  # type: ignore[arg-type]


def test_what_the_last_recovery_was_is_told_by_process() -> None:
    def removed(at: int, pid: int) -> Event:
        return line(at, "unregistered", pid, by="drop", tables="[11]", version="3")

    pod = FakeNode(
        removed(5, 1),
        line(10, "recovery_marked", 1, **{"global": "false"}),
        removed(20, 1),
        removed(30, 2),
        line(40, "unregistered", 1, by="drop", tables="[]", version="4"),
        line(50, "recovery_marked", 1, **{"global": "true"}),
        removed(60, 1),
    )
    found = [(r.at_ns, r.is_database) for r in evidence.removals(pod)]  # type: ignore[arg-type]
    assert found == [(5, False), (20, True), (30, False), (60, False)]


def test_a_refusal_names_its_recovery() -> None:
    said = "ERROR: metafence: removal of 2 state tables (11, 12) refused in recovery 7 of term 3: … (MF003)"
    pod = FakeNode(line(10, "unregister_failed", 1, msg=said), line(20, "unregister_failed", 1, msg="cut"))
    assert list(evidence.refusals(pod)) == [Refusal(10, 7)]  # type: ignore[arg-type]


def test_a_panic_says_for_which_table() -> None:
    why = "delta_btree_map: delete of row 3 in partition 1 of table 12, which has no rows"
    [panic] = evidence.panics(FakeNode(line(30, "panic", 1, why=why)))  # type: ignore[arg-type]
    assert panic == Panic(30, "c1", 12)

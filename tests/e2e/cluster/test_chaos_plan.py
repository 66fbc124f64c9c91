# SPDX-License-Identifier: Apache-2.0
"""The plan of ./dev chaos is the seed's alone, and its judge sees what was planted: without a cluster."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import islice

import pytest
from chaos import plan
from chaos.faults import Faults
from chaos.history import Cause, Entry, History, Incarnation, Verdict, is_visible, judge
from chaos.schedule import Schedule

S = 10**9
SEEDS = range(200)


# --- the plan --------------------------------------------------------------------------------


def test_a_seed_is_a_plan() -> None:
    for seed in SEEDS:
        assert list(islice(plan.rounds(seed), 40)) == list(islice(plan.rounds(seed), 40))
    assert len({plan.render(plan.that_fit(5, seed)) for seed in SEEDS}) == len(SEEDS)


def test_more_minutes_go_on_where_fewer_end() -> None:
    short, long = plan.that_fit(5, 7), plan.that_fit(30, 7)
    assert 1 < len(short) < len(long) and long[: len(short)] == short


def test_each_kind_with_each_detail_is_reached() -> None:
    faults = [f for seed in SEEDS for r in islice(plan.rounds(seed), 60) for f in r.faults]
    seen = {(f.kind, *pair) for f in faults for pair in (f.detail or (("", ""),))}
    wanted = {(k.name, name, value) for k in plan.KINDS for name, values in k.choices for value in values}
    wanted |= {(k.name, "", "") for k in plan.KINDS if not k.choices}
    assert seen == wanted


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_kind_is_left_out_for_long(seed: int) -> None:
    first = islice(plan.rounds(seed), len(plan.KINDS))
    assert {f.kind for r in first for f in r.faults} == {kind.name for kind in plan.KINDS}


def test_every_fault_ends_in_bounded_time() -> None:
    for seed in SEEDS:
        for one in islice(plan.rounds(seed), 60):
            for fault in one.faults:
                kind = plan.BY_NAME[fault.kind]
                assert kind.shortest <= fault.seconds <= kind.longest <= plan.MAX_S
                assert 0 <= fault.at and fault.end <= one.seconds <= 2 * plan.MAX_S


def test_pairs_break_two_parts_at_once_and_none_that_wants_to_be_alone() -> None:
    pairs = [r.faults for seed in SEEDS for r in islice(plan.rounds(seed), 60) if len(r.faults) > 1]
    assert len(pairs) > 20 * len(SEEDS) / 10
    for first, second in pairs:
        kinds = plan.BY_NAME[first.kind], plan.BY_NAME[second.kind]
        assert not any(kind.is_alone for kind in kinds) and kinds[0].part != kinds[1].part
        assert second.at <= first.end, "they overlap"


def test_only_some_kinds() -> None:
    chosen = list(islice(plan.rounds(1, ("failover", "meta_killed")), 6))
    assert {f.kind for r in chosen for f in r.faults} == {"failover", "meta_killed"}
    with pytest.raises(KeyError):
        next(plan.rounds(1, ("no_such_kind",)))


def test_a_plan_can_be_read() -> None:
    text = plan.render(plan.that_fit(5, 1))
    assert len(text.splitlines()) >= 5
    assert all(line.split(".")[0].strip().isdigit() for line in text.splitlines() if line[3] == ".")


# --- the schedule ----------------------------------------------------------------------------


class Stage:
    """A world in which only waiting takes time, and what it takes to begin."""

    def __init__(self, takes_s: float = 0, failing: str = "", missing: str = "") -> None:
        self.now, self.takes_s, self.failing, self.missing = 0.0, takes_s, failing, missing
        self.log: list[tuple[float, str, str]] = []
        self.interrupt_at = float("inf")

    def begin(self, fault: plan.Fault, is_first: bool) -> Callable[[], None] | None:
        self.now += self.takes_s
        if fault.kind == self.failing:
            raise OSError(fault.kind)
        if fault.kind == self.missing and not is_first:
            return None
        self.log.append((self.now, "begin", fault.kind))
        return lambda: self.log.append((self.now, "end", fault.kind))

    def wait(self, end_ns: int, under_way: list[plan.Fault]) -> None:
        if end_ns / 1e9 > self.interrupt_at:
            raise KeyboardInterrupt
        self.now = max(self.now, end_ns / 1e9)

    def play(self, *faults: plan.Fault) -> list[tuple[float, str, str]]:
        Schedule(self.begin, self.wait, lambda: int(self.now * 1e9)).play(plan.Round(1, faults))
        return self.log


LONG, WITHIN, AFTER = plan.Fault("long", 0, 10), plan.Fault("within", 2, 3), plan.Fault("after", 9, 4)


def test_faults_begin_and_end_in_time() -> None:
    began_long, ended_long = (0, "begin", "long"), (10, "end", "long")
    within = [(2, "begin", "within"), (5, "end", "within")]
    assert Stage().play(LONG, WITHIN) == [began_long, *within, ended_long]
    assert Stage().play(LONG, AFTER) == [began_long, (9, "begin", "after"), ended_long, (13, "end", "after")]


def test_a_fault_lasts_from_when_it_had_begun() -> None:
    assert Stage(takes_s=7).play(LONG) == [(7, "begin", "long"), (17, "end", "long")]


def test_a_second_fault_may_find_nothing() -> None:
    assert Stage(missing="within").play(LONG, WITHIN) == [(0, "begin", "long"), (10, "end", "long")]


def test_all_end_when_one_can_t_begin() -> None:
    stage = Stage(failing="within")
    with pytest.raises(OSError):
        stage.play(LONG, WITHIN)
    assert stage.log == [(0, "begin", "long"), (2, "end", "long")]


def test_all_end_when_somebody_interrupts() -> None:
    stage = Stage()
    stage.interrupt_at = 4
    with pytest.raises(KeyboardInterrupt):
        stage.play(LONG, WITHIN)
    assert sorted(stage.log[2:]) == [(2, "end", "long"), (2, "end", "within")]


def test_all_end_when_one_can_t_end() -> None:
    ended = []

    def begin(fault: plan.Fault, is_first: bool) -> Callable[[], None]:
        def end() -> None:
            ended.append(fault.kind)
            raise OSError(fault.kind)

        return end

    with pytest.raises(OSError):
        Schedule(begin, lambda end_ns, under_way: None, lambda: 0).play(plan.Round(1, (LONG, WITHIN)))
    assert sorted(ended) == ["long", "within"]


def test_each_kind_can_be_done() -> None:
    for name in plan.BY_NAME:
        assert callable(getattr(Faults, name))


# --- the judge -------------------------------------------------------------------------------

TTL = 10 * S
A, B = "metafence:leader01:00000000000000aa", "metafence:leader01:00000000000000bb"


def ticks(from_s: float, to_s: float) -> tuple[int, ...]:
    return tuple(range(int(from_s * S), int(to_s * S), S // 10))


def renewals(seq: int, tag: str, from_s: int, to_s: int) -> list[Entry]:
    """One a second, from then to then."""
    return [Entry(seq + n, "renewal", t * S, tag) for n, t in enumerate(range(from_s, to_s + 1))]


def term(seq: int, tag: str, number: int, at_s: float, snapshot: str = "1000:1000:") -> Entry:
    return Entry(seq, "term", int(at_s * S), tag, term=number, xid=1000, snapshot=snapshot)


def write(seq: int, tag: str, xid: int, at_s: float = 0) -> Entry:
    return Entry(seq, "write", int(at_s * S), tag, relation="worker", operation="DELETE", xid=xid)


def good() -> History:
    """A leads from 100 s on, renews until 120 s and stops to act before 130 s, when B may lead and does."""
    log = (
        term(10, A, 1, 100),
        *renewals(11, A, 100, 120),
        write(40, A, 900, 118),
        term(50, B, 2, 130.5),
        *renewals(51, B, 130, 150),
        write(80, B, 1100, 140),
    )
    old = Incarnation("a", "meta-0.meta:5690", A, "meta-0 on n1", ticks(100, 129))
    new = Incarnation("b", "meta-1.meta:5690", B, "meta-1 on n2", ticks(131, 150))
    return History(TTL, (old, new), (log,))


def but(history: History, n: int, **changes: object) -> History:
    """With another n-th incarnation."""
    incarnations = list(history.incarnations)
    incarnations[n] = replace(incarnations[n], **changes)  # type: ignore[arg-type]
    return replace(history, incarnations=tuple(incarnations))


def plus(history: History, *entries: Entry) -> History:
    return replace(history, logs=((*history.logs[0], *entries),))


def early() -> History:
    """B has the row while A's lease lasts, and both act."""
    return but(plus(good(), *renewals(90, B, 124, 129)), 1, ticks=ticks(125, 150))


def rules(verdict: Verdict) -> list[str]:
    return [finding.rule for finding in verdict.violations]


def test_a_good_history_is_clean() -> None:
    verdict = judge(good())
    assert verdict.is_clean and not verdict.explained, verdict
    assert (verdict.acts, verdict.renewals, verdict.terms, verdict.writes) == (290 + 190, 42, 2, 2)
    assert verdict.worst_margin_ms == pytest.approx(1100)


def test_who_acts_after_its_lease_is_late() -> None:
    verdict = judge(but(good(), 0, ticks=ticks(100, 133)))
    assert rules(verdict) == ["late", "two"], verdict
    [late, two] = map(str, verdict.violations)
    for word in ("meta-0 on n1", A, "term 1", "last renewal: 120.000", "end: 130.000", "acted up to 2.9"):
        assert word in late, late
    assert "meanwhile meta-1 on n2" in late and "term 2" in late
    assert "acted for 1900 ms" in two


def test_who_acts_after_its_lease_is_late_though_nobody_else_leads() -> None:
    verdict = judge(but(but(good(), 0, ticks=ticks(100, 130.5)), 1, ticks=ticks(140, 150)))
    assert rules(verdict) == ["late"], verdict


@pytest.mark.parametrize(("late_ms", "is_late"), [(-1, False), (20, False), (21, True)])
def test_the_end_of_a_lease_is_as_sharp_as_its_clock(late_ms: int, is_late: bool) -> None:
    verdict = judge(but(good(), 0, ticks=(*ticks(100, 129), 130 * S + late_ms * S // 1000)))
    assert rules(verdict) == (["late"] if is_late else [])


def test_a_gap_between_two_leases_is_seen() -> None:
    """It acted on after its lease, and was renewed again later."""
    log = (term(10, A, 1, 100), *renewals(11, A, 100, 110), *renewals(40, A, 125, 130))
    history = replace(good(), incarnations=(good().incarnations[0],), logs=(log,))
    assert rules(judge(history)) == ["late"]
    assert rules(judge(but(history, 0, ticks=(*ticks(100, 120), *ticks(125, 129))))) == []


def test_two_at_once_inside_a_lease_want_a_cause() -> None:
    history = early()
    assert rules(judge(history)) == ["two"]
    step = Cause("postgres_clock step_s=12", 124 * S, 140 * S)
    verdict = judge(replace(history, causes=(step,)))
    assert verdict.is_clean and "postgres_clock step_s=12" in str(verdict.explained[0]), verdict
    assert rules(judge(replace(history, causes=(replace(step, to_ns=124 * S + 1),)))) == ["two"]


def test_no_cause_explains_an_act_beyond_the_lease() -> None:
    history = but(good(), 0, ticks=ticks(100, 133))
    assert rules(judge(replace(history, causes=(Cause("failover", 0, 200 * S),)))) == ["late"]


def test_two_of_one_id_are_twins_whatever_happened() -> None:
    history = but(early(), 1, id="META-0.meta:5690")
    assert rules(judge(replace(history, causes=(Cause("failover", 0, 200 * S),)))) == ["twin"]


def test_a_write_of_a_superseded_tag() -> None:
    verdict = judge(plus(good(), write(60, A, 1050, 135)))
    assert rules(verdict) == ["superseded"]
    told = str(verdict.violations[0])
    words = (A, "led before", "in term 2", "DELETE of worker at 135.000", "1050")
    assert all(word in told for word in words), told


def test_a_write_that_was_under_way_when_the_term_moved() -> None:
    """Its line is before the term's, but that statement could not see it yet."""
    log = tuple(
        replace(entry, snapshot="900:1000:900,950") if entry.kind == "term" and entry.term == 2 else entry
        for entry in good().logs[0]
    )
    assert rules(judge(replace(good(), logs=(log,)))) == ["unseen"]


def test_writes_that_are_nobody_s_business() -> None:
    """Of a tag that never led, and of a session without one."""
    strangers = (write(61, "psql", 1060), write(62, "metafence:leader01:00000000000000cc", 1061))
    assert judge(plus(good(), *strangers)).is_clean


def test_a_superseded_tag_that_leads_again() -> None:
    again = (term(90, A, 3, 160, "2000:2000:"), write(91, A, 2001, 161))
    verdict = judge(plus(good(), *again))
    assert rules(verdict) == ["returned"] and "term 3" in str(verdict.violations[0]), verdict


def test_a_database_of_its_own_time_is_judged_by_itself() -> None:
    """After a failover the new primary's log has lost B's term: A's writes there are no stranger's."""
    lost = good().logs[0]
    kept = (*lost[:20], write(60, A, 1050, 119))
    assert judge(replace(good(), logs=(lost, kept))).is_clean
    assert rules(judge(replace(good(), logs=((*lost, write(60, A, 1050, 135)), kept)))) == ["superseded"]


@pytest.mark.parametrize(
    "history",
    [
        replace(good(), lost=1),
        replace(good(), logs=((),)),
        replace(good(), incarnations=()),
        but(good(), 1, tag="metafence:leader01:00000000000000ee"),
        but(good(), 0, ticks=(90 * S, *good().incarnations[0].ticks)),
    ],
    ids=["lines lost", "no log", "nobody acted", "no renewal of it", "acts before its first renewal"],
)
def test_who_can_t_tell_does_not_call_it_clean(history: History) -> None:
    assert "blind" in rules(judge(history))


def test_visible_is_what_postgres_says() -> None:
    seen = [xid for xid in range(8, 17) if is_visible(xid, "10:15:10,13")]
    assert seen == [8, 9, 11, 12, 14]
    assert is_visible(9, "10:10:") and not is_visible(10, "10:10:")


def test_a_history_can_be_kept_and_judged_again() -> None:
    history = replace(but(good(), 0, ticks=ticks(100, 133)), causes=(Cause("failover", 0, 1),))
    again = History.load(json.loads(json.dumps(asdict(history))))
    assert again == history
    assert json.dumps(judge(again).tree()) == json.dumps(judge(history).tree())

"""The evaluator against the brute force, over random expressions, zones, instants and rules."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.core.cron.brute import NaiveCron, fires
from unit.core.cron.expressions import expressions, five_fields, six_fields
from unit.examples import examples

from sexton_core.cron import CronSchedule, build_cron
from sexton_core.dst import WallTimes, first_at_or_after, last_at_or_before
from sexton_core.instants import SECOND, parse_instant
from sexton_core.words import DayRule, DstRule
from sexton_core.zones import get_zone

MOST_QUESTIONS = 6
SEED = "default/backup"
ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Antarctica/Troll",
    "Antarctica/Casey",
    "Africa/Casablanca",
    "Asia/Gaza",
    "America/Sao_Paulo",
    "Pacific/Apia",
    "Asia/Kathmandu",
    "UTC",
)
BEGIN, END = 946_684_800, 2_240_611_200  # 2000 to 2040


@st.composite
def instants_near_changes(draw: st.DrawFn, zone: str) -> int:
    changes = list(get_zone(zone).changes(BEGIN, END))
    if not changes or draw(st.integers(0, 4)) == 0:
        return draw(st.integers(BEGIN, END)) // 60 * 60
    return draw(st.sampled_from(changes)).start


def forwards(schedule: CronSchedule, first: int, last: int) -> list[int]:
    found: list[int] = []
    t = schedule.next_after(first * SECOND - 1)
    while t is not None and t <= last * SECOND:
        found.append(t // SECOND)
        t = schedule.next_after(t)
    return found


def backwards(schedule: CronSchedule, first: int, last: int) -> list[int]:
    found: list[int] = []
    t = schedule.previous_before(last * SECOND + 1)
    while t is not None and t >= first * SECOND:
        found.append(t // SECOND)
        t = schedule.previous_before(t)
    return found[::-1]


@pytest.mark.slow
@settings(max_examples=examples(50), deadline=None)
@given(
    st.data(),
    five_fields(),
    st.sampled_from(ZONES),
    st.sampled_from(DstRule),
    st.sampled_from(DayRule),
)
def test_a_day_around_any_change_has_exactly_the_runs_of_the_rules(
    data: st.DataObject, text: str, zone: str, rule: DstRule, days: DayRule
) -> None:
    middle = data.draw(instants_near_changes(zone))
    first, last = middle - 10 * 3600, middle + 16 * 3600
    cron = NaiveCron(text, days, SEED)
    expected = fires(cron.matches, zone, first, last, rule, wildcard=cron.wildcard)
    schedule = build_cron(text, timezone=zone, dst=rule, days=days, seed=SEED)
    assert forwards(schedule, first, last) == expected
    assert backwards(schedule, first, last) == expected


@pytest.mark.slow
@settings(max_examples=examples(20), deadline=None)
@given(st.data(), six_fields(), st.sampled_from(ZONES), st.sampled_from(DstRule))
def test_every_second_around_any_change_is_judged_by_the_rules(
    data: st.DataObject, text: str, zone: str, rule: DstRule
) -> None:
    middle = data.draw(instants_near_changes(zone))
    first, last = middle - 120, middle + 180
    cron = NaiveCron(text, "debian", SEED)
    expected = fires(cron.matches, zone, first, last, rule, wildcard=cron.wildcard, step=1)
    schedule = build_cron(text, timezone=zone, dst=rule, seed=SEED)
    assert forwards(schedule, first, last) == expected
    assert backwards(schedule, first, last) == expected


@pytest.mark.slow
@settings(max_examples=examples(80), deadline=None)
@given(
    st.data(),
    expressions(),
    st.sampled_from(ZONES),
    st.sampled_from(DstRule),
    st.integers(0, SECOND - 1),
)
def test_next_is_later_ordered_and_undone_by_previous(
    data: st.DataObject, text: str, zone: str, rule: DstRule, nanoseconds: int
) -> None:
    t = data.draw(instants_near_changes(zone)) * SECOND + nanoseconds
    schedule = build_cron(text, timezone=zone, dst=rule, seed=SEED)
    following = schedule.next_after(t)
    before = schedule.previous_before(t)
    if before is not None:
        assert before < t
        again = schedule.next_after(before)
        assert again is None or again >= t, "nothing lies between an instant and its previous one"
    if following is not None:
        assert following > t
        assert following % SECOND == 0
        again = schedule.previous_before(following)
        assert again in (before, t)
        later = schedule.next_after(following)
        if later is not None:
            assert later > following
            assert schedule.previous_before(later) == following


class CountingWalls:
    """Counts how often a search asks for the next wall time."""

    def __init__(self, walls: WallTimes) -> None:
        self.walls = walls
        self.questions = 0

    def at_or_after(self, wall: int) -> int | None:
        self.questions += 1
        return self.walls.at_or_after(wall)

    def at_or_before(self, wall: int) -> int | None:
        self.questions += 1
        return self.walls.at_or_before(wall)


@pytest.mark.slow
@settings(max_examples=examples(100), deadline=None)
@given(st.data(), expressions(), st.sampled_from(ZONES), st.sampled_from(DstRule))
def test_a_search_takes_a_handful_of_steps_however_far_the_answer_is(
    data: st.DataObject, text: str, zone: str, rule: DstRule
) -> None:
    second = data.draw(instants_near_changes(zone))
    for search in (first_at_or_after, last_at_or_before):
        walls = CountingWalls(build_cron(text, seed=SEED).walls)
        search(get_zone(zone), rule, walls, second)
        assert walls.questions <= MOST_QUESTIONS


def test_a_time_that_is_always_skipped_is_given_up_at_the_end_of_the_calendar() -> None:
    # The last Sunday of March at 02:30 is in the gap in every year.
    walls = CountingWalls(build_cron("30 2 * 3 SUNL").walls)
    zone = get_zone("Europe/Berlin")
    start = parse_instant("2000-01-01T00:00:00Z") // SECOND
    assert first_at_or_after(zone, DstRule.SKIP, walls, start) is None
    assert walls.questions <= 3 * 262, "at most three a year"

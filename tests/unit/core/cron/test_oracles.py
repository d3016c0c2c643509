"""cronsim and croniter as oracles, where their rules agree with ours.

Where they do not, the reason is listed and the difference itself is asserted, so that a new release
of either that changes its mind is noticed.

cronsim 2.8 (Debian's rules) is not asked about: six fields, where it has no DST rule; macros, `?`,
wrap-around ranges, nW, L-3, H and years, which it does not read; a search that starts in the second
pass of a fold; changes other than one hour.
croniter 7 is not asked about: fixed times in a fold or a gap; `5-5`; six fields, where it reads the
second last; both day fields where one has a star (it joins `*/2` by OR) or `L` or `#` (it finds no
date at all).
"""

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest
from croniter import croniter  # type: ignore[import-untyped]
from cronsim import CronSim
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from unit.core.cron.brute import zone_info
from unit.examples import examples

from sexton_core.cron import CronSpec, build_cron, parse
from sexton_core.instants import MAX_INSTANT, from_datetime, parse_instant, to_datetime
from sexton_core.schedule import between

MONTHS = st.sampled_from(["*", "*", "*/3", "1-6", "JAN", "feb,Mar", "12"])
DAYS = st.sampled_from(["*", "*", "1", "*/2", "*/10", "1-7", "15,31", "29", "L"])
WEEKDAYS = st.sampled_from(["*", "*", "MON", "1-5", "*/2", "7", "SUN,SAT", "5L", "MON#2", "fri"])
TIMES = st.integers(0, 59).map(str) | st.sampled_from(["*", "*/5", "*/7", "0-30/10", "1,2,59"])
HOURS = st.integers(0, 23).map(str) | st.sampled_from(["*", "*/2", "8-18", "1,2,3", "0-6/2"])


def ours(text: str, zone: str, start: datetime, count: int) -> list[datetime]:
    schedule = build_cron(text, timezone=zone)
    due = between(schedule, from_datetime(start), MAX_INSTANT, count)
    return [to_datetime(t) for t in due]


def cronsim(text: str, zone: str, start: datetime, count: int) -> list[datetime]:
    local = start.astimezone(zone_info(zone))
    return [due.astimezone(UTC) for due in islice(CronSim(text, local), count)]


def starts(first_year: int, last_year: int) -> st.SearchStrategy[datetime]:
    seconds = st.integers(0, (last_year - first_year) * 31_556_952)
    return seconds.map(lambda s: datetime(first_year, 1, 1, tzinfo=UTC) + timedelta(seconds=s))


@pytest.mark.slow
@settings(max_examples=examples(100), deadline=None)
@given(
    st.tuples(TIMES, HOURS, DAYS, MONTHS, WEEKDAYS).map(" ".join),
    st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Sydney", "UTC"]),
    starts(2000, 2036),
)
def test_cronsim_agrees_in_zones_that_change_by_one_hour(
    text: str, zone: str, start: datetime
) -> None:
    local = start.astimezone(zone_info(zone))
    if local.fold:
        start -= timedelta(hours=1)
    assert ours(text, zone, start, 20) == cronsim(text, zone, start, 20)


@pytest.mark.slow
@settings(max_examples=examples(25), deadline=None)
@given(st.tuples(TIMES, HOURS, DAYS, MONTHS, WEEKDAYS).map(" ".join), starts(2000, 2036))
def test_croniter_agrees_in_utc(text: str, start: datetime) -> None:
    spec = parse(text)
    assert isinstance(spec, CronSpec)
    assume(not (spec.both_days and (spec.day.star or spec.weekday.star)))
    assume(not (spec.both_days and (spec.day.moving or spec.weekday.moving)))
    oracle = croniter(text.replace("5L", "L5"), start)  # the same day, spelled its way
    assert ours(text, "UTC", start, 10) == [oracle.get_next(datetime) for _ in range(10)]


BERLIN = zone_info("Europe/Berlin")


def test_cronsim_goes_back_when_a_search_starts_in_the_second_pass() -> None:
    start = datetime(2026, 10, 25, 2, 45, tzinfo=BERLIN, fold=1)
    theirs = next(CronSim("50 2 * * *", start)).astimezone(UTC)
    assert theirs <= start.astimezone(UTC)
    schedule = build_cron("50 2 * * *", timezone="Europe/Berlin")
    assert schedule.next_after(from_datetime(start)) == parse_instant("2026-10-26T01:50:00Z")


def test_cronsim_loses_an_hourly_run_over_a_change_of_half_an_hour() -> None:
    start = datetime(2026, 10, 3, 13, 16, tzinfo=UTC)
    zone = "Australia/Lord_Howe"
    assert len(ours("45 * * * *", zone, start, 4)) == 4
    assert ours("45 * * * *", zone, start, 4) != cronsim("45 * * * *", zone, start, 4)


def test_cronsim_makes_up_a_skipped_civil_day() -> None:
    start = datetime(2011, 12, 29, 23, 0, tzinfo=UTC)
    zone = "Pacific/Apia"
    assert ours("0 12 * * *", zone, start, 1) == [datetime(2011, 12, 30, 22, 0, tzinfo=UTC)]
    assert cronsim("0 12 * * *", zone, start, 1) == [datetime(2011, 12, 30, 10, 0, tzinfo=UTC)]


def test_cronsim_has_no_dst_rule_for_six_fields() -> None:
    start = datetime(2026, 3, 28, 12, 0, tzinfo=UTC)
    zone = "Europe/Berlin"
    at_the_end_of_the_gap = [datetime(2026, 3, 29, 1, 0, tzinfo=UTC)]
    assert ours("30 2 * * *", zone, start, 1) == at_the_end_of_the_gap
    assert ours("0 30 2 * * *", zone, start, 1) == at_the_end_of_the_gap
    assert cronsim("30 2 * * *", zone, start, 1) == at_the_end_of_the_gap
    assert cronsim("0 30 2 * * *", zone, start, 1) == [datetime(2026, 3, 30, 0, 30, tzinfo=UTC)]


def test_croniter_fires_a_fixed_time_in_both_passes_of_a_fold() -> None:
    start = datetime(2026, 10, 24, 12, 0, tzinfo=UTC).astimezone(BERLIN)
    oracle = croniter("30 2 * * *", start)
    theirs = [oracle.get_next(datetime).astimezone(UTC) for _ in range(2)]
    assert theirs[1] - theirs[0] == timedelta(hours=1)
    mine = ours("30 2 * * *", "Europe/Berlin", start, 2)
    assert mine[1] - mine[0] == timedelta(hours=25)


def test_croniter_reads_equal_ends_as_every_minute() -> None:
    start = datetime(2026, 11, 29, tzinfo=UTC)
    assert croniter("5-5 * * * *", start).get_next(datetime) == datetime(
        2026, 11, 29, 0, 1, tzinfo=UTC
    )
    assert ours("5-5 * * * *", "UTC", start, 1) == [datetime(2026, 11, 29, 0, 5, tzinfo=UTC)]


def test_croniter_takes_the_sixth_field_for_seconds() -> None:
    start = datetime(2026, 11, 29, tzinfo=UTC)
    assert croniter("1 2 3 * * 4", start).get_next(datetime) == datetime(
        2026, 12, 3, 2, 1, 4, tzinfo=UTC
    )
    assert ours("1 2 3 * * 4", "UTC", start, 1) == [datetime(2026, 12, 3, 3, 2, 1, tzinfo=UTC)]

"""The DST rules, by example: what a reader of docs/schedules.md expects, written out."""

from datetime import datetime
from itertools import pairwise

import pytest

from sexton_core.cron import CronSchedule, build_cron
from sexton_core.dst import resolve
from sexton_core.instants import DAY, HOUR, MINUTE, SECOND, Instant, parse_instant
from sexton_core.schedule import between, between_backwards
from sexton_core.words import DstRule
from sexton_core.zones import get_zone

RULES = list(DstRule)


def local_runs(text: str, zone: str, rule: str, first: str, last: str) -> list[str]:
    """Returns the runs between two instants as the zone's clock and offset showed them."""
    schedule = build_cron(text, timezone=zone, dst=DstRule(rule))
    a, b = parse_instant(first), parse_instant(last)
    forwards = list(between(schedule, a, b, 10_000))
    assert forwards == list(between_backwards(schedule, a + 1, b + 1, 10_000))[::-1]
    return [schedule.zone.local(t).strftime("%m-%d %H:%M %z") for t in forwards]


SPRING = ("2026-03-28T12:00:00Z", "2026-03-29T12:00:00Z")
AUTUMN = ("2026-10-24T12:00:00Z", "2026-10-25T12:00:00Z")


@pytest.mark.parametrize(
    ("rule", "runs"),
    [
        ("vixie", ["03-29 03:00 +0200"]),
        ("literal", []),
        ("skip", []),
        ("shift", ["03-29 03:30 +0200"]),
    ],
)
def test_a_fixed_time_that_the_clock_skips(rule: str, runs: list[str]) -> None:
    assert local_runs("30 2 * * *", "Europe/Berlin", rule, *SPRING) == runs


@pytest.mark.parametrize(
    ("rule", "runs"),
    [
        ("vixie", ["10-25 02:30 +0200"]),
        ("literal", ["10-25 02:30 +0200", "10-25 02:30 +0100"]),
        ("skip", ["10-25 02:30 +0200"]),
        ("shift", ["10-25 02:30 +0200"]),
    ],
)
def test_a_fixed_time_that_the_clock_shows_twice(rule: str, runs: list[str]) -> None:
    assert local_runs("30 2 * * *", "Europe/Berlin", rule, *AUTUMN) == runs


def test_several_skipped_times_of_one_schedule_are_one_run() -> None:
    runs = local_runs("0,10,59 2 * * *", "Europe/Berlin", "vixie", *SPRING)
    assert runs == ["03-29 03:00 +0200"]


def test_a_skipped_time_and_one_at_the_end_of_the_gap_are_one_run() -> None:
    runs = local_runs("30 2,3 * * *", "Europe/Berlin", "shift", *SPRING)
    assert runs == ["03-29 03:30 +0200"]
    runs = local_runs("0 2,3 * * *", "Europe/Berlin", "vixie", *SPRING)
    assert runs == ["03-29 03:00 +0200"]


@pytest.mark.parametrize("rule", RULES)
def test_an_hourly_job_has_23_and_25_runs(rule: str) -> None:
    spring = local_runs(
        "0 * * * *", "Europe/Berlin", rule, "2026-03-28T22:59:59Z", "2026-03-29T21:59:59Z"
    )
    assert len(spring) == 23
    autumn = local_runs(
        "0 * * * *", "Europe/Berlin", rule, "2026-10-24T21:59:59Z", "2026-10-25T22:59:59Z"
    )
    assert len(autumn) == 25


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("text", ["* * * * *", "*/5 * * * *", "0 */1 * * *", "*/30 * * * * *"])
def test_wildcard_times_are_never_silent_and_never_doubled(text: str, rule: DstRule) -> None:
    schedule = build_cron(text, timezone="America/New_York", dst=rule)
    spacing = {"* * * * *": MINUTE, "*/5 * * * *": 5 * MINUTE, "0 */1 * * *": HOUR}.get(
        text, 30 * SECOND
    )
    for change in ("2026-03-08T07:00:00Z", "2026-11-01T06:00:00Z"):
        middle = parse_instant(change)
        runs = list(between(schedule, middle - 3 * HOUR, middle + 3 * HOUR, 10_000))
        assert runs == list(range(middle - 3 * HOUR + spacing, middle + 3 * HOUR + 1, spacing))


@pytest.mark.parametrize("rule", RULES)
def test_every_second_hour_follows_the_clock_of_the_wall(rule: str) -> None:
    assert local_runs("0 */2 * * *", "Europe/Berlin", rule, *SPRING)[5:9] == [
        "03-29 00:00 +0100",
        "03-29 04:00 +0200",
        "03-29 06:00 +0200",
        "03-29 08:00 +0200",
    ]


def test_lord_howe_jumps_by_half_an_hour() -> None:
    # 2026-10-04 02:00 +1030 becomes 02:30 +11; 2026-04-05 02:00 +11 becomes 01:30 +1030.
    spring = ("2026-10-03T12:00:00Z", "2026-10-04T12:00:00Z")
    autumn = ("2026-04-04T12:00:00Z", "2026-04-05T12:00:00Z")
    zone = "Australia/Lord_Howe"
    assert local_runs("15 2 * * *", zone, "vixie", *spring) == ["10-04 02:30 +1100"]
    assert local_runs("15 2 * * *", zone, "shift", *spring) == ["10-04 02:45 +1100"]
    assert local_runs("15,35 2 * * *", zone, "shift", *spring) == [
        "10-04 02:35 +1100",
        "10-04 02:45 +1100",
    ]
    assert local_runs("45 1 * * *", zone, "vixie", *autumn) == ["04-05 01:45 +1100"]
    assert local_runs("45 1 * * *", zone, "literal", *autumn) == [
        "04-05 01:45 +1100",
        "04-05 01:45 +1030",
    ]
    # Hourly at minute 45: no run is lost although the clock skips half an hour.
    assert local_runs(
        "45 * * * *", zone, "vixie", "2026-10-03T13:16:00Z", "2026-10-03T17:00:00Z"
    ) == [
        "10-04 00:45 +1030",
        "10-04 01:45 +1030",
        "10-04 02:45 +1100",
        "10-04 03:45 +1100",
    ]


def test_troll_jumps_by_two_hours() -> None:
    # 2026-03-29 01:00 +00 becomes 03:00 +02; 2026-10-25 03:00 +02 becomes 01:00 +00.
    zone = "Antarctica/Troll"
    assert local_runs("30 1 * * *", zone, "vixie", *SPRING) == ["03-29 03:00 +0200"]
    assert local_runs("30 1 * * *", zone, "shift", *SPRING) == ["03-29 03:30 +0200"]
    assert local_runs("30 1,2 * * *", zone, "vixie", *SPRING) == ["03-29 03:00 +0200"]
    assert local_runs("30 1,2 * * *", zone, "vixie", *AUTUMN) == [
        "10-25 01:30 +0200",
        "10-25 02:30 +0200",
    ]
    assert len(local_runs("30 1,2 * * *", zone, "literal", *AUTUMN)) == 4


def test_a_permanent_change_of_offset_is_a_gap_like_any_other() -> None:
    # Moscow went to summer time for good in 2011, and back for good in 2014.
    window = ("2011-03-26T12:00:00Z", "2011-03-27T12:00:00Z")
    assert local_runs("30 2 * * *", "Europe/Moscow", "vixie", *window) == ["03-27 03:00 +0400"]
    back = ("2014-10-25T12:00:00Z", "2014-10-26T12:00:00Z")
    assert local_runs("30 1 * * *", "Europe/Moscow", "vixie", *back) == ["10-26 01:30 +0400"]


@pytest.mark.parametrize("rule", RULES)
def test_a_skipped_civil_day_makes_up_nothing(rule: str) -> None:
    # Apia went from 2011-12-29 straight to 2011-12-31.
    window = ("2011-12-29T00:00:00Z", "2012-01-01T12:00:00Z")
    assert local_runs("0 12 * * *", "Pacific/Apia", rule, *window) == [
        "12-29 12:00 -1000",
        "12-31 12:00 +1400",
        "01-01 12:00 +1400",
    ]
    assert local_runs("0 12 30 12 *", "Pacific/Apia", rule, *window) == []


@pytest.mark.parametrize("rule", RULES)
def test_a_change_of_three_hours_is_a_correction_and_both_passes_count(rule: str) -> None:
    # Casey: 2010-03-05 02:00 +11 became 2010-03-04 23:00 +08.
    window = ("2010-03-04T11:00:00Z", "2010-03-04T20:00:00Z")
    assert local_runs("30 23 * * *", "Antarctica/Casey", rule, *window) == [
        "03-04 23:30 +1100",
        "03-04 23:30 +0800",
    ]


def next_local(text: str, zone: str, rule: str, start: str) -> str:
    schedule = build_cron(text, timezone=zone, dst=DstRule(rule))
    due = schedule.next_after(parse_instant(start))
    assert due is not None
    return schedule.zone.local(due).strftime("%m-%d %H:%M %z")


@pytest.mark.parametrize(
    ("rule", "start", "expected"),
    [
        # The gap has no inside in real time; its end is 01:00Z.
        ("vixie", "2026-03-29T00:59:59.999999999Z", "03-29 03:00 +0200"),
        ("vixie", "2026-03-29T01:00:00Z", "03-30 02:30 +0200"),
        ("shift", "2026-03-29T01:00:00Z", "03-29 03:30 +0200"),
        ("shift", "2026-03-29T01:30:00Z", "03-30 02:30 +0200"),
        # First pass of the fold.
        ("vixie", "2026-10-25T00:10:00Z", "10-25 02:30 +0200"),
        ("vixie", "2026-10-25T00:30:00Z", "10-26 02:30 +0100"),
        ("literal", "2026-10-25T00:30:00Z", "10-25 02:30 +0100"),
        # Second pass, before and after the clock shows 02:30 again.
        ("vixie", "2026-10-25T01:00:00Z", "10-26 02:30 +0100"),
        ("skip", "2026-10-25T01:10:00Z", "10-26 02:30 +0100"),
        ("literal", "2026-10-25T01:10:00Z", "10-25 02:30 +0100"),
        ("literal", "2026-10-25T01:30:00Z", "10-26 02:30 +0100"),
    ],
)
def test_a_search_may_start_anywhere_around_a_change(rule: str, start: str, expected: str) -> None:
    assert next_local("30 2 * * *", "Europe/Berlin", rule, start) == expected


def test_a_run_at_the_end_of_the_gap_is_found_backwards_too() -> None:
    schedule = build_cron("30 2 * * *", timezone="Europe/Berlin")
    assert schedule.previous_before(parse_instant("2026-03-29T09:00:00Z")) == parse_instant(
        "2026-03-29T01:00:00Z"
    )
    assert schedule.previous_before(parse_instant("2026-03-29T01:00:00Z")) == parse_instant(
        "2026-03-28T01:30:00Z"
    )


def test_midnight_that_does_not_exist_is_made_up_on_its_own_day() -> None:
    # Sao Paulo's summer began at midnight: 2018-11-04 00:00 was skipped.
    runs = local_runs(
        "0 0 * * *", "America/Sao_Paulo", "vixie", "2018-11-03T12:00:00Z", "2018-11-05T12:00:00Z"
    )
    assert runs == ["11-04 01:00 -0200", "11-05 00:00 -0200"]


def test_the_day_of_a_skipped_time_decides_not_the_day_of_its_run() -> None:
    # Sunday 00:00 is skipped; the run stands for Sunday although only 01:00 exists.
    window = ("2018-11-03T12:00:00Z", "2018-11-04T12:00:00Z")
    assert local_runs("0 0 * * SUN", "America/Sao_Paulo", "vixie", *window) == ["11-04 01:00 -0200"]
    assert local_runs("0 0 * * SAT", "America/Sao_Paulo", "vixie", *window) == []


# The public problems of other schedulers that this part answers.


@pytest.mark.parametrize("text", ["0 3 * * *", "30 2 * * *", "0 2 * * *", "5 2 * * *"])
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
def test_a_nightly_job_runs_exactly_once_on_every_day_of_the_year(text: str, zone: str) -> None:
    schedule = build_cron(text, timezone=zone)
    runs = list(between(schedule, *year_of(schedule, 2026), 1_000))
    dates = [schedule.zone.local(t).date() for t in runs]
    assert len(dates) == 365
    assert len(set(dates)) == 365


@pytest.mark.parametrize("rule", RULES)
def test_no_start_in_a_fold_loops_or_goes_back(rule: DstRule) -> None:
    schedule = build_cron("5 2 * * *", timezone="Europe/Berlin", dst=rule)
    start = parse_instant("2026-10-25T00:00:00Z")
    seen = {schedule.next_after(start + minute * MINUTE) for minute in range(180)}
    for minute in range(180):
        due = schedule.next_after(start + minute * MINUTE)
        assert due is not None
        assert due > start + minute * MINUTE
    assert len(seen) == (3 if rule is DstRule.LITERAL else 2)


def test_a_weekly_report_keeps_its_hour_on_the_wall_through_the_year() -> None:
    schedule = build_cron("0 9 * * MON", timezone="America/New_York")
    runs = list(between(schedule, *year_of(schedule, 2026), 100))
    assert len(runs) == 52
    assert {schedule.zone.local(t).hour for t in runs} == {9}
    assert {b - a for a, b in pairwise(runs)} == {
        7 * DAY - HOUR,
        7 * DAY,
        7 * DAY + HOUR,
    }


def year_of(schedule: CronSchedule, year: int) -> tuple[Instant, Instant]:
    zone = schedule.zone
    first, after = (
        int((datetime(y, 1, 1) - datetime(1970, 1, 1)).total_seconds())  # noqa: DTZ001 - wall
        for y in (year, year + 1)
    )
    (start,), (end,) = zone.seconds_showing(first), zone.seconds_showing(after)
    return start * SECOND - 1, end * SECOND - 1


@pytest.mark.parametrize(
    ("rule", "gap", "fold"),
    [
        ("vixie", ["01:00"], ["00:30"]),
        ("literal", [], ["00:30", "01:30"]),
        ("skip", [], ["00:30"]),
        ("shift", ["01:30"], ["00:30"]),
    ],
)
def test_one_wall_time_becomes_the_instants_of_its_rule(
    rule: str, gap: list[str], fold: list[str]
) -> None:
    zone = get_zone("Europe/Berlin")
    for day, expected in (("2026-03-29", gap), ("2026-10-25", fold)):
        wall = parse_instant(f"{day}T02:30:00Z") // SECOND
        seconds = resolve(zone, wall, DstRule(rule))
        assert seconds == [parse_instant(f"{day}T{time}:00Z") // SECOND for time in expected]

"""The four DST rules hold for every kind of wall time alike; elapsed time knows none of them."""

from datetime import date, datetime, time

import pytest

from sexton_core.instants import DAY, HOUR, SECOND, format_instant, parse_instant
from sexton_core.schedule import between
from sexton_core.schedules import (
    AtTiming,
    CalendarTiming,
    CalendarUnit,
    CronTiming,
    EveryTiming,
    RRuleTiming,
    ScheduleSpec,
    build,
)
from sexton_core.words import DstRule

# Wall time -> timing that asks for it on the two nights when Berlin's clock changes.
KINDS = {
    "cron": lambda at: CronTiming(expression=f"{at.minute} {at.hour} * * *"),
    "calendar interval": lambda at: CalendarTiming(
        count=1, unit=CalendarUnit.DAYS, at=at, anchor=date(2026, 1, 1)
    ),
    "at": lambda at: AtTiming(
        walls=tuple(
            datetime.combine(date.fromisoformat(day), at) for day in ("2027-03-28", "2027-10-31")
        )
    ),
    "rrule": lambda at: RRuleTiming(text=f"DTSTART:20260101T{at:%H%M%S}\nRRULE:FREQ=DAILY"),
    "rdate": lambda at: RRuleTiming(text=f"RDATE:20270328T{at:%H%M%S},20271031T{at:%H%M%S}"),
}

# Rule -> (Berlin, 28 March 2027, where 02:00 becomes 03:00; 31 October, where 03:00 becomes 02:00)
EXPECTED = {
    DstRule.VIXIE: (["2027-03-28T01:00:00Z"], ["2027-10-31T00:30:00Z"]),
    DstRule.LITERAL: ([], ["2027-10-31T00:30:00Z", "2027-10-31T01:30:00Z"]),
    DstRule.SKIP: ([], ["2027-10-31T00:30:00Z"]),
    DstRule.SHIFT: (["2027-03-28T01:30:00Z"], ["2027-10-31T00:30:00Z"]),
}


def times(schedule, a, b):
    found = between(schedule, parse_instant(a) - 1, parse_instant(b), 5_000)
    return [format_instant(due) for due in found]


@pytest.mark.parametrize("rule", DstRule)
@pytest.mark.parametrize("kind", KINDS)
def test_a_fixed_time_is_read_by_the_declared_rule(kind, rule):
    spec = ScheduleSpec(timing=KINDS[kind](time(2, 30)), timezone="Europe/Berlin", dst=rule)
    schedule = build(spec)
    in_gap, in_fold = EXPECTED[rule]
    assert times(schedule, "2027-03-27T23:00:00Z", "2027-03-28T21:59:59Z") == in_gap
    assert times(schedule, "2027-10-30T22:00:00Z", "2027-10-31T22:59:59Z") == in_fold


@pytest.mark.parametrize("rule", DstRule)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("at", "rdate")])
def test_a_skipped_day_is_no_dst_and_nothing_is_made_up(kind, rule):
    # Samoa went from 29 to 31 December 2011.
    timing = KINDS[kind](time(12, 0))
    if kind in ("rrule", "calendar interval"):
        timing = {
            "rrule": RRuleTiming(text="DTSTART:20110101T120000\nRRULE:FREQ=DAILY"),
            "calendar interval": CalendarTiming(
                count=1, unit=CalendarUnit.DAYS, at=time(12, 0), anchor=date(2011, 1, 1)
            ),
        }[kind]
    schedule = build(ScheduleSpec(timing=timing, timezone="Pacific/Apia", dst=rule))
    assert times(schedule, "2011-12-29T00:00:00Z", "2012-01-01T00:00:00Z") == [
        "2011-12-29T22:00:00Z",
        "2011-12-30T22:00:00Z",
        "2011-12-31T22:00:00Z",
    ]


@pytest.mark.parametrize("rule", DstRule)
def test_a_change_of_half_an_hour_is_as_exact_as_one_of_an_hour(rule):
    # Lord Howe: 02:00 becomes 02:30 on 4 October 2026; 02:00 becomes 01:30 on 4 April 2027.
    def of(at):
        timing = RRuleTiming(text=f"DTSTART:20260101T{at}00\nRRULE:FREQ=DAILY")
        return build(ScheduleSpec(timing=timing, timezone="Australia/Lord_Howe", dst=rule))

    in_gap = {
        DstRule.VIXIE: ["2026-10-03T15:30:00Z"],
        DstRule.LITERAL: [],
        DstRule.SKIP: [],
        DstRule.SHIFT: ["2026-10-03T15:45:00Z"],
    }
    first, second = "2027-04-03T14:45:00Z", "2027-04-03T15:15:00Z"
    in_fold = [first, second] if rule is DstRule.LITERAL else [first]
    assert times(of("0215"), "2026-10-03T14:00:00Z", "2026-10-04T10:00:00Z") == in_gap[rule]
    assert times(of("0145"), "2027-04-03T14:00:00Z", "2027-04-04T10:00:00Z") == in_fold


@pytest.mark.parametrize("rule", DstRule)
@pytest.mark.parametrize("frequency", ["HOURLY", "MINUTELY;INTERVAL=60"])
def test_a_rule_of_hours_follows_real_time_with_23_and_25_runs(frequency, rule):
    text = f"DTSTART:20260101T000000\nRRULE:FREQ={frequency}"
    spec = ScheduleSpec(timing=RRuleTiming(text=text), timezone="Europe/Berlin", dst=rule)
    schedule = build(spec)
    assert len(times(schedule, "2027-03-27T23:00:00Z", "2027-03-28T21:59:59Z")) == 23
    assert len(times(schedule, "2027-10-30T22:00:00Z", "2027-10-31T22:59:59Z")) == 25


def test_every_7_days_of_elapsed_time_moves_on_the_clock_and_7_calendar_days_do_not():
    start = parse_instant("2027-03-22T08:00:00Z")
    elapsed = build(
        ScheduleSpec(timing=EveryTiming(period_ns=7 * DAY), timezone="Europe/Berlin", start=start)
    )
    calendar = build(
        ScheduleSpec(
            timing=CalendarTiming(count=7, unit=CalendarUnit.DAYS, at=time(9, 0)),
            timezone="Europe/Berlin",
            start=start,
        )
    )
    assert elapsed.next_after(start) == start + 7 * DAY
    assert calendar.next_after(start) == start + 7 * DAY - HOUR


def test_several_skipped_times_of_one_schedule_are_one_run_at_the_end_of_the_gap():
    text = "DTSTART:20260101T020000\nRRULE:FREQ=DAILY;BYMINUTE=0,10,20,30,40,50"
    schedule = build(ScheduleSpec(timing=RRuleTiming(text=text), timezone="Europe/Berlin"))
    assert times(schedule, "2027-03-28T00:00:00Z", "2027-03-28T12:00:00Z") == [
        "2027-03-28T01:00:00Z"
    ]


@pytest.mark.parametrize("rule", DstRule)
def test_a_search_that_starts_in_either_pass_of_a_fold_never_looks_back(rule):
    timing = RRuleTiming(text="DTSTART:20260101T020000\nRRULE:FREQ=DAILY;BYMINUTE=0,15,30,45")
    schedule = build(ScheduleSpec(timing=timing, timezone="Europe/Berlin", dst=rule))
    begin = parse_instant("2027-10-31T00:00:00Z")
    for second in range(0, 2 * 3_600, 97):
        t = begin + second * SECOND
        assert schedule.next_after(t) > t
        assert schedule.previous_before(t) < t

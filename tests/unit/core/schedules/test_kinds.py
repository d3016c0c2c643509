"""What each kind of schedule means, by literal times."""

from datetime import date, datetime, time

import pytest

from sexton_core.errors import NeverFiresError, ScheduleError, UnknownZoneError
from sexton_core.instants import (
    DAY,
    HOUR,
    MAX_INSTANT,
    MILLISECOND,
    MIN_INSTANT,
    MINUTE,
    SECOND,
    format_instant,
    parse_instant,
)
from sexton_core.schedule import between, between_backwards
from sexton_core.schedules import (
    AtTiming,
    CalendarSpec,
    CalendarTiming,
    CalendarUnit,
    CronTiming,
    EveryTiming,
    JobIdentity,
    RRuleTiming,
    ScheduleCache,
    ScheduleSpec,
    ShortMonth,
    UnionSpec,
    build,
)

NOW = parse_instant("2026-11-29T03:00:00Z")
JOB = JobIdentity(namespace="default", name="job", uid="a" * 24, since=NOW)


def every(period_ns, **more):
    return ScheduleSpec(timing=EveryTiming(period_ns=period_ns), **more)


def cron(expression, **more):
    return ScheduleSpec(timing=CronTiming(expression=expression), **more)


def first(spec, count, after=NOW, job=JOB):
    return [format_instant(t) for t in between(build(spec, job), after, MAX_INSTANT, count)]


# every


def test_an_interval_is_anchored_at_the_epoch_unless_there_is_a_start():
    assert first(every(90 * MINUTE), 2) == ["2026-11-29T04:30:00Z", "2026-11-29T06:00:00Z"]
    start = parse_instant("2026-11-29T03:10:00Z")
    assert first(every(90 * MINUTE, start=start), 2) == [
        "2026-11-29T03:10:00Z",
        "2026-11-29T04:40:00Z",
    ]


def test_an_offset_moves_the_whole_pattern():
    timing = EveryTiming(period_ns=HOUR, offset_ns=7 * MINUTE)
    assert first(ScheduleSpec(timing=timing), 2) == ["2026-11-29T03:07:00Z", "2026-11-29T04:07:00Z"]


def test_an_interval_does_not_drift_over_a_million_periods():
    schedule = build(every(7 * SECOND), JOB)
    t = parse_instant("2026-01-01T00:00:00Z")
    later = t + 7_000_000 * SECOND
    assert (schedule.next_after(later) - schedule.next_after(t)) % (7 * SECOND) == 0


def test_an_interval_covers_the_calendar_from_end_to_end():
    schedule = build(every(DAY), JOB)
    assert schedule.next_after(MIN_INSTANT - 1) == MIN_INSTANT
    assert schedule.previous_before(MIN_INSTANT) is None
    assert schedule.next_after(MAX_INSTANT) is None
    assert format_instant(schedule.previous_before(MAX_INSTANT)) == "2261-12-31T00:00:00Z"


# calendar interval


def interval(count, unit, at, anchor, short_month=None, zone="UTC"):
    timing = CalendarTiming(count=count, unit=unit, at=at, anchor=anchor, short_month=short_month)
    return ScheduleSpec(timing=timing, timezone=zone)


def test_the_31st_is_left_out_or_clamped_as_declared():
    at, anchor = time(9), date(2026, 12, 31)
    skip = interval(1, CalendarUnit.MONTHS, at, anchor, ShortMonth.SKIP)
    last = interval(1, CalendarUnit.MONTHS, at, anchor, ShortMonth.LAST)
    assert [t[:10] for t in first(skip, 4)] == [
        "2026-12-31",
        "2027-01-31",
        "2027-03-31",
        "2027-05-31",
    ]
    assert [t[:10] for t in first(last, 4)] == [
        "2026-11-30",
        "2026-12-31",
        "2027-01-31",
        "2027-02-28",
    ]


def test_the_31st_without_a_declared_policy_is_refused():
    with pytest.raises(ScheduleError, match="short_month: nothing can't be used; expected `last`"):
        build(interval(1, CalendarUnit.MONTHS, time(9), date(2026, 12, 31)))


def test_the_29th_of_february_comes_every_leap_year_or_every_year_clamped():
    anchor = date(2024, 2, 29)
    skip = interval(1, CalendarUnit.YEARS, time(0), anchor, ShortMonth.SKIP)
    last = interval(1, CalendarUnit.YEARS, time(0), anchor, ShortMonth.LAST)
    assert [t[:10] for t in first(skip, 2)] == ["2028-02-29", "2032-02-29"]
    assert [t[:10] for t in first(last, 2)] == ["2027-02-28", "2028-02-29"]


def test_weeks_and_days_count_from_the_anchor_in_both_directions():
    schedule = build(interval(2, CalendarUnit.WEEKS, time(9, 30), date(2027, 1, 4)))
    back = between_backwards(schedule, MIN_INSTANT, NOW, 2)
    assert [format_instant(t) for t in back] == ["2026-11-23T09:30:00Z", "2026-11-09T09:30:00Z"]


# at


def test_instants_and_wall_times_are_listed_in_order_and_once():
    timing = AtTiming(
        instants=(parse_instant("2027-01-01T00:00:00Z"), parse_instant("2026-12-01T08:00:00Z")),
        walls=(datetime(2026, 12, 1, 9), datetime(2027, 6, 1, 9)),  # noqa: DTZ001 - wall times
    )
    assert first(ScheduleSpec(timing=timing, timezone="Europe/Berlin"), 9) == [
        "2026-12-01T08:00:00Z",
        "2027-01-01T00:00:00Z",
        "2027-06-01T07:00:00Z",
    ]


# rrule


def rrule(text, **more):
    return ScheduleSpec(timing=RRuleTiming(text=text), **more)


def test_rdate_adds_and_exdate_removes_in_local_and_in_utc_time():
    text = (
        "DTSTART;TZID=Europe/Berlin:20261201T090000\n"
        "RRULE:FREQ=DAILY;COUNT=4\n"
        "RDATE:20261224T180000,20261225T120000Z\n"
        "EXDATE:20261202T090000,20261203T080000Z\n"
    )
    assert first(rrule(text), 9) == [
        "2026-12-01T08:00:00Z",
        "2026-12-04T08:00:00Z",
        "2026-12-24T17:00:00Z",
        "2026-12-25T12:00:00Z",
    ]


def test_until_is_included_in_local_time_and_in_utc():
    local = "DTSTART:20261201T090000\nRRULE:FREQ=DAILY;UNTIL=20261202T090000"
    in_utc = "DTSTART:20261201T090000\nRRULE:FREQ=DAILY;UNTIL=20261202T080000Z"
    by_date = "DTSTART:20261201T090000\nRRULE:FREQ=DAILY;UNTIL=20261202"
    for text in (local, in_utc, by_date):
        assert first(rrule(text, timezone="Europe/Berlin"), 9) == [
            "2026-12-01T08:00:00Z",
            "2026-12-02T08:00:00Z",
        ]


def test_a_rule_without_dtstart_begins_at_the_start():
    spec = rrule("FREQ=WEEKLY", start=parse_instant("2026-12-01T09:00:00Z"))
    assert first(spec, 2) == ["2026-12-01T09:00:00Z", "2026-12-08T09:00:00Z"]


def test_a_numbered_week_takes_its_day_from_dtstart():
    spec = rrule("DTSTART:20261201T090000\nRRULE:FREQ=YEARLY;BYWEEKNO=1")
    assert [t[:10] for t in first(spec, 2)] == ["2027-01-05", "2028-01-04"]


def test_a_numbered_week_with_days_of_the_month_takes_those():
    spec = rrule("DTSTART:20261201T090000\nRRULE:FREQ=YEARLY;BYWEEKNO=1,2;BYMONTHDAY=5,10")
    assert [t[:10] for t in first(spec, 4)] == [
        "2027-01-05",
        "2027-01-10",
        "2028-01-05",
        "2028-01-10",
    ]


NEVER = [
    "DTSTART:20260101T000000\nRRULE:FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30",
    "DTSTART:20260101T000000\nRRULE:FREQ=MONTHLY;BYMONTH=2;BYMONTHDAY=30",
    "DTSTART:20260101T000000\nRRULE:FREQ=DAILY;INTERVAL=7;BYDAY=MO",
    "DTSTART:20260101T000000\nRRULE:FREQ=MONTHLY;INTERVAL=12;BYMONTH=2",
    "DTSTART:20260101T000000\nRRULE:FREQ=HOURLY;INTERVAL=24;BYHOUR=3",
    "DTSTART:20260101T000000\nRRULE:FREQ=SECONDLY;BYMONTH=2;BYMONTHDAY=30",
    "DTSTART:20260101T000000\nRRULE:FREQ=MINUTELY;INTERVAL=10080;BYDAY=MO",
    "DTSTART:20260101T000000\nRRULE:FREQ=DAILY;UNTIL=20251231T000000",
]


@pytest.mark.slow
@pytest.mark.parametrize("text", NEVER)
def test_a_rule_that_can_never_fire_is_refused_and_in_bounded_time(text):
    with pytest.raises(NeverFiresError, match="expected one that fires at least once"):
        build(rrule(text))


BAD_RULES = [
    ("", "an RRULE"),
    ("FREQ=DAILY", "DTSTART"),
    ("DTSTART:20260101T000000\nRRULE:FREQ=FORTNIGHTLY", "FREQ= and one of YEARLY"),
    ("DTSTART:20260101T000000\nRRULE:FREQ=DAILY;INTERVAL=0", "from 1 to 36,500"),
    ("DTSTART:20260101T000000\nRRULE:FREQ=DAILY;INTERVAL=-1", "from 1 to 36,500"),
    ("DTSTART:20260101T000000\nRRULE:FREQ=DAILY;COUNT=1000000", "from 1 to 10,000"),
    ("DTSTART:20260101T000000\nRRULE:FREQ=HOURLY;COUNT=1001", "from 1 to 1,000"),
    ("DTSTART:20260101T000000\nRRULE:FREQ=DAILY;COUNT=2;UNTIL=20270101", "not both"),
    ("DTSTART:20260101T000000\nRRULE:FREQ=DAILY;BYHOUR=24", "from 0 to 23"),
    ("DTSTART:20260101T000000\nRRULE:FREQ=DAILY;BYHOUR=1;BYHOUR=2", "BYHOUR once"),
    ("DTSTART:20260101T000000\nRRULE:FREQ=DAILY;BYEASTER=1", "NAME=VALUE with one of"),
    ("DTSTART:20260101T000000\nRRULE:FREQ=WEEKLY;BYMONTHDAY=1", "no BYMONTHDAY with FREQ=WEEKLY"),
    ("DTSTART:20260101T000000\nRRULE:FREQ=DAILY;BYDAY=2MO", "only with MONTHLY or YEARLY"),
    ("DTSTART:20260101T000000\nRRULE:FREQ=DAILY;BYSETPOS=1", "for BYSETPOS to choose from"),
    ("DTSTART:20260101T000000\nRRULE:FREQ=HOURLY;BYMINUTE=1,2;BYSETPOS=1", "BYSETPOS only with"),
    ("DTSTART:20260230T000000\nRRULE:FREQ=DAILY", "day is out of range"),
    ("DTSTART:20260101T000000\nRRULE:FREQ=DAILY\nRRULE:FREQ=DAILY", "one RRULE"),
    ("DTSTART:20260101T000000\nEXRULE:FREQ=DAILY", "lines of DTSTART, RRULE, RDATE and EXDATE"),
    ("DTSTART;TZID=Mars/Base:20260101T000000\nRRULE:FREQ=DAILY", "an IANA time zone"),
    ("DTSTART;X=1:20260101T000000\nRRULE:FREQ=DAILY", "no parameters but TZID"),
    ("DTSTART;TZID=Europe/Berlin:20260101T000000\nRDATE;TZID=UTC:20260101T000000", "one time zone"),
    ("DTSTART:20260101T000000\nRRULE:FREQ=DAILY\nEXDATE:20260102", "give each its time"),
    ("x" * 10_001, "at most 10,000 characters"),
]


@pytest.mark.parametrize(("text", "expected"), BAD_RULES, ids=lambda v: str(v)[-40:])
def test_a_recurrence_that_can_t_be_read_says_what_would_be_right(text, expected):
    with pytest.raises(ScheduleError, match=r"^(rrule|timezone): ") as caught:
        build(rrule(text))
    assert expected in str(caught.value)


def test_a_tzid_must_be_the_schedule_s_own_zone():
    text = "DTSTART;TZID=Europe/Berlin:20260101T000000\nRRULE:FREQ=DAILY"
    with pytest.raises(ScheduleError, match="expected the schedule's timezone, Asia/Tokyo"):
        build(rrule(text, timezone="Asia/Tokyo"))
    with pytest.raises(ScheduleError, match="'a DTSTART with Z' can't be used; expected the sch"):
        build(rrule("DTSTART:20260101T000000Z\nRRULE:FREQ=DAILY", timezone="Asia/Tokyo"))


def test_a_tzid_may_stand_in_quotes_as_calendars_export_it():
    text = 'DTSTART;TZID="Asia/Tokyo":20260101T090000\nRRULE:FREQ=DAILY'
    assert build(rrule(text, timezone=None)).next_after(0) == parse_instant("2026-01-01T00:00:00Z")


# bounds


def test_start_and_end_are_included():
    start, end = parse_instant("2026-12-01T00:00:00Z"), parse_instant("2026-12-01T00:02:00Z")
    spec = cron("* * * * *", start=start, end=end)
    assert first(spec, 9) == [
        "2026-12-01T00:00:00Z",
        "2026-12-01T00:01:00Z",
        "2026-12-01T00:02:00Z",
    ]


def test_max_runs_counts_from_the_start_or_from_the_job_s_definition():
    # The job's definition came into force at 03:00, which is its first time.
    assert first(cron("* * * * *", max_runs=2), 9) == ["2026-11-29T03:01:00Z"]
    start = parse_instant("2027-01-01T00:00:00Z")
    assert first(cron("0 * * * *", max_runs=2, start=start), 9) == [
        "2027-01-01T00:00:00Z",
        "2027-01-01T01:00:00Z",
    ]


def test_what_a_calendar_takes_away_does_not_count_as_a_run():
    closed = CalendarSpec(name="closed", dates=(date(2026, 12, 2),))
    start = parse_instant("2026-12-01T00:00:00Z")
    spec = cron("0 9 * * *", max_runs=3, start=start, exclude=(closed,))
    assert [t[:10] for t in first(spec, 9)] == ["2026-12-01", "2026-12-03", "2026-12-04"]
    assert build(spec, JOB).unfiltered.next_after(parse_instant("2026-12-04T09:00:00Z")) is None


# calendars


def test_a_calendar_is_read_in_the_schedule_s_zone():
    closed = CalendarSpec(name="closed", dates=(date(2026, 12, 24),))
    spec = cron("30 23 * * *", timezone="America/New_York", exclude=(closed,))
    after = parse_instant("2026-12-23T12:00:00Z")
    # 23:30 on the 24th in New York is the 25th in UTC.
    assert first(spec, 2, after) == ["2026-12-24T04:30:00Z", "2026-12-26T04:30:00Z"]


def test_ranges_weekdays_and_expressions_are_excluded():
    closed = CalendarSpec(
        name="closed",
        ranges=((date(2026, 12, 24), date(2027, 1, 3)),),
        weekdays=(5, 6),
        crons=("* 0-11 4 1 *",),
    )
    spec = cron("0 */6 * * *", exclude=(closed,))
    after = parse_instant("2026-12-23T13:00:00Z")
    assert first(spec, 3, after) == [
        "2026-12-23T18:00:00Z",
        "2027-01-04T12:00:00Z",
        "2027-01-04T18:00:00Z",
    ]


@pytest.mark.parametrize(
    ("day", "before", "after"),
    [
        (date(2026, 3, 29), "2026-03-28T22:30:00Z", "2026-03-29T22:30:00Z"),
        (date(2026, 10, 25), "2026-10-24T21:30:00Z", "2026-10-25T23:30:00Z"),
    ],
)
@pytest.mark.parametrize("by", ["date", "expression"])
def test_a_day_on_which_the_clock_jumps_is_excluded_from_midnight_to_midnight(
    by, day, before, after
):
    closed = CalendarSpec(name="closed", dates=(day,))
    if by == "expression":
        closed = CalendarSpec(name="closed", crons=(f"* * {day.day} {day.month} *",))
    schedule = build(cron("30 * * * *", timezone="Europe/Berlin", exclude=(closed,)))
    assert format_instant(schedule.next_after(parse_instant(before))) == after
    assert format_instant(schedule.previous_before(parse_instant(after))) == before


def test_a_second_schedule_is_passed_over_a_closed_year_at_once():
    closed = CalendarSpec(name="closed", ranges=((date(2027, 1, 1), date(2027, 12, 31)),))
    spec = cron("* * * * * *", exclude=(closed,))
    after = parse_instant("2026-12-31T23:59:59Z")
    assert first(spec, 1, after) == ["2028-01-01T00:00:00Z"]


@pytest.mark.slow
def test_a_calendar_that_leaves_nothing_is_refused():
    everything = CalendarSpec(name="all", weekdays=tuple(range(7)))
    with pytest.raises(NeverFiresError, match="expected a day that is not excluded"):
        build(cron("0 3 * * *", exclude=(everything,)))
    hours = CalendarSpec(name="nights", crons=("* 0-6 * * *",))
    with pytest.raises(NeverFiresError, match="except on nights"):
        build(cron("0 3 * * *", exclude=(hours,)))


@pytest.mark.slow
def test_the_same_expression_as_a_calendar_takes_everything_away_in_gap_and_fold_too():
    same = CalendarSpec(name="same", crons=("30 2 * * *",))
    with pytest.raises(NeverFiresError):
        build(cron("30 2 * * *", timezone="Europe/Berlin", exclude=(same,)))


# union


def test_a_union_has_each_instant_once():
    spec = UnionSpec(parts=(cron("0 * * * *"), cron("0,30 4 * * *")))
    assert first(spec, 3) == [
        "2026-11-29T04:00:00Z",
        "2026-11-29T04:30:00Z",
        "2026-11-29T05:00:00Z",
    ]
    assert (
        build(spec, JOB).explain()
        == ("at minute 0 of every hour, UTC; and also at 04:00 and 04:30 every day, UTC")
        or "and also" in build(spec, JOB).explain()
    )


def test_parts_with_different_jitter_are_refused():
    parts = (cron("0 * * * *", jitter_ns=SECOND), cron("0 3 * * *"))
    with pytest.raises(ScheduleError, match="jitter: '1s and 0s' can't be used"):
        build(UnionSpec(parts=parts))


# bad input


BAD = [
    (every(0), "every: '0s' can't be used; expected at least 1s"),
    (every(-SECOND), "every: '-1s' can't be used; expected at least 1s"),
    (every(MILLISECOND), "every: '1ms' can't be used; expected at least 1s"),
    (every(1_500 * MILLISECOND), "every: '1s500ms' can't be used; expected whole seconds"),
    (every(401 * DAY), "at most 400d"),
    (
        ScheduleSpec(timing=EveryTiming(period_ns=HOUR, offset_ns=HOUR)),
        "offset: '1h' can't be used",
    ),
    (cron("0 3 * * *", start=NOW + 5, end=None), "start: "),
    (cron("0 3 * * *", start=NOW, end=NOW - SECOND), "end: '2026-11-29T02:59:59Z' can't be used"),
    (cron("0 3 * * *", start=MAX_INSTANT + SECOND), "from 1970 to 2261"),
    (cron("0 3 * * *", start=-SECOND), "from 1970 to 2261"),
    (cron("0 3 * * *", max_runs=0), "max_runs: 0 can't be used; expected a number from 1"),
    (cron("0 3 * * *", max_runs=10_001), "max_runs: 10001 can't be used"),
    (cron("0 3 * * *", jitter_ns=-1), "jitter: '-1ns' can't be used"),
    (cron("0 3 * * *", timezone=""), "timezone: '' can't be used"),
    (cron("0 3 * * *", timezone="Mars/Base"), "timezone: 'Mars/Base' can't be used"),
    (cron("0 3 * * *", timezone="../../etc/passwd"), "timezone: '../../etc/passwd'"),
    (cron("0 3 * *"), "these are 4 fields"),
    (cron("60 * * * *"), "minute: '60' can't be used"),
    (cron("*/0 * * * *"), "minute"),
    (cron("0 5-1/0 * * *"), "hour"),
    (cron("* * 31 2 *"), "can't be used; expected one that fires at least once"),
    (cron("x" * 10_000), "cron: "),
    (cron("@reboot"), "a mesh has no boot to wait for"),
    (ScheduleSpec(timing=AtTiming()), "expected at least one time"),
    (
        ScheduleSpec(timing=AtTiming(instants=tuple(n * SECOND for n in range(1_001)))),
        "at most 1,000",
    ),
    (ScheduleSpec(timing=AtTiming(instants=(NOW + 1,))), "whole seconds"),
    (UnionSpec(parts=()), "1 to 20 of them"),
    (UnionSpec(parts=(every(SECOND),) * 21), "1 to 20 of them"),
    (interval(0, CalendarUnit.DAYS, time(9), date(2026, 1, 1)), "days: 0 can't be used"),
    (interval(1, CalendarUnit.DAYS, time(9), None), "anchor: nothing can't be used"),
    (
        interval(1, CalendarUnit.DAYS, time(9, 0, 0, 5), date(2026, 1, 1)),
        "a wall time in whole seconds",
    ),
    (
        cron(
            "0 3 * * *",
            exclude=(CalendarSpec(name="c", ranges=((date(2027, 1, 2), date(2027, 1, 1)),)),),
        ),
        "a range that ends after it begins",
    ),
    (cron("0 3 * * *", exclude=(CalendarSpec(name="c", weekdays=(7,)),)), "from MON to SUN"),
    (cron("0 3 * * *", exclude=(CalendarSpec(name="c", crons=("nope",)),)), "these are 1 fields"),
]


@pytest.mark.parametrize(("spec", "expected"), BAD, ids=lambda v: str(v)[:40])
def test_a_bad_field_is_refused_with_its_value_and_what_would_be_right(spec, expected):
    with pytest.raises(ScheduleError) as caught:
        build(spec, JOB)
    assert expected in str(caught.value)


def test_est_is_a_zone_because_iana_has_it_and_an_invented_one_is_not():
    assert build(cron("0 3 * * *", timezone="EST")).next_after(NOW) == NOW + 5 * HOUR
    with pytest.raises(UnknownZoneError):
        build(cron("0 3 * * *", timezone="CEST"))


def test_h_without_a_job_is_refused_and_with_one_it_differs_by_job():
    with pytest.raises(ScheduleError):
        build(cron("H H * * *"))
    others = [
        build(cron("H H * * *"), JobIdentity(namespace="default", name=name, uid="u"))
        for name in ("a", "b", "c")
    ]
    assert len({schedule.next_after(NOW) for schedule in others}) == 3


# sharing


def test_equal_specifications_share_one_schedule_unless_they_depend_on_the_job():
    cache = ScheduleCache()
    jobs = [JobIdentity(namespace="default", name=name, uid=name * 24) for name in "ab"]
    for spec in (cron("0 3 * * *"), cron("0 3 * MAR THU"), every(SECOND)):
        a, b = (cache.build(spec, job) for job in jobs)
        assert a.nominal is b.nominal
    for spec in (cron("H 3 * * *"), cron("0 3 * * *", max_runs=5)):
        a, b = (cache.build(spec, job) for job in jobs)
        assert a.nominal is not b.nominal


def test_a_cache_forgets_what_was_not_asked_for_longest():
    cache = ScheduleCache(capacity=2)
    first_one = cache.build(every(SECOND), JOB).nominal
    cache.build(every(2 * SECOND), JOB)
    assert cache.build(every(SECOND), JOB).nominal is first_one
    cache.build(every(3 * SECOND), JOB)
    assert cache.build(every(SECOND), JOB).nominal is first_one
    cache.build(every(2 * SECOND), JOB)
    cache.build(every(3 * SECOND), JOB)
    assert cache.build(every(SECOND), JOB).nominal is not first_one

"""What is told about a schedule: explanation, next times, warnings, load."""

from datetime import date, datetime

import pytest

from sexton_core.errors import ScheduleError
from sexton_core.instants import DAY, HOUR, MINUTE, SECOND, format_instant, parse_instant
from sexton_core.schedules import (
    AtTiming,
    CalendarSpec,
    CronTiming,
    EveryTiming,
    JobIdentity,
    RRuleTiming,
    ScheduleSpec,
    UnionSpec,
    build,
    forecast,
    herd_warnings,
    preview,
    warnings_of,
)
from sexton_core.words import DstRule, WarningKind
from sexton_core.zones import tzdata_version

NOW = parse_instant("2027-03-01T00:00:00Z")


def cron(expression, **more):
    return ScheduleSpec(timing=CronTiming(expression=expression), **more)


def kinds(spec, now=NOW, **more):
    return [warning.kind for warning in warnings_of(build(spec), now, **more)]


def messages(spec, now=NOW, **more):
    return [warning.message for warning in warnings_of(build(spec), now, **more)]


def test_an_explanation_says_kind_bounds_zone_calendars_and_jitter():
    spec = ScheduleSpec(
        timing=EveryTiming(period_ns=90 * MINUTE, offset_ns=5 * MINUTE),
        start=NOW,
        end=NOW + DAY,
        max_runs=3,
        jitter_ns=30 * SECOND,
        exclude=(CalendarSpec(name="closed", dates=(date(2027, 3, 2),)),),
    )
    assert build(spec).explain() == (
        "every 1h30m, counted from 2027-03-01T00:00:00Z, 5m later, from 2027-03-01T00:00:00Z, "
        "until 2027-03-02T00:00:00Z, except on closed, 3 times at most, "
        "up to 30s later by jitter"
    )


def test_no_zone_is_said_loudly_where_the_zone_matters():
    assert WarningKind.NO_ZONE in kinds(cron("0 3 * * *"))
    assert WarningKind.NO_ZONE not in kinds(cron("0 3 * * *", timezone="UTC"))
    assert WarningKind.NO_ZONE not in kinds(cron("TZ=UTC 0 3 * * *"))
    assert kinds(ScheduleSpec(timing=EveryTiming(period_ns=HOUR))) == []
    assert kinds(cron("@every 90s")) == []
    sundays = (CalendarSpec(name="sundays", weekdays=(6,)),)
    for timing in (EveryTiming(period_ns=HOUR), CronTiming(expression="@every 90s")):
        assert kinds(ScheduleSpec(timing=timing, exclude=sundays)) == [WarningKind.NO_ZONE]
    wall = datetime.fromisoformat("2027-05-01T09:00:00")
    assert kinds(ScheduleSpec(timing=AtTiming(walls=(wall,)))) == [WarningKind.NO_ZONE]


@pytest.mark.parametrize(
    "timing",
    [
        CronTiming(expression="30 2 * * *"),
        RRuleTiming(text="DTSTART:20270101T023000\nRRULE:FREQ=DAILY"),
        AtTiming(
            walls=(
                datetime.fromisoformat("2027-03-28T02:30:00"),
                datetime.fromisoformat("2027-10-31T02:30:00"),
            )
        ),
    ],
    ids=["cron", "rrule", "at"],
)
def test_gap_and_fold_of_the_next_400_days_are_announced_with_what_is_done(timing):
    spec = ScheduleSpec(timing=timing, timezone="Europe/Berlin", dst=DstRule.SHIFT)
    in_gap, in_fold, *_ = messages(spec)
    assert in_gap == (
        "2027-03-28 02:30 does not exist in Europe/Berlin: it runs at 03:30 (dst: shift)"
    )
    assert in_fold == (
        "2027-10-31 02:30 happens twice in Europe/Berlin: "
        "it runs in the first pass only (dst: shift)"
    )


def test_what_is_not_touched_by_the_clock_is_not_warned_about():
    assert kinds(cron("30 4 * * *", timezone="Europe/Berlin")) == []
    assert kinds(cron("*/10 * * * *", timezone="Europe/Berlin")) == []
    ends_before = cron("30 2 * * *", timezone="Europe/Berlin", end=NOW + 5 * DAY)
    assert kinds(ends_before) == []


def test_what_never_fires_again_is_said_for_the_whole_and_for_a_part():
    ended = cron("0 3 * * *", timezone="UTC", end=NOW)
    assert kinds(ended) == [WarningKind.NEVER_FIRES]
    both = UnionSpec(parts=(cron("0 4 * * *", timezone="UTC"), ended))
    assert messages(both) == [
        "schedule 2 never fires again: at 03:00 every day, UTC, until 2027-03-01T00:00:00Z"
    ]


def test_a_run_longer_than_the_shortest_interval_is_warned_about():
    spec = cron("0,5 * * * *", timezone="UTC")
    assert kinds(spec, run_time_ns=4 * MINUTE) == []
    assert messages(spec, run_time_ns=10 * MINUTE) == [
        "fires after 5m while a run takes 10m: `overlap` decides what becomes of the next one"
    ]


def test_jitter_that_is_cut_off_is_warned_about():
    spec = cron("*/5 * * * *", timezone="UTC", jitter_ns=HOUR)
    assert kinds(spec) == [WarningKind.JITTER_CLIPPED]


def test_both_day_fields_are_warned_about_and_the_rule_is_named():
    looked = preview(build(cron("0 0 1 * MON", timezone="UTC")), NOW, 1)
    assert [warning.kind for warning in looked.warnings] == [WarningKind.BOTH_DAYS]
    assert "Debian's rule" in looked.rules[0]


def test_a_preview_marks_gap_fold_and_excluded_times():
    closed = CalendarSpec(name="closed", dates=(date(2027, 3, 30), date(2027, 3, 31)))
    schedule = build(
        cron("30 2 * * *", timezone="Europe/Berlin", exclude=(closed,), dst=DstRule.LITERAL)
    )
    rows = preview(schedule, parse_instant("2027-03-28T12:00:00Z"), 2).rows
    assert [(row.local.isoformat(), row.excluded_by) for row in rows] == [
        ("2027-03-29T02:30:00+02:00", None),
        ("2027-03-30T02:30:00+02:00", "closed"),
        ("2027-04-01T02:30:00+02:00", None),
    ]
    assert format_instant(rows[1].excluded_until) == "2027-03-31T00:30:00Z"
    folded = preview(schedule, parse_instant("2027-10-30T12:00:00Z"), 2)
    assert [row.notes for row in folded.rows] == [
        ("the clock shows this time twice: first pass",),
        ("the clock shows this time twice: second pass",),
    ]
    moved = build(cron("30 2 * * *", timezone="Europe/Berlin"))
    (row,) = preview(moved, parse_instant("2027-03-28T00:00:00Z"), 1).rows
    assert row.notes == ("the clock skips 02:30:00",)
    assert folded.tzdata == tzdata_version()


@pytest.mark.parametrize(
    "timing",
    [
        CronTiming(expression="30 2 * * *"),
        RRuleTiming(text="DTSTART:20270101T023000\nRRULE:FREQ=DAILY"),
        RRuleTiming(text="RDATE:20270328T023000,20271031T023000"),
        AtTiming(
            instants=(parse_instant("2027-10-31T00:45:00Z"),),
            walls=(
                datetime.fromisoformat("2027-03-28T02:30:00"),
                datetime.fromisoformat("2027-10-31T02:30:00"),
            ),
        ),
    ],
    ids=["cron", "rrule", "rdate", "at"],
)
def test_a_preview_marks_what_the_clock_does_to_every_kind_of_wall_time(timing):
    schedule = build(ScheduleSpec(timing=timing, timezone="Europe/Berlin", dst=DstRule.SHIFT))
    (skipped,) = preview(schedule, parse_instant("2027-03-28T00:00:00Z"), 1).rows
    assert (skipped.local.isoformat(), skipped.notes) == (
        "2027-03-28T03:30:00+02:00",
        ("the clock skips 02:30:00",),
    )
    repeated = preview(schedule, parse_instant("2027-10-31T00:00:00Z"), 1).rows[0]
    assert repeated.notes == ("the clock shows this time twice: first pass",)


def test_each_time_that_is_moved_by_a_gap_names_its_own_wall_time():
    timing = CronTiming(expression="0,20 2 * * *")
    schedule = build(ScheduleSpec(timing=timing, timezone="Europe/Berlin", dst=DstRule.SHIFT))
    rows = preview(schedule, parse_instant("2027-03-28T00:00:00Z"), 2).rows
    assert [row.notes for row in rows] == [
        ("the clock skips 02:00:00",),
        ("the clock skips 02:20:00",),
    ]


def test_an_instant_that_was_given_in_utc_is_no_matter_of_the_clock():
    timing = AtTiming(instants=(parse_instant("2027-10-31T00:45:00Z"),))
    schedule = build(ScheduleSpec(timing=timing, timezone="Europe/Berlin"))
    assert preview(schedule, NOW, 1).rows[0].notes == ()


def test_a_preview_of_too_many_times_is_refused():
    schedule = build(cron("0 3 * * *"))
    with pytest.raises(ScheduleError, match="expected a number from 0 to 10,000"):
        preview(schedule, NOW, 10_001)


def test_a_herd_at_a_round_minute_is_counted_and_warned_about_and_jitter_spreads_it():
    def jobs(**more):
        return [
            (
                f"j{n}",
                build(
                    cron("0 9 * * *", **more),
                    JobIdentity(namespace="default", name=f"j{n}", uid=f"{n}"),
                ),
            )
            for n in range(12)
        ]

    found = forecast(jobs(), NOW, NOW + DAY)
    assert [(format_instant(peak.minute), peak.runs) for peak in found.peaks] == [
        ("2027-03-01T09:00:00Z", 12)
    ]
    (warning,) = herd_warnings(found)
    assert warning.message.startswith("12 jobs are due in the minute of 2027-03-01T09:00:00Z")
    assert herd_warnings(forecast(jobs(jitter_ns=HOUR), NOW, NOW + DAY)) == []


@pytest.mark.parametrize(("text", "warnings"), [("H * * * *", 0), ("0 H * * *", 1)])
def test_jobs_whose_minute_is_drawn_from_their_names_are_not_told_to_draw_it(text, warnings):
    jobs = [
        (name, build(cron(text), JobIdentity(namespace="default", name=name, uid=name)))
        for name in (f"j{n}" for n in range(1_000))
    ]
    found = forecast(jobs, NOW, NOW + DAY)
    assert found.runs >= 1_000
    assert len(herd_warnings(found)) == warnings


def test_one_busy_job_is_no_herd():
    busy = [("seconds", build(cron("* * * * * *")))]
    found = forecast(busy, NOW, NOW + HOUR, most=1)
    assert found.peaks[0].runs == 60
    assert found.runs == 3_600
    assert herd_warnings(found) == []

"""Random specifications of every kind, for the laws that all schedules obey."""

from datetime import date, datetime, time

from hypothesis import strategies as st

from sexton_core.instants import DAY, HOUR, MINUTE, SECOND, parse_instant
from sexton_core.schedules import (
    AtTiming,
    CalendarSpec,
    CalendarTiming,
    CalendarUnit,
    CronTiming,
    EveryTiming,
    RRuleTiming,
    ScheduleSpec,
    ShortMonth,
    UnionSpec,
)
from sexton_core.words import DstRule

# Half an hour, an hour and two; at midnight; in the south; a skipped day; none.
ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Santiago",
    "Asia/Beirut",
    "Pacific/Apia",
    "Antarctica/Troll",
    "Asia/Kathmandu",
)
FIRST = parse_instant("2009-01-01T00:00:00Z")
LAST = parse_instant("2029-12-31T00:00:00Z")

whole_seconds = st.integers(FIRST // SECOND, LAST // SECOND).map(lambda second: second * SECOND)
instants = st.one_of(whole_seconds, st.integers(FIRST, LAST))
dates = st.dates(date(2009, 1, 1), date(2029, 12, 31))
walls = st.builds(
    datetime.combine, dates, st.times().map(lambda at: at.replace(microsecond=0, fold=0))
)
night_times = st.builds(time, st.integers(0, 4), st.sampled_from((0, 15, 30, 59)))

crons = st.sampled_from(
    (
        "0 3 * * *",
        "30 2 * * *",
        "*/15 * * * *",
        "0 */2 * * MON-FRI",
        "15 0,1,2,3 * * *",
        "0 0 31 * *",
        "0 12 L * *",
        "59 23 * * FRI#2",
        "0 0 29 2 *",
        "30 30 2 * * *",
        "*/20 * 2 * * SUN",
    )
).map(lambda expression: CronTiming(expression=expression))
everies = st.builds(
    EveryTiming,
    period_ns=st.sampled_from((SECOND, 90 * SECOND, 7 * MINUTE, HOUR, DAY, 7 * DAY)),
    anchor=st.one_of(st.none(), whole_seconds),
)
calendars = st.builds(
    CalendarTiming,
    count=st.integers(1, 40),
    unit=st.sampled_from(CalendarUnit),
    at=night_times,
    anchor=dates,
    short_month=st.sampled_from(ShortMonth),
)
ats = st.builds(
    AtTiming,
    instants=st.lists(whole_seconds, min_size=1, max_size=5).map(tuple),
    walls=st.lists(walls, max_size=5).map(tuple),
)


@st.composite
def rules(draw):
    """An RRULE line without UNTIL."""
    frequency = draw(
        st.sampled_from(("YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY"))
    )
    parts = [f"FREQ={frequency}", f"INTERVAL={draw(st.integers(1, 13))}"]
    if draw(st.booleans()):
        months = draw(st.sets(st.integers(1, 12), min_size=1, max_size=4))
        parts.append("BYMONTH=" + ",".join(map(str, sorted(months))))
    days = draw(st.sampled_from(("", "BYDAY=MO", "BYDAY=TU,SA", "BYMONTHDAY=1,15,-1")))
    if days and not (frequency == "WEEKLY" and "MONTHDAY" in days):
        parts.append(days)
    if frequency == "YEARLY" and "BYMONTHDAY" not in days and draw(st.booleans()):
        parts.append(draw(st.sampled_from(("BYYEARDAY=1,-1,100", "BYWEEKNO=1,20,53"))))
    if draw(st.booleans()):
        parts.append(draw(st.sampled_from(("BYHOUR=1,2,3", "BYHOUR=0,23", "BYHOUR=2"))))
    if draw(st.booleans()):
        parts.append(draw(st.sampled_from(("BYMINUTE=0,30", "BYMINUTE=59"))))
    if (
        "BY" in "".join(parts)
        and frequency in ("YEARLY", "MONTHLY", "WEEKLY")
        and draw(st.booleans())
    ):
        parts.append(draw(st.sampled_from(("BYSETPOS=1", "BYSETPOS=-1,2"))))
    return ";".join(parts)


@st.composite
def rrules(draw):
    start = draw(walls)
    lines = [f"DTSTART:{start:%Y%m%dT%H%M%S}", f"RRULE:{draw(rules())}"]
    if draw(st.booleans()):
        lines[1] += f";COUNT={draw(st.integers(1, 50))}"
    lines += [f"RDATE:{draw(walls):%Y%m%dT%H%M%S}" for _ in range(draw(st.integers(0, 2)))]
    return RRuleTiming(text="\n".join(lines))


excluded = st.builds(
    CalendarSpec,
    name=st.just("closed"),
    dates=st.lists(dates, max_size=3).map(tuple),
    ranges=st.lists(st.tuples(dates, dates).map(sorted).map(tuple), max_size=2).map(tuple),
    weekdays=st.sets(st.integers(0, 6), max_size=3).map(tuple),
    crons=st.lists(
        st.sampled_from(("* 0-6 * * *", "30 2 * * *", "0 0 3 * * *", "* * 1 * *")), max_size=2
    ).map(tuple),
)


@st.composite
def specs(draw, *, excluding=True, bounded=True):
    start, end = sorted((draw(whole_seconds), draw(whole_seconds)))
    return ScheduleSpec(
        timing=draw(st.one_of(crons, everies, calendars, ats, rrules())),
        timezone=draw(st.sampled_from(ZONES)),
        dst=draw(st.sampled_from(DstRule)),
        exclude=(draw(excluded),) if excluding and draw(st.booleans()) else (),
        start=start if bounded and draw(st.booleans()) else None,
        end=end if bounded and draw(st.booleans()) else None,
        max_runs=draw(st.integers(1, 40)) if bounded and draw(st.booleans()) else None,
    )


unions = st.builds(UnionSpec, parts=st.lists(specs(), min_size=1, max_size=3).map(tuple))
all_specs = st.one_of(specs(), unions)
specs_of_intervals = st.builds(
    ScheduleSpec,
    timing=calendars,
    timezone=st.sampled_from(ZONES),
    dst=st.sampled_from(DstRule),
)

"""Between schedules on the wire and the core's specifications of them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from sexton.v1 import job_pb2 as pb
from sexton_core.errors import ScheduleError
from sexton_core.ids import check_name
from sexton_core.instants import format_instant, parse_date, parse_moment, parse_time
from sexton_core.schedules import (
    AnySpec,
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
from sexton_core.schedules.spec import Timing
from sexton_core.words import DayRule, DstRule
from sexton_records.times import read_duration, read_instant, timestamp, wire_duration

MAX_SCHEDULES: Final = 20
WEEKDAYS: Final = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")

_DST: Final[dict[DstRule, pb.DstRule.ValueType]] = {
    DstRule.VIXIE: pb.DST_RULE_VIXIE,
    DstRule.LITERAL: pb.DST_RULE_LITERAL,
    DstRule.SKIP: pb.DST_RULE_SKIP,
    DstRule.SHIFT: pb.DST_RULE_SHIFT,
}
_DAYS: Final[dict[DayRule | None, pb.DayRule.ValueType]] = {
    None: pb.DAY_RULE_UNSPECIFIED,
    DayRule.DEBIAN: pb.DAY_RULE_DEBIAN,
    DayRule.AND: pb.DAY_RULE_AND,
    DayRule.OR: pb.DAY_RULE_OR,
}
_UNITS: Final[dict[CalendarUnit, pb.CalendarInterval.Unit.ValueType]] = {
    CalendarUnit.DAYS: pb.CalendarInterval.UNIT_DAY,
    CalendarUnit.WEEKS: pb.CalendarInterval.UNIT_WEEK,
    CalendarUnit.MONTHS: pb.CalendarInterval.UNIT_MONTH,
    CalendarUnit.YEARS: pb.CalendarInterval.UNIT_YEAR,
}
_SHORT: Final[dict[ShortMonth | None, pb.CalendarInterval.ShortMonth.ValueType]] = {
    None: pb.CalendarInterval.SHORT_MONTH_UNSPECIFIED,
    ShortMonth.SKIP: pb.CalendarInterval.SHORT_MONTH_SKIP,
    ShortMonth.LAST: pb.CalendarInterval.SHORT_MONTH_LAST,
}
_DST_OF: Final = {value: word for word, value in _DST.items()} | {
    pb.DST_RULE_UNSPECIFIED: DstRule.VIXIE
}
_DAYS_OF: Final = {value: word for word, value in _DAYS.items()}
_UNIT_OF: Final = {value: word for word, value in _UNITS.items()}
_SHORT_OF: Final = {value: word for word, value in _SHORT.items()}


def decode_schedules(messages: Sequence[pb.Schedule]) -> AnySpec | None:
    """Returns the specification of a job's schedules; None where it has none.

    Raises:
        ScheduleError: a field has a value that can't be read. What can be read and can't be used is
            refused by `sexton_core.schedules.build`.
    """
    if len(messages) > MAX_SCHEDULES:
        raise ScheduleError("schedules", len(messages), f"at most {MAX_SCHEDULES} schedules")
    parts = tuple(_decode(message) for message in messages)
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else UnionSpec(parts=parts)


def encode_schedules(spec: AnySpec | None) -> list[pb.Schedule]:
    """Returns a specification as it stands on the wire, with every default written out."""
    if spec is None:
        return []
    return [_encode(part) for part in ((spec,) if isinstance(spec, ScheduleSpec) else spec.parts)]


def _decode(message: pb.Schedule) -> ScheduleSpec:
    if message.dst not in _DST_OF:
        raise ScheduleError("dst", message.dst, "a value of DstRule")
    return ScheduleSpec(
        timing=_decode_timing(message),
        timezone=message.time_zone or None,
        dst=_DST_OF[message.dst],
        exclude=tuple(_decode_calendar(calendar) for calendar in message.exclude),
        start=read_instant("start", message.start_time) if message.HasField("start_time") else None,
        end=read_instant("end", message.end_time) if message.HasField("end_time") else None,
        max_runs=message.max_runs or None,
        jitter_ns=read_duration("jitter", message.jitter) if message.HasField("jitter") else 0,
    )


def _decode_timing(message: pb.Schedule) -> Timing:
    kind = message.WhichOneof("kind")
    if message.days and kind != "cron":
        raise ScheduleError("days", message.days, "nothing: only cron has day fields")
    if kind == "cron":
        if message.days not in _DAYS_OF:
            raise ScheduleError("days", message.days, "a value of DayRule")
        return CronTiming(expression=message.cron, days=_DAYS_OF[message.days])
    if kind == "every":
        every = message.every
        return EveryTiming(
            period_ns=read_duration("every", every.period),
            offset_ns=read_duration("offset", every.offset),
            anchor=read_instant("anchor", every.anchor_time)
            if every.HasField("anchor_time")
            else None,
        )
    if kind == "calendar_interval":
        interval = message.calendar_interval
        if interval.unit not in _UNIT_OF:
            raise ScheduleError("calendar_interval.unit", interval.unit, "day, week, month or year")
        if interval.short_month not in _SHORT_OF:
            raise ScheduleError("calendar_interval.short_month", interval.short_month, "a value")
        return CalendarTiming(
            count=interval.count,
            unit=_UNIT_OF[interval.unit],
            at=parse_time(interval.time_of_day, field="calendar_interval.time_of_day"),
            anchor=parse_date(interval.anchor_date, field="calendar_interval.anchor_date")
            if interval.anchor_date
            else None,
            short_month=_SHORT_OF[interval.short_month],
        )
    if kind == "at":
        return _decode_at(message.at)
    if kind == "rrule":
        return RRuleTiming(text=message.rrule)
    raise ScheduleError(
        "schedule", "nothing", "one of cron, every, calendar_interval, at and rrule"
    )


def _decode_at(message: pb.At) -> AtTiming:
    moments = [parse_moment(text, field="at") for text in message.times]
    return AtTiming(
        instants=tuple(each for each in moments if not isinstance(each, datetime)),
        walls=tuple(each for each in moments if isinstance(each, datetime)),
    )


def _decode_calendar(message: pb.Calendar) -> CalendarSpec:
    unknown = [day for day in message.weekdays if day not in WEEKDAYS]
    if unknown:
        raise ScheduleError("exclude.weekdays", unknown[0], "MON, TUE, WED, THU, FRI, SAT or SUN")
    ranges = []
    for text in message.ranges:
        first, separator, last = text.partition("..")
        if not separator:
            raise ScheduleError("exclude.ranges", text, "YYYY-MM-DD..YYYY-MM-DD")
        days = [parse_date(day, field="exclude.ranges") for day in (first, last)]
        ranges.append((days[0], days[1]))
    return CalendarSpec(
        name=check_name("exclude.name", message.name),
        dates=tuple(parse_date(text, field="exclude.dates") for text in message.dates),
        ranges=tuple(ranges),
        weekdays=tuple(WEEKDAYS.index(day) for day in message.weekdays),
        crons=tuple(message.crons),
    )


def _encode(spec: ScheduleSpec) -> pb.Schedule:
    message = pb.Schedule(
        time_zone=spec.timezone or "",
        dst=_DST[spec.dst],
        exclude=[_encode_calendar(calendar) for calendar in spec.exclude],
        start_time=None if spec.start is None else timestamp(spec.start),
        end_time=None if spec.end is None else timestamp(spec.end),
        max_runs=spec.max_runs or 0,
        jitter=wire_duration(spec.jitter_ns) if spec.jitter_ns else None,
    )
    timing = spec.timing
    if isinstance(timing, CronTiming):
        message.cron = timing.expression
        message.days = _DAYS[timing.days]
    elif isinstance(timing, EveryTiming):
        message.every.CopyFrom(
            pb.Every(
                period=wire_duration(timing.period_ns),
                offset=wire_duration(timing.offset_ns) if timing.offset_ns else None,
                anchor_time=None if timing.anchor is None else timestamp(timing.anchor),
            )
        )
    elif isinstance(timing, CalendarTiming):
        message.calendar_interval.CopyFrom(
            pb.CalendarInterval(
                count=timing.count,
                unit=_UNITS[timing.unit],
                anchor_date="" if timing.anchor is None else timing.anchor.isoformat(),
                time_of_day=timing.at.isoformat(),
                short_month=_SHORT[timing.short_month],
            )
        )
    elif isinstance(timing, AtTiming):
        message.at.times.extend(format_instant(instant) for instant in timing.instants)
        message.at.times.extend(wall.isoformat() for wall in timing.walls)
    else:
        message.rrule = timing.text
    return message


def _encode_calendar(spec: CalendarSpec) -> pb.Calendar:
    return pb.Calendar(
        name=spec.name,
        dates=[day.isoformat() for day in spec.dates],
        ranges=[f"{first.isoformat()}..{last.isoformat()}" for first, last in spec.ranges],
        weekdays=[WEEKDAYS[day] for day in spec.weekdays],
        crons=spec.crons,
    )

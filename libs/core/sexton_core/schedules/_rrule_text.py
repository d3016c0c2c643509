"""Reads the lines of an RFC 5545 recurrence: DTSTART, RRULE, RDATE and EXDATE.

Strict where the RFC is: a part given twice, out of its range, or beside one that it must not
stand with, is refused rather than ignored, because an ignored part is a run at the wrong time.
"""

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple

from sexton_core.errors import ScheduleError

MAX_TEXT: Final = 10_000
"""Characters of all lines together."""

MAX_DATES: Final = 1_000
"""RDATE and EXDATE values of one recurrence, each."""

MAX_COUNT: Final = 10_000
"""The largest COUNT: its last occurrence is found by walking. What needs more says UNTIL."""

MAX_FINE_COUNT: Final = 1_000
"""The same for hours, minutes and seconds, whose filters make the walk longer."""

FREQUENCIES: Final = ("YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY", "MINUTELY", "SECONDLY")
"""From coarse to fine; the index is the one that dateutil uses."""

MAX_INTERVALS: Final = (100, 1_200, 5_000, 36_500, 1_000_000, 1_000_000, 1_000_000)
"""The largest INTERVAL of each frequency. The first four are a hundred years, well within the
cycle of 400 that bounds a search."""

DAILY: Final = FREQUENCIES.index("DAILY")
WEEKDAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")

# Name -> (smallest, largest, negative ones allowed).
_NUMBERS: Final = {
    "BYSECOND": (0, 59, False),
    "BYMINUTE": (0, 59, False),
    "BYHOUR": (0, 23, False),
    "BYMONTHDAY": (1, 31, True),
    "BYYEARDAY": (1, 366, True),
    "BYWEEKNO": (1, 53, True),
    "BYMONTH": (1, 12, False),
    "BYSETPOS": (1, 366, True),
}
# Name -> the frequencies it must not stand with (RFC 5545, 3.3.10).
_FORBIDDEN: Final = {
    "BYMONTHDAY": {"WEEKLY"},
    "BYYEARDAY": {"DAILY", "WEEKLY", "MONTHLY"},
    "BYWEEKNO": set(FREQUENCIES) - {"YEARLY"},
}
_NAMES: Final = frozenset({"FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY", *_NUMBERS})
_DAY = re.compile(r"([+-]?\d{1,2})?(MO|TU|WE|TH|FR|SA|SU)", re.ASCII)
_MOMENT = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)(\d\d)(Z)?)?", re.ASCII)


class Moment(NamedTuple):
    """A date-time value of the text."""

    value: datetime
    """Naive; UTC where `utc`."""
    utc: bool
    is_date: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The parts of an RRULE line; empty where the text does not name them."""

    frequency: int
    interval: int = 1
    count: int | None = None
    until: Moment | None = None
    week_start: int = 0
    by: dict[str, tuple[int, ...]] = field(default_factory=dict)
    days: tuple[tuple[int, int], ...] = ()
    """BYDAY as (weekday, ordinal), 0 where it has no ordinal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """All lines of a recurrence."""

    rule: Rule | None
    dtstart: Moment | None
    timezone: str | None
    """The TZID of the lines, `UTC` for a DTSTART with a Z, None where they have none."""
    rdates: tuple[Moment, ...]
    exdates: tuple[Moment, ...]


def parse_recurrence(text: str) -> Recurrence:
    """Reads the lines; a single line without a name is an RRULE.

    Raises:
        ScheduleError: a line or part is unknown, doubled, out of range or contradicts another.
    """
    if len(text) > MAX_TEXT:
        raise ScheduleError("rrule", text, f"at most {MAX_TEXT:,} characters")
    rule: Rule | None = None
    dtstart: Moment | None = None
    zones: set[str] = set()
    dates: dict[str, list[Moment]] = {"RDATE": [], "EXDATE": []}
    for line in _unfold(text):
        name, parameters, value = _split(line)
        if name == "RRULE":
            if rule is not None:
                raise ScheduleError("rrule", line, "one RRULE; write two schedules for two rules")
            rule = _parse_rule(value)
        elif name == "DTSTART":
            if dtstart is not None:
                raise ScheduleError("rrule", line, "one DTSTART")
            dtstart = _parse_moment(value, line)
            zones |= {"UTC"} if dtstart.utc else set()
        elif name in dates:
            dates[name] += [_parse_moment(part, line) for part in value.split(",")]
        else:
            raise ScheduleError("rrule", line, "lines of DTSTART, RRULE, RDATE and EXDATE")
        zones |= _parse_parameters(parameters, line)
    if rule is None and not dates["RDATE"]:
        raise ScheduleError("rrule", text, "an RRULE, such as FREQ=WEEKLY;BYDAY=MO,WE")
    if len(zones) > 1:
        raise ScheduleError("rrule", " and ".join(sorted(zones)), "one time zone in all lines")
    for name, found in dates.items():
        _check_dates(name, found, dtstart)
    return Recurrence(
        rule=rule,
        dtstart=dtstart,
        timezone=next(iter(zones), None),
        rdates=tuple(dates["RDATE"]),
        exdates=tuple(dates["EXDATE"]),
    )


def _unfold(text: str) -> list[str]:
    """Joins the RFC's folded lines (a continuation begins with a space) and drops empty ones."""
    unfolded = re.sub(r"\r?\n[ \t]", "", text.strip())
    return [line.strip() for line in unfolded.splitlines() if line.strip()]


def _split(line: str) -> tuple[str, list[str], str]:
    head, colon, value = line.partition(":")
    if not colon:
        return "RRULE", [], line
    name, *parameters = head.split(";")
    return name.strip().upper(), parameters, value.strip()


def _parse_parameters(parameters: list[str], line: str) -> set[str]:
    zones = set()
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.upper() == "TZID" and value:
            zones.add(value.strip('"'))
        elif name.upper() != "VALUE" or value.upper() not in ("DATE", "DATE-TIME"):
            raise ScheduleError("rrule", line, "no parameters but TZID and VALUE=DATE")
    return zones


def _parse_moment(text: str, line: str) -> Moment:
    match = _MOMENT.fullmatch(text.strip().upper())
    expected = "dates and times as 20261129T090000, 20261129T080000Z or 20261129"
    if match is None:
        raise ScheduleError("rrule", line, expected)
    *numbers, utc = match.groups(default="0")
    try:
        year, month, day, hour, minute, second = (int(number) for number in numbers)
        value = datetime(year, month, day, hour, minute, second)  # noqa: DTZ001 - a wall time
    except ValueError as problem:
        raise ScheduleError("rrule", line, f"{expected} ({problem})") from None
    return Moment(value, utc == "Z", match[4] is None)


def _check_dates(name: str, found: list[Moment], dtstart: Moment | None) -> None:
    if len(found) > MAX_DATES:
        raise ScheduleError("rrule", f"{len(found):,} values of {name}", f"at most {MAX_DATES:,}")
    if any(moment.is_date for moment in found) and not (dtstart and dtstart.is_date):
        raise ScheduleError("rrule", name, "times, because DTSTART has one; give each its time")


def _parse_rule(text: str) -> Rule:
    parts: dict[str, str] = {}
    for part in text.rstrip(";").split(";"):
        name, equals, value = (side.strip().upper() for side in part.partition("="))
        if name not in _NAMES or not equals or not value:
            raise ScheduleError("rrule", part, f"NAME=VALUE with one of {_list(_NAMES)}")
        if name in parts:
            raise ScheduleError("rrule", part, f"{name} once")
        parts[name] = value
    frequency = parts.get("FREQ", "")
    if frequency not in FREQUENCIES:
        raise ScheduleError("rrule", text, f"FREQ= and one of {_list(FREQUENCIES)}")
    if "COUNT" in parts and "UNTIL" in parts:
        raise ScheduleError("rrule", text, "COUNT or UNTIL, not both")
    by = {name: _parse_numbers(name, parts[name]) for name in _NUMBERS if name in parts}
    for name, frequencies in _FORBIDDEN.items():
        if name in by and frequency in frequencies:
            raise ScheduleError("rrule", text, f"no {name} with FREQ={frequency} (RFC 5545)")
    if "BYSETPOS" in by and len(by) == 1 and "BYDAY" not in parts:
        raise ScheduleError("rrule", text, "another BY part for BYSETPOS to choose from")
    if "BYSETPOS" in by and FREQUENCIES.index(frequency) > DAILY:
        raise ScheduleError("rrule", text, "BYSETPOS only with DAILY, WEEKLY, MONTHLY or YEARLY")
    index = FREQUENCIES.index(frequency)
    most = MAX_COUNT if index <= DAILY else MAX_FINE_COUNT
    return Rule(
        frequency=index,
        interval=_parse_count("INTERVAL", parts.get("INTERVAL", "1"), MAX_INTERVALS[index]),
        count=_parse_count("COUNT", parts["COUNT"], most) if "COUNT" in parts else None,
        until=_parse_moment(parts["UNTIL"], f"UNTIL={parts['UNTIL']}")
        if "UNTIL" in parts
        else None,
        week_start=_parse_week_start(parts.get("WKST", "MO")),
        by=by,
        days=_parse_days(parts["BYDAY"], frequency, by) if "BYDAY" in parts else (),
    )


def _parse_numbers(name: str, text: str) -> tuple[int, ...]:
    low, high, negative = _NUMBERS[name]
    expected = f"numbers from {low} to {high}" + (f" or -{high} to -1" if negative else "")
    numbers = set()
    for part in text.split(","):
        if not re.fullmatch(r"[+-]?\d{1,3}", part, re.ASCII):
            raise ScheduleError("rrule", f"{name}={part}", expected)
        number = int(part)
        if not (low <= number <= high or (negative and low <= -number <= high)):
            raise ScheduleError("rrule", f"{name}={part}", expected)
        numbers.add(number)
    return tuple(sorted(numbers))


def _parse_count(name: str, text: str, most: int) -> int:
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII) or not 1 <= int(text) <= most:
        raise ScheduleError("rrule", f"{name}={text}", f"a number from 1 to {most:,}")
    return int(text)


def _parse_week_start(text: str) -> int:
    if text not in WEEKDAYS:
        raise ScheduleError("rrule", f"WKST={text}", f"one of {_list(WEEKDAYS)}")
    return WEEKDAYS.index(text)


def _parse_days(
    text: str, frequency: str, by: dict[str, tuple[int, ...]]
) -> tuple[tuple[int, int], ...]:
    days = []
    for part in text.split(","):
        match = _DAY.fullmatch(part)
        most = 5 if frequency == "MONTHLY" else 53
        if match is None or (match[1] is not None and not 1 <= abs(int(match[1])) <= most):
            raise ScheduleError("rrule", f"BYDAY={part}", "days as MO, 2TU or -1FR")
        if match[1] and (frequency not in ("MONTHLY", "YEARLY") or "BYWEEKNO" in by):
            raise ScheduleError(
                "rrule", f"BYDAY={part}", "a numbered day only with MONTHLY or YEARLY"
            )
        days.append((WEEKDAYS.index(match[2]), int(match[1] or 0)))
    return tuple(dict.fromkeys(days))


def _list(words: frozenset[str] | tuple[str, ...]) -> str:
    return ", ".join(sorted(words) if isinstance(words, frozenset) else words)


def moment_second(moment: Moment) -> int:
    """Returns the value as seconds since the epoch, as if it were UTC."""
    return round(moment.value.replace(tzinfo=UTC).timestamp())

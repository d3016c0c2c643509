"""Instants and durations: integers of nanoseconds, and the texts that stand for them.

An instant counts from 1970-01-01T00:00:00Z, leap seconds ignored, up to the end of the year 2261.
Integers, because two aware datetimes of one zone subtract as wall clocks, and floats lose
nanoseconds from the year 1970 on.
"""

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, TypeAlias

from sexton_core.errors import ScheduleError

Instant: TypeAlias = int
"""Nanoseconds since the Unix epoch, UTC."""

Duration: TypeAlias = int
"""Nanoseconds; names end in `_ns`."""

MICROSECOND: Final = 1_000
MILLISECOND: Final = 1_000_000
SECOND: Final = 1_000_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
WEEK: Final = 7 * DAY

MIN_INSTANT: Final[Instant] = 0
"""1970-01-01T00:00:00Z."""

MAX_INSTANT: Final[Instant] = 9_214_646_399 * SECOND
"""2261-12-31T23:59:59Z: the last year whose nanoseconds all fit the 64 bits of a record."""

MAX_DURATION: Final[Duration] = MAX_INSTANT
"""No span between two instants is longer."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_TEXT = 64
"""No well-formed instant or duration is longer; refused before any pattern sees it."""

_INSTANT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?"
    r"(?:[Zz]|([+-])(\d\d):(\d\d))",
    re.ASCII,
)
_DURATION = re.compile(
    r"(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?(?:(\d+)us)?(?:(\d+)ns)?",
    re.ASCII,
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME = re.compile(r"\d\d:\d\d(:\d\d)?", re.ASCII)
_WALL = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?", re.ASCII)
_UNITS = (WEEK, DAY, HOUR, MINUTE, SECOND, MILLISECOND, MICROSECOND, 1)
_FORMAT_UNITS = (
    (DAY, "d"),
    (HOUR, "h"),
    (MINUTE, "m"),
    (SECOND, "s"),
    (MILLISECOND, "ms"),
    (MICROSECOND, "us"),
    (1, "ns"),
)


def from_datetime(moment: datetime) -> Instant:
    """Returns the instant of an aware datetime, of any zone and with its fold respected.

    Raises:
        ScheduleError: the datetime is naive, or outside 1970 to 2261.
    """
    if moment.tzinfo is None:
        raise ScheduleError("instant", moment.isoformat(), "a datetime with a time zone")
    try:
        elapsed = moment.astimezone(UTC) - _EPOCH
    except OverflowError:
        raise _outside(moment.isoformat()) from None
    seconds = elapsed.days * 86_400 + elapsed.seconds
    return _bounded(seconds * SECOND + elapsed.microseconds * MICROSECOND, moment.isoformat())


def to_datetime(instant: Instant) -> datetime:
    """Returns the aware UTC datetime of an instant; what is below a microsecond is cut off."""
    return _EPOCH + timedelta(
        seconds=instant // SECOND, microseconds=instant % SECOND // MICROSECOND
    )


def format_instant(instant: Instant) -> str:
    """Returns RFC 3339 in UTC: `2026-11-29T03:00:00Z`, with a fraction only where there is one."""
    seconds, nanoseconds = divmod(instant, SECOND)
    text = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S").zfill(19)
    if nanoseconds:
        text += f".{nanoseconds:09d}".rstrip("0")
    return text + "Z"


def parse_instant(text: str, *, field: str = "instant") -> Instant:
    """Reads RFC 3339: date, time, an optional fraction of up to nine digits, and an offset.

    Raises:
        ScheduleError: the text is something else, has no offset, or is outside 1970 to 2261.
    """
    match = _INSTANT.fullmatch(text) if len(text) <= _LONGEST_TEXT else None
    expected = "a time with its offset, such as 2026-11-29T03:00:00Z or 2026-11-29T04:00:00+01:00"
    if match is None:
        raise ScheduleError(field, text, expected)
    *parts, fraction, sign, hours, minutes = match.groups()
    year, month, day, hour, minute, second = map(int, parts)
    try:
        elapsed = datetime(year, month, day, hour, minute, second, tzinfo=UTC) - _EPOCH
    except ValueError as problem:
        raise ScheduleError(field, text, f"{expected} ({problem})") from None
    seconds = elapsed.days * 86_400 + elapsed.seconds
    if sign is not None:
        if int(hours) > 23 or int(minutes) > 59:
            raise ScheduleError(field, text, "an offset between -23:59 and +23:59")
        offset = int(hours) * 3600 + int(minutes) * 60
        seconds -= offset if sign == "+" else -offset
    nanoseconds = int(fraction.ljust(9, "0")) if fraction else 0
    return _bounded(seconds * SECOND + nanoseconds, text, field)


def parse_date(text: str, *, field: str = "date") -> date:
    """Reads `2026-12-24`, and none of the other forms of ISO 8601.

    Raises:
        ScheduleError: the text is something else, or a date that does not exist.
    """
    try:
        if _DATE.fullmatch(text):
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise ScheduleError(field, text, "a date, as 2026-12-24")


def parse_time(text: str, *, field: str = "time") -> time:
    """Reads a wall time, `09:00` or `23:59:30`.

    Raises:
        ScheduleError: the text is something else, or a time that does not exist.
    """
    if not _TIME.fullmatch(text):
        raise ScheduleError(field, text, "a wall time, as 09:00 or 23:59:30")
    try:
        return time.fromisoformat(text)
    except ValueError:
        raise ScheduleError(field, text, "a wall time from 00:00 to 23:59:59") from None


def parse_moment(text: str, *, field: str = "moment") -> Instant | datetime:
    """Reads an instant, or a wall time (a naive datetime) where the text has no offset.

    Raises:
        ScheduleError: the text is something else, or a time that does not exist.
    """
    if not _WALL.fullmatch(text):
        return parse_instant(text, field=field)
    try:
        return datetime.fromisoformat(text)
    except ValueError as problem:
        raise ScheduleError(field, text, f"a time that exists ({problem})") from None


def parse_duration(text: str, *, field: str = "duration") -> Duration:
    """Reads whole numbers with units, larger units first: `90s`, `1h30m`, `2d`, `1w`, `500ms`.

    A day is 24 hours and a week seven of them: elapsed time, not calendar time.

    Raises:
        ScheduleError: the text is something else, or longer than the calendar.
    """
    match = _DURATION.fullmatch(text) if text and len(text) <= _LONGEST_TEXT else None
    if match is None:
        raise ScheduleError(
            field, text, "whole numbers with w, d, h, m, s, ms, us or ns, such as 90s or 1h30m"
        )
    duration_ns = sum(
        int(count) * unit
        for count, unit in zip(match.groups(), _UNITS, strict=True)
        if count is not None
    )
    if duration_ns > MAX_DURATION:
        raise ScheduleError(field, text, "at most 8,000 years")
    return duration_ns


def format_duration(duration_ns: Duration) -> str:
    """Returns the shortest text that `parse_duration` reads back: `1h30m`, `0s`, `-5m`."""
    if duration_ns == 0:
        return "0s"
    rest = abs(duration_ns)
    text = "-" if duration_ns < 0 else ""
    for unit, name in _FORMAT_UNITS:
        count, rest = divmod(rest, unit)
        if count:
            text += f"{count}{name}"
    return text


def _bounded(instant: int, shown: str, field: str = "instant") -> Instant:
    if not MIN_INSTANT <= instant < MAX_INSTANT + SECOND:
        raise _outside(shown, field)
    return instant


def _outside(shown: str, field: str = "instant") -> ScheduleError:
    return ScheduleError(field, shown, "a time between 1970-01-01 and 2261-12-31, in UTC")

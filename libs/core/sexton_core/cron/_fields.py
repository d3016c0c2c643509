"""One field of a cron expression: text to bit set, and to the days that depend on the month."""

import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from hashlib import blake2b
from typing import Final, NamedTuple, NoReturn

from sexton_core.errors import ScheduleError

MONTH_NAMES: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
WEEKDAY_NAMES: Final = (
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
)

FIRST_YEAR: Final = 1970
LAST_YEAR: Final = 2261

_HASHED_DAYS: Final = 28
"""`H` as a day of month stays within the days that every month has."""


class FieldKind(NamedTuple):
    """What one of the seven fields may hold.

    low, high: the numbers that may be written. cycle: how many values before it begins anew, 0
    where it never does. hashed: what a bare `H` chooses from, None where `H` means nothing.
    """

    name: str
    low: int
    high: int
    cycle: int
    hashed: tuple[int, int] | None
    names: Mapping[str, int] = {}
    forms: str = ""

    def expected(self) -> str:
        """Returns what would be right, for an error message."""
        names = f" or a name such as {next(iter(self.names))}" if self.names else ""
        hashed = ", H, H/S, H(A-B)" if self.hashed else ""
        return (
            f"{self.low}-{self.high}{names}, written as *, N, A-B, */S, N/S, A-B/S"
            f"{hashed}{self.forms}, in a list with commas"
        )


def _named(names: Sequence[str], first: int) -> dict[str, int]:
    numbered = {name.upper()[:3]: number for number, name in enumerate(names, first)}
    numbered.update({name.upper(): number for number, name in enumerate(names, first)})
    return numbered


SECOND: Final = FieldKind("second", 0, 59, 60, (0, 59))
MINUTE: Final = FieldKind("minute", 0, 59, 60, (0, 59))
HOUR: Final = FieldKind("hour", 0, 23, 24, (0, 23))
DAY: Final = FieldKind("day of month", 1, 31, 31, (1, _HASHED_DAYS), {}, ", L, L-N, LW, NW")
MONTH: Final = FieldKind("month", 1, 12, 12, (1, 12), _named(MONTH_NAMES, 1))
WEEKDAY: Final = FieldKind(
    "day of week", 0, 7, 7, (0, 6), _named(WEEKDAY_NAMES, 0), ", 5L, FRIL, MON#2"
)
YEAR: Final = FieldKind("year", FIRST_YEAR, LAST_YEAR, 0, None)


class Form(StrEnum):
    """A day that only the month at hand decides."""

    # L: the last day; number is how many days before it (L-3).
    LAST = "last"
    # LW: the last day that is Monday to Friday.
    LAST_WORKDAY = "last workday"
    # 15W: the day from Monday to Friday nearest to day `number`, inside the month.
    NEAREST_WORKDAY = "nearest workday"
    # FRIL: the last of the weekday `number`.
    LAST_OF_WEEKDAY = "last of weekday"
    # MON#2: the nth of the weekday `number`.
    NTH_OF_WEEKDAY = "nth of weekday"


class MovingDay(NamedTuple):
    """One item of a day field that is another day in every month."""

    form: Form
    number: int = 0
    nth: int = 0


class Field(NamedTuple):
    """One parsed field.

    mask: bit v is set where the value v matches; Sunday is bit 0; a year's bit is year - 1970.
    star: the text starts with `*` or `?`. wildcard: that, or with `H/`.
    idle_steps: the items whose step leaves nothing but their first value.
    """

    kind: FieldKind
    text: str
    mask: int
    moving: frozenset[MovingDay]
    star: bool
    wildcard: bool
    idle_steps: tuple[str, ...]

    @property
    def any_value(self) -> bool:
        """Whether the field restricts nothing: `*`, `?`, `*/1`."""
        return self.star and self.mask == full_mask(self.kind)


def full_mask(kind: FieldKind) -> int:
    """Returns the mask of every value."""
    if kind is YEAR:
        return (1 << (LAST_YEAR - FIRST_YEAR + 1)) - 1
    if kind is WEEKDAY:
        return 0b111_1111
    return (1 << (kind.high + 1)) - (1 << kind.low)


def parse_field(kind: FieldKind, text: str, seed: str | None) -> Field:
    """Reads one field, in upper case.

    `seed` is what `H` hashes; None refuses it.

    Raises:
        ScheduleError: naming the field, the item at fault and what would be right.
    """
    mask = 0
    moving: set[MovingDay] = set()
    idle: list[str] = []
    for item in text.split(","):
        day = _moving_day(kind, item)
        if day is not None:
            moving.add(day)
            continue
        match = _ITEM.fullmatch(item)
        if match is None:
            _refuse(kind, item)
        if match["hash"]:
            values = _hashed_values(kind, item, match, seed)
        else:
            values = _values(kind, item, match)
        if match["step"]:
            step = int(match["step"])
            if step > 1 and len(values) > 1 and step >= len(values):
                idle.append(item)
            values = values[::step]
        for value in values:
            mask |= 1 << _bit(kind, value)
    star = text[0] in "*?"
    return Field(
        kind=kind,
        text=text,
        mask=mask,
        moving=frozenset(moving),
        star=star,
        wildcard=star or text.startswith("H/"),
        idle_steps=tuple(idle),
    )


_VALUE = r"[0-9]{1,9}|[A-Z]{2,9}"
_ITEM = re.compile(
    rf"(?:(?P<all>[*?])|(?P<hash>H)(?:\((?P<low>{_VALUE})-(?P<high>{_VALUE})\))?"
    rf"|(?P<first>{_VALUE})(?:-(?P<last>{_VALUE}))?)(?:/(?P<step>[0-9]{{1,9}}))?"
)


def _values(kind: FieldKind, item: str, match: re.Match[str]) -> Sequence[int]:
    """Returns the values in the order in which a step counts them."""
    _check_step(kind, item, match)
    if match["all"]:
        return range(kind.low, kind.high + 1)
    first = _value(kind, item, match["first"])
    if match["last"]:
        return _span(kind, item, first, _value(kind, item, match["last"]))
    last = kind.high if match["step"] else first
    return range(first, last + 1)


def _hashed_values(
    kind: FieldKind, item: str, match: re.Match[str], seed: str | None
) -> Sequence[int]:
    """Returns where the hash falls: one value, or with a step the values from its start on."""
    _check_step(kind, item, match)
    if kind.hashed is None:
        _refuse(kind, item)
    if seed is None:
        raise ScheduleError(
            kind.name, item, "no H here: it spreads jobs by their names, and there is no job"
        )
    if match["low"]:
        low, high = (_value(kind, item, match[part]) for part in ("low", "high"))
        choices = _span(kind, item, low, high)
    else:
        choices = range(kind.hashed[0], kind.hashed[1] + 1)
    number = hash_of(seed, kind.name)
    if match["step"]:
        return choices[number % min(int(match["step"]), len(choices)) :]
    chosen = number % len(choices)
    return choices[chosen : chosen + 1]


def hash_of(seed: str, field_name: str) -> int:
    """Returns the number behind `H`: BLAKE2b of `seed`, a NUL and the field's name, 8 bytes."""
    text = f"{seed}\0{field_name}".encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")


def _check_step(kind: FieldKind, item: str, match: re.Match[str]) -> None:
    if match["step"] and int(match["step"]) == 0:
        raise ScheduleError(kind.name, item, "a step of 1 or more after the slash")


def _span(kind: FieldKind, item: str, first: int, last: int) -> Sequence[int]:
    """Returns the values from first to last, going on at the beginning of the cycle."""
    if first <= last:
        return range(first, last + 1)
    if not kind.cycle:
        raise ScheduleError(kind.name, item, "a range from the earlier to the later one")
    end = kind.low + kind.cycle
    return [*range(first, end), *range(kind.low, last + 1)]


def _value(kind: FieldKind, item: str, text: str) -> int:
    number = int(text) if text.isdigit() else kind.names.get(text, -1)
    if not kind.low <= number <= kind.high:
        _refuse(kind, item)
    return number


def _bit(kind: FieldKind, value: int) -> int:
    if kind is YEAR:
        return value - FIRST_YEAR
    return 0 if kind is WEEKDAY and value == 7 else value


def _moving_day(kind: FieldKind, item: str) -> MovingDay | None:
    if kind is not DAY and kind is not WEEKDAY:
        return None
    for pattern, read in _DAY_FORMS if kind is DAY else _WEEKDAY_FORMS:
        match = pattern.fullmatch(item)
        if match is not None:
            day = read(match)
            if day is None:
                _refuse(kind, item)
            return day
    return None


def _last_day(match: re.Match[str]) -> MovingDay | None:
    before = int(match[1] or 0)
    return MovingDay(Form.LAST, before) if match[1] is None or 1 <= before <= 30 else None


def _nearest_workday(match: re.Match[str]) -> MovingDay | None:
    day = int(match[1])
    return MovingDay(Form.NEAREST_WORKDAY, day) if 1 <= day <= 31 else None


def _last_of_weekday(match: re.Match[str]) -> MovingDay | None:
    day = _weekday(match[1])
    return None if day is None else MovingDay(Form.LAST_OF_WEEKDAY, day)


def _nth_of_weekday(match: re.Match[str]) -> MovingDay | None:
    day, nth = _weekday(match[1]), int(match[2])
    if day is None or not 1 <= nth <= 5:
        return None
    return MovingDay(Form.NTH_OF_WEEKDAY, day, nth)


def _weekday(text: str) -> int | None:
    number = int(text) if text.isdigit() else WEEKDAY.names.get(text, -1)
    return number % 7 if 0 <= number <= 7 else None


_Reader = Callable[[re.Match[str]], MovingDay | None]
_DAY_FORMS: tuple[tuple[re.Pattern[str], _Reader], ...] = (
    (re.compile(r"L(?:-([0-9]{1,9}))?"), _last_day),
    (re.compile(r"LW"), lambda _: MovingDay(Form.LAST_WORKDAY)),
    (re.compile(r"([0-9]{1,9})W"), _nearest_workday),
)
_WEEKDAY_FORMS: tuple[tuple[re.Pattern[str], _Reader], ...] = (
    (re.compile(r"([0-9]|[A-Z]{3,9})L"), _last_of_weekday),
    (re.compile(r"([0-9]|[A-Z]{3,9})#([0-9])"), _nth_of_weekday),
)


def _refuse(kind: FieldKind, item: str) -> NoReturn:
    raise ScheduleError(kind.name, item, kind.expected())

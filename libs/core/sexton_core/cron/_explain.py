"""A cron expression in English, read from the bit sets: what it does, however it was written."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from sexton_core.cron._fields import (
    FIRST_YEAR,
    MONTH_NAMES,
    WEEKDAY_NAMES,
    Field,
    Form,
    MovingDay,
)
from sexton_core.cron._parse import CronSpec
from sexton_core.words import DayRule

_MOST_TIMES: Final = 6
"""Up to this many times of day are listed; more are described."""

_MOST_LISTED: Final = 12
"""Of a longer list only the first are named, and how many follow."""

_TIME_OF_DAY: Final = ("at 0", "at 1", "at 2")
"""How a list of times begins; other phrases say `every` themselves."""

_WORKDAYS: Final = [1, 2, 3, 4, 5]
_WEEKEND: Final = [0, 6]


class _Run(NamedTuple):
    """Values at equal distances, from first to last, perhaps past the end of the cycle."""

    first: int
    last: int
    step: int


def explain_spec(spec: CronSpec) -> str:
    """Returns the times, days, months and years: `at 03:00 on weekdays`."""
    times = _times(spec)
    days = _days(spec)
    if not days and times[:4] in _TIME_OF_DAY:
        days = "every day"
    return " ".join(part for part in (times, days, _months(spec), _years(spec)) if part)


def ordinal(number: int) -> str:
    """Returns `1st`, `22nd`, `13th`."""
    ending = "th" if 10 < number % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def listed(parts: Sequence[str], word: str = "and") -> str:
    """Returns `a, b and c`, cut after a dozen."""
    if len(parts) > _MOST_LISTED:
        shown = ", ".join(parts[:_MOST_LISTED])
        return f"{shown} and {len(parts) - _MOST_LISTED} more"
    *rest, last = parts
    return f"{', '.join(rest)} {word} {last}" if rest else last


def _values(field: Field) -> list[int]:
    return [value for value in range(field.mask.bit_length()) if field.mask >> value & 1]


def _run_of(values: Sequence[int], cycle: int) -> _Run | None:
    """Returns the run that three or more values make; neighbours may go past the cycle's end."""
    if len(values) < 3:
        return None
    step = values[1] - values[0]
    if all(b - a == step for a, b in pairwise(values)):
        return _Run(values[0], values[-1], step)
    breaks = [
        index for index in range(len(values)) if (values[index] - values[index - 1]) % cycle != 1
    ]
    if len(breaks) == 1:
        return _Run(values[breaks[0]], values[breaks[0] - 1], 1)
    return None


def _times(spec: CronSpec) -> str:
    seconds, minutes, hours = map(_values, (spec.second, spec.minute, spec.hour))
    if len(seconds) > 1:
        within = "" if len(minutes) == 60 else f" of {_numbered('minute', minutes)}"
        return f"{_repeated('second', seconds)}{within}{_hours(hours, ranged=not within)}"
    second = f":{seconds[0]:02d}" if spec.second.text != "0" else ""
    if len(minutes) * len(hours) <= _MOST_TIMES:
        return "at " + listed(
            [f"{hour:02d}:{minute:02d}{second}" for hour in hours for minute in minutes]
        )
    if len(minutes) == 1:
        return _hourly(hours, minutes[0], second)
    repeated = _repeated("minute", minutes)
    of_hours = _hours(hours, ranged=repeated.startswith("every"))
    return f"{repeated}{_at_second(second)}{of_hours}"


def _hourly(hours: list[int], minute: int, second: str) -> str:
    """One minute of many hours."""
    at = f"{minute:02d}{second}"
    if len(hours) == 24:
        if not minute and not second.strip(":0"):
            return "every hour on the hour"
        return f"at minute {minute}{_at_second(second)} of every hour"
    run = _run_of(hours, 24)
    if run is None:
        return "at " + listed([f"{hour:02d}:{at}" for hour in hours])
    every = "every hour" if run.step == 1 else f"every {run.step} hours"
    return f"{every} from {run.first:02d}:{at} to {run.last:02d}:{at}"


def _at_second(second: str) -> str:
    number = int(second.strip(":") or 0)
    return f" at second {number}" if number else ""


def _repeated(unit: str, values: list[int]) -> str:
    """Minutes of every hour, or seconds of every minute."""
    if len(values) == 60:
        return f"every {unit}"
    run = _run_of(values, 60)
    if run is not None and run.step * len(values) == 60:
        start = f" from {unit} {run.first} on" if run.first else ""
        return f"every {run.step} {unit}s{start}"
    return f"at {_numbered(unit, values)}"


def _numbered(unit: str, values: list[int]) -> str:
    run = _run_of(values, 60)
    if run is not None and run.step == 1:
        return f"{unit}s {run.first} to {run.last}"
    if run is not None and len(values) > _MOST_TIMES:
        return f"every {ordinal(run.step)} {unit} from {run.first} to {run.last}"
    return f"{unit}{'s' if len(values) > 1 else ''} {listed([str(value) for value in values])}"


def _hours(hours: list[int], *, ranged: bool) -> str:
    """Restricts what happens within hours; `ranged` where it goes through each hour's end."""
    if len(hours) == 24:
        return "" if ranged else " of every hour"
    run = _Run(hours[0], hours[0], 1) if len(hours) == 1 else _run_of(hours, 24)
    if run is not None and run.step == 1 and ranged:
        return f" from {run.first:02d}:00 to {run.last:02d}:59"
    if run is not None and run.step > 1 and len(hours) > _MOST_TIMES:
        return f" of every {ordinal(run.step)} hour from {run.first:02d} to {run.last:02d}"
    word = "hours" if len(hours) > 1 else "hour"
    return f" of the {word} {listed([f'{hour:02d}' for hour in hours])}"


def _days(spec: CronSpec) -> str:
    if spec.both_days:
        day, weekday = _day_of_month(spec.day), _weekday(spec.weekday)
        if spec.days_joined_by is DayRule.AND:
            return f"on {day} when that is also {weekday}"
        return f"on {day}, and on {weekday} as well"
    if not spec.day.any_value:
        return _on(_day_of_month(spec.day))
    if spec.weekday.any_value:
        return ""
    values = _values(spec.weekday)
    if not spec.weekday.moving and values in (_WORKDAYS, _WEEKEND):
        return "on weekdays" if values == _WORKDAYS else "at weekends"
    return _on(_weekday(spec.weekday))


def _on(days: str) -> str:
    is_span = " to " in days and "," not in days and " and " not in days and "every" not in days
    return f"from {days}" if is_span else f"on {days}"


def _day_of_month(field: Field) -> str:
    values = _values(field)
    run = _run_of(values, 31)
    parts: list[str] = []
    if run is not None and run.step == 1:
        parts.append(f"the {ordinal(run.first)} to the {ordinal(run.last)}")
    elif run is not None and len(values) > _MOST_TIMES:
        first, last = ordinal(run.first), ordinal(run.last)
        parts.append(f"every {ordinal(run.step)} day from the {first} to the {last}")
    elif values:
        parts.append(f"the {listed([ordinal(value) for value in values])}")
    parts.extend(_moving(day) for day in sorted(field.moving))
    return listed(parts)


def _weekday(field: Field) -> str:
    values = _values(field)
    parts: list[str] = []
    run = _run_of(values, 7)
    if values == _WORKDAYS:
        parts.append("a weekday")
    elif run is not None and run.step == 1 and len(values) < 7:
        parts.append(f"{WEEKDAY_NAMES[run.first]} to {WEEKDAY_NAMES[run.last]}")
    elif values:
        parts.append(listed([WEEKDAY_NAMES[value] for value in values]))
    parts.extend(_moving(day) for day in sorted(field.moving))
    return listed(parts)


def _moving(day: MovingDay) -> str:
    match day.form:
        case Form.LAST if day.number:
            return f"the {ordinal(day.number)} day before the last day of the month"
        case Form.LAST:
            return "the last day of the month"
        case Form.LAST_WORKDAY:
            return "the last weekday of the month"
        case Form.NEAREST_WORKDAY:
            return f"the weekday nearest the {ordinal(day.number)}"
        case Form.LAST_OF_WEEKDAY:
            return f"the last {WEEKDAY_NAMES[day.number]} of the month"
        case Form.NTH_OF_WEEKDAY:
            return f"the {ordinal(day.nth)} {WEEKDAY_NAMES[day.number]} of the month"


def _months(spec: CronSpec) -> str:
    if spec.month.any_value:
        return ""
    values = _values(spec.month)
    names = [MONTH_NAMES[value - 1] for value in values]
    plain_day = spec.weekday.any_value and not spec.day.any_value and not spec.day.moving
    run = _run_of(values, 12)
    if len(values) == 12:
        return ""
    if run is not None and run.step == 1:
        span = f"{MONTH_NAMES[run.first - 1]} to {MONTH_NAMES[run.last - 1]}"
        return f"of each month from {span}" if plain_day else f"from {span}"
    return f"{'of' if plain_day else 'in'} {listed(names)}"


def _years(spec: CronSpec) -> str:
    if spec.year is None or spec.year.any_value:
        return ""
    values = [FIRST_YEAR + value for value in _values(spec.year)]
    run = _run_of(values, 1 << 20)
    if run is not None and run.step == 1:
        return f"from {run.first} to {run.last}"
    if run is not None and len(values) > _MOST_TIMES:
        return f"in every {ordinal(run.step)} year from {run.first} to {run.last}"
    return f"in {listed([str(value) for value in values])}"

"""An RRULE in English."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from sexton_core.schedules._rrule_text import DAILY, Moment, Rule

_UNITS: Final = ("year", "month", "week", "day", "hour", "minute", "second")
_DAYS: Final = (
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
)
_MONTHS: Final = (
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
_MOST_TIMES: Final = 4
"""Times of a day that are named one by one."""

_HOURLY: Final = DAILY + 1


def explain_rule(rule: Rule, dtstart: datetime) -> str:
    """Returns, for example, `at 09:00 every 2 weeks on Monday and Friday, 10 times, from ...`."""
    unit = _UNITS[rule.frequency]
    each = f"every {unit}" if rule.interval == 1 else f"every {rule.interval:,} {unit}s"
    parts = [*_times(rule, dtstart), each, *_dates(rule)]
    if "BYSETPOS" in rule.by:
        parts[-1] += ","
        parts.append(f"but only the {_places(rule.by['BYSETPOS'])} of these")
    text = " ".join(parts)
    if rule.count is not None:
        text += ", once" if rule.count == 1 else f", {rule.count:,} times"
    text += f", from {dtstart:%Y-%m-%d %H:%M}"
    if rule.until is not None:
        text += f" until {_moment(rule.until)}"
    return text


def _times(rule: Rule, dtstart: datetime) -> list[str]:
    hours = rule.by.get("BYHOUR", (dtstart.hour,))
    minutes = rule.by.get("BYMINUTE", (dtstart.minute,))
    seconds = rule.by.get("BYSECOND", (dtstart.second,))
    if rule.frequency <= DAILY and len(hours) * len(minutes) * len(seconds) <= _MOST_TIMES:
        clock = "{:02}:{:02}" if seconds == (0,) else "{:02}:{:02}:{:02}"
        named = [clock.format(h, m, s) for h in hours for m in minutes for s in seconds]
        return ["at " + _list(named)]
    parts = []
    if rule.frequency <= DAILY or "BYHOUR" in rule.by:
        parts.append(_numbered("hour", hours))
    if rule.frequency <= _HOURLY or "BYMINUTE" in rule.by:
        parts.append(_numbered("minute", minutes))
    if seconds != (0,) and (rule.frequency < len(_UNITS) - 1 or "BYSECOND" in rule.by):
        parts.append(_numbered("second", seconds))
    return ["at " + ", ".join(parts)] if parts else []


def _dates(rule: Rule) -> list[str]:
    parts = []
    if rule.days:
        parts.append("on " + _list(_weekday(day, number) for day, number in rule.days))
    joined = "falling on" if rule.days else "on"
    if "BYMONTHDAY" in rule.by:
        parts.append(f"{joined} the {_places(rule.by['BYMONTHDAY'])} day of the month")
    if "BYYEARDAY" in rule.by:
        parts.append(f"{joined} the {_places(rule.by['BYYEARDAY'])} day of the year")
    if "BYWEEKNO" in rule.by:
        parts.append("in " + _numbered("week", rule.by["BYWEEKNO"]))
    if "BYMONTH" in rule.by:
        parts.append("in " + _list(_MONTHS[number - 1] for number in rule.by["BYMONTH"]))
    return parts


def _weekday(day: int, number: int) -> str:
    return f"the {_place(number)} {_DAYS[day]}" if number else _DAYS[day]


def _places(numbers: tuple[int, ...]) -> str:
    """Returns `1st, 7th to 13th and last`: in the order of the month, runs of three joined."""
    ordered = sorted(numbers, key=lambda number: (number < 0, number))
    words: list[str] = []
    index = 0
    while index < len(ordered):
        end = index
        while end + 1 < len(ordered) and ordered[end + 1] == ordered[end] + 1:
            end += 1
        if end - index >= 2 and ordered[index] > 0:
            words.append(f"{_place(ordered[index])} through {_place(ordered[end])}")
        else:
            words += [_place(number) for number in ordered[index : end + 1]]
        index = end + 1
    return _list(words)


def _place(number: int) -> str:
    """Returns `2nd`, `last`, or `3rd to last`."""
    if number == -1:
        return "last"
    size = abs(number)
    suffix = (
        "th" if size % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(size % 10, "th")
    )
    return f"{size}{suffix} to last" if number < 0 else f"{size}{suffix}"


def _numbered(name: str, numbers: tuple[int, ...]) -> str:
    return f"{name} {numbers[0]}" if len(numbers) == 1 else f"{name}s {_list(map(str, numbers))}"


def _moment(moment: Moment) -> str:
    if moment.is_date:
        return f"{moment.value:%Y-%m-%d}"
    return f"{moment.value:%Y-%m-%d %H:%M}" + (" UTC" if moment.utc else "")


def _list(words: Iterable[str]) -> str:
    """Returns `a, b and c`."""
    listed = list(words)
    return listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} and {listed[-1]}"

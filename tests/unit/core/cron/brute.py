"""A second reading of the rules in docs/schedules.md: slow, plain, and sharing nothing.

It tries every minute (or second) of a stretch of real time, asks Python's own ZoneInfo what the
clock shows, and Python's own datetime what day that is.
"""

import calendar
import hashlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from zoneinfo import ZoneInfo

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOURS_3 = 3 * 3600
MONTHS = [name.upper() for name in calendar.month_name[1:]]
WEEKDAYS = ["SUNDAY", "MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY"]

LIMITS = {
    "second": (0, 59),
    "minute": (0, 59),
    "hour": (0, 23),
    "day of month": (1, 31),
    "month": (1, 12),
    "day of week": (0, 7),
    "year": (1970, 2261),
}
HASHED = {**LIMITS, "day of month": (1, 28), "day of week": (0, 6)}
FIVE = ["minute", "hour", "day of month", "month", "day of week"]


@cache
def zone_info(name: str) -> ZoneInfo:
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, name)


def offset_at(zone: str, second: int) -> int:
    utc = EPOCH + timedelta(seconds=second)
    delta = utc.astimezone(zone_info(zone)).utcoffset()
    assert delta is not None
    return delta.days * 86_400 + delta.seconds


class NaiveCron:
    """The expression as sets of numbers and as questions about one date at a time."""

    def __init__(self, text: str, days: str = "debian", seed: str = "") -> None:
        parts = text.upper().split()
        names = {5: FIVE, 6: ["second", *FIVE], 7: ["second", *FIVE, "year"]}[len(parts)]
        self.text = dict(zip(names, parts, strict=True))
        self.text.setdefault("second", "0")
        self.text.setdefault("year", "*")
        self.days = days
        self.seed = seed
        self.sets = {name: self.numbers(name) for name in LIMITS}
        self.wildcard = any(
            self.text[name].startswith(("*", "?", "H/")) for name in ("second", "minute", "hour")
        )

    def numbers(self, name: str) -> set[int]:
        found: set[int] = set()
        for item in self.text[name].split(","):
            if not self.is_moving(name, item):
                found.update(self.item(name, item))
        return {number % 7 for number in found} if name == "day of week" else found

    def is_moving(self, name: str, item: str) -> bool:
        if name == "day of month":
            return "L" in item or "W" in item
        return name == "day of week" and (item.endswith("L") or "#" in item)

    def item(self, name: str, item: str) -> Sequence[int]:
        low, high = LIMITS[name]
        body, _, step = item.partition("/")
        if body in ("*", "?"):
            values = list(range(low, high + 1))
        elif body.startswith("H"):
            number = self.hash(name)
            low, high = HASHED[name]
            choices = list(range(low, high + 1))
            if body != "H":
                first, last = body[2:-1].split("-")
                choices = list(range(self.number(name, first), self.number(name, last) + 1))
            if not step:
                return [choices[number % len(choices)]]
            values = choices[number % min(int(step), len(choices)) :]
        elif "-" in body:
            start, end = body.split("-")
            values = self.walk(name, self.number(name, start), self.number(name, end))
        elif step:
            values = list(range(self.number(name, body), high + 1))
        else:
            values = [self.number(name, body)]
        return [value for count, value in enumerate(values) if count % int(step or 1) == 0]

    def walk(self, name: str, first: int, last: int) -> list[int]:
        """From first to last, one by one, starting over where the field ends."""
        low, high = LIMITS[name]
        if first <= last:
            return list(range(first, last + 1))
        if name == "day of week":
            first, high = first % 7, 6
        values = [first]
        while values[-1] != last:
            values.append(low if values[-1] == high else values[-1] + 1)
        return values

    def number(self, name: str, text: str) -> int:
        if text.isdigit():
            return int(text)
        known = MONTHS if name == "month" else WEEKDAYS
        (index,) = [i for i, word in enumerate(known) if text in (word, word[:3])]
        return index + (1 if name == "month" else 0)

    def hash(self, name: str) -> int:
        digest = hashlib.blake2b(f"{self.seed}\0{name}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big")

    def matches(self, wall: datetime) -> bool:
        return (
            wall.minute in self.sets["minute"]
            and wall.hour in self.sets["hour"]
            and wall.second in self.sets["second"]
            and wall.month in self.sets["month"]
            and wall.year in self.sets["year"]
            and self.day_matches(wall)
        )

    def day_matches(self, wall: datetime) -> bool:
        by_day = wall.day in self.sets["day of month"] or any(
            self.is_moving("day of month", item) and self.moving_day(item, wall) == wall.day
            for item in self.text["day of month"].split(",")
        )
        weekday = wall.isoweekday() % 7
        by_weekday = weekday in self.sets["day of week"] or any(
            self.is_moving("day of week", item) and self.moving_weekday(item, wall)
            for item in self.text["day of week"].split(",")
        )
        if self.free("day of month"):
            return by_weekday
        if self.free("day of week"):
            return by_day
        rule = self.days
        if rule == "debian":
            stars = [self.text[name][0] in "*?" for name in ("day of month", "day of week")]
            rule = "and" if any(stars) else "or"
        return (by_day and by_weekday) if rule == "and" else (by_day or by_weekday)

    def free(self, name: str) -> bool:
        everything = set(range(7)) if name == "day of week" else set(range(1, 32))
        return self.text[name][0] in "*?" and self.sets[name] == everything

    def moving_day(self, item: str, wall: datetime) -> int:
        length = calendar.monthrange(wall.year, wall.month)[1]
        if item == "L":
            return length
        if item.startswith("L-"):
            return length - int(item[2:])
        wanted = length if item == "LW" else int(item[:-1])
        for distance in (0, -1, 1, -2, 2):
            day = wanted + distance
            if (
                wanted <= length
                and 1 <= day <= length
                and calendar.weekday(wall.year, wall.month, day) < 5
            ):
                return day
        return -1

    def moving_weekday(self, item: str, wall: datetime) -> bool:
        length = calendar.monthrange(wall.year, wall.month)[1]
        if "#" in item:
            name, nth = item.split("#")
            place = (wall.day - 1) // 7 + 1 == int(nth)
        else:
            name = item[:-1]
            place = wall.day + 7 > length
        return place and self.number("day of week", name) % 7 == wall.isoweekday() % 7


def fires(
    matches: Callable[[datetime], bool],
    zone: str,
    first: int,
    last: int,
    rule: str,
    *,
    wildcard: bool,
    step: int = 60,
) -> list[int]:
    """Tries every `step` seconds of real time in [first, last], both multiples of it."""
    due: set[int] = set()
    begin = first - HOURS_3
    seen: dict[int, int] = {}
    before = offset_at(zone, begin - step)
    for second in range(begin, last + 1, step):
        offset = offset_at(zone, second)
        wall = second + offset
        if matches(naive(wall)):
            passed = seen.get(wall)
            is_repeat = passed is not None and second - passed < HOURS_3
            if wildcard or rule == "literal" or not is_repeat:
                due.add(second)
        seen[wall] = second
        if before < offset < before + HOURS_3 and not wildcard:
            for skipped in range(second + before, second + offset, step):
                if matches(naive(skipped)):
                    if rule == "vixie":
                        due.add(second)
                    elif rule == "shift":
                        due.add(skipped - before)
        before = offset
    return sorted(second for second in due if first <= second <= last)


@cache
def naive(wall: int) -> datetime:
    return datetime(1970, 1, 1) + timedelta(seconds=wall)  # noqa: DTZ001 - a wall time

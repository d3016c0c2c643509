"""Reads compiled time zone files (RFC 8536) and the rule for the years after them.

The standard library's ZoneInfo answers offsets but not when they change, and the DST rules are
about the changes.
"""

import re
import struct
from typing import NamedTuple

from sexton_core._civil import DAY_SECONDS, day_number, is_leap, month_length, weekday

_HEADER = struct.Struct(">4sB15x6I")
_FOOTER = re.compile(
    r"(?P<std>[A-Za-z]{3,}|<[^>]+>)(?P<offset>[-+]?[\d:]+)"
    r"(?:(?P<dst>[A-Za-z]{3,}|<[^>]+>)(?P<dst_offset>[-+]?[\d:]+)?,(?P<start>[^,]+),(?P<end>.+))?",
    re.ASCII,
)
_DATE = re.compile(
    r"(?:M(?P<month>\d+)\.(?P<week>\d)\.(?P<weekday>\d)|(?P<julian>J?)(?P<day>\d+))"
    r"(?:/(?P<time>[-+]?[\d:]+))?",
    re.ASCII,
)
_DEFAULT_CHANGE = 2 * 3600
"""POSIX: a rule without a time changes at 02:00 by the clock in force."""


class Change(NamedTuple):
    """From `at` on (seconds since the epoch), the clock shows UTC plus `offset` seconds."""

    at: int
    offset: int


class _RuleDate(NamedTuple):
    """One of the two dates of a POSIX rule: `Mm.w.d`, `Jn` or `n`, and a time of day."""

    month: int
    week: int
    weekday: int
    julian: bool
    day: int
    time: int

    def wall_second(self, year: int) -> int:
        """Returns the wall clock's second, counted as if the zone were UTC."""
        if self.month:
            first = day_number(year, self.month, 1)
            number = first + (self.weekday - weekday(first)) % 7 + (self.week - 1) * 7
            if number >= first + month_length(year, self.month):
                number -= 7
        elif self.julian:
            number = day_number(year, 1, self.day + (1 if is_leap(year) and self.day > 59 else 0))
        else:
            number = day_number(year, 1, self.day + 1)
        return number * DAY_SECONDS + self.time


class YearlyRule(NamedTuple):
    """The two changes of every year after the table's last."""

    standard: int
    summer: int
    start: _RuleDate
    end: _RuleDate

    def changes(self, year: int) -> list[Change]:
        """Returns the year's changes in order."""
        return sorted(
            (
                Change(self.start.wall_second(year) - self.standard, self.summer),
                Change(self.end.wall_second(year) - self.summer, self.standard),
            )
        )


class ZoneData(NamedTuple):
    """What a zone's file says.

    changes: ascending, each with another offset than the one before.
    rule_from: the second after which `rule` makes the changes.
    """

    initial_offset: int
    changes: list[Change]
    rule: YearlyRule | None
    rule_from: int


def read_zone(data: bytes) -> ZoneData:
    """Reads a TZif file of version 2 or later; its times are 64 bits wide.

    Raises:
        ValueError: the data is not such a file.
    """
    first = _header(data, 0)
    # Version 1's block, with 32-bit times, comes first and is passed over.
    start = _HEADER.size + _block_size(first, 4)
    counts = _header(data, start)
    _, _, _, times, types, _ = counts
    at = start + _HEADER.size
    moments = struct.unpack_from(f">{times}q", data, at)
    kinds = data[at + 8 * times : at + 9 * times]
    records = at + 9 * times
    offsets = [struct.unpack_from(">i", data, records + 6 * kind)[0] for kind in range(types)]
    initial = offsets[0]
    changes: list[Change] = []
    current = initial
    for moment, kind in zip(moments, kinds, strict=True):
        if offsets[kind] != current:
            current = offsets[kind]
            changes.append(Change(moment, current))
    footer = data[start + _HEADER.size + _block_size(counts, 8) :].strip(b"\n").decode("ascii")
    # The last moment may leave the offset as it was and still be where the rule takes over.
    return ZoneData(initial, changes, _yearly_rule(footer), moments[-1] if moments else 0)


def _header(data: bytes, at: int) -> tuple[int, int, int, int, int, int]:
    if len(data) < at + _HEADER.size:
        raise ValueError("a zone file is cut short")
    magic, version, utc, standard, leap, times, types, characters = _HEADER.unpack_from(data, at)
    if magic != b"TZif" or version < ord("2"):
        raise ValueError("a zone file is not TZif version 2 or later")
    return utc, standard, leap, times, types, characters


def _block_size(counts: tuple[int, int, int, int, int, int], width: int) -> int:
    utc, standard, leap, times, types, characters = counts
    return times * (width + 1) + types * 6 + characters + leap * (width + 4) + standard + utc


def _yearly_rule(footer: str) -> YearlyRule | None:
    match = _FOOTER.fullmatch(footer)
    if match is None:
        raise ValueError(f"a zone file ends in the unknown rule {footer!r}")
    if match["dst"] is None:
        return None
    standard = -_clock(match["offset"])
    summer = -_clock(match["dst_offset"]) if match["dst_offset"] else standard + 3600
    return YearlyRule(standard, summer, _rule_date(match["start"]), _rule_date(match["end"]))


def _rule_date(text: str) -> _RuleDate:
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(f"a zone file has the unknown rule date {text!r}")
    time = _clock(match["time"]) if match["time"] else _DEFAULT_CHANGE
    if match["month"]:
        return _RuleDate(
            int(match["month"]), int(match["week"]), int(match["weekday"]), False, 0, time
        )
    return _RuleDate(0, 0, 0, match["julian"] == "J", int(match["day"]), time)


def _clock(text: str) -> int:
    """Returns the seconds of `[+-]hh[:mm[:ss]]`."""
    hours, minutes, seconds = [*map(int, text.lstrip("+-").split(":")), 0, 0][:3]
    total = hours * 3600 + minutes * 60 + seconds
    return -total if text.startswith("-") else total

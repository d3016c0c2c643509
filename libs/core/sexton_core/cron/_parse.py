"""A cron expression: comment, prefix, macros and the fields in their order."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from sexton_core.cron._fields import (
    DAY,
    HOUR,
    MINUTE,
    MONTH,
    SECOND,
    WEEKDAY,
    YEAR,
    Field,
    FieldKind,
    parse_field,
)
from sexton_core.errors import ScheduleError
from sexton_core.instants import SECOND as SECOND_NS
from sexton_core.instants import Duration, parse_duration
from sexton_core.words import DayRule
from sexton_core.zones import get_zone

MAX_TEXT: Final = 1_024
"""Characters. Every value of every field listed one by one is shorter."""

_ORDER: Final[dict[int, tuple[FieldKind, ...]]] = {
    5: (MINUTE, HOUR, DAY, MONTH, WEEKDAY),
    6: (SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY),
    7: (SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY, YEAR),
}

MACROS: Final = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
    "@MINUTELY": "* * * * *",
}

_FORMS_EXPECTED: Final = (
    "five fields (minute, hour, day of month, month, day of week), six (second first), seven "
    "(second first, year last), or a macro such as @daily"
)
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*")
_HASH = re.compile(r"(?<![A-Za-z])[Hh](?![A-Za-z])")
_PREFIX = re.compile(r"(?:CRON_)?TZ=(\S*)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class EveryMacro:
    """`@every 90s`: elapsed time, which is no cron at all; `schedules` builds it."""

    text: str
    period_ns: Duration


@dataclass(frozen=True, slots=True, kw_only=True)
class CronSpec:
    """A parsed cron expression: what was asked for, before any zone.

    text: the fields or the macro as written, without prefix and comment.
    zone: the IANA name of a `TZ=` or `CRON_TZ=` prefix, None where there was none.
    days: the rule asked for; `days_joined_by` tells what it comes to.
    """

    text: str
    zone: str | None
    days: DayRule
    second: Field
    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field
    year: Field | None

    @property
    def both_days(self) -> bool:
        """Whether day of month and day of week both restrict the days."""
        return not (self.day.any_value or self.weekday.any_value)

    @property
    def days_joined_by(self) -> DayRule:
        """Returns AND or OR: how the two day fields are joined in the end.

        A field that restricts nothing takes no part, under every rule.
        """
        if not self.both_days:
            return DayRule.AND
        if self.days is DayRule.DEBIAN:
            return DayRule.AND if self.day.star or self.weekday.star else DayRule.OR
        return self.days

    @property
    def wildcard(self) -> bool:
        """Whether the times follow real time where the clock jumps.

        They do where the second (if given), the minute or the hour starts with `*` or `H/`.
        """
        return self.second.wildcard or self.minute.wildcard or self.hour.wildcard

    @property
    def idle_steps(self) -> tuple[tuple[str, str], ...]:
        """Returns (field, item) where a step leaves nothing but its first value."""
        fields = (self.second, self.minute, self.hour, self.day, self.month, self.weekday)
        years = () if self.year is None else (self.year,)
        return tuple(
            (field.kind.name, item) for field in fields + years for item in field.idle_steps
        )


def parse(
    text: str, *, seed: str | None = None, days: DayRule = DayRule.DEBIAN
) -> CronSpec | EveryMacro:
    """Reads a cron expression of the dialect in `docs/schedules.md`.

    Args:
        text: at most 1,024 characters, one line.
        seed: `namespace/job`, which `H` hashes; None where there is no job, and no `H` may be.
        days: how day of month and day of week are joined.

    Raises:
        ScheduleError: naming the field, the value and what would be right.
    """
    if len(text) > MAX_TEXT:
        raise ScheduleError("cron", text, f"at most {MAX_TEXT:,} characters")
    return _parse(text, seed if may_hash(text) else None, days)


def may_hash(text: str) -> bool:
    """Tells whether `H` may stand in the text, so that its meaning depends on the job's name."""
    return _HASH.search(text) is not None


# A million jobs share few expressions. With `H` they differ, and then few are asked for twice.
@lru_cache(maxsize=4_096)
def _parse(text: str, seed: str | None, days: DayRule) -> CronSpec | EveryMacro:
    if not text.replace("\t", " ").isprintable():
        raise ScheduleError("cron", text, "one line of printable text")
    body = _COMMENT.sub("", text).strip()
    zone = None
    prefix = _PREFIX.match(body)
    if prefix is not None:
        zone = get_zone(prefix[1], field=prefix[0].partition("=")[0]).key
        body = body[prefix.end() :]
    if not body.isascii():
        raise ScheduleError("cron", text, "ASCII letters and digits; a comment may hold others")
    upper = body.upper()
    if upper.startswith("@"):
        if upper.startswith("@EVERY"):
            return _every(body, zone)
        return _spec(body, _macro(body, upper), zone, None, days)
    return _spec(" ".join(body.split()), upper, zone, seed, days)


def _macro(body: str, upper: str) -> str:
    if upper == "@REBOOT":
        raise ScheduleError(
            "cron",
            body,
            "a time: a mesh has no boot to wait for; run it with `sexton jobs trigger`",
        )
    if upper not in MACROS:
        known = ", ".join(name.lower() for name in MACROS)
        raise ScheduleError("cron", body, f"one of {known}, @every DURATION")
    return MACROS[upper]


def _every(body: str, zone: str | None) -> EveryMacro:
    macro, _, duration = " ".join(body.split()).partition(" ")
    if macro.upper() != "@EVERY":
        raise ScheduleError("cron", body, "@every and a duration, such as @every 90s")
    if zone is not None:
        raise ScheduleError("cron", body, "no TZ= before @every: elapsed time has no zone")
    period_ns = parse_duration(duration, field="@every")
    if period_ns <= 0 or period_ns % SECOND_NS:
        raise ScheduleError("@every", duration, "whole seconds, at least 1s")
    return EveryMacro(text=body, period_ns=period_ns)


def _spec(
    text: str, fields_text: str, zone: str | None, seed: str | None, days: DayRule
) -> CronSpec:
    parts = fields_text.split()
    order = _ORDER.get(len(parts))
    if order is None:
        raise ScheduleError("cron", text, f"{_FORMS_EXPECTED}; these are {len(parts)} fields")
    fields = {
        kind.name: parse_field(kind, part, seed) for kind, part in zip(order, parts, strict=True)
    }
    if SECOND.name not in fields:
        fields[SECOND.name] = parse_field(SECOND, "0", None)
    return CronSpec(
        text=text,
        zone=zone,
        days=days,
        second=fields[SECOND.name],
        minute=fields[MINUTE.name],
        hour=fields[HOUR.name],
        day=fields[DAY.name],
        month=fields[MONTH.name],
        weekday=fields[WEEKDAY.name],
        year=fields.get(YEAR.name),
    )

"""Cron, the "Debian plus" dialect of `docs/schedules.md`, in any zone and under every DST rule."""

from sexton_core.cron._fields import Field, FieldKind, Form, MovingDay, hash_of
from sexton_core.cron._parse import CronSpec, EveryMacro, may_hash, parse
from sexton_core.cron._warnings import cron_warnings, day_rule_in_words, in_words
from sexton_core.cron.schedule import CronSchedule, build_cron

__all__ = [
    "CronSchedule",
    "CronSpec",
    "EveryMacro",
    "Field",
    "FieldKind",
    "Form",
    "MovingDay",
    "build_cron",
    "cron_warnings",
    "day_rule_in_words",
    "hash_of",
    "in_words",
    "may_hash",
    "parse",
]

"""Schedules of every kind: specifications, their builder, and what can be told about them."""

from sexton_core.schedules.build import (
    JobSchedule,
    Part,
    ScheduleCache,
    build,
)
from sexton_core.schedules.spec import (
    AnySpec,
    AtTiming,
    CalendarSpec,
    CalendarTiming,
    CalendarUnit,
    CronTiming,
    EveryTiming,
    JobIdentity,
    RRuleTiming,
    ScheduleSpec,
    ShortMonth,
    UnionSpec,
)

__all__ = [
    "AnySpec",
    "AtTiming",
    "CalendarSpec",
    "CalendarTiming",
    "CalendarUnit",
    "CronTiming",
    "EveryTiming",
    "JobIdentity",
    "JobSchedule",
    "Part",
    "RRuleTiming",
    "ScheduleCache",
    "ScheduleSpec",
    "ShortMonth",
    "UnionSpec",
    "build",
]

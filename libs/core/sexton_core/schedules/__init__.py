"""Schedules of every kind: specifications, their builder, and what can be told about them."""

from sexton_core.schedules.build import (
    JobSchedule,
    Part,
    ScheduleCache,
    build,
    depends_on_job,
)
from sexton_core.schedules.calendars import check_calendar
from sexton_core.schedules.difference import Difference, difference, differences
from sexton_core.schedules.forecast import Forecast, Peak, forecast, herd_warnings
from sexton_core.schedules.preview import Preview, PreviewRow, preview
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
from sexton_core.schedules.warnings import warnings_of

__all__ = [
    "AnySpec",
    "AtTiming",
    "CalendarSpec",
    "CalendarTiming",
    "CalendarUnit",
    "CronTiming",
    "Difference",
    "EveryTiming",
    "Forecast",
    "JobIdentity",
    "JobSchedule",
    "Part",
    "Peak",
    "Preview",
    "PreviewRow",
    "RRuleTiming",
    "ScheduleCache",
    "ScheduleSpec",
    "ShortMonth",
    "UnionSpec",
    "build",
    "check_calendar",
    "depends_on_job",
    "difference",
    "differences",
    "forecast",
    "herd_warnings",
    "preview",
    "warnings_of",
]

"""What may surprise the writer of a cron expression, found before it is applied."""

from datetime import datetime, timedelta
from typing import Final

from sexton_core.cron.schedule import CronSchedule
from sexton_core.dst import Disturbance, resolve
from sexton_core.schedule import ScheduleWarning
from sexton_core.words import DayRule, DstRule, WarningKind
from sexton_core.zones import Zone

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - wall time, which has no offset


def cron_warnings(schedule: CronSchedule) -> list[ScheduleWarning]:
    """Returns what may surprise about the expression itself: day fields, then steps."""
    spec = schedule.spec
    found: list[ScheduleWarning] = []
    if spec.both_days:
        found.append(ScheduleWarning(WarningKind.BOTH_DAYS, day_rule_in_words(schedule)))
    found.extend(
        ScheduleWarning(
            WarningKind.IDLE_STEP,
            f"{name}: the step of '{item}' leaves nothing but its first value",
        )
        for name, item in spec.idle_steps
    )
    return found


def day_rule_in_words(schedule: CronSchedule) -> str:
    """Returns how day of month and day of week were joined, and by which rule."""
    spec = schedule.spec
    if not spec.both_days:
        return "at most one of day of month and day of week restricts the days"
    joined = spec.days_joined_by
    outcome = "a day must match both" if joined is DayRule.AND else "a day may match either"
    if spec.days is not DayRule.DEBIAN:
        reason = f"days: {spec.days}"
    elif joined is DayRule.AND:
        reason = "Debian's rule: one of them starts with * or ?"
    else:
        reason = "Debian's rule: neither starts with * or ?"
    return f"day of month and day of week are both given: {outcome} ({reason})"


def in_words(met: Disturbance, zone: Zone, rule: DstRule) -> str:
    """Returns one sentence about a wall time that the clock skips or repeats, and what is done."""
    wall = _EPOCH + timedelta(seconds=met.wall)
    happens = "does not exist" if met.skipped else "happens twice"
    seconds = resolve(zone, met.wall, rule)
    if not seconds:
        done = "it does not run"
    elif len(seconds) == 2:
        done = "it runs in both passes"
    elif met.skipped:
        moved = _EPOCH + timedelta(seconds=zone.wall(seconds[0]))
        done = f"it runs at {moved:%H:%M:%S}" if moved.second else f"it runs at {moved:%H:%M}"
    else:
        done = "it runs in the first pass only"
    return f"{wall:%Y-%m-%d %H:%M} {happens} in {zone.key}: {done} (dst: {rule})"

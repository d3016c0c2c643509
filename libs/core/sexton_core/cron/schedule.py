"""A cron expression in a zone, under a DST rule: the schedule itself."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from sexton_core.cron._explain import explain_spec
from sexton_core.cron._parse import CronSpec, EveryMacro, may_hash, parse
from sexton_core.cron._walls import CronWalls, walls_of
from sexton_core.dst import Disturbance, disturbances, first_at_or_after, last_at_or_before
from sexton_core.errors import ScheduleError
from sexton_core.instants import SECOND, Duration, Instant
from sexton_core.words import DayRule, DstRule
from sexton_core.zones import Zone, get_zone


@dataclass(frozen=True, slots=True)
class CronSchedule:
    """Implements `Schedule` for a `CronSpec`. Cheap: equal expressions share their bit sets."""

    spec: CronSpec
    zone: Zone
    dst: DstRule = DstRule.VIXIE
    walls: CronWalls = field(init=False, repr=False, compare=False)
    _rule: DstRule = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "walls", walls_of(self.spec))
        # A wildcard time follows real time, which is what `literal` does with a wall time.
        rule = DstRule.LITERAL if self.spec.wildcard else self.dst
        object.__setattr__(self, "_rule", rule)

    def next_after(self, t: Instant) -> Instant | None:
        """Returns the first nominal time strictly later than `t`, None: never again."""
        second = first_at_or_after(self.zone, self._rule, self.walls, max(t // SECOND + 1, 0))
        return None if second is None else second * SECOND

    def previous_before(self, t: Instant) -> Instant | None:
        """Returns the last nominal time strictly earlier than `t`, None: never before."""
        second = last_at_or_before(self.zone, self._rule, self.walls, (t - 1) // SECOND)
        return None if second is None else second * SECOND

    def explain(self) -> str:
        """Returns the schedule in English: `at 03:00 on weekdays, Europe/Berlin`."""
        return f"{explain_spec(self.spec)}, {self.zone.key}"

    def disturbances(self, t: Instant, horizon_ns: Duration) -> Iterator[Disturbance]:
        """Yields the changes of the clock in (t, t + horizon] that touch a fixed time of it."""
        if not self.spec.wildcard:
            first, last = t // SECOND + 1, (t + horizon_ns) // SECOND
            yield from disturbances(self.zone, self.walls, first, last)


def build_cron(
    text: str,
    *,
    timezone: str | None = None,
    dst: DstRule = DstRule.VIXIE,
    days: DayRule = DayRule.DEBIAN,
    seed: str | None = None,
) -> CronSchedule:
    """Reads an expression and puts it into its zone: `timezone`, else its prefix, else UTC.

    `@every` is no cron and is refused here; `schedules.build` takes it.

    Raises:
        ScheduleError: the expression, the zone, or two zones that differ.
    """
    return _build(text, timezone, dst, days, seed if may_hash(text) else None)


# A million jobs share few schedules; what is shared is asked for once and kept once.
@lru_cache(maxsize=4_096)
def _build(
    text: str, timezone: str | None, dst: DstRule, days: DayRule, seed: str | None
) -> CronSchedule:
    spec = parse(text, seed=seed, days=days)
    if isinstance(spec, EveryMacro):
        raise ScheduleError("cron", text, "wall times; an elapsed interval is `every`")
    if timezone is not None and spec.zone is not None and timezone != spec.zone:
        raise ScheduleError(
            "timezone", timezone, f"the zone in front of the expression, {spec.zone}, or none"
        )
    name = timezone if timezone is not None else spec.zone or "UTC"
    return CronSchedule(spec, get_zone(name), dst)

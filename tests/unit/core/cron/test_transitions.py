"""Every change of every clock between 2000 and 2040, against the brute force.

Each distinct shape (offset before and after, local time) is tried here minute by minute under each
rule; `system` does so for every change there is, and asks every zone. No expression here names a
day, so the day of the week of a change makes no difference.
"""

from collections.abc import Callable, Iterator
from datetime import datetime

import pytest
from unit.core.cron.brute import fires, naive, offset_at
from unit.core.cron.test_brute_force import BEGIN, END, backwards, forwards

from sexton_core.cron import CronSchedule, build_cron
from sexton_core.words import DstRule
from sexton_core.zones import Segment, get_zone, zone_names

SIX_HOURS = 6 * 3600
EVERY_MINUTE_FIXED = "0-59 0-23 * * *"
SPARSE = {
    "0 0 * * *": lambda wall: (wall.hour, wall.minute) == (0, 0),
    "30 2 * * *": lambda wall: (wall.hour, wall.minute) == (2, 30),
    "15,45 0-3 * * *": lambda wall: wall.hour < 4 and wall.minute in (15, 45),
}


def changes() -> Iterator[tuple[str, Segment]]:
    for name in sorted(zone_names()):
        for change in get_zone(name).changes(BEGIN, END):
            yield name, change


def one_of_each_shape() -> list[tuple[str, Segment]]:
    shapes: dict[tuple[int, int, int], tuple[str, Segment]] = {}
    for name, change in changes():
        wall = naive(change.start + change.before)
        clock = wall.hour * 60 + wall.minute
        shapes.setdefault((change.before, change.offset, clock), (name, change))
    return list(shapes.values())


def check(
    name: str,
    change: Segment,
    rule: DstRule,
    text: str,
    matches: Callable[[datetime], bool],
    margin: int = SIX_HOURS,
) -> None:
    first, last = change.start - margin, change.start + margin
    schedule = CronSchedule(build_cron(text).spec, get_zone(name), rule)
    expected = fires(matches, name, first, last, rule, wildcard=False)
    assert forwards(schedule, first, last) == expected, (name, change, rule, text)
    assert backwards(schedule, first, last) == expected, (name, change, rule, text)


@pytest.mark.slow
@pytest.mark.parametrize("rule", DstRule)
def test_each_shape_of_a_change_is_mapped_minute_by_minute(rule: DstRule) -> None:
    shapes = one_of_each_shape()
    assert len(shapes) > 150
    for name, change in shapes:
        check(name, change, rule, EVERY_MINUTE_FIXED, lambda _: True, margin=4 * 3600)


@pytest.mark.slow
@pytest.mark.parametrize("text", SPARSE)
def test_each_shape_of_a_change_is_right_for_a_few_fixed_times(text: str) -> None:
    for name, change in one_of_each_shape():
        for rule in DstRule:
            check(name, change, rule, text, SPARSE[text], margin=4 * 3600)


def test_all_changes_are_on_whole_minutes_and_days_apart() -> None:
    last: dict[str, int] = {}
    for name, change in changes():
        assert change.start % 60 == 0
        assert change.offset % 60 == 0
        assert change.start - last.get(name, 0) > 2 * 86_400
        last[name] = change.start


@pytest.mark.slow
@pytest.mark.system
def test_every_zone_shows_what_zoneinfo_shows_around_every_change() -> None:
    for name, change in changes():
        zone = get_zone(name)
        for second in range(change.start - SIX_HOURS, change.start + SIX_HOURS, 60):
            assert zone.offset(second) == offset_at(name, second), (name, second)


@pytest.mark.slow
@pytest.mark.system
def test_every_change_is_mapped_minute_by_minute() -> None:
    # Zones that change by the same offsets at the same instant are one case: what lies within six
    # hours of it is equal, as the test above shows for each.
    distinct = {(change.start, change.before, change.offset): name for name, change in changes()}
    for (start, _, _), name in distinct.items():
        change = get_zone(name).segment(start)
        for rule in DstRule:
            check(name, change, rule, EVERY_MINUTE_FIXED, lambda _: True)


@pytest.mark.slow
@pytest.mark.system
def test_every_zone_runs_a_nightly_job_once_a_night_under_the_default_rule() -> None:
    # Of zones with the same changes, one is asked.
    zones = {tuple(get_zone(name).changes(BEGIN, END)): name for name in sorted(zone_names())}
    for jumps, name in zones.items():
        zone = get_zone(name)
        corrections = [jump for jump in jumps if not jump.gap and not jump.fold]
        for text in ("30 2 * * *", "30 0 * * *"):
            runs = forwards(build_cron(text, timezone=name), BEGIN, END)
            dates = {zone.wall(second) // 86_400 for second in runs}
            expected = zone.wall(END) // 86_400 - zone.wall(BEGIN) // 86_400
            assert abs(len(dates) - expected) <= 1 + len(corrections), name
            assert len(dates) == len(runs) or corrections, name

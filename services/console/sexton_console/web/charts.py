"""Charts as geometry: what is drawn where. The templates make SVG of it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from sexton_console.mesh.numbers import FAILED, Minute, Seen
from sexton_console.mesh.takeovers import Term
from sexton_console.words import span

WEEKS: Final = 13
LEAST_STRIP_S: Final = 60.0
"""The strip of who led shows at least so much."""
_NARROWEST: Final = 0.4
PLOT_WIDTH: Final = 640
MAX_DOTS: Final = 600
"""Of one plot; failures come on top."""
_COLUMN: Final = 4.0
PLOT_HEIGHT: Final = 110


class MinuteBar(NamedTuple):
    """One minute of the chart of what was due and done."""

    x: float
    start_s: int
    due: float
    done: float
    failed: float
    due_y: float
    done_h: float
    failed_h: float


class Minutes(NamedTuple):
    """The chart of the last hour. Heights are parts of 100."""

    bars: tuple[MinuteBar, ...]
    highest: float


class Dot(NamedTuple):
    """One run in a plot."""

    x: float
    y: float
    state: str
    run: str
    value: str
    ended_s: float


class Plot(NamedTuple):
    """How long runs took and how late they were, oldest on the left, on logarithmic axes."""

    took: tuple[Dot, ...]
    late: tuple[Dot, ...]
    took_marks: tuple[tuple[float, str], ...]
    late_marks: tuple[tuple[float, str], ...]
    runs: int
    """How many there are, drawn or not."""


class Reign(NamedTuple):
    """A time for which somebody led, on the strip's axis, which is 100 wide."""

    term: Term
    left: float
    width: float


class Lane(NamedTuple):
    """Who led one shard, the earliest first."""

    name: str
    reigns: tuple[Reign, ...]


class Day(NamedTuple):
    """One day of the calendar."""

    week: int
    weekday: int
    date: str
    runs: int
    failed: int
    level: int
    """0 to 4, by runs."""
    known: bool
    """Whether the runs of the whole day were read."""


def minutes(found: Sequence[Minute]) -> Minutes:
    """Draws minutes, the present one last."""
    highest = max([1.0, *(max(each.due, each.done) for each in found)])
    return Minutes(
        tuple(
            MinuteBar(
                x=index * 10.0,
                start_s=each.number * 60,
                due=each.due,
                done=each.done,
                failed=each.failed,
                due_y=100 - 100 * each.due / highest,
                done_h=100 * (each.done - each.failed) / highest,
                failed_h=100 * each.failed / highest,
            )
            for index, each in enumerate(found)
        ),
        highest,
    )


def plot(runs: Sequence[Seen], since_s: float = 0.0, now_s: float = 0.0) -> Plot:
    """Draws how long runs took and how late they were.

    With a range each stands where its time is; else one beside the other, oldest on the left. Of
    very many those are drawn that failed, and of each column the middle and the largest.
    """
    begun = sorted((run for run in runs if run.started_s), key=lambda run: run.ended_s)
    left, width = 52.0, PLOT_WIDTH - 60.0
    if now_s > since_s:
        places = [left + width * (run.ended_s - since_s) / (now_s - since_s) for run in begun]
    else:
        step = width / max(1, len(begun) - 1)
        places = [left + step * index for index in range(len(begun))]
    took = [max(0.001, run.ended_s - run.started_s) for run in begun]
    late = [max(0.001, run.started_s - run.due_s) for run in begun]
    took_dots, took_marks = _dots(begun, places, took)
    late_dots, late_marks = _dots(begun, places, late)
    return Plot(took_dots, late_dots, took_marks, late_marks, len(begun))


def _dots(
    runs: Sequence[Seen], places: Sequence[float], values: Sequence[float]
) -> tuple[tuple[Dot, ...], tuple[tuple[float, str], ...]]:
    if not values:
        return (), ()
    low = math.floor(math.log10(min(values)))
    high = max(low + 1, math.ceil(math.log10(max(values))))

    def height(value: float) -> float:
        return PLOT_HEIGHT - 6 - (PLOT_HEIGHT - 12) * (math.log10(value) - low) / (high - low)

    dots = tuple(
        Dot(
            x=round(places[index], 1),
            y=round(height(values[index]), 1),
            state=runs[index].state,
            run=runs[index].run,
            value=span(values[index]),
            ended_s=runs[index].ended_s,
        )
        for index in _drawn(runs, places, values)
    )
    marks = tuple(
        (round(height(10.0**power), 1), span(10.0**power)) for power in range(low, high + 1)
    )
    return dots, marks


def _drawn(runs: Sequence[Seen], places: Sequence[float], values: Sequence[float]) -> Sequence[int]:
    """Gives which runs are drawn, by their places in the list."""
    if len(runs) <= MAX_DOTS:
        return range(len(runs))
    columns: defaultdict[int, list[int]] = defaultdict(list)
    chosen = {index for index, run in enumerate(runs) if run.state in FAILED}
    chosen = set(sorted(chosen)[-MAX_DOTS:])
    for index, place in enumerate(places):
        columns[int(place / _COLUMN)].append(index)
    for column in columns.values():
        column.sort(key=values.__getitem__)
        chosen |= {column[len(column) // 2], column[-1]}
    return sorted(chosen)


def strip(terms: Sequence[Term], now_s: float) -> tuple[list[Lane], float]:
    """Draws who led when; gives also when the axis begins."""
    start_s = min((term.since_s for term in terms), default=now_s)
    start_s = min(start_s, now_s - LEAST_STRIP_S)
    by_shard: defaultdict[tuple[str, int], list[Term]] = defaultdict(list)
    for term in sorted(terms, key=lambda term: term.since_s):
        by_shard[term.role, term.shard].append(term)

    def place(moment_s: float) -> float:
        return 100 * (moment_s - start_s) / (now_s - start_s)

    lanes = [
        Lane(
            f"{role} {shard}" if shard else role,
            tuple(
                Reign(
                    term,
                    place(term.since_s),
                    max(_NARROWEST, place(term.until_s or now_s) - place(term.since_s)),
                )
                for term in found
            ),
        )
        for (role, shard), found in sorted(by_shard.items())
    ]
    return lanes, start_s


def calendar(runs: Sequence[Seen], now_s: float, since_s: float = 0.0) -> list[Day]:
    """Draws the last weeks, day by day in UTC, by how many runs ended.

    `since_s`: from when on all of them are known.
    """
    ended: Counter[str] = Counter()
    failed: defaultdict[str, int] = defaultdict(int)
    for run in runs:
        day = datetime.fromtimestamp(run.ended_s, UTC).date().isoformat()
        ended[day] += 1
        failed[day] += run.state in FAILED
    today = datetime.fromtimestamp(now_s, UTC).date()
    first = today - timedelta(days=today.weekday() + 7 * (WEEKS - 1))
    reached = datetime.fromtimestamp(since_s, UTC).date()
    most = max(ended.values(), default=1)
    days: list[Day] = []
    for offset in range((today - first).days + 1):
        shown = first + timedelta(days=offset)
        date = shown.isoformat()
        count = ended[date]
        level = math.ceil(4 * count / most) if count else 0
        known = shown > reached or not since_s
        days.append(Day(offset // 7, offset % 7, date, count, failed[date], level, known))
    return days

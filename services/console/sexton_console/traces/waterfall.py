"""The waterfall: a run's rail and attempts, the spans of its trace under them, on one axis."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sexton_console.traces.model import Event, LogLine, Span
from sexton_console.traces.rail import Rail
from sexton_runtime import otlp, semconv

MAX_ROWS: Final = 10_000
_MAX_DEPTH: Final = 100
"""Deeper spans are drawn at this depth."""
_FAR_NS: Final = 86_400 * 10**9
"""What a span claims to be further away than this from its run is drawn at the edge of the axis: a
time that was not set, or a wrong clock, must not make all the rest too small to be seen."""
MAX_TICKS: Final = 200
"""Marks of log lines on one row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One row. Positions are parts of the axis, 0 to 1."""

    key: str
    kind: str
    """`gap`, `attempt` or `span`."""
    name: str
    detail: str
    state: str
    depth: int
    start: int
    took_s: float
    left: float
    width: float
    service: str = ""
    failed: bool = False
    open: bool = False
    attributes: Mapping[str, Any] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    ticks: tuple[float, ...] = ()
    """Where log lines were written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waterfall:
    """All rows, and the axis."""

    bars: tuple[Bar, ...]
    start: int
    end: int
    marks: tuple[tuple[float, str], ...]
    """Labels of the axis: where, and seconds from the start."""
    left_out: int
    """Spans for which there was no room."""

    @property
    def whole_s(self) -> float:
        """Gives the length of the axis."""
        return (self.end - self.start) / 1e9


def pushed_at(spans: Iterable[Span]) -> int:
    """Tells when the queue had the run in its line, where a span of the rail says so; else 0."""
    return next((span.end for span in spans if span.name == semconv.SPAN_PUSH), 0)


def attempts_of(trace: otlp.Trace | None, rail: Rail) -> dict[str, int]:
    """Gives the ids of the spans that attempts have, or will have, with the attempts' numbers."""
    found: dict[str, int] = {}
    if trace is None:
        return found
    for delivery in rail.deliveries:
        span = otlp.attempt_span(trace, delivery.number)
        found[span.hex()] = found[otlp.process_span(span).hex()] = delivery.number
    return found


def waterfall(
    rail: Rail,
    spans: Sequence[Span],
    lines: Sequence[LogLine] = (),
    attempts: Mapping[str, int] | None = None,
) -> Waterfall:
    """Puts a run's trace under its rail.

    What the rail's own spans say stands in the rail already. Spans of an attempt come under it
    (`attempts`: by which ids they know it), and what knows no parent that is there comes last.
    """
    work = [span for span in spans if semconv.RAIL not in span.attributes]
    near = [s for s in work if s.start >= rail.start - _FAR_NS and s.end <= rail.end + _FAR_NS]
    start = min([rail.start, *(span.start for span in near)])
    end = max([rail.end, *(span.end for span in near), start + 1])
    draw = _Drawing(start, end, work, lines, attempts or {})
    for gap in (gap for gap in rail.gaps if gap.attempt == 0 and gap.end <= _first(rail)):
        draw.gap(gap.name, gap.cause, gap.start, gap.end, goes_on=gap.open)
    for delivery in rail.deliveries:
        for gap in rail.gaps:
            if gap.attempt == delivery.number and gap.name in ("line", "backoff"):
                draw.gap(gap.name, gap.cause, gap.start, gap.end, goes_on=gap.open)
        over = delivery.settled or rail.end
        draw.attempt(
            delivery.number, delivery.worker, delivery.state, delivery.assigned, over,
            later_worker=delivery.later_worker,
        )  # fmt: skip
        for gap in rail.gaps:
            if gap.attempt == delivery.number and gap.name not in ("line", "backoff"):
                draw.gap(gap.name, gap.cause, gap.start, gap.end, depth=1, goes_on=gap.open)
        draw.spans_of(delivery.number)
    for gap in (gap for gap in rail.gaps if gap.attempt == 0 and gap.end > _first(rail)):
        draw.gap(gap.name, gap.cause, gap.start, gap.end, goes_on=gap.open)
    draw.rest()
    return Waterfall(
        bars=tuple(draw.bars),
        start=start,
        end=end,
        marks=_marks(start, end),
        left_out=draw.left_out,
    )


class _Drawing:
    """Rows as they are added."""

    def __init__(
        self,
        start: int,
        end: int,
        spans: Sequence[Span],
        lines: Sequence[LogLine],
        attempts: Mapping[str, int],
    ) -> None:
        self.bars: list[Bar] = []
        self.left_out = 0
        self._start = start
        self._whole = end - start
        self._known = {span.span_id for span in spans}
        self._by_parent: defaultdict[str, list[Span]] = defaultdict(list)
        self._by_attempt: defaultdict[int, list[Span]] = defaultdict(list)
        self._roots: list[Span] = []
        self._drawn: set[str] = set()
        self._ticks: defaultdict[str, list[float]] = defaultdict(list)
        for line in lines:
            number = attempts.get(line.span_id)
            known = line.span_id in self._known or number is None
            ticks = self._ticks[line.span_id if known else f"attempt-{number}"]
            if len(ticks) < MAX_TICKS:
                ticks.append(self._at(line.at))
        for span in spans:
            attempt = span.attributes.get(semconv.ATTEMPT) or attempts.get(span.parent_id)
            if span.parent_id in self._known and span.parent_id != span.span_id:
                self._by_parent[span.parent_id].append(span)
            elif isinstance(attempt, int):
                self._by_attempt[attempt].append(span)
            else:
                self._roots.append(span)

    def gap(
        self, name: str, cause: str, start: int, end: int, *, depth: int = 0, goes_on: bool = False
    ) -> None:
        """Adds a gap of the rail."""
        self._add(
            key=f"{name}-{start}", kind="gap", name=name, detail=cause, state=name, depth=depth,
            start=start, end=end, goes_on=goes_on,
        )  # fmt: skip

    def attempt(
        self, number: int, worker: str, state: str, start: int, end: int, *, later_worker: bool
    ) -> None:
        """Adds an attempt."""
        taken_over = ", taken over" if later_worker else ""
        self._add(
            key=f"attempt-{number}", kind="attempt", name=f"attempt {number}",
            detail=f"{worker}{taken_over}", state=state, depth=0, start=start, end=end,
            goes_on=state in ("assigned", "started"),
        )  # fmt: skip

    def spans_of(self, attempt: int) -> None:
        """Adds the spans of an attempt."""
        for span in self._by_attempt.pop(attempt, ()):
            self._tree(span, 1)

    def rest(self) -> None:
        """Adds what stands nowhere yet."""
        for spans in (*self._by_attempt.values(), self._roots):
            for span in spans:
                self._tree(span, 0)
        for spans in list(self._by_parent.values()):
            for span in spans:  # of a circle, which nothing leads into
                self._tree(span, 0)

    def _tree(self, root: Span, depth: int) -> None:
        waiting = [(root, depth)]
        while waiting:
            span, level = waiting.pop()
            if span.span_id in self._drawn:
                continue
            self._drawn.add(span.span_id)
            self._add(
                key=span.span_id, kind="span", name=span.name, detail=span.message,
                state="failed" if span.failed else "", depth=min(level, _MAX_DEPTH),
                start=span.start, end=span.end, span=span,
            )  # fmt: skip
            children = self._by_parent.get(span.span_id, ())
            waiting += [(child, level + 1) for child in reversed(children)]

    def _add(
        self, *, key: str, kind: str, name: str, detail: str, state: str, depth: int, start: int,
        end: int, goes_on: bool = False, span: Span | None = None,
    ) -> None:  # fmt: skip
        if len(self.bars) >= MAX_ROWS:
            self.left_out += 1
            return
        left = self._at(start)
        self.bars.append(
            Bar(
                key=key, kind=kind, name=name, detail=detail, state=state, depth=depth, start=start,
                took_s=max(0, end - start) / 1e9, left=left,
                width=max(0.0, min(1.0, self._at(end)) - left), open=goes_on,
                service=span.service if span else "", failed=bool(span and span.failed),
                attributes=span.attributes if span else {}, events=span.events if span else (),
                ticks=tuple(self._ticks.get(key, ())),
            )
        )  # fmt: skip

    def _at(self, time: int) -> float:
        return min(1.0, max(0.0, (time - self._start) / self._whole))


def _first(rail: Rail) -> int:
    """Tells when the first attempt was assigned; without one when all is over."""
    return rail.deliveries[0].assigned if rail.deliveries else rail.end


def _marks(start: int, end: int) -> tuple[tuple[float, str], ...]:
    """Gives round labels of the axis, about five."""
    whole = (end - start) / 1e9
    step = 1e-6
    for factor in (1, 2, 5) * 20:
        size = step * factor
        if whole / size <= 6:
            break
        if factor == 5:
            step *= 10
    count = int(whole / size + 1e-9)
    return tuple((number * size / whole, _seconds(number * size)) for number in range(count + 1))


def _seconds(value: float) -> str:
    if value >= 120:
        return f"{value / 60:g} min"
    if value >= 1 or value == 0:
        return f"{value:.3g} s"
    return f"{value * 1_000:.3g} ms" if value >= 0.001 else f"{value * 1e6:.3g} µs"

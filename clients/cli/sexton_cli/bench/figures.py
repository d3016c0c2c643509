"""What every bench does with its figures: percentiles, and the median of repetitions."""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

Figures: TypeAlias = dict[str, Any]
"""What was measured, by name with the unit last: numbers, figures by service, rows of figures."""

MILLISECOND: Final = 1_000_000
"""In nanoseconds."""


def percentile(ranked: Sequence[float], percent: int) -> float:
    """Gives a percentile of values in rising order (nearest rank)."""
    return ranked[min(len(ranked) - 1, len(ranked) * percent // 100)]


def times(prefix: str, taken_ns: Sequence[int]) -> Figures:
    """Gives the percentiles of times in nanoseconds, as milliseconds."""
    ranked = sorted(taken_ns)
    return {
        f"{prefix}p50_ms": round(percentile(ranked, 50) / MILLISECOND, 2),
        f"{prefix}p99_ms": round(percentile(ranked, 99) / MILLISECOND, 2),
        f"{prefix}max_ms": round(ranked[-1] / MILLISECOND, 2),
    }


def ratio(value: float, to: float) -> float | None:
    """Gives a ratio; None: there is nothing to compare with."""
    return round(value / to, 3) if to else None


async def repeated(repeat: int, measure: Callable[[], Awaitable[Figures]]) -> Figures:
    """Measures so many times, one after the other, and gives the medians."""
    return median_of([await measure() for _ in range(repeat)])


def median_of(runs: Sequence[Figures]) -> Figures:
    """Gives the median of each figure, and how many repetitions there were."""
    return {"repeated": len(runs), **_median(runs)}


def _median(values: Sequence[Any]) -> Any:
    first = values[0]
    if isinstance(first, dict):
        return {name: _median([value[name] for value in values]) for name in first}
    if isinstance(first, list):
        return [_median(rows) for rows in zip(*values, strict=False)]
    numbers = [it for it in values if isinstance(it, int | float) and not isinstance(it, bool)]
    if len(numbers) < len(values):
        return first
    middle = statistics.median(numbers)
    return round(middle) if all(isinstance(it, int) for it in numbers) else round(middle, 3)

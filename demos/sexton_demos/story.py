"""The stages in their order, and the table of what was counted in all of them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Final

from sexton_core.instants import SECOND, format_duration
from sexton_demos.telling import UNCOUNTED, Numbers, Page, Told

_MODULES: Final = (
    "01_loop",
    "02_durable_store",
    "03_heap",
    "04_leader_by_lease",
    "05_queue_and_workers",
    "06_idempotency_and_fencing",
    "07_clock_policies",
)
_LEGEND: Final = (
    "  before    without the idea: what the wall of the stage before has shown",
    "  looks     jobs looked at per tick",
    "  doubled   runs that were done again, or effects that came twice",
    "  lost      nominal times that nothing answered",
    "  latest    the latest start after its time",
    "  gap       from a death to the first thing that somebody does in its place",
    "  refused   writes and effects of somebody replaced, turned away",
)
STAGES: Final = range(1, len(_MODULES) + 1)


def title(stage: int) -> str:
    """Gives what a stage is about, in a line."""
    return str(_module(stage).__doc__).rstrip(".")


@cache
def tell(stage: int) -> Told:
    """Plays a stage."""
    told: Told = _module(stage).tell()
    return told


def page_of(stage: int) -> tuple[str, ...]:
    """Gives a stage as it is read."""
    return (f"{stage}. {title(stage)}", "", *tell(stage).lines)


def contents() -> tuple[str, ...]:
    """Lists the stages."""
    return tuple(f"  {stage}  {title(stage)}" for stage in STAGES)


def numbers() -> tuple[str, ...]:
    """Plays every stage, and gives what was counted before and after each idea."""
    page = Page()
    rows: list[tuple[str, ...]] = []
    wall = UNCOUNTED
    for stage in STAGES:
        told = tell(stage)
        rows.append((title(stage).partition(":")[0], "before", *_shown(_over(wall, told.before))))
        rows.append(("", "after", *_shown(told.after)))
        wall = told.wall
    headers = ("idea", "", "looks", "doubled", "lost", "latest", "gap", "refused")
    page.table(headers, rows)
    page.say("", *_LEGEND)
    return tuple(page.lines)


def _module(stage: int) -> ModuleType:
    return import_module(f"sexton_demos.{_MODULES[stage - 1]}")


def _over(wall: Numbers, before: Numbers) -> Numbers:
    """Adds what only shows when an idea is tried in a wrong way to the wall that calls for it."""
    return Numbers(*(w if b is None else b for w, b in zip(wall, before, strict=True)))


def _shown(numbers: Numbers) -> Iterable[str]:
    looked, doubled, lost, late_s, gap_s, refused = numbers
    for count in (looked, doubled, lost):
        yield "-" if count is None else f"{count:,.0f}"
    for seconds in (late_s, gap_s):
        yield "-" if seconds is None else _time(seconds)
    yield "-" if refused is None else f"{refused:,.0f}"


def _time(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    return format_duration(round(seconds) * SECOND)

"""Cycles are collected where it disturbs nobody, and before they fill the memory."""

from __future__ import annotations

import asyncio
import gc

import pytest

from sexton_runtime.collector import FEW, MANY, collect_at_leisure, due


@pytest.mark.parametrize(
    ("new_objects", "young_s", "full_s", "generation"),
    [
        (0, 9.9, 10_000, None),
        (0, 10, 0, 0),
        (FEW, 10, 0, None),
        (FEW, 119.9, 10_000, None),
        (FEW, 120, 0, 0),
        (FEW, 120, 1_800, 2),
        (MANY, 0, 0, 0),
        (0, 10, 1_800, 2),
    ],
)
def test_it_waits_for_a_quiet_moment_but_not_for_ever(
    new_objects: int, young_s: float, full_s: float, generation: int | None
) -> None:
    assert due(new_objects, young_s, full_s) == generation


def test_the_collector_works_by_its_own_rules_before_and_after() -> None:
    async def service() -> bool:
        collecting = asyncio.create_task(collect_at_leisure())
        await asyncio.sleep(0)
        by_itself = gc.isenabled()
        collecting.cancel()
        await asyncio.wait([collecting])
        return by_itself

    try:
        assert gc.isenabled()
        assert not asyncio.run(service())
        assert gc.isenabled()
    finally:
        gc.unfreeze()

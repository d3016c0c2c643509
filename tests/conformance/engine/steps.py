"""What the scenarios have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from conformance.engine.worlds import Store, World

from sexton_runtime.kv.engine import Engine, Watching
from sexton_runtime.kv.types import (
    Compare,
    Delete,
    KeyValue,
    Put,
    RevisionEvents,
    Target,
    Txn,
    TxnResult,
)

WITHIN_S = 10


def on_every_engine(scenario: Callable[[Store], Coroutine[Any, Any, None]]) -> Any:
    """Makes a test of a scenario: it runs once per implementation."""

    def test(world: World) -> None:
        world.run(scenario)

    test.__name__ = scenario.__name__
    test.__doc__ = scenario.__doc__
    return test


async def commit(engine: Engine, txn: Txn) -> TxnResult:
    (result,) = await engine.commit([txn])
    return result


async def put(engine: Engine, key: bytes, value: bytes = b"") -> int:
    """Puts without a condition and gives the revision."""
    return (await commit(engine, Txn(then=(Put(key, value),)))).revision


async def delete(engine: Engine, key: bytes) -> int:
    return (await commit(engine, Txn(then=(Delete(key),)))).revision


async def read(engine: Engine, key: bytes) -> KeyValue:
    return (await engine.get([key])).kvs[0]


async def revision(engine: Engine) -> int:
    return (await engine.get([b"any"])).revision


def is_value(key: bytes, value: bytes) -> Compare:
    return Compare(key, Target.VALUE, value)


async def changes(watching: Watching, count: int) -> list[RevisionEvents]:
    """Reads a watch until that many revisions have come."""
    found: list[RevisionEvents] = []
    async with asyncio.timeout(WITHIN_S):
        while len(found) < count:
            found += (await anext(watching)).revisions
    return found


async def first_change(watching: Watching, key: bytes) -> RevisionEvents:
    """Reads a watch until a key changes."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            for entry in (await anext(watching)).revisions:
                if any(event.kv.key == key for event in entry.events):
                    return entry

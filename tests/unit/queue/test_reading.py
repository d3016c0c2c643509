"""What an owner reads at its takeover, and later, of what nobody has told it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from unit.queue.lines import waiting
from unit.queue.shop import Hand, Shop

from sexton.internal.v1 import records_pb2
from sexton_queue.reading import Reading
from sexton_runtime.kv.client import StoreClient
from sexton_runtime.kv.types import KeyValue, Page
from sexton_runtime.randomness import SeededRandomness


class Standing:
    """A store in which some keys stand."""

    def __init__(self, kvs: dict[bytes, KeyValue], page: int = 1_000) -> None:
        self._kvs = kvs
        self._page = page
        self.pages = 0

    async def scan(
        self, start: bytes, end: bytes, *, limit: int = 0, min_version: int = 0, **_: Any
    ) -> Page:
        found = [
            kv
            for key, kv in sorted(self._kvs.items())
            if start <= key < end and kv.version >= min_version
        ]
        self.pages += 1
        most = limit or self._page
        return Page(1, tuple(found[:most]), b"more" if len(found) > most else b"", 0)


async def test_a_run_that_can_not_be_read_keeps_no_owner_from_taking_over() -> None:
    shop = Shop()
    hand = Hand(shop, "one")
    hand.hello()
    shop.pump()
    hand.read()
    held, garbage, newer = (waiting(number) for number in range(3))
    shop.put(held.key, held.value)
    shop.machine.table.arrive(held.key, shop.revision, held.value, shop.now)
    shop.pump()
    for _ in range(2):
        shop.put(garbage.key, b"\xff")
        shop.put(newer.key, records_pb2.RunRecord(state=cast("Any", 99)).SerializeToString())

    shop.machine = type(shop.machine)(shard=0, coordinator_shards=1)
    await Reading(
        shop.machine,
        cast("StoreClient", Standing(shop.kvs)),
        shard=0,
        coordinator_shards=1,
        randomness=SeededRandomness("reading"),
        now=lambda: shop.now,
    ).load()
    assert [*shop.machine.table.by_key] == [held.key]


async def test_a_lost_push_is_found_soon_behind_a_line_of_another_queue_however_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sexton_queue.reading.PAGE_PAUSE_S", 0.0)
    shop = Shop()
    for number in range(100):
        run = waiting(number, queue="archive")
        shop.put(run.key, run.value)
    lost = waiting(queue="mails")
    shop.put(lost.key, lost.value)
    store = Standing(shop.kvs, page=2)
    reading = Reading(
        shop.machine,
        cast("StoreClient", store),
        shard=0,
        coordinator_shards=1,
        randomness=SeededRandomness("reading"),
        now=lambda: shop.now,
    )
    sweeping = asyncio.create_task(reading.sweep(lambda: None))
    while lost.key not in shop.machine.table.by_key:
        assert store.pages < 6, "one is of paused queues"
        await asyncio.sleep(0)
    sweeping.cancel()


def test_what_is_asked_of_a_run_that_can_not_be_read_harms_nobody() -> None:
    shop = Shop()
    garbage = waiting(0)
    shop.put(garbage.key, b"\xff")
    answers = shop.end(garbage.key)
    shop.pump()
    assert answers == []
    assert garbage.key not in shop.machine.table.by_key

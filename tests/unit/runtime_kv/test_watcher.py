from __future__ import annotations

import asyncio
import random
from contextlib import aclosing

import pytest

from sexton import errors
from sexton_runtime.kv.client import StoreClient
from sexton_runtime.kv.types import Delete, EventKind, Put, Txn
from sexton_runtime.kv.watcher import RelistingWatcher, Update
from sexton_runtime.randomness import SeededRandomness
from sexton_sim.network import LinkProfile
from sexton_store.contract import EngineConfig
from sexton_store.memory_disk import MemoryDisk

from .world import World


class Picture:
    """What a consumer makes up of the updates, and what it was told."""

    def __init__(self, client: StoreClient, prefix: bytes = b"j/", *, page_items: int = 0) -> None:
        self.watcher = RelistingWatcher(
            client, prefix, randomness=SeededRandomness(3), page_items=page_items
        )
        self.items: dict[bytes, bytes] = {}
        self.revision = 0
        self.synced = False
        self.told: list[tuple[str, bytes]] = []
        self._moved = asyncio.Event()

    async def follow(self) -> None:
        async with aclosing(self.watcher.updates()) as updates:
            async for update in updates:
                self.take(update)

    def take(self, update: Update) -> None:
        for kind, kv in update.events:
            self.told.append((kind.name, kv.key))
            if kind is EventKind.PUT:
                self.items[kv.key] = kv.value
            else:
                del self.items[kv.key]  # never of a key that was not told
        if self.synced and update.synced:
            assert update.revision >= self.revision
        self.revision, self.synced = update.revision, update.synced
        self._moved.set()

    async def reaches(self, revision: int) -> None:
        async with asyncio.timeout(60):
            while not (self.synced and self.revision >= revision):
                self._moved.clear()
                await self._moved.wait()


async def put(client: StoreClient, *items: tuple[bytes, bytes]) -> int:
    (result,) = await client.commit([Txn(then=tuple(Put(*item) for item in items))])
    return result.revision


async def delete(client: StoreClient, *keys: bytes) -> int:
    (result,) = await client.commit([Txn(then=tuple(map(Delete, keys)))])
    return result.revision


def test_first_what_is_there_then_synced_then_what_changes() -> None:
    world = World()

    async def story(client: StoreClient) -> None:
        await put(client, (b"j/a", b"1"), (b"j/b", b"2"), (b"k", b"elsewhere"))
        picture = Picture(client)
        following = asyncio.ensure_future(picture.follow())
        await picture.reaches(1)
        assert picture.items == {b"j/a": b"1", b"j/b": b"2"}
        await delete(client, b"j/a")
        await picture.reaches(await put(client, (b"j/c", b"3")))
        assert picture.items == {b"j/b": b"2", b"j/c": b"3"}
        assert picture.told == [
            ("PUT", b"j/a"), ("PUT", b"j/b"), ("DELETE", b"j/a"), ("PUT", b"j/c"),
        ]  # fmt: skip
        following.cancel()

    world.tell(story)


def test_an_empty_prefix_is_synced_too() -> None:
    world = World()

    async def story(client: StoreClient) -> None:
        picture = Picture(client)
        following = asyncio.ensure_future(picture.follow())
        await picture.reaches(0)
        assert picture.items == {}
        following.cancel()

    world.tell(story)


def test_changes_between_the_pages_are_told_once_and_before_synced() -> None:
    world = World()

    async def story(client: StoreClient) -> None:
        await put(client, *((b"j/%d" % number, b"old") for number in range(6)))
        picture = Picture(client, page_items=2)
        updates = picture.watcher.updates()
        async with aclosing(updates) as stream:
            picture.take(await anext(stream))
            assert picture.items == {b"j/0": b"old", b"j/1": b"old"}
            await put(client, (b"j/0", b"new"), (b"j/5", b"new"))
            await delete(client, b"j/1", b"j/4")
            last = await put(client, (b"j/9", b"new"))
            while not picture.synced:
                picture.take(await anext(stream))
        assert picture.revision == last
        assert picture.items == {
            b"j/0": b"new", b"j/2": b"old", b"j/3": b"old", b"j/5": b"new", b"j/9": b"new",
        }  # fmt: skip
        assert picture.told.count(("PUT", b"j/5")) == 1
        assert ("DELETE", b"j/4") not in picture.told

    world.tell(story)


def test_a_broken_connection_loses_and_repeats_nothing() -> None:
    world = World()

    async def story(client: StoreClient) -> None:
        picture = Picture(client)
        following = asyncio.ensure_future(picture.follow())
        await picture.reaches(await put(client, (b"j/a", b"0")))
        for number in range(1, 5):
            world.network.reset("member", "store")
            revision = await world.on(f"writer-{number}", lambda w, n=number: put(  # type: ignore[misc]
                w, (b"j/a", b"%d" % n)))  # fmt: skip
            await picture.reaches(revision)
        assert picture.told == [("PUT", b"j/a")] * 5
        assert picture.watcher.lists == 1
        assert picture.watcher.breaks == 4
        following.cancel()

    world.tell(story)


def test_what_was_missed_while_history_was_lost_is_told_as_a_difference() -> None:
    world = World()

    async def story(client: StoreClient) -> None:
        picture = Picture(client)
        following = asyncio.ensure_future(picture.follow())
        await picture.reaches(
            await put(client, (b"j/stays", b"1"), (b"j/goes", b"1"), (b"j/last", b"1"))
        )
        world.network.partition(["member"], ["store"])
        await world.on("writer", lambda w: put(w, (b"j/new", b"2"), (b"j/stays", b"2")))
        await world.on("writer-2", lambda w: delete(w, b"j/goes", b"j/last"))
        world.crash_store()  # a restart empties the window of changes
        await world.start_store()
        revision = await world.on("writer-3", lambda w: put(w, (b"elsewhere", b"")))
        world.network.heal_all()
        told_before = len(picture.told)
        await picture.reaches(revision)
        assert picture.items == {b"j/new": b"2", b"j/stays": b"2"}
        assert sorted(picture.told[told_before:]) == [
            ("DELETE", b"j/goes"), ("DELETE", b"j/last"), ("PUT", b"j/new"), ("PUT", b"j/stays"),
        ]  # fmt: skip
        assert picture.watcher.lists == 2
        following.cancel()

    world.tell(story)


def test_a_watcher_ends_when_its_store_is_another_one() -> None:
    world = World()

    async def story(client: StoreClient) -> None:
        picture = Picture(client)
        following = asyncio.ensure_future(picture.follow())
        await picture.reaches(await put(client, (b"j/a", b"1")))
        world.crash_store()
        world.disk = MemoryDisk()
        await world.start_store()
        with pytest.raises(errors.WrongIncarnation):
            await following

    world.tell(story)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_picture_is_the_stores_whatever_the_network_does(seed: int) -> None:
    profile = LinkProfile(latency_s=0.005, jitter_s=0.02, stall_p=0.02, reset_p=0.01)
    small_window = EngineConfig(watch_window_events=20)
    world = World(seed=seed, profile=profile, engine=small_window)
    chance = random.Random(seed)

    async def write(client: StoreClient) -> None:
        for _ in range(150):
            key = b"j/%02d" % chance.randrange(12)
            op = Put(key, b"%d" % chance.randrange(99)) if chance.random() < 0.6 else Delete(key)
            try:
                await client.commit([Txn(then=(op,))])
            except errors.SextonError:
                await asyncio.sleep(0.1)
            await asyncio.sleep(chance.uniform(0, 0.2))

    async def story(client: StoreClient) -> None:
        picture = Picture(client, page_items=5)
        following = asyncio.ensure_future(picture.follow())
        writing = world.on("writer", write)
        for _ in range(4):
            await asyncio.sleep(3)
            world.network.partition(["member"], ["store"])
            await asyncio.sleep(chance.uniform(1, 20))
            world.network.heal_all()
        await writing
        world.network.set_profile(LinkProfile())
        await asyncio.sleep(30)
        page = await client.scan(b"j/", b"j0")
        await picture.reaches(page.revision)
        assert picture.items == {kv.key: kv.value for kv in page.kvs}
        following.cancel()

    world.tell(story)

"""The window of revisions and the watchers that read from it."""

from __future__ import annotations

import asyncio

import pytest

from sexton.errors import Compacted, FutureRevision, Overloaded, SlowWatcher, Unavailable
from sexton_store.machine import Entry
from sexton_store.watch import MAX_BATCH_BYTES, MAX_BATCH_EVENTS, WatchHub

START = 100


def make_hub(
    *, max_events: int = 1_000, max_bytes: int = 2**30, max_watchers: int = 10
) -> WatchHub:
    return WatchHub(
        revision=START,
        max_events=max_events,
        max_bytes=max_bytes,
        max_watchers=max_watchers,
        mesh_ns=lambda: 1,
    )


def written(revision: int, *keys: bytes, value: bytes = b"") -> Entry:
    return revision, 1, tuple((key, value, revision, revision, 1) for key in keys)


def publish(hub: WatchHub, entries: list[Entry]) -> None:
    changes = [change for _, _, changes in entries for change in changes]
    size_bytes = sum(len(key) + len(value or b"") for key, value, *_ in changes)
    hub.publish(entries, sorted({change[0] for change in changes}), size_bytes)


async def test_the_window_starts_behind_the_durable_revision() -> None:
    hub = make_hub()
    assert hub.oldest == START + 1
    with pytest.raises(Compacted) as compacted:
        await anext(hub.open(b"", START, keys_only=False))
    assert compacted.value.oldest == START + 1
    with pytest.raises(FutureRevision) as future:
        await anext(hub.open(b"", START + 2, keys_only=False))
    assert future.value.current == START
    assert (await anext(hub.open(b"", START + 1, keys_only=False))).progress_revision == START
    assert len(hub) == 1


async def test_the_oldest_revision_of_the_window_can_be_watched_the_one_before_not() -> None:
    hub = make_hub(max_events=3)
    publish(hub, [written(START + n, b"k") for n in range(1, 6)])
    assert hub.oldest == START + 3
    batch = await anext(hub.open(b"", START + 3, keys_only=False))
    assert [entry.revision for entry in batch.revisions] == [START + 3, START + 4, START + 5]
    with pytest.raises(Compacted):
        await anext(hub.open(b"", START + 2, keys_only=False))


async def test_the_window_is_bounded_by_bytes_too() -> None:
    hub = make_hub(max_bytes=10)
    publish(hub, [written(START + n, b"k", value=b"1234") for n in range(1, 6)])
    assert hub.oldest == START + 4
    publish(hub, [written(START + 6, b"k", value=b"longer than all of it")])
    assert hub.oldest == START + 7


async def test_a_window_that_has_moved_far_still_finds_its_revisions() -> None:
    hub = make_hub(max_events=10)
    for n in range(1, 1_001):
        publish(hub, [written(START + n, b"k")])
    batch = await anext(hub.open(b"k", START + 995, keys_only=False))
    assert [entry.revision - START for entry in batch.revisions] == list(range(995, 1_001))


async def test_a_watcher_that_falls_out_of_the_window_is_cut_for_good() -> None:
    hub = make_hub(max_events=3)
    watcher = hub.open(b"a/", 0, keys_only=False)
    await anext(watcher)
    publish(hub, [written(START + n, b"a/k") for n in range(1, 5)])
    for _ in range(2):
        with pytest.raises(SlowWatcher):
            await anext(watcher)
    assert (hub.cut, len(hub)) == (1, 0)


async def test_a_watcher_whose_revisions_are_all_in_the_window_is_not_cut() -> None:
    hub = make_hub(max_events=3)
    watcher = hub.open(b"a/", 0, keys_only=False)
    await anext(watcher)
    publish(hub, [written(START + n, b"b/k") for n in range(1, 100)])
    publish(hub, [written(START + 100, b"a/k"), written(START + 101, b"b/k")])
    batch = await anext(watcher)
    assert [entry.revision for entry in batch.revisions] == [START + 100]
    assert batch.progress_revision == START + 101


async def test_a_watcher_that_has_not_begun_to_read_loses_nothing_to_others_changes() -> None:
    hub = make_hub(max_events=3)
    watcher = hub.open(b"a/", 0, keys_only=False)
    publish(hub, [written(START + n, b"b/k") for n in range(1, 100)])
    assert (await anext(watcher)).progress_revision == START + 99


async def test_batches_are_bounded_and_go_on_where_they_ended() -> None:
    hub = make_hub(max_events=10_000)
    watcher = hub.open(b"a/", 0, keys_only=False)
    await anext(watcher)
    count = 2 * MAX_BATCH_EVENTS + 5
    publish(hub, [written(START + n, b"a/k") for n in range(1, count + 1)])
    first = await anext(watcher)
    assert len(first.revisions) == MAX_BATCH_EVENTS
    assert first.progress_revision == START + MAX_BATCH_EVENTS
    second = await anext(watcher)
    third = await anext(watcher)
    revisions = [e.revision for batch in (first, second, third) for e in batch.revisions]
    assert revisions == [START + n for n in range(1, count + 1)]
    assert third.progress_revision == START + count


async def test_batches_are_bounded_by_bytes_but_hold_at_least_one_revision() -> None:
    hub = make_hub()
    watcher = hub.open(b"", 0, keys_only=False)
    await anext(watcher)
    huge = b"v" * (MAX_BATCH_BYTES + 1)
    publish(hub, [written(START + 1, b"k", value=huge), written(START + 2, b"k")])
    assert [e.revision for e in (await anext(watcher)).revisions] == [START + 1]
    assert [e.revision for e in (await anext(watcher)).revisions] == [START + 2]


async def test_a_reminder_brings_progress_although_nothing_happened() -> None:
    hub = make_hub()
    watcher = hub.open(b"a/", 0, keys_only=False)
    await anext(watcher)
    waiting = asyncio.create_task(anext(watcher))
    await asyncio.sleep(0)
    publish(hub, [written(START + 1, b"b/k")])
    await asyncio.sleep(0)
    assert not waiting.done()
    hub.remind()
    batch = await waiting
    assert (batch.revisions, batch.progress_revision) == ((), START + 1)


async def test_watchers_of_other_folders_are_not_woken() -> None:
    hub = make_hub()
    watchers = {
        prefix: hub.open(prefix, 0, keys_only=False)
        for prefix in (b"", b"a", b"a/", b"a/b", b"a/b/", b"b/", b"c")
    }
    for watcher in watchers.values():
        await anext(watcher)
    waiting = {p: asyncio.create_task(anext(w)) for p, w in watchers.items()}
    await asyncio.sleep(0)
    publish(hub, [written(START + 1, b"a/bc", b"c")])
    await asyncio.sleep(0)
    woken = {prefix for prefix, task in waiting.items() if task.done()}
    assert woken == {b"", b"a", b"a/", b"a/b", b"c"}
    hub.end()
    await asyncio.gather(*waiting.values(), return_exceptions=True)


async def test_too_many_watchers_are_refused() -> None:
    hub = make_hub(max_watchers=1)
    first = hub.open(b"", 0, keys_only=False)
    with pytest.raises(Overloaded):
        await anext(hub.open(b"", 0, keys_only=False))
    await first.aclose()
    await anext(hub.open(b"", 0, keys_only=False))


async def test_the_end_of_the_store_ends_every_watch_and_every_later_one() -> None:
    hub = make_hub()
    watcher = hub.open(b"", 0, keys_only=False)
    await anext(watcher)
    waiting = asyncio.create_task(anext(watcher))
    await asyncio.sleep(0)
    hub.end()
    with pytest.raises(Unavailable):
        await waiting
    with pytest.raises(Unavailable):
        await anext(hub.open(b"", 0, keys_only=False))
    assert len(hub) == 0


async def test_a_cancelled_reader_can_go_on_reading() -> None:
    hub = make_hub()
    watcher = hub.open(b"", 0, keys_only=False)
    await anext(watcher)
    waiting = asyncio.create_task(anext(watcher))
    await asyncio.sleep(0)
    publish(hub, [written(START + 1, b"k")])
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert [e.revision for e in (await anext(watcher)).revisions] == [START + 1]


@pytest.mark.parametrize("prefix", [b"", b"ab", b"abcde", b"abcdefg", b"abcdefgh"])
async def test_prefixes_of_every_length_hear_of_a_key(prefix: bytes) -> None:
    hub = make_hub()
    watcher, other = hub.open(prefix, 0, keys_only=False), hub.open(b"abcdx", 0, keys_only=False)
    for each in (watcher, other):
        await anext(each)
    waiting = [asyncio.create_task(anext(each)) for each in (watcher, other)]
    await asyncio.sleep(0)
    publish(hub, [written(START + 1, b"abcdefgh")])
    await asyncio.sleep(0)
    assert [task.done() for task in waiting] == [True, False]
    waiting[1].cancel()

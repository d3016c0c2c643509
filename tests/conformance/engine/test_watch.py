"""Watches: ordered, whole, gapless, resumable (S18)."""

from __future__ import annotations

import asyncio

import pytest
from conformance.engine.steps import changes, commit, delete, on_every_engine, put, revision
from conformance.engine.worlds import Store

from sexton.errors import Compacted, FutureRevision, InvalidArgument, TooLarge
from sexton_runtime.kv.types import Delete, Event, EventKind, KeyValue, Put, Txn


@on_every_engine
async def test_the_first_batch_comes_at_once_and_tells_the_progress(store: Store) -> None:
    at = await put(store.engine, b"a/k")
    watching = store.engine.watch(b"a/")
    batch = await anext(watching)
    assert (batch.revisions, batch.progress_revision) == ((), at)
    await watching.aclose()


@on_every_engine
async def test_a_watch_sees_puts_and_deletes_below_its_prefix(store: Store) -> None:
    engine = store.engine
    watching = engine.watch(b"a/")
    await anext(watching)
    created = await put(engine, b"a/k", b"1")
    await put(engine, b"b/k", b"other")
    written = await put(engine, b"a/k", b"2")
    deleted = await delete(engine, b"a/k")
    seen = await changes(watching, 3)
    assert [(entry.revision, entry.events) for entry in seen] == [
        (created, (Event(EventKind.PUT, KeyValue(b"a/k", b"1", created, created, 1)),)),
        (written, (Event(EventKind.PUT, KeyValue(b"a/k", b"2", created, written, 2)),)),
        (deleted, (Event(EventKind.DELETE, KeyValue(b"a/k", b"", 0, deleted, 0)),)),
    ]
    times = [entry.mesh_time_ns for entry in seen]
    assert times == sorted(times)
    await watching.aclose()


@on_every_engine
async def test_a_revision_comes_whole_and_in_the_transactions_order(store: Store) -> None:
    engine = store.engine
    await put(engine, b"a/old")
    watching = engine.watch(b"a/")
    await anext(watching)
    ops = (Put(b"a/z", b""), Delete(b"a/old"), Put(b"b/x", b""), Put(b"a/b", b""))
    at = (await commit(engine, Txn(then=ops))).revision
    (entry,) = await changes(watching, 1)
    assert entry.revision == at
    assert [event.kv.key for event in entry.events] == [b"a/z", b"a/old", b"a/b"]
    await watching.aclose()


@on_every_engine
async def test_a_refused_transaction_is_not_seen(store: Store) -> None:
    engine = store.engine
    watching = engine.watch(b"")
    await anext(watching)
    await commit(engine, Txn(then=(Put(b"k", b""),), not_after_ns=1))
    await delete(engine, b"gone")
    at = await put(engine, b"k")
    (entry,) = await changes(watching, 1)
    assert entry.revision == at
    await watching.aclose()


@on_every_engine
async def test_a_watch_resumes_from_any_revision_of_the_window(store: Store) -> None:
    engine = store.engine
    written = [await put(engine, b"a/%d" % n) for n in range(6)]
    for index, start in enumerate(written):
        watching = engine.watch(b"a/", start)
        seen = await changes(watching, 6 - index)
        assert [entry.revision for entry in seen] == written[index:]
        await watching.aclose()


@on_every_engine
async def test_a_watch_may_start_at_the_next_revision_but_not_beyond(store: Store) -> None:
    engine = store.engine
    at = await put(engine, b"k")
    watching = engine.watch(b"k", at + 1)
    await anext(watching)
    following = await put(engine, b"k")
    assert [entry.revision for entry in await changes(watching, 1)] == [following]
    await watching.aclose()
    watching = engine.watch(b"k", following + 2)
    with pytest.raises(FutureRevision) as caught:
        await anext(watching)
    assert caught.value.current == following
    await watching.aclose()


@on_every_engine
async def test_after_a_restart_the_window_starts_anew_and_says_so(store: Store) -> None:
    last = await put(store.engine, b"k")
    await store.restart()
    watching = store.engine.watch(b"k", last)
    with pytest.raises(Compacted) as caught:
        await anext(watching)
    assert caught.value.oldest == last + 1
    await watching.aclose()
    watching = store.engine.watch(b"k", last + 1)
    assert (await anext(watching)).progress_revision == last
    await watching.aclose()


@on_every_engine
async def test_relisting_and_watching_converges_under_load(store: Store) -> None:
    engine = store.engine

    async def write() -> None:
        for number in range(60):
            if number % 3 == 2:
                await delete(engine, b"a/%d" % (number % 7))
            else:
                await put(engine, b"a/%d" % (number % 7), b"%d" % number)

    writing = asyncio.create_task(write())
    page = await engine.scan(b"a/", b"a0", limit=2)
    first = page.revision
    state = {kv.key: kv for kv in page.kvs}
    while page.next_token:
        page = await engine.scan(b"a/", b"a0", limit=2, page_token=page.next_token)
        state.update({kv.key: kv for kv in page.kvs})
    watching = engine.watch(b"a/", first + 1)
    await writing
    end = await revision(engine)
    seen: list[int] = []
    progress = 0
    while progress < end:
        batch = await anext(watching)
        progress = batch.progress_revision
        for entry in batch.revisions:
            seen.append(entry.revision)
            for _, kv in entry.events:
                known = state.get(kv.key)
                if known is not None and known.mod_revision >= kv.mod_revision:
                    continue
                state[kv.key] = kv
    assert seen == sorted(set(seen))
    alive = {key: kv for key, kv in state.items() if kv.create_revision}
    assert alive == {kv.key: kv for kv in (await engine.scan(b"a/", b"a0")).kvs}
    await watching.aclose()


@on_every_engine
async def test_values_can_be_left_out_of_events(store: Store) -> None:
    watching = store.engine.watch(b"k", keys_only=True)
    await anext(watching)
    at = await put(store.engine, b"k", b"value")
    (entry,) = await changes(watching, 1)
    assert entry.events == (Event(EventKind.PUT, KeyValue(b"k", b"", at, at, 1)),)
    await watching.aclose()


@on_every_engine
async def test_a_closed_watch_ends(store: Store) -> None:
    watching = store.engine.watch(b"k")
    await anext(watching)
    await watching.aclose()
    await watching.aclose()
    assert [batch async for batch in watching] == []


@on_every_engine
async def test_a_watch_refuses_what_is_out_of_bounds(store: Store) -> None:
    longest = store.engine.limits.max_key_bytes
    for prefix, start, error in [
        (b"k" * (longest + 1), 0, TooLarge),
        (b"k", -1, InvalidArgument),
        (b"k", 2**63, InvalidArgument),
    ]:
        with pytest.raises(error):
            await anext(store.engine.watch(prefix, start))


@on_every_engine
async def test_what_is_acknowledged_is_already_on_its_way_to_watchers(store: Store) -> None:
    """A watcher that is told of progress beyond a revision has been given that revision."""
    engine = store.engine
    watching = engine.watch(b"k")
    await anext(watching)
    last = 0
    for _ in range(20):
        last = await put(engine, b"k")
    seen = await changes(watching, 20)
    assert seen[-1].revision == last
    await watching.aclose()

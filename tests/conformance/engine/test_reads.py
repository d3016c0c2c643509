"""Get and Scan: snapshots, order, pages."""

from __future__ import annotations

import asyncio

import pytest
from conformance.engine.steps import commit, on_every_engine, put, revision
from conformance.engine.worlds import Store, World

from sexton.errors import InvalidArgument, TooLarge
from sexton_runtime.kv.engine import Engine
from sexton_runtime.kv.types import Delete, KeyValue, LeaseRef, Page, Put, Txn, prefix_end


async def fill(engine: Engine, count: int) -> list[bytes]:
    keys = [b"p/%04d" % number for number in range(count)]
    for start in range(0, count, 50):
        await commit(engine, Txn(then=tuple(Put(k, b"v") for k in keys[start : start + 50])))
    return keys


async def pages(
    engine: Engine, start: bytes, end: bytes, limit: int, *, reverse: bool = False
) -> list[Page]:
    page = await engine.scan(start, end, limit=limit, reverse=reverse)
    found = [page]
    while page.next_token:
        page = await engine.scan(
            start, end, limit=limit, reverse=reverse, page_token=page.next_token
        )
        found.append(page)
    return found


@on_every_engine
async def test_get_answers_in_the_order_asked_for(store: Store) -> None:
    at = await put(store.engine, b"k", b"v")
    snapshot = await store.engine.get([b"x", b"k", b"x", b"k"])
    gone = KeyValue(b"x", b"", 0, 0, 0)
    there = KeyValue(b"k", b"v", at, at, 1)
    assert snapshot.kvs == (gone, there, gone, there)
    assert snapshot.revision == at


@on_every_engine
async def test_values_can_be_left_out(store: Store) -> None:
    at = await put(store.engine, b"k", b"v")
    bare = KeyValue(b"k", b"", at, at, 1)
    assert (await store.engine.get([b"k"], keys_only=True)).kvs == (bare,)
    assert (await store.engine.scan(b"k", b"l", keys_only=True)).kvs == (bare,)


@on_every_engine
async def test_a_scan_reads_the_half_open_range_in_order(store: Store) -> None:
    keys = await fill(store.engine, 10)
    page = await store.engine.scan(b"p/0002", b"p/0005")
    assert [kv.key for kv in page.kvs] == keys[2:5]
    assert page.next_token == b""
    backwards = await store.engine.scan(b"p/0002", b"p/0005", reverse=True)
    assert backwards.kvs == page.kvs[::-1]
    assert (await store.engine.scan(b"p/0002", b"p/0002")).kvs == ()


@on_every_engine
async def test_a_scan_leaves_out_what_was_written_fewer_times(store: Store) -> None:
    engine = store.engine
    keys = await fill(engine, 4)
    for key in (keys[1], keys[3], keys[3]):
        await put(engine, key, b"again")
    page = await engine.scan(b"p/", b"p0", min_version=2)
    assert [(kv.key, kv.value, kv.version) for kv in page.kvs] == [
        (keys[1], b"again", 2),
        (keys[3], b"again", 3),
    ]
    page = await engine.scan(b"p/", b"p0", min_version=2, keys_only=True, reverse=True, limit=1)
    assert [(kv.key, kv.value) for kv in page.kvs] == [(keys[3], b"")]
    page = await engine.scan(
        b"p/", b"p0", min_version=2, reverse=True, limit=1, page_token=page.next_token
    )
    assert [kv.key for kv in page.kvs] == [keys[1]]

    await commit(engine, Txn(then=(Delete(keys[3]),)))
    await put(engine, keys[3], b"anew")
    assert [kv.key for kv in (await engine.scan(min_version=2)).kvs] == [keys[1]]
    with pytest.raises(InvalidArgument, match="min_version"):
        await engine.scan(min_version=-1)


@on_every_engine
async def test_a_scan_without_bounds_reads_everything(store: Store) -> None:
    keys = await fill(store.engine, 3)
    high = b"\xff" * 480
    await put(store.engine, high, b"v")
    await put(store.engine, b"\0", b"v")
    page = await store.engine.scan()
    assert [kv.key for kv in page.kvs] == [b"\0", *keys, high]


@pytest.mark.parametrize("reverse", [False, True])
def test_pages_cover_the_range_once(world: World, *, reverse: bool) -> None:
    async def scenario(store: Store) -> None:
        keys = await fill(store.engine, 25)
        found = await pages(store.engine, b"p/", prefix_end(b"p/"), 10, reverse=reverse)
        assert [len(page.kvs) for page in found] == [10, 10, 5]
        read = [kv.key for page in found for kv in page.kvs]
        assert read == (keys[::-1] if reverse else keys)

    world.run(scenario)


@on_every_engine
async def test_a_full_last_page_has_no_successor(store: Store) -> None:
    await fill(store.engine, 20)
    found = await pages(store.engine, b"p/", b"p0", 10)
    assert [len(page.kvs) for page in found] == [10, 10]


@on_every_engine
async def test_a_page_is_bounded_by_items_and_bytes(store: Store) -> None:
    engine = store.engine
    limits = engine.limits
    value = b"v" * limits.max_value_bytes
    number = limits.max_page_bytes // limits.max_value_bytes + 2
    largest = limits.max_txn_bytes - 10
    for n in range(number):
        await put(engine, b"big/%d" % n, value[:largest])
    found = await pages(engine, b"big/", b"big0", 0)
    assert sum(len(page.kvs) for page in found) == number
    for page in found:
        size = sum(len(kv.key) + len(kv.value) for kv in page.kvs)
        assert len(page.kvs) == 1 or size <= limits.max_page_bytes
    assert len(found) > 1


@on_every_engine
async def test_pages_go_on_behind_what_was_deleted_or_added_meanwhile(store: Store) -> None:
    engine = store.engine
    keys = await fill(engine, 6)
    first = await engine.scan(b"p/", b"p0", limit=3)
    added = await put(engine, b"p/0002x", b"")
    second = await engine.scan(b"p/", b"p0", limit=3, page_token=first.next_token)
    assert [kv.key for kv in second.kvs] == [b"p/0002x", keys[3], keys[4]]
    assert second.revision == added > first.revision


@on_every_engine
async def test_a_page_token_belongs_to_its_query(store: Store) -> None:
    engine = store.engine
    await fill(engine, 6)
    token = (await engine.scan(b"p/", b"p0", limit=3)).next_token
    for start, end, reverse, given in [
        (b"p/", b"p0", True, token),
        (b"p/0", b"p0", False, token),
        (b"p/", b"q", False, token),
        (b"p/", b"p0", False, token + b"x"),
        (b"p/", b"p0", False, b"forged"),
        (b"p/", b"p0", False, b"\0" * 40),
    ]:
        with pytest.raises(InvalidArgument) as caught:
            await engine.scan(start, end, reverse=reverse, limit=3, page_token=given)
        assert caught.value.field == "page_token"


@on_every_engine
async def test_reads_refuse_what_is_out_of_bounds(store: Store) -> None:
    engine = store.engine
    limits = engine.limits
    too_long = b"k" * (limits.max_key_bytes + 1)
    for keys, error in [
        ([], InvalidArgument),
        ([b""], InvalidArgument),
        ([too_long], TooLarge),
        ([b"k"] * (limits.max_keys_per_get + 1), TooLarge),
    ]:
        with pytest.raises(error):
            await engine.get(keys)
    for start, end, limit, wrong in [
        (b"b", b"a", 0, InvalidArgument),
        (b"", b"", -1, InvalidArgument),
        (b"", b"", limits.max_page_items + 1, InvalidArgument),
        (too_long + b"k", b"", 0, TooLarge),
    ]:
        with pytest.raises(wrong):
            await engine.scan(start, end, limit=limit)


@on_every_engine
async def test_answers_carry_mesh_time_that_does_not_go_back(store: Store) -> None:
    """S20."""
    engine = store.engine
    times = [(await engine.get([b"k"])).mesh_time_ns for _ in range(5)]
    times.append((await engine.scan()).mesh_time_ns)
    times.append((await engine.acquire_lease("l", "h", 60_000)).mesh_time_ns)
    assert times == sorted(times)
    await store.restart()
    assert (await store.engine.scan()).mesh_time_ns >= times[-1]


@on_every_engine
async def test_reads_and_renewals_are_answered_while_a_long_commit_is_on_its_way(
    store: Store,
) -> None:
    engine = store.engine
    token = (await engine.acquire_lease("l", "me", 60_000)).lease.token
    ops = tuple(Put(b"k%02d" % n, b"") for n in range(engine.limits.max_ops_per_txn))
    writing = asyncio.create_task(engine.commit([Txn(then=ops)] * 50))
    answers = 0
    while not writing.done():
        assert len((await engine.scan(b"k", b"l")).kvs) in {0, len(ops)}
        assert (await engine.renew_leases([LeaseRef("l", token)]))[0].renewed
        answers += 1
        await asyncio.sleep(0)
    assert answers > 0
    assert (await engine.get([b"k00"])).kvs[0].version == 50


@on_every_engine
async def test_reads_do_not_move_the_revision(store: Store) -> None:
    at = await put(store.engine, b"k")
    await store.engine.get([b"k"])
    await store.engine.scan()
    await store.engine.list_leases()
    assert await revision(store.engine) == at

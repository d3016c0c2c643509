"""Bounds of transactions: at the limit it works, one above it is refused with nothing written."""

from __future__ import annotations

import pytest
from conformance.engine.steps import on_every_engine, revision
from conformance.engine.worlds import Store

from sexton.errors import InvalidArgument, SextonError, TooLarge
from sexton_runtime.kv.types import Compare, Delete, Limits, Op, Outcome, Put, Target, Txn, absent


def at_the_limit(limits: Limits) -> dict[str, list[Txn]]:
    longest = b"k" * limits.max_key_bytes
    room = limits.max_txn_bytes - 1
    half = limits.max_ops_per_txn // 2
    return {
        "key": [Txn(compares=(absent(longest),), then=(Put(longest, b""),))],
        "value": [Txn(then=(Put(b"k", b"v" * min(room, limits.max_value_bytes)),))],
        "ops": [
            Txn(
                compares=tuple(absent(b"a%d" % n) for n in range(half)),
                then=tuple(Put(b"b%d" % n, b"") for n in range(limits.max_ops_per_txn - half)),
            )
        ],
        "txns": [Txn(then=(Put(b"k%d" % n, b""),)) for n in range(limits.max_txns_per_commit)],
        "commit bytes": [
            Txn(then=(Put(b"%04d" % n, b"v" * (limits.max_commit_bytes // 4 - 4)),))
            for n in range(4)
        ],
    }


def beyond_the_limit(limits: Limits) -> dict[str, tuple[list[Txn], type[SextonError]]]:
    too_long = b"k" * (limits.max_key_bytes + 1)
    too_big = b"v" * (limits.max_value_bytes + 1)
    puts: tuple[Op, ...] = tuple(Put(b"k%d" % n, b"") for n in range(limits.max_ops_per_txn + 1))
    quarter = limits.max_commit_bytes // 4
    return {
        "no transaction": ([], InvalidArgument),
        "transactions": ([Txn()] * (limits.max_txns_per_commit + 1), TooLarge),
        "empty key": ([Txn(then=(Put(b"", b""),))], InvalidArgument),
        "empty compared key": ([Txn(compares=(absent(b""),))], InvalidArgument),
        "long key": ([Txn(then=(Delete(too_long),))], TooLarge),
        "long compared key": ([Txn(compares=(absent(too_long),))], TooLarge),
        "value": ([Txn(then=(Put(b"k", too_big),))], TooLarge),
        "compared value": ([Txn(compares=(Compare(b"k", Target.VALUE, too_big),))], TooLarge),
        "ops": ([Txn(then=puts)], TooLarge),
        "ops over both branches": ([Txn(then=puts[:60], orelse=puts[60:])], TooLarge),
        "txn bytes": ([Txn(then=(Put(b"kk", b"v" * (limits.max_txn_bytes - 1)),))], TooLarge),
        "commit bytes": (
            [Txn(then=(Put(b"%04d" % n, b"v" * (quarter - 3)),)) for n in range(4)],
            TooLarge,
        ),
        "one key twice": ([Txn(then=(Put(b"k", b"1"), Delete(b"k")))], InvalidArgument),
        "one key twice, else": ([Txn(orelse=(Delete(b"k"), Delete(b"k")))], InvalidArgument),
        "revision -1": ([Txn(compares=(Compare(b"k", Target.VERSION, -1),))], InvalidArgument),
        "revision 2^63": (
            [Txn(compares=(Compare(b"k", Target.MOD_REVISION, 2**63),))],
            InvalidArgument,
        ),
        "not before -1": ([Txn(not_before_ns=-1)], InvalidArgument),
        "not after 2^63": ([Txn(not_after_ns=2**63)], InvalidArgument),
        "the second is wrong": (
            [Txn(then=(Put(b"k", b""),)), Txn(then=(Put(b"", b""),))],
            InvalidArgument,
        ),
    }


@on_every_engine
async def test_what_is_at_the_limit_is_committed(store: Store) -> None:
    for what, txns in at_the_limit(store.engine.limits).items():
        results = await store.engine.commit(txns)
        assert {result.outcome for result in results} == {Outcome.COMMITTED}, what


@on_every_engine
async def test_what_is_read_at_once_is_bounded_too(store: Store) -> None:
    limits = store.engine.limits
    keys = [b"k%d" % n for n in range(4)]
    value = b"v" * (limits.max_page_bytes // len(keys) - len(keys[0]))
    for key in keys:
        await store.engine.commit([Txn(then=(Put(key, value),))])
    assert len((await store.engine.get(keys)).kvs) == len(keys)
    with pytest.raises(TooLarge):
        await store.engine.get([*keys, b"absent"])
    assert len((await store.engine.get([*keys, b"absent"], keys_only=True)).kvs) == len(keys) + 1


@on_every_engine
async def test_what_is_beyond_the_limit_is_refused_whole(store: Store) -> None:
    before = await revision(store.engine)
    for what, (txns, error) in beyond_the_limit(store.engine.limits).items():
        try:
            with pytest.raises(error) as caught:
                await store.engine.commit(txns)
        except BaseException as unexpected:
            raise AssertionError(what) from unexpected
        assert str(caught.value), what
    assert await revision(store.engine) == before


@on_every_engine
async def test_the_faulty_field_is_named_as_a_path(store: Store) -> None:
    txns = [Txn(), Txn(compares=(absent(b"a"), absent(b"")))]
    with pytest.raises(InvalidArgument) as caught:
        await store.engine.commit(txns)
    assert caught.value.field == "txns[1].compares[1].key"


@on_every_engine
async def test_one_key_may_stand_in_both_branches(store: Store) -> None:
    txn = Txn(compares=(absent(b"k"),), then=(Put(b"k", b"1"),), orelse=(Put(b"k", b"2"),))
    results = await store.engine.commit([txn, txn])
    assert [result.outcome for result in results] == [Outcome.COMMITTED, Outcome.REFUSED]

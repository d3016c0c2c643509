"""Transactions: compares, branches, revisions, bounds by mesh time."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from conformance.engine.steps import commit, delete, is_value, on_every_engine, put, read, revision
from conformance.engine.worlds import Store

from sexton.errors import DeadlineExceeded
from sexton_runtime.kv.types import (
    Compare,
    Delete,
    KeyValue,
    Outcome,
    Put,
    Target,
    Txn,
    TxnResult,
    absent,
    unchanged,
)


@on_every_engine
async def test_a_key_counts_its_own_history(store: Store) -> None:
    engine = store.engine
    first = await put(engine, b"k", b"one")
    second = await put(engine, b"k", b"two")
    assert second == first + 1
    assert await read(engine, b"k") == KeyValue(b"k", b"two", first, second, 2)
    third = await delete(engine, b"k")
    assert third == second + 1
    assert await read(engine, b"k") == KeyValue(b"k", b"", 0, 0, 0)
    fourth = await put(engine, b"k", b"anew")
    assert await read(engine, b"k") == KeyValue(b"k", b"anew", fourth, fourth, 1)


@on_every_engine
async def test_every_transaction_of_a_commit_has_its_own_revision(store: Store) -> None:
    engine = store.engine
    before = await revision(engine)
    results = await engine.commit(
        [
            Txn(then=(Put(b"a", b""), Put(b"b", b""))),
            Txn(compares=(absent(b"a"),), then=(Put(b"c", b""),)),
            Txn(then=(Put(b"d", b""),)),
        ]
    )
    assert results == (
        TxnResult(Outcome.COMMITTED, before + 1),
        TxnResult(Outcome.REFUSED, before + 1, 0, before + 1),
        TxnResult(Outcome.COMMITTED, before + 2),
    )
    assert (await read(engine, b"a")).mod_revision == (await read(engine, b"b")).mod_revision


@on_every_engine
async def test_a_refused_transaction_leaves_the_revision_unchanged(store: Store) -> None:
    """S22."""
    engine = store.engine
    at = await put(engine, b"k", b"v")
    refused = await commit(engine, Txn(compares=(absent(b"k"),), then=(Put(b"k", b"w"),)))
    assert refused == TxnResult(Outcome.REFUSED, at, 0, at)
    assert await revision(engine) == at


@on_every_engine
async def test_the_else_branch_is_written_when_a_compare_fails(store: Store) -> None:
    engine = store.engine
    at = await put(engine, b"k", b"v")
    result = await commit(
        engine,
        Txn(
            compares=(is_value(b"k", b"v"), is_value(b"k", b"w")),
            then=(Put(b"then", b""),),
            orelse=(Put(b"else", b""),),
        ),
    )
    assert result == TxnResult(Outcome.REFUSED, at + 1, 1, at)
    assert (await read(engine, b"else")).create_revision == at + 1
    assert (await read(engine, b"then")).create_revision == 0


@on_every_engine
async def test_found_mod_revision_is_the_one_compared_not_the_one_then_written(
    store: Store,
) -> None:
    engine = store.engine
    at = await put(engine, b"k", b"v")
    txn = Txn(compares=(absent(b"k"),), orelse=(Put(b"k", b"w"),))
    assert await commit(engine, txn) == TxnResult(Outcome.REFUSED, at + 1, 0, at)


@on_every_engine
async def test_deleting_what_is_absent_writes_nothing(store: Store) -> None:
    engine = store.engine
    before = await put(engine, b"k")
    txn = Txn(then=(Delete(b"gone"),))
    assert await commit(engine, txn) == TxnResult(Outcome.COMMITTED, before)
    txn = Txn(then=(Delete(b"gone"), Put(b"k", b"2")))
    assert await commit(engine, txn) == TxnResult(Outcome.COMMITTED, before + 1)


@on_every_engine
async def test_an_empty_transaction_is_committed_without_a_revision(store: Store) -> None:
    before = await revision(store.engine)
    assert await commit(store.engine, Txn()) == TxnResult(Outcome.COMMITTED, before)


@on_every_engine
async def test_each_target_is_compared_for_equality(store: Store) -> None:
    engine = store.engine
    created = await put(engine, b"k", b"one")
    written = await put(engine, b"k", b"two")
    held = [
        Compare(b"k", Target.CREATE_REVISION, created),
        Compare(b"k", Target.MOD_REVISION, written),
        Compare(b"k", Target.VERSION, 2),
        Compare(b"k", Target.EXISTS, True),
        Compare(b"k", Target.VALUE, b"two"),
        Compare(b"gone", Target.CREATE_REVISION, 0),
        Compare(b"gone", Target.MOD_REVISION, 0),
        Compare(b"gone", Target.VERSION, 0),
        Compare(b"gone", Target.EXISTS, False),
    ]
    not_held = [
        Compare(b"k", Target.CREATE_REVISION, written),
        Compare(b"k", Target.MOD_REVISION, created),
        Compare(b"k", Target.VERSION, 1),
        Compare(b"k", Target.EXISTS, False),
        Compare(b"k", Target.VALUE, b""),
        Compare(b"gone", Target.EXISTS, True),
        Compare(b"gone", Target.VALUE, b""),
    ]
    results = await engine.commit([Txn(compares=(compare,)) for compare in held + not_held])
    outcomes = [result.outcome for result in results]
    assert outcomes == [Outcome.COMMITTED] * len(held) + [Outcome.REFUSED] * len(not_held)


@on_every_engine
async def test_a_transaction_sees_its_predecessors_in_the_same_commit(store: Store) -> None:
    engine = store.engine
    before = await revision(engine)
    results = await engine.commit(
        [
            Txn(then=(Put(b"k", b"1"),)),
            Txn(compares=(is_value(b"k", b"1"),), then=(Delete(b"k"),)),
            Txn(compares=(absent(b"k"),), then=(Put(b"k", b"2"),)),
            Txn(compares=(Compare(b"k", Target.VERSION, 1),), then=(Put(b"k", b"3"),)),
        ]
    )
    assert [result.outcome for result in results] == [Outcome.COMMITTED] * 4
    kv = await read(engine, b"k")
    assert kv == KeyValue(b"k", b"3", before + 3, before + 4, 2)


@on_every_engine
async def test_of_two_that_expect_the_same_revision_one_wins(store: Store) -> None:
    engine = store.engine
    await put(engine, b"k", b"0")
    kv = await read(engine, b"k")
    txns = [Txn(compares=(unchanged(kv),), then=(Put(b"k", bytes([n])),)) for n in range(20)]
    answers = await asyncio.gather(*(commit(engine, txn) for txn in txns))
    winners = [n for n, answer in enumerate(answers) if answer.outcome is Outcome.COMMITTED]
    assert len(winners) == 1
    after = await read(engine, b"k")
    assert after.value == bytes(winners)
    losers = [answer for answer in answers if answer.outcome is Outcome.REFUSED]
    assert {loser.found_mod_revision for loser in losers} == {after.mod_revision}


@on_every_engine
async def test_acknowledged_revisions_are_distinct_and_rise_with_time(store: Store) -> None:
    """S1: what is acknowledged before another begins has the lower revision."""
    engine = store.engine
    rounds = [
        await asyncio.gather(*(put(engine, b"k%d" % n, b"") for n in range(20))) for _ in range(5)
    ]
    for earlier, later in itertools.pairwise(rounds):
        assert max(earlier) < min(later)
    assert len({number for numbers in rounds for number in numbers}) == 100


@on_every_engine
async def test_mesh_time_bounds_are_inclusive(store: Store) -> None:
    engine = store.engine
    now_ns = (await engine.get([b"k"])).mesh_time_ns
    hour_ns = 3_600_000_000_000
    results = await engine.commit(
        [
            Txn(then=(Put(b"1", b""),), not_before_ns=now_ns),
            Txn(then=(Put(b"2", b""),), not_before_ns=now_ns + hour_ns),
            Txn(then=(Put(b"3", b""),), not_after_ns=now_ns + hour_ns),
            Txn(then=(Put(b"4", b""),), not_after_ns=now_ns - 1),
            Txn(then=(Put(b"5", b""),), not_before_ns=1, not_after_ns=now_ns + hour_ns),
        ]
    )
    outcomes = [result.outcome for result in results]
    assert outcomes == [
        Outcome.COMMITTED,
        Outcome.TOO_EARLY,
        Outcome.COMMITTED,
        Outcome.TOO_LATE,
        Outcome.COMMITTED,
    ]
    assert results[1].revision == results[0].revision
    assert (await read(engine, b"2")).create_revision == 0
    assert (await read(engine, b"4")).create_revision == 0


@on_every_engine
async def test_bounds_by_mesh_time_come_before_the_compares(store: Store) -> None:
    txn = Txn(compares=(is_value(b"k", b"v"),), orelse=(Put(b"else", b""),), not_after_ns=1)
    assert (await commit(store.engine, txn)).outcome is Outcome.TOO_LATE
    assert (await read(store.engine, b"else")).create_revision == 0


@on_every_engine
async def test_a_commit_whose_time_is_up_is_never_applied(store: Store) -> None:
    with pytest.raises(DeadlineExceeded):
        await store.engine.commit([Txn(then=(Put(b"k", b""),))], timeout_s=0)
    assert (await read(store.engine, b"k")).create_revision == 0


@on_every_engine
async def test_what_was_acknowledged_survives_a_restart(store: Store) -> None:
    """S2."""
    kept = [await put(store.engine, b"k%d" % n, b"v%d" % n) for n in range(10)]
    await delete(store.engine, b"k3")
    last = await revision(store.engine)
    await store.restart()
    assert await revision(store.engine) == last
    page = await store.engine.scan(b"k", b"l")
    assert [kv.key for kv in page.kvs] == [b"k%d" % n for n in range(10) if n != 3]
    assert [kv.mod_revision for kv in page.kvs] == [r for n, r in enumerate(kept) if n != 3]
    assert await put(store.engine, b"k3", b"") == last + 1

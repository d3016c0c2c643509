"""A stream of commits holds its caller back, whatever the caller does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from unit.store.rig import Rig, simulated

from sexton.internal.v1 import store_pb2 as pb
from sexton_runtime.kv.columns import runs_of
from sexton_runtime.kv.packed import pack
from sexton_runtime.kv.types import Put, Txn, absent, fence
from sexton_store.commit_stream import MAX_IN_FLIGHT, CommitStream


@simulated
async def test_who_reads_no_answers_is_not_read_for_ever(rig: Rig) -> None:
    read: list[int] = []

    async def requests() -> AsyncIterator[pb.CommitStreamRequest]:
        for number in range(1, 1_000):
            read.append(number)
            txn = pb.Txn(then=[pb.Op(key=b"%d" % number, put=b"")])
            yield pb.CommitStreamRequest(sequence=number, txns=[txn])

    answers = CommitStream(rig.engine, requests()).answers()
    assert (await anext(answers)).sequence == 1
    await asyncio.sleep(10)
    assert len(read) == MAX_IN_FLIGHT + 1

    sequences = [answer.sequence async for answer in answers]
    assert sequences == list(range(2, 1_000))


@simulated
async def test_packed_transactions_are_answered_by_revisions_or_where_one_failed_by_results(
    rig: Rig,
) -> None:
    lease = (await rig.engine.acquire_lease("owner", "me", 10_000)).lease
    first, last = Put(b"a", b"1"), Put(b"b", b"2")

    async def requests() -> AsyncIterator[pb.CommitStreamRequest]:
        for sequence, token in ((1, lease.token), (2, lease.token - 1)):
            held = fence("owner", token)
            request = pb.CommitStreamRequest(sequence=sequence)
            txns = [Txn((absent(b"a"), held), (first,)), Txn((held,), (last,))]
            assert pack(runs_of(txns) or (), request.packed)
            yield request

    answers = [answer async for answer in CommitStream(rig.engine, requests()).answers()]

    assert [list(answer.committed_revisions) for answer in answers] == [
        [lease.token + 1, lease.token + 2],
        [],
    ]
    assert not answers[0].results
    assert [(result.outcome, result.failed_compare) for result in answers[1].results] == [
        (pb.OUTCOME_REFUSED, 0),
        (pb.OUTCOME_REFUSED, 0),
    ]

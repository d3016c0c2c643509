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

    sequences: list[int] = []
    goes_on = asyncio.Event()

    async def write(answer: pb.CommitStreamResponse) -> None:
        if sequences:
            await goes_on.wait()
        sequences.append(answer.sequence)

    answering = asyncio.create_task(CommitStream(rig.engine, requests()).answer_all(write))
    await asyncio.sleep(10)
    assert sequences == [1]
    assert len(read) == MAX_IN_FLIGHT + 2  # one more is read, and waits for room

    goes_on.set()
    await answering
    assert sequences == list(range(1, 1_000))


@simulated
async def test_a_commit_that_is_cancelled_before_it_is_evaluated_does_nothing(rig: Rig) -> None:
    commit = rig.engine.commit_runs(runs_of([Txn((), (Put(b"a", b""),))]) or (), timeout_s=1)
    commit.cancel()
    await asyncio.sleep(2)

    assert (await rig.engine.get([b"a"])).kvs[0].create_revision == 0
    assert rig.engine.status().counters.dropped == 1
    assert rig.engine.status().waiting_requests == 0


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

    answers: list[pb.CommitStreamResponse] = []

    async def write(answer: pb.CommitStreamResponse) -> None:
        answers.append(answer)

    await CommitStream(rig.engine, requests()).answer_all(write)

    assert [list(answer.committed_revisions) for answer in answers] == [
        [lease.token + 1, lease.token + 2],
        [],
    ]
    assert not answers[0].results
    assert [(result.outcome, result.failed_compare) for result in answers[1].results] == [
        (pb.OUTCOME_REFUSED, 0),
        (pb.OUTCOME_REFUSED, 0),
    ]

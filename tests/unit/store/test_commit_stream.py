"""A stream of commits holds its caller back, whatever the caller does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from unit.store.rig import Rig, simulated

from sexton.internal.v1 import store_pb2 as pb
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
async def test_the_fence_of_a_request_is_the_last_compare_of_each_transaction(rig: Rig) -> None:
    lease = (await rig.engine.acquire_lease("owner", "me", 10_000)).lease
    own = pb.Compare(key=b"a", exists=False)

    async def requests() -> AsyncIterator[pb.CommitStreamRequest]:
        for sequence, token in ((1, lease.token), (2, lease.token - 1)):
            yield pb.CommitStreamRequest(
                sequence=sequence,
                fence=pb.Compare(key=b"leases/owner", create_revision=token),
                txns=[
                    pb.Txn(compares=[own], then=[pb.Op(key=b"%d" % sequence, put=b"")]),
                    pb.Txn(then=[pb.Op(key=b"%d/" % sequence, put=b"")]),
                ],
            )

    answers = [answer async for answer in CommitStream(rig.engine, requests()).answers()]

    assert [[result.outcome for result in answer.results] for answer in answers] == [
        [pb.OUTCOME_COMMITTED, pb.OUTCOME_COMMITTED],
        [pb.OUTCOME_REFUSED, pb.OUTCOME_REFUSED],
    ]
    assert [result.failed_compare for result in answers[1].results] == [1, 0]

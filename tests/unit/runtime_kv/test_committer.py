from __future__ import annotations

import asyncio

import pytest
from grpc import aio
from unit.runtime_kv.desk import MESH_TIME_NS, Desk, Stream, committed, with_desk

from sexton import errors
from sexton.internal.v1 import store_pb2 as pb
from sexton_runtime.kv.columns import txns_of
from sexton_runtime.kv.config import StoreClientConfig
from sexton_runtime.kv.packed import unpack
from sexton_runtime.kv.types import Outcome, Put, Txn, TxnResult, fence
from sexton_sim.loop import SimLoop


def test_an_idle_committer_sends_at_once_then_gathers_what_comes_within_the_pace() -> None:
    async def story(desk: Desk) -> None:
        calls = [desk.call(1)]
        for number in (2, 3, 4):
            await asyncio.sleep(0.0004)
            calls.append(desk.call(number))
        await asyncio.sleep(0.01)
        (stream,) = desk.streams
        assert [stream.numbers(i) for i in range(len(stream.sent))] == [[1], [2, 3, 4]]
        assert stream.sent_at[1] - stream.sent_at[0] == pytest.approx(0.002)
        stream.commit(1)
        stream.commit(0)
        assert await asyncio.gather(*calls) == [committed(number) for number in (1, 2, 3, 4)]

    with_desk(story)


def test_each_caller_gets_its_own_part_of_the_answer() -> None:
    async def story(desk: Desk) -> None:
        calls = [desk.call(1, 2), desk.call(3), desk.call(4, 5, 6)]
        await asyncio.sleep(0.01)
        (stream,) = desk.streams
        assert stream.numbers(0) == [1, 2, 3, 4, 5, 6]
        stream.commit(0)
        assert await asyncio.gather(*calls) == [committed(1, 2), committed(3), committed(4, 5, 6)]

    with_desk(story)


def test_a_full_message_goes_without_pace() -> None:
    async def story(desk: Desk) -> None:
        calls = [desk.call(1)]
        await asyncio.sleep(0.0001)
        calls.append(desk.call(2, size=70_000))
        await asyncio.sleep(0.0001)
        (stream,) = desk.streams
        assert [stream.numbers(i) for i in range(len(stream.sent))] == [[1], [2]]
        stream.commit(0)
        stream.commit(1)
        await asyncio.gather(*calls)

    with_desk(story)


def test_who_was_told_that_nothing_happened_is_not_sent_after_all() -> None:
    async def story(desk: Desk) -> None:
        others = [desk.call(1)]
        await asyncio.sleep(0.01)
        others.append(desk.call(2))
        await asyncio.sleep(0.01)
        late, next_one = desk.call(3), desk.call(4)
        await asyncio.sleep(0)
        waiting = next(iter(desk.committer._waiting))
        (stream,) = desk.streams
        # Its time is up in the very turn of the loop in which there is room to send.
        desk.committer._settle(pb.CommitStreamResponse(sequence=stream.sent[0].sequence))
        desk.committer._expire(waiting)
        with pytest.raises(errors.DeadlineExceeded):
            await late
        await asyncio.sleep(0.01)
        assert [stream.numbers(i) for i in range(len(stream.sent))] == [[1], [2], [4]]
        stream.commit(1)
        stream.commit(2)
        assert await next_one == committed(4)
        await asyncio.gather(*others)

    with_desk(story)


def test_no_more_than_two_messages_are_outstanding() -> None:
    async def story(desk: Desk) -> None:
        calls = [desk.call(1, size=70_000)]
        for number in (2, 3, 4):
            await asyncio.sleep(0.01)
            calls.append(desk.call(number, size=70_000))
        await asyncio.sleep(0.01)
        (stream,) = desk.streams
        assert len(stream.sent) == 2
        stream.commit(0)
        await asyncio.sleep(0.01)
        assert [stream.numbers(i) for i in range(len(stream.sent))] == [[1], [2], [3, 4]]
        stream.commit(1)
        stream.commit(2)
        await asyncio.gather(*calls)

    with_desk(story)


def test_a_message_stays_within_the_stores_limits() -> None:
    async def story(desk: Desk) -> None:
        calls = [desk.call(*range(600)), desk.call(*range(600, 1_200))]
        await asyncio.sleep(0.01)
        (stream,) = desk.streams
        assert [len(request.txns) for request in stream.sent] == [600, 600]
        stream.commit(0)
        stream.commit(1)
        await asyncio.gather(*calls)

    with_desk(story)


def test_nothing_is_sent_before_the_store_has_greeted() -> None:
    async def story(desk: Desk) -> None:
        call = desk.call(1, timeout_s=20)
        await asyncio.sleep(6)
        first, second = desk.streams[:2]
        assert first.sent == []
        assert isinstance(desk.heard[0], errors.Unavailable)
        second.put(pb.CommitStreamResponse())
        await asyncio.sleep(0.01)
        second.commit(0)
        assert await call == committed(1)

    with_desk(story, greets=False)


def test_what_was_never_sent_is_not_unknown() -> None:
    async def story(desk: Desk) -> None:
        with pytest.raises(errors.DeadlineExceeded):
            await desk.call(1, timeout_s=1)
        await asyncio.sleep(5)  # the first stream has been given up
        with pytest.raises(errors.Unavailable, match="does not answer") as caught:
            await desk.call(2, timeout_s=1)
        assert not isinstance(caught.value, errors.OutcomeUnknown)
        assert all(stream.sent == [] for stream in desk.streams)

    with_desk(story, greets=False)


def test_what_was_sent_and_not_answered_in_time_is_unknown() -> None:
    async def story(desk: Desk) -> None:
        with pytest.raises(errors.OutcomeUnknown):
            await desk.call(1, timeout_s=1)

    with_desk(story)


def test_a_stream_that_falls_silent_is_given_up_and_what_waits_goes_on_the_next() -> None:
    async def story(desk: Desk) -> None:
        lost = await two_outstanding(desk)
        waiting = desk.call(3, timeout_s=60)
        await asyncio.sleep(14)
        assert len(desk.streams) == 1
        await asyncio.sleep(2)
        assert all(isinstance(call.exception(), errors.OutcomeUnknown) for call in lost)
        first, second = desk.streams
        assert [first.numbers(0), first.numbers(1), second.numbers(0)] == [[1], [2], [3]]
        second.commit(0)
        assert await waiting == committed(3)

    with_desk(story)


@pytest.mark.parametrize("end", [aio.EOF, errors.OutcomeUnknown("reset"), errors.Cancelled()])
def test_a_broken_stream_leaves_what_was_sent_unknown_and_keeps_what_waits(end: object) -> None:
    async def story(desk: Desk) -> None:
        lost = await two_outstanding(desk)
        waiting = desk.call(3)
        desk.streams[0].put(end)
        await asyncio.sleep(0.5)
        assert all(isinstance(call.exception(), errors.OutcomeUnknown) for call in lost)
        first, second = desk.streams
        assert [first.numbers(0), first.numbers(1), second.numbers(0)] == [[1], [2], [3]]
        second.commit(0)
        assert await waiting == committed(3)

    with_desk(story)


def test_an_impatient_caller_does_not_cost_its_neighbours_the_stream() -> None:
    async def story(desk: Desk) -> None:
        impatient = desk.call(1, timeout_s=0.1)
        await asyncio.sleep(0.01)
        patient = desk.call(2, timeout_s=10)
        await asyncio.sleep(5)
        assert isinstance(impatient.exception(), errors.OutcomeUnknown)
        desk.streams[0].commit(1)
        assert await patient == committed(2)
        assert len(desk.streams) == 1

    with_desk(story)


async def two_outstanding(desk: Desk) -> list[asyncio.Task[tuple[TxnResult, ...]]]:
    calls = [desk.call(1)]
    await asyncio.sleep(0.01)
    calls.append(desk.call(2))
    await asyncio.sleep(0.01)
    return calls


def test_a_refused_message_tells_its_callers_that_nothing_happened() -> None:
    async def story(desk: Desk) -> None:
        call = desk.call(1)
        await asyncio.sleep(0.01)
        desk.streams[0].fail(0, errors.DeadlineExceeded("dropped unevaluated"))
        with pytest.raises(errors.DeadlineExceeded):
            await call

    with_desk(story)


def test_a_fault_of_the_store_leaves_the_outcome_open() -> None:
    async def story(desk: Desk) -> None:
        call = desk.call(1)
        await asyncio.sleep(0.01)
        desk.streams[0].fail(0, errors.Internal("e-1"))
        with pytest.raises(errors.OutcomeUnknown):
            await call

    with_desk(story)


def test_a_caller_that_gave_up_before_sending_sends_nothing() -> None:
    async def story(desk: Desk) -> None:
        calls = [desk.call(1)]
        await asyncio.sleep(0.0001)
        given_up, patient = desk.call(2), desk.call(3)
        await asyncio.sleep(0.0001)
        given_up.cancel()
        await asyncio.sleep(0.01)
        (stream,) = desk.streams
        assert [stream.numbers(i) for i in range(len(stream.sent))] == [[1], [3]]
        stream.commit(0)
        stream.commit(1)
        await asyncio.gather(*calls, patient)

    with_desk(story)


def test_a_caller_that_gave_up_after_sending_does_not_disturb_its_neighbours() -> None:
    async def story(desk: Desk) -> None:
        given_up, patient = desk.call(1), desk.call(2)
        await asyncio.sleep(0.01)
        given_up.cancel()
        await asyncio.sleep(0)
        desk.streams[0].commit(0)
        assert await patient == committed(2)

    with_desk(story)


def test_a_right_that_was_lost_while_waiting_is_noticed_before_sending() -> None:
    async def story(desk: Desk) -> None:
        held = True
        first = desk.call(1)
        await asyncio.sleep(0.0001)
        fenced, free = desk.call(2, only_while=lambda: held), desk.call(3)
        held = False
        await asyncio.sleep(0.01)
        assert isinstance(fenced.exception(), errors.Fenced)
        (stream,) = desk.streams
        assert [stream.numbers(i) for i in range(len(stream.sent))] == [[1], [3]]
        stream.commit(0)
        stream.commit(1)
        await asyncio.gather(first, free)

    with_desk(story)


@pytest.mark.parametrize(
    "config",
    [
        StoreClientConfig(max_waiting_callers=2),
        StoreClientConfig(max_waiting_txns=2),
        StoreClientConfig(max_waiting_bytes=9),
    ],
)
def test_what_waits_is_bounded(config: StoreClientConfig) -> None:
    async def story(desk: Desk) -> None:
        calls = [desk.call(1), desk.call(2)]
        await asyncio.sleep(0)
        with pytest.raises(errors.Overloaded):
            await desk.call(3)
        for call in calls:
            call.cancel()
        await asyncio.sleep(0)
        freed = desk.call(4, timeout_s=1)
        with pytest.raises(errors.DeadlineExceeded):
            await freed

    with_desk(story, greets=False, config=config)


def test_a_bad_transaction_is_refused_before_it_can_spoil_its_neighbours() -> None:
    async def story(desk: Desk) -> None:
        good = desk.call(1)
        with pytest.raises(errors.InvalidArgument):
            await desk.committer.commit([], timeout_s=1)
        with pytest.raises(errors.InvalidArgument):
            await desk.committer.commit([Txn(then=(Put(b"leases/x", b""),))], timeout_s=1)
        with pytest.raises(errors.TooLarge):
            await desk.committer.commit([Txn()] * 1_001, timeout_s=1)
        await asyncio.sleep(0.01)
        desk.streams[0].commit(0)
        assert await good == committed(1)

    with_desk(story)


def test_stopping_tells_each_caller_what_is_known() -> None:
    async def story(desk: Desk) -> None:
        sent = desk.call(1)
        await asyncio.sleep(0.0001)
        waiting = desk.call(2)
        await asyncio.sleep(0.0001)
        desk.committer.close(errors.Unavailable("stopping"))
        await asyncio.sleep(0)
        assert isinstance(sent.exception(), errors.OutcomeUnknown)
        assert type(waiting.exception()) is errors.Unavailable
        with pytest.raises(errors.Unavailable):
            await desk.call(3)

    with_desk(story)


def test_draining_waits_for_what_waits_and_for_what_was_sent() -> None:
    async def story(desk: Desk) -> None:
        calls = [desk.call(1)]
        await asyncio.sleep(0.0001)
        calls.append(desk.call(2))
        drained = asyncio.ensure_future(desk.committer.drain())
        await asyncio.sleep(0.01)
        desk.streams[0].commit(0)
        await asyncio.sleep(0.01)
        assert not drained.done()
        desk.streams[0].commit(1)
        await asyncio.wait_for(drained, 1)
        await asyncio.gather(*calls)

    with_desk(story)


def test_every_answer_tells_mesh_time() -> None:
    async def story(desk: Desk) -> None:
        assert desk.mesh_time.known  # the greeting did
        assert desk.mesh_time.now_ns() >= MESH_TIME_NS

    with_desk(story)


def test_a_fault_of_its_own_is_told_to_callers_and_to_whoever_runs_it() -> None:
    loop = SimLoop()

    async def main() -> None:
        desk = Desk(loop, StoreClientConfig())
        running = asyncio.ensure_future(desk.committer.run())
        await asyncio.sleep(0.01)
        call = desk.call(1)
        await asyncio.sleep(0.01)
        desk.streams[0].put(ZeroDivisionError("a fault"))
        with pytest.raises(errors.OutcomeUnknown):
            await call
        with pytest.raises(ZeroDivisionError):
            await running
        with pytest.raises(errors.Unavailable, match="a fault"):
            await desk.call(2)

    loop.run(main())


def test_a_store_that_reads_packed_transactions_is_sent_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Stream, "reads_packed", True)
    txns = [Txn((fence("owner", 7),), (Put(b"%d" % number, b"1"),)) for number in (1, 2)]

    async def story(desk: Desk) -> None:
        call = asyncio.ensure_future(desk.committer.commit(txns, timeout_s=10.0))
        await asyncio.sleep(0.01)
        (request,) = desk.streams[0].sent
        assert not request.txns
        assert txns_of(unpack(request.packed, 2)) == tuple(txns)
        desk.streams[0].put(
            pb.CommitStreamResponse(sequence=request.sequence, committed_revisions=[5, 6])
        )
        assert await call == (TxnResult(Outcome.COMMITTED, 5), TxnResult(Outcome.COMMITTED, 6))

    with_desk(story)


def test_an_older_store_is_sent_each_transaction_by_itself() -> None:
    async def story(desk: Desk) -> None:
        call = desk.call(1)
        await asyncio.sleep(0.01)
        (request,) = desk.streams[0].sent
        assert [len(request.txns), request.HasField("packed")] == [1, False]
        desk.streams[0].commit(0)
        await call

    with_desk(story)

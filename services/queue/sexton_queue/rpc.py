"""The queue's servicers: wire in, machine, wire out."""
# ruff: noqa: N802 - the methods have the names of the protocol

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

from sexton.errors import (
    DeadlineExceeded,
    InvalidArgument,
    NotLeader,
    Overloaded,
    TooLarge,
)
from sexton.internal.v1 import coordinator_pb2, coordinator_pb2_grpc, queue_pb2, queue_pb2_grpc
from sexton.v1 import run_pb2, scheduler_pb2, worker_pb2, worker_pb2_grpc
from sexton_core.words import RunState
from sexton_queue import _wire as wire
from sexton_queue.describe import describe, describe_progress, describe_queue
from sexton_queue.entries import Complete, End
from sexton_queue.owner import Owner
from sexton_queue.sessions import Session
from sexton_queue.streams import LeaderStream, Outbox, WorkerStream
from sexton_queue.tenure import PACE_S, Tenure
from sexton_records.runs import STATES
from sexton_runtime.patience import Patience
from sexton_runtime.randomness import Randomness

WORKERS: Final = "sexton.v1.WorkerService"
QUEUES: Final = "sexton.internal.v1.QueueService"
MEMBERS: Final = "sexton.internal.v1.MemberService"

HELLO_TIMEOUT_S: Final = 10.0
"""A stream on which nobody introduces himself within this is ended."""
ANSWERS_S: Final = 0.05
"""Answers to completions wait so long for company: a worker's slot is free without them."""
MAX_STREAMS: Final = 20_000
"""Streams open at once."""

_SESSION_BYTES: Final = 12

_make = tuple.__new__
"""Makes a named tuple of all its parts; its own constructor costs twice as much."""


class Servicer(
    worker_pb2_grpc.WorkerServiceServicer,
    queue_pb2_grpc.QueueServiceServicer,
    coordinator_pb2_grpc.MemberServiceServicer,
):
    """Serves whatever tenure the owner has."""

    def __init__(
        self, owner: Owner, randomness: Randomness, member: Callable[[], scheduler_pb2.Member]
    ) -> None:
        self._owner = owner
        self._randomness = randomness
        self._member = member

    async def Pull(
        self, request_iterator: Any, _context: Any
    ) -> AsyncIterator[worker_pb2.PullResponse]:
        """Hands runs to a worker."""
        await self._owner.require()
        requests = aiter(request_iterator)
        hello = wire.hello_from(await _first(requests))
        tenure = await self._owner.require()
        if hello.owner_token > tenure.token:
            raise NotLeader
        wake = asyncio.Event()
        stream = WorkerStream(wake.set)
        _admit(tenure, stream)
        session = tenure.machine.roster.hello(
            hello.session,
            hello.record,
            hello.held,
            stream,
            tenure.now(),
            new_id=self._randomness.token_hex(_SESSION_BYTES),
        )
        reader = asyncio.create_task(
            _pass_on(stream, _hear_worker(requests, tenure, session, stream))
        )
        tenure.wake()
        patience = Patience(ANSWERS_S, wake.set)
        try:
            while True:
                await wake.wait()
                wake.clear()
                if stream.error is not None:
                    raise stream.error
                if not session.draining and _may_wait(stream) and patience.wait():
                    continue
                patience.end()
                handing_over = stream.reconnect
                if not handing_over:
                    tenure.require()
                for response in wire.pull_responses(
                    stream, tenure.token, self._owner.times, tenure.past()
                ):
                    yield response
                if handing_over or stream.finished:
                    return
                await asyncio.sleep(PACE_S)
        finally:
            patience.end()
            tenure.drop(stream)
            reader.cancel()
            tenure.machine.roster.disconnected(session, stream, tenure.now())
            tenure.wake()

    async def Push(
        self, request_iterator: Any, _context: Any
    ) -> AsyncIterator[queue_pb2.PushResponse]:
        """Takes a leader's hints, and gives it the settled notices."""
        await self._owner.require()
        requests = aiter(request_iterator)
        first = await _first(requests)
        if not first.HasField("hello") or first.hello.shard < 0 or first.hello.leader_token < 1:
            raise InvalidArgument("hello", "nothing of use", "shard and token of a leader")
        tenure = await self._owner.require()
        wake = asyncio.Event()
        stream = LeaderStream(wake.set, first.hello.shard, first.hello.leader_token)
        _admit(tenure, stream)
        table = tenure.machine.table
        reader = None
        try:
            table.follow(stream)
            tenure.look_again()
            reader = asyncio.create_task(_pass_on(stream, _hear_leader(requests, tenure)))
            yield queue_pb2.PushResponse(owner_token=tenure.token)
            while True:
                await wake.wait()
                wake.clear()
                if stream.error is not None:
                    raise stream.error
                tenure.require()
                for response in wire.push_responses(stream):
                    yield response
                if stream.finished:
                    return
                await asyncio.sleep(PACE_S)
        finally:
            tenure.drop(stream)
            table.unfollow(stream)
            if reader is not None:
                reader.cancel()

    async def EndRuns(
        self, request: queue_pb2.EndRunsRequest, _context: Any
    ) -> queue_pb2.EndRunsResponse:
        """Asks for the end of runs, and answers when that is durable."""
        if not request.ends:
            raise InvalidArgument("ends", (), f"1 to {wire.MAX_ENDS} runs")
        if len(request.ends) > wire.MAX_ENDS:
            raise TooLarge("ends", len(request.ends), wire.MAX_ENDS, "runs")
        wire.check_ends(request.ends)
        tenure = await self._owner.require()
        loop = asyncio.get_running_loop()
        answers: list[asyncio.Future[RunState | None]] = []
        for end in request.ends:
            answer: asyncio.Future[RunState | None] = loop.create_future()
            answers.append(answer)
            _ask_end(tenure, end, partial(_resolve, answer))
        tenure.wake()
        ended = asyncio.ensure_future(tenure.ended.wait())
        together = asyncio.gather(*answers)
        try:
            await asyncio.wait((together, ended), return_when=asyncio.FIRST_COMPLETED)
            if not together.done():
                raise NotLeader
            states = together.result()
        finally:
            ended.cancel()
            together.cancel()
            await asyncio.gather(ended, together, return_exceptions=True)
        unknown = run_pb2.RUN_STATE_UNSPECIFIED
        return queue_pb2.EndRunsResponse(
            results=[
                queue_pb2.EndResult(state=unknown if state is None else STATES[state])
                for state in states
            ]
        )

    async def DescribeQueues(
        self, request: queue_pb2.DescribeQueuesRequest, _context: Any
    ) -> queue_pb2.DescribeQueuesResponse:
        """Tells how the queues are."""
        tenure = await self._owner.require()
        return describe(tenure.machine, tenure.token, tenure.now(), queues_only=request.queues_only)

    async def DescribeProgress(
        self, request: queue_pb2.DescribeProgressRequest, _context: Any
    ) -> queue_pb2.DescribeProgressResponse:
        """Tells what running tasks last said."""
        if not 1 <= len(request.handles) <= wire.MAX_ENDS:
            raise InvalidArgument("handles", len(request.handles), f"1 to {wire.MAX_ENDS} runs")
        tenure = await self._owner.require()
        return queue_pb2.DescribeProgressResponse(
            reports=describe_progress(tenure.machine, request.handles)
        )

    async def SetQueuePause(
        self, request: queue_pb2.SetQueuePauseRequest, _context: Any
    ) -> queue_pb2.SetQueuePauseResponse:
        """Stops the assignments of a queue, or lets them go on."""
        wire.check_pause(request)
        tenure = await self._owner.require()
        await tenure.set_pause(request.queue, request.reason if request.paused else None)
        machine = tenure.machine
        live = [session for session in machine.sessions.by_id.values() if not session.ended]
        info = describe_queue(machine, request.queue, live, tenure.now())
        return queue_pb2.SetQueuePauseResponse(queue=info)

    async def DrainSession(
        self, request: queue_pb2.DrainSessionRequest, _context: Any
    ) -> queue_pb2.DrainSessionResponse:
        """Asks a worker to drain."""
        tenure = await self._owner.require()
        session = tenure.machine.sessions.live(request.session)
        if session is not None:
            tenure.machine.roster.ask_to_drain(session)
        return queue_pb2.DrainSessionResponse(found=session is not None)

    async def DescribeMember(
        self, _request: coordinator_pb2.DescribeMemberRequest, _context: Any
    ) -> coordinator_pb2.DescribeMemberResponse:
        """Tells who this replica is."""
        return coordinator_pb2.DescribeMemberResponse(member=self._member())


def _may_wait(stream: WorkerStream) -> bool:
    """Tells whether nothing is to be said but that completions have been settled."""
    return bool(stream.answers) and not (
        stream.finished
        or stream.welcome
        or stream.assignments
        or stream.heartbeat
        or stream.stops
        or stream.reconnect
        or stream.drain
    )


def _admit(tenure: Tenure, stream: Outbox) -> None:
    if len(tenure.streams) >= MAX_STREAMS:
        raise Overloaded(f"{MAX_STREAMS:,} streams are open here; try again later")
    tenure.streams[stream] = None


async def _first(requests: Any) -> Any:
    """Gives the first message of a stream."""
    try:
        async with asyncio.timeout(HELLO_TIMEOUT_S):
            return await anext(requests)
    except StopAsyncIteration:
        raise InvalidArgument("hello", "nothing", "hello in the first message") from None
    except TimeoutError:
        raise DeadlineExceeded(f"no hello came within {HELLO_TIMEOUT_S:g} s") from None


async def _pass_on(stream: Outbox, listening: Awaitable[None]) -> None:
    """Listens to the peer; its end, of whatever kind, ends the stream."""
    try:
        await listening
    except Exception as error:  # noqa: BLE001 - passed on: the stream's own end
        stream.end(error)
    else:
        stream.finish()


async def _hear_worker(
    requests: Any, tenure: Tenure, session: Session, stream: WorkerStream
) -> None:
    """Takes what a worker says until it says no more."""
    heartbeat = 0
    async for request in requests:
        tenure.require()
        completions = wire.check_pull(request)
        if session.stream is not stream or session.ended:
            return
        if session.greeting is not None:
            raise InvalidArgument("hello", "a message before welcome", "nothing before it")
        if request.heartbeat:
            if request.heartbeat <= heartbeat:
                expected = f"a number above {heartbeat}"
                raise InvalidArgument("heartbeat", request.heartbeat, expected)
            heartbeat = request.heartbeat
        _take(request, completions, tenure, session, stream)
        tenure.wake()
        if request.closing:
            return


def _take(
    request: worker_pb2.PullRequest,
    completions: Sequence[wire.Completion],
    tenure: Tenure,
    session: Session,
    stream: WorkerStream,
) -> None:
    roster, table, now = tenure.machine.roster, tenure.machine.table, tenure.now()
    if session.credits + request.credits > session.slots:
        raise InvalidArgument(
            "credits", session.credits + request.credits, f"in all at most {session.slots} slots"
        )
    by_key = table.by_key
    for completion in completions:
        handle = completion[0].handle
        if handle not in by_key and not table.is_handle(handle):
            raise InvalidArgument("completions.attempt.handle", handle, "a handle of this queue")
    if request.heartbeat:
        roster.hear(session, stream, request.heartbeat, now)
    for started in request.started:
        roster.started(stream, wire.ref_from(started), now)
    ask_or_read, answered = table.ask_or_read, stream.answered
    for ref, event, end, retry_after in completions:
        handle, token = ref
        parts = (token, event, end, partial(answered, ref), retry_after)
        ask_or_read(handle, _make(Complete, parts))
    for returned in request.returned:
        roster.returned(wire.ref_from(returned))
    for progress in request.progress:
        ref = wire.ref_from(progress.attempt)
        roster.progressed(stream, ref, progress.fraction, progress.message)
    if request.draining:
        roster.drain(session)
    elif request.credits:
        roster.grant(session, request.credits)
    if request.closing:
        roster.end(session, "its worker has closed it")


async def _hear_leader(requests: Any, tenure: Tenure) -> None:
    """Takes a leader's hints until there are no more."""
    table = tenure.machine.table
    async for request in requests:
        tenure.require()
        wire.check_ends(request.ends)
        now = tenure.now()
        is_handle, arrive, counters = table.is_handle, table.arrive, tenure.machine.counters
        for run in request.runs:
            handle = run.handle
            if not is_handle(handle):
                raise InvalidArgument("runs.handle", handle, "a handle of this shard")
            counters.arrived += 1
            entry = arrive(handle, run.revision, run.record, now)
            if entry is not None:
                entry.arrived_at = entry.arrived_at or now.mesh
                entry.tells_record |= run.tell_record
        for end in request.ends:
            _ask_end(tenure, end, None)
        tenure.wake()


def _ask_end(
    tenure: Tenure, end: queue_pb2.EndRequest, answer: Callable[[RunState | None], object] | None
) -> None:
    table = tenure.machine.table
    if not table.is_handle(end.handle):
        raise InvalidArgument("ends.handle", end.handle, "a handle of this shard")
    terminate = end.mode == run_pb2.CANCEL_MODE_TERMINATE
    table.ask_or_read(end.handle, End(terminate, end.reason, answer))


def _resolve(answer: asyncio.Future[RunState | None], state: RunState | None) -> None:
    if not answer.done():
        answer.set_result(state)

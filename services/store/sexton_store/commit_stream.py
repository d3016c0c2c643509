"""Commits on a stream: many on their way at once, each answered when it is durable.

Reading stops while too many are unanswered, so that a caller who sends faster than the disk writes,
or who reads no answers, is held back by the transport and nothing gathers here without bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable
from typing import cast

from sexton._error_table import to_failure
from sexton.errors import InvalidArgument, SextonError, Unavailable
from sexton.internal.v1 import store_pb2 as pb
from sexton_runtime.kv.packed import unpack
from sexton_store._wire import results_to_wire, txns_from_wire
from sexton_store.contract import StoreEngine
from sexton_store.machine import result_of

MAX_IN_FLIGHT = 16
"""Requests of one stream whose answers the caller has not taken; each may hold a whole commit."""

DEFAULT_TIMEOUT_MS = 10_000
MAX_TIMEOUT_MS = 60_000


class CommitStream:
    """One stream's requests and answers."""

    def __init__(
        self, engine: StoreEngine, requests: AsyncIterable[pb.CommitStreamRequest]
    ) -> None:
        self._engine = engine
        self._requests = requests
        self._slots = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._answers: asyncio.Queue[pb.CommitStreamResponse | Exception | None] = asyncio.Queue()
        self._commits: dict[asyncio.Task[None], None] = {}
        self._reader: asyncio.Task[None] | None = None
        self._finishing = False

    async def answers(self) -> AsyncGenerator[pb.CommitStreamResponse, None]:
        """Gives the answers in the order in which they become durable.

        Ends after the last one once the caller has half-closed. Raises what makes the whole stream
        fail; what one request does wrong stands in its own answer.
        """
        self._reader = asyncio.create_task(self._read())
        try:
            while (answer := await self._answers.get()) is not None:
                if isinstance(answer, Exception):
                    raise answer
                yield answer
                self._slots.release()
        finally:
            tasks = [self._reader, *self._commits]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def finish(self) -> None:
        """Reads no further; answers what was read, then ends the stream as unavailable."""
        self._finishing = True
        if self._reader is not None:
            self._reader.cancel()

    async def _read(self) -> None:
        try:
            await self._read_all()
            end: Exception | None = None
        except asyncio.CancelledError:
            if not self._finishing:
                raise
            end = Unavailable("the store is stopping; open the stream again and go on there")
        except Exception as error:  # noqa: BLE001 - passed on: the stream's own end
            end = error
        for _ in range(MAX_IN_FLIGHT):
            await self._slots.acquire()
        self._answers.put_nowait(end)

    async def _read_all(self) -> None:
        async for request in self._requests:
            await self._slots.acquire()
            commit = asyncio.create_task(self._commit(request))
            self._commits[commit] = None
            commit.add_done_callback(self._commits.pop)

    async def _commit(self, request: pb.CommitStreamRequest) -> None:
        answer: pb.CommitStreamResponse | Exception
        try:
            answer = await self._answer(request)
        except SextonError as error:
            answer = pb.CommitStreamResponse(error=to_failure(error))
        except Exception as error:  # noqa: BLE001 - passed on: a fault of our own ends the stream
            answer = error
        if isinstance(answer, pb.CommitStreamResponse):
            answer.sequence = request.sequence
            answer.mesh_time_ns = self._engine.clock().mesh_time_ns
        self._answers.put_nowait(answer)

    async def _answer(self, request: pb.CommitStreamRequest) -> pb.CommitStreamResponse:
        if not 0 <= request.timeout_ms <= MAX_TIMEOUT_MS:
            raise InvalidArgument("timeout_ms", request.timeout_ms, f"0 to {MAX_TIMEOUT_MS}")
        timeout_s = (request.timeout_ms or DEFAULT_TIMEOUT_MS) / 1_000
        if request.HasField("packed"):
            runs = unpack(request.packed, self._engine.limits.max_txns_per_commit)
            answered = await self._engine.commit_runs(runs, timeout_s=timeout_s)
            if {*map(type, answered)} == {int}:
                return pb.CommitStreamResponse(committed_revisions=cast("list[int]", answered))
            return pb.CommitStreamResponse(results=results_to_wire(map(result_of, answered)))
        if request.txns:
            txns = txns_from_wire(request.txns)
            results = await self._engine.commit(txns, timeout_s=timeout_s)
            return pb.CommitStreamResponse(results=results_to_wire(results))
        return pb.CommitStreamResponse(reads_packed=True)

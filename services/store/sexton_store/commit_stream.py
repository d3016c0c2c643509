"""Commits on a stream: many on their way at once, each answered when it is durable.

Reading stops while too many are unanswered, so that a caller who sends faster than the disk writes,
or who reads no answers, is held back by the transport and nothing gathers here without bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from functools import partial
from typing import Any, TypeAlias, cast

from sexton._error_table import to_failure
from sexton.errors import InvalidArgument, SextonError, Unavailable
from sexton.internal.v1 import store_pb2 as pb
from sexton_runtime.kv.packed import unpack
from sexton_runtime.kv.types import TxnResult
from sexton_store._wire import results_to_wire, txns_from_wire
from sexton_store.contract import StoreEngine
from sexton_store.machine import Result, result_of

MAX_IN_FLIGHT = 16
"""Requests of one stream whose answers the caller has not taken; each may hold a whole commit."""

DEFAULT_TIMEOUT_MS = 10_000
MAX_TIMEOUT_MS = 60_000

Write: TypeAlias = Callable[[pb.CommitStreamResponse], Awaitable[object]]


class CommitStream:
    """One stream's requests and answers."""

    def __init__(
        self, engine: StoreEngine, requests: AsyncIterable[pb.CommitStreamRequest]
    ) -> None:
        self._engine = engine
        self._requests = requests
        self._slots = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._answers: asyncio.Queue[pb.CommitStreamResponse | Exception | None] = asyncio.Queue()
        self._commits: dict[asyncio.Future[Any], None] = {}
        self._reader: asyncio.Task[None] | None = None
        self._finishing = False

    async def answer_all(self, write: Write) -> None:
        """Writes the answers in the order in which they become durable.

        Ends after the last one once the caller has half-closed. Raises what makes the whole stream
        fail; what one request does wrong stands in its own answer.
        """
        self._reader = asyncio.create_task(self._read())
        try:
            while (answer := await self._answers.get()) is not None:
                if isinstance(answer, Exception):
                    raise answer
                await write(answer)
                self._slots.release()
        finally:
            waiting = [self._reader, *self._commits]
            for each in waiting:
                each.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

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
            try:
                self._begin(request)
            except Exception as error:  # noqa: BLE001 - passed on
                self._answer(request.sequence, error)

    def _begin(self, request: pb.CommitStreamRequest) -> None:
        """Hands a request on; without a task of its own, which would cost as much again."""
        if not 0 <= request.timeout_ms <= MAX_TIMEOUT_MS:
            raise InvalidArgument("timeout_ms", request.timeout_ms, f"0 to {MAX_TIMEOUT_MS}")
        timeout_s = (request.timeout_ms or DEFAULT_TIMEOUT_MS) / 1_000
        packed = request.HasField("packed")
        commit: asyncio.Future[Any]
        if packed:
            runs = unpack(request.packed, self._engine.limits.max_txns_per_commit)
            commit = self._engine.commit_runs(runs, timeout_s=timeout_s)
        elif request.txns:
            txns = txns_from_wire(request.txns)
            commit = asyncio.ensure_future(self._engine.commit(txns, timeout_s=timeout_s))
        else:
            self._answer(request.sequence, pb.CommitStreamResponse(reads_packed=True))
            return
        self._commits[commit] = None
        commit.add_done_callback(partial(self._durable, request.sequence, packed))

    def _durable(self, sequence: int, packed: bool, commit: asyncio.Future[Any]) -> None:  # noqa: FBT001 - a callback
        del self._commits[commit]
        if commit.cancelled():
            return
        try:
            results = commit.result()
            answer = _packed_to_wire(results) if packed else _results_to_wire(results)
        except Exception as error:  # noqa: BLE001 - passed on
            self._answer(sequence, error)
        else:
            self._answer(sequence, answer)

    def _answer(self, sequence: int, answer: pb.CommitStreamResponse | Exception) -> None:
        """Lets an answer be written; a fault of our own ends the stream."""
        if isinstance(answer, SextonError):
            answer = pb.CommitStreamResponse(error=to_failure(answer))
        if isinstance(answer, pb.CommitStreamResponse):
            answer.sequence = sequence
            answer.mesh_time_ns = self._engine.clock().mesh_time_ns
        self._answers.put_nowait(answer)


def _packed_to_wire(answered: list[Result]) -> pb.CommitStreamResponse:
    if {*map(type, answered)} == {int}:
        return pb.CommitStreamResponse(committed_revisions=cast("list[int]", answered))
    return _results_to_wire(map(result_of, answered))


def _results_to_wire(results: Iterable[TxnResult]) -> pb.CommitStreamResponse:
    return pb.CommitStreamResponse(results=results_to_wire(results))

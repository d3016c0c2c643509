"""A committer whose store is the test: it sees what is sent, and answers when it wants to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from sexton import errors
from sexton._error_table import to_failure
from sexton.internal.v1 import store_pb2 as pb
from sexton_runtime.kv.committer import Committer
from sexton_runtime.kv.config import StoreClientConfig
from sexton_runtime.kv.mesh_time import MeshTime
from sexton_runtime.kv.types import Outcome, Put, Txn, TxnResult
from sexton_runtime.randomness import SeededRandomness
from sexton_sim.loop import SimLoop
from sexton_store.contract import LIMITS

MESH_TIME_NS = 1_796_040_000_000_000_000


class Stream:
    """A commit stream at whose other end the test sits."""

    reads_packed = False

    def __init__(self, *, greets: bool) -> None:
        self.sent: list[pb.CommitStreamRequest] = []
        self.sent_at: list[float] = []
        self.greets = greets
        self._answers: asyncio.Queue[object] = asyncio.Queue()

    async def write(self, request: pb.CommitStreamRequest) -> None:
        if request.txns or request.HasField("packed"):
            self.sent.append(request)
            self.sent_at.append(asyncio.get_running_loop().time())
        elif self.greets:
            self.put(
                pb.CommitStreamResponse(sequence=request.sequence, reads_packed=self.reads_packed)
            )

    async def read(self) -> object:
        answer = await self._answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def cancel(self) -> bool:
        self._answers.put_nowait(errors.Cancelled())
        return True

    def put(self, answer: object) -> None:
        if isinstance(answer, pb.CommitStreamResponse):
            answer.mesh_time_ns = MESH_TIME_NS
        self._answers.put_nowait(answer)

    def commit(self, index: int) -> None:
        """Answers a message: every transaction got its own revision."""
        request = self.sent[index]
        self.put(
            pb.CommitStreamResponse(
                sequence=request.sequence,
                results=[
                    pb.TxnResult(outcome=pb.OUTCOME_COMMITTED, revision=int(txn.then[0].put))
                    for txn in request.txns
                ],
            )
        )

    def fail(self, index: int, error: errors.SextonError) -> None:
        self.put(
            pb.CommitStreamResponse(sequence=self.sent[index].sequence, error=to_failure(error))
        )

    def numbers(self, index: int) -> list[int]:
        return [int(txn.then[0].put) for txn in self.sent[index].txns]


class Desk:
    """A committer, its streams, and callers."""

    def __init__(self, loop: SimLoop, config: StoreClientConfig, *, greets: bool = True) -> None:
        self.streams: list[Stream] = []
        self.greets = greets
        self.heard: list[errors.SextonError] = []
        clock = loop.system.clock
        self.mesh_time = MeshTime(clock)
        self.committer = Committer(
            open_call=self._open,
            limits=LIMITS,
            clock=clock,
            randomness=SeededRandomness(1),
            mesh_time=self.mesh_time,
            config=config,
            on_error=self.heard.append,
        )

    def _open(self) -> Stream:
        self.streams.append(Stream(greets=self.greets))
        return self.streams[-1]

    def call(
        self,
        *numbers: int,
        timeout_s: float = 10.0,
        only_while: Callable[[], bool] | None = None,
        size: int = 0,
    ) -> asyncio.Task[tuple[TxnResult, ...]]:
        """Commits transactions that are told apart by their numbers."""
        txns = [
            Txn(then=(Put(b"k/%d" % number, b"%d" % number), *padding(size))) for number in numbers
        ]
        return asyncio.ensure_future(
            self.committer.commit(txns, timeout_s=timeout_s, only_while=only_while)
        )


def padding(size: int) -> tuple[Put, ...]:
    return (Put(b"padding", bytes(size)),) if size else ()


def with_desk(
    story: Callable[[Desk], Awaitable[None]],
    *,
    greets: bool = True,
    config: StoreClientConfig | None = None,
) -> None:
    loop = SimLoop()

    async def main() -> None:
        desk = Desk(loop, config or StoreClientConfig(), greets=greets)
        running = asyncio.ensure_future(desk.committer.run())
        await asyncio.sleep(0)
        try:
            await story(desk)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    loop.run(main())


def committed(*numbers: int) -> tuple[TxnResult, ...]:
    return tuple(TxnResult(Outcome.COMMITTED, number) for number in numbers)

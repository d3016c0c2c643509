"""A queue's owner that does as the test says: it assigns, answers or falls silent."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from grpc import aio

from sexton.errors import NotLeader
from sexton.v1 import job_pb2, run_pb2, worker_pb2_grpc
from sexton.v1 import worker_pb2 as pb
from sexton_runtime.randomness import SystemRandomness
from sexton_runtime.rpc.grpc_transport import GrpcTransport
from sexton_runtime.rpc.server import RpcServer, Service
from sexton_runtime.secrets import Role
from sexton_runtime.telemetry import Telemetry
from sexton_runtime.transport import Transport

SERVICE = "sexton.v1.WorkerService"
NOMINAL = 1_795_935_600_000_000_000  # 2026-11-29T07:00:00Z


class Owner(worker_pb2_grpc.WorkerServiceServicer):
    """Keeps what workers say, and says what it is told to."""

    def __init__(self, *, session_ms: int = 30_000, heartbeat_ms: int = 200) -> None:
        self.session_ms = session_ms
        self.heartbeat_ms = heartbeat_ms
        self.token = 1
        self.session = "s-1"
        self.answers_heartbeats = True
        self.acknowledges = True
        self.accepts = True
        self.revokes: list[pb.AttemptRef] = []
        self.leader: str | None = None
        """Not None: this replica does not own; the owner's address, or empty."""
        self.hellos: list[pb.Hello] = []
        self.messages = 0
        self.heartbeats = 0
        self.credits = 0
        self.started: list[int] = []
        self.returned: list[int] = []
        self.completions: list[pb.Completion] = []
        self.progress: list[pb.Progress] = []
        self.closed = False
        self.draining = False
        self.streams_ended = 0
        self._out: asyncio.Queue[pb.PullResponse | None] | None = None
        self._changed = asyncio.Condition()
        self._tokens = itertools.count(101)
        self._assigned: dict[int, pb.Assignment] = {}

    # What the test says

    def assignment(
        self,
        task: job_pb2.Task,
        *,
        timeout_ms: int = 60_000,
        token: int | None = None,
        number: int = 1,
        job: str = "backup",
    ) -> pb.Assignment:
        token = token or next(self._tokens)
        return pb.Assignment(
            attempt=pb.AttemptRef(handle=f"handle-{token}".encode(), token=token),
            session=self.session,
            number=number,
            run=f"namespaces/default/jobs/{job}/runs/t20261129T070000Z-abcdefgh",
            task=task,
            nominal_time_ns=NOMINAL,
            timeout_ms=timeout_ms,
            traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            job_uid="a" * 24,
        )

    def assign(self, task: job_pb2.Task, **more: Any) -> int:
        assignment = self.assignment(task, **more)
        self._assigned[assignment.attempt.token] = assignment
        self.send(pb.PullResponse(assignments=[assignment]))
        return assignment.attempt.token

    def shell(self, command: str, **more: Any) -> int:
        env = more.pop("env", {})
        task = job_pb2.ShellTask(command=command, env=env, cwd=more.pop("cwd", ""))
        return self.assign(job_pb2.Task(shell=task), **more)

    def python(self, name: str, args_json: str = "", **more: Any) -> int:
        task = job_pb2.PythonTask(task=name, args_json=args_json)
        return self.assign(job_pb2.Task(python=task), **more)

    def http(self, url: str, **more: Any) -> int:
        fields = ("method", "headers", "body", "expect")
        task = job_pb2.HttpTask(
            url=url, **{name: more.pop(name) for name in fields if name in more}
        )
        return self.assign(job_pb2.Task(http=task), **more)

    def cancel(self, token: int, *, terminate: bool = False) -> None:
        mode = run_pb2.CANCEL_MODE_TERMINATE if terminate else run_pb2.CANCEL_MODE_CANCEL
        ref = self._assigned[token].attempt
        cancellation = pb.Cancellation(attempt=ref, mode=mode, reason="by hand")
        self.send(pb.PullResponse(cancellations=[cancellation]))

    def send(self, response: pb.PullResponse) -> None:
        assert self._out is not None, "no worker is connected"
        self._out.put_nowait(response)

    def cut(self) -> None:
        """Ends the stream."""
        assert self._out is not None, "no worker is connected"
        self._out.put_nowait(None)

    async def until(self, what: Callable[[], object]) -> None:
        async with self._changed, asyncio.timeout(20):
            await self._changed.wait_for(what)

    async def connected(self, times: int = 1) -> None:
        await self.until(lambda: len(self.hellos) >= times and self.credits > 0)

    async def completion(self, token: int) -> pb.Completion:
        await self.until(lambda: any(c.attempt.token == token for c in self.completions))
        return next(c for c in self.completions if c.attempt.token == token)

    async def begun(self, token: int) -> None:
        await self.until(lambda: token in self.started)

    async def beats(self, more: int) -> None:
        """Waits for so many further heartbeats."""
        goal = self.heartbeats + more
        await self.until(lambda: self.heartbeats >= goal)

    # The servicer

    async def Pull(self, request_iterator: Any, _context: Any) -> AsyncIterator[pb.PullResponse]:
        first = await anext(request_iterator)
        await self._note(lambda: self.hellos.append(first.hello))
        if self.leader is not None:
            raise NotLeader(self.leader)
        out: asyncio.Queue[pb.PullResponse | None] = asyncio.Queue()
        self._out, self.credits = out, 0
        out.put_nowait(
            pb.PullResponse(
                welcome=pb.Welcome(
                    session=self.session,
                    owner_token=self.token,
                    session_timeout_ms=self.session_ms,
                    heartbeat_interval_ms=self.heartbeat_ms,
                    revoked=self.revokes,
                )
            )
        )
        reading = asyncio.create_task(self._read(request_iterator, out))
        try:
            while (response := await out.get()) is not None:
                yield response
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await self._note(self._count_end)

    def _count_end(self) -> None:
        self.streams_ended += 1

    async def _read(self, requests: Any, out: asyncio.Queue[pb.PullResponse | None]) -> None:
        async for request in requests:
            async with self._changed:
                self._take(request, out)
                self._changed.notify_all()
        out.put_nowait(None)

    def _take(self, request: pb.PullRequest, out: asyncio.Queue[pb.PullResponse | None]) -> None:
        self.messages += 1
        self.credits += request.credits
        self.started += [ref.token for ref in request.started]
        self.returned += [ref.token for ref in request.returned]
        self.completions += request.completions
        self.progress += request.progress
        self.closed |= request.closing
        self.draining |= request.draining
        self.heartbeats += request.heartbeat > 0
        if request.heartbeat and self.answers_heartbeats:
            out.put_nowait(pb.PullResponse(heartbeat=request.heartbeat))
        if request.completions and self.acknowledges:
            results = [
                pb.CompletionResult(attempt=completion.attempt, accepted=self.accepts)
                for completion in request.completions
            ]
            out.put_nowait(pb.PullResponse(results=results))

    async def _note(self, change: Callable[[], object]) -> None:
        async with self._changed:
            change()
            self._changed.notify_all()


@asynccontextmanager
async def serving(
    owner: Owner, *, transport: Transport | None = None, listen: str = "127.0.0.1:0"
) -> AsyncIterator[str]:
    """Serves an owner, over gRPC unless told otherwise; gives its address."""

    def register(server: aio.Server) -> None:
        worker_pb2_grpc.add_WorkerServiceServicer_to_server(owner, server)

    server = RpcServer(
        transport=transport or GrpcTransport(),
        listen=listen,
        services=(Service(SERVICE, frozenset({Role.WORKER}), register),),
        secrets={},
        randomness=SystemRandomness(),
        telemetry=Telemetry(),
        grace_s=0.0,
    )
    await server.start()
    try:
        yield server.address
    finally:
        await server.stop()

"""Whether a mesh serves: what its processes' health says, followed without polling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, Self

from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sexton_cli.up.plan import Program
from sexton_runtime.rpc.grpc_transport import LEADER, GrpcTransport

OVERALL: Final = ""
LED: Final = ("coordinator", "queue")
"""Roles of which one replica has to lead."""
_AGAIN_S: Final = 0.1
_SERVING: Final = health_pb2.HealthCheckResponse.SERVING


class Readiness:
    """Follows the health of all programs that listen; `async with` it."""

    def __init__(
        self,
        programs: Sequence[Program],
        *,
        on_leader: Callable[[Program], None] | None = None,
    ) -> None:
        self._programs = [program for program in programs if program.port is not None]
        self._on_leader = on_leader or (lambda _program: None)
        self._serving: set[tuple[str, str]] = set()
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        for program in self._programs:
            services = (OVERALL, LEADER) if program.role in LED else (OVERALL,)
            self._tasks.append(asyncio.create_task(self._follow(program, services)))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def missing(self) -> list[str]:
        """Names what does not serve yet: processes, and roles that nobody leads."""
        names = [p.name for p in self._programs if (p.name, OVERALL) not in self._serving]
        roles = {program.role for program in self._programs}
        return names + [
            f"a leading {role}" for role in LED if role in roles and self.leader(role) is None
        ]

    def leader(self, role: str) -> Program | None:
        """Gives the replica that leads; None: nobody does, as far as is known."""
        leading = (
            p for p in self._programs if p.role == role and (p.name, LEADER) in self._serving
        )
        return next(leading, None)

    async def wait_changed(self, timeout_s: float) -> None:
        """Returns when something has changed, or the time is over."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _follow(self, program: Program, services: Sequence[str]) -> None:
        async with GrpcTransport().channel(program.address) as channel:
            # types-grpcio-health-checking knows no Watch.
            stub: Any = health_pb2_grpc.HealthStub(channel)
            async with asyncio.TaskGroup() as group:
                for service in services:
                    group.create_task(self._watch(program, stub, service))

    async def _watch(self, program: Program, stub: Any, service: str) -> None:
        while True:
            request = health_pb2.HealthCheckRequest(service=service)
            call = stub.Watch(request, wait_for_ready=True)
            try:
                async for answer in call:
                    self._set(program, service, serving=answer.status == _SERVING)
            except aio.AioRpcError:
                pass
            finally:
                call.cancel()
            self._set(program, service, serving=False)
            await asyncio.sleep(_AGAIN_S)

    def _set(self, program: Program, service: str, *, serving: bool) -> None:
        key = (program.name, service)
        if serving == (key in self._serving):
            return
        if serving:
            self._serving.add(key)
        else:
            self._serving.discard(key)
        self._changed.set()
        self._changed = asyncio.Event()
        if serving and service == LEADER:
            self._on_leader(program)

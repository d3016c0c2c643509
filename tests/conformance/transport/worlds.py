"""The two transports under test: real gRPC on 127.0.0.1 and the in-memory twin."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import grpc
from grpc import aio

from sexton_sim.loop import SimLoop
from sexton_sim.network import Network
from sexton_sim.transport import SimTransport


class World(Protocol):
    def run(self, scenario: Callable[[Any], Awaitable[None]]) -> None: ...


class GrpcTransport:
    """The plainest real transport: what is under test is gRPC itself, not our settings."""

    def __init__(self) -> None:
        self._servers: list[aio.Server] = []
        self._channels: list[aio.Channel] = []

    def channel(self, target: str) -> aio.Channel:
        options = [
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 1000),
            ("grpc.max_reconnect_backoff_ms", 1000),
        ]
        channel = aio.insecure_channel(target, options)
        self._channels.append(channel)
        return channel

    def server(self, interceptors: Sequence[aio.ServerInterceptor] = ()) -> aio.Server:
        server = aio.server(interceptors=interceptors, options=[("grpc.so_reuseport", 0)])
        self._servers.append(server)
        return server

    def bind(self, server: aio.Server, address: str) -> int:
        try:
            return server.add_insecure_port(address)
        except RuntimeError as error:
            raise OSError(98, str(error)) from error

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()
        for server in self._servers:
            await server.stop(None)


class GrpcWorld:
    def run(self, scenario: Callable[[Any], Awaitable[None]]) -> None:
        async def main() -> None:
            transport = GrpcTransport()
            try:
                async with asyncio.timeout(10):
                    await scenario(transport)
            finally:
                await transport.close()

        asyncio.run(main())


class SimWorld:
    def run(self, scenario: Callable[[Any], Awaitable[None]]) -> None:
        loop = SimLoop()
        loop.run(self._main(scenario))
        assert loop.unhandled == []

    async def _main(self, scenario: Callable[[Any], Awaitable[None]]) -> None:
        async with asyncio.timeout(10):
            await scenario(SimTransport(Network(seed=1)))


class Echo:
    """A service of raw bytes with all four kinds of method; `seen` is what its handlers met."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.started = asyncio.Event()
        self.ended = asyncio.Event()

    async def unary(self, request: bytes, context: Any) -> bytes:
        self.seen.append(request)
        return b"re:" + request

    async def hang(self, request: bytes, context: Any) -> bytes:
        self.started.set()
        self.seen.append(context.time_remaining())
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.seen.append("cancelled")
            self.ended.set()
            raise
        return b""

    async def count(self, request: bytes, context: Any) -> Any:
        for number in range(int(request)):
            yield b"%d" % number

    async def count_then_abort(self, request: bytes, context: Any) -> Any:
        for number in range(int(request)):
            yield b"%d" % number
        await context.abort(grpc.StatusCode.ABORTED, "enough")

    async def count_then_hang(self, request: bytes, context: Any) -> None:
        self.started.set()
        try:
            for number in range(int(request)):
                await context.write(b"%d" % number)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.seen.append("cancelled")
            self.ended.set()
            raise

    async def join(self, requests: Any, context: Any) -> bytes:
        return b"+".join([request async for request in requests])

    async def join_by_reading(self, _requests: Any, context: Any) -> bytes:
        parts = []
        while (request := await context.read()) is not aio.EOF:
            parts.append(request)
        return b"+".join(parts)

    async def chat(self, requests: Any, context: Any) -> Any:
        async for request in requests:
            yield b"re:" + request

    async def chat_by_reading(self, _requests: Any, context: Any) -> None:
        while (request := await context.read()) is not aio.EOF:
            await context.write(b"re:" + request)

    async def hang_up_after_one(self, requests: Any, context: Any) -> Any:
        async for request in requests:
            yield request
            return


UNARY = grpc.unary_unary_rpc_method_handler
UNARY_STREAM = grpc.unary_stream_rpc_method_handler
STREAM_UNARY = grpc.stream_unary_rpc_method_handler
STREAM = grpc.stream_stream_rpc_method_handler


async def serve(
    transport: Any,
    echo: Any = None,
    *,
    interceptors: Any = (),
    address: str = "127.0.0.1:0",
    **more: Any,
) -> tuple[aio.Server, str]:
    """Starts a server; gives it and its address. Keyword arguments are further handlers."""
    echo = echo or Echo()
    server = transport.server(interceptors)
    handlers = {
        "unary": UNARY(echo.unary),
        "hang": UNARY(echo.hang),
        "count": UNARY_STREAM(echo.count),
        "count_then_abort": UNARY_STREAM(echo.count_then_abort),
        "count_then_hang": UNARY_STREAM(echo.count_then_hang),
        "join": STREAM_UNARY(echo.join),
        "join_by_reading": STREAM_UNARY(echo.join_by_reading),
        "chat": STREAM(echo.chat),
        "chat_by_reading": STREAM(echo.chat_by_reading),
        "hang_up_after_one": STREAM(echo.hang_up_after_one),
        **more,
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Echo", handlers),))
    port = transport.bind(server, address)
    await server.start()
    return server, f"127.0.0.1:{port}"

"""Connecting, stopping and losing a server, over gRPC and over the in-memory twin."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from conformance.transport.worlds import Echo, World, serve
from grpc import aio


def test_nobody_listening_is_unavailable(world: World) -> None:
    async def scenario(transport: Any) -> None:
        server, address = await serve(transport)
        await server.stop(None)
        channel = transport.channel(address)
        with pytest.raises(aio.AioRpcError) as caught:
            await channel.unary_unary("/Echo/unary")(b"", timeout=5)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE

    world.run(scenario)


def test_wait_for_ready_waits_for_the_server(world: World) -> None:
    async def scenario(transport: Any) -> None:
        server, address = await serve(transport)
        await server.stop(None)
        channel = transport.channel(address)
        call = channel.unary_unary("/Echo/unary")(b"x", timeout=8, wait_for_ready=True)
        await asyncio.sleep(0.1)
        assert not call.done()
        _again, _address = await serve(transport, address=address)
        assert await call == b"re:x"
        assert channel.get_state() is grpc.ChannelConnectivity.READY

    world.run(scenario)


def test_wait_for_ready_ends_with_the_deadline(world: World) -> None:
    async def scenario(transport: Any) -> None:
        server, address = await serve(transport)
        await server.stop(None)
        with pytest.raises(aio.AioRpcError) as caught:
            await transport.channel(address).unary_unary("/Echo/unary")(
                b"x", timeout=0.2, wait_for_ready=True
            )
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED

    world.run(scenario)


def test_a_channel_connects_when_it_is_asked_to(world: World) -> None:
    async def scenario(transport: Any) -> None:
        _server, address = await serve(transport)
        channel = transport.channel(address)
        assert channel.get_state() is grpc.ChannelConnectivity.IDLE
        await channel.channel_ready()
        assert channel.get_state() is grpc.ChannelConnectivity.READY

    world.run(scenario)


def test_an_address_that_is_taken_is_an_os_error(world: World) -> None:
    async def scenario(transport: Any) -> None:
        _server, address = await serve(transport)
        with pytest.raises(OSError, match=address.partition(":")[2]):
            await serve(transport, address=address)

    world.run(scenario)


def test_stopping_without_grace_cancels_handlers_and_their_callers_see_unavailable(
    world: World,
) -> None:
    async def scenario(transport: Any) -> None:
        echo = Echo()
        server, address = await serve(transport, echo)
        call = transport.channel(address).unary_unary("/Echo/hang")(b"", timeout=5)
        await echo.started.wait()
        await server.stop(None)
        await echo.ended.wait()
        with pytest.raises(aio.AioRpcError) as caught:
            await call
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE

    world.run(scenario)


def test_stopping_with_grace_lets_calls_end_but_takes_no_new_ones(world: World) -> None:
    async def scenario(transport: Any) -> None:
        release = asyncio.Event()

        class Slow(Echo):
            async def unary(self, request: bytes, context: Any) -> bytes:
                self.started.set()
                await release.wait()
                return b"done"

        echo = Slow()
        server, address = await serve(transport, echo)
        channel = transport.channel(address)
        call = channel.unary_unary("/Echo/unary")(b"", timeout=5)
        await echo.started.wait()
        stopping = asyncio.create_task(server.stop(5))
        await asyncio.sleep(0.05)
        with pytest.raises(aio.AioRpcError) as caught:
            await channel.unary_unary("/Echo/unary")(b"", timeout=2)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert not stopping.done()
        release.set()
        assert await call == b"done"
        await stopping
        assert not await server.wait_for_termination(1)

    world.run(scenario)


def test_stopping_cancels_what_outlasts_the_grace(world: World) -> None:
    async def scenario(transport: Any) -> None:
        echo = Echo()
        server, address = await serve(transport, echo)
        call = transport.channel(address).unary_stream("/Echo/count_then_hang")(b"1", timeout=5)
        assert await call.read() == b"0"
        await server.stop(0.1)
        await echo.ended.wait()
        with pytest.raises(aio.AioRpcError) as caught:
            await call.read()
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE

    world.run(scenario)


def test_a_restarted_server_is_found_again(world: World) -> None:
    async def scenario(transport: Any) -> None:
        server, address = await serve(transport)
        channel = transport.channel(address)
        unary = channel.unary_unary("/Echo/unary")
        assert await unary(b"a", timeout=5) == b"re:a"
        await server.stop(None)
        if channel.get_state() is grpc.ChannelConnectivity.READY:
            await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)
        _again, _address = await serve(transport, address=address)
        assert await unary(b"b", timeout=5, wait_for_ready=True) == b"re:b"

    world.run(scenario)


def test_closing_a_channel_cancels_its_calls(world: World) -> None:
    async def scenario(transport: Any) -> None:
        echo = Echo()
        _server, address = await serve(transport, echo)
        channel = transport.channel(address)
        call = channel.unary_unary("/Echo/hang")(b"", timeout=5)
        await echo.started.wait()
        await channel.close()
        with pytest.raises(asyncio.CancelledError):
            await call
        await echo.ended.wait()
        assert channel.get_state() is grpc.ChannelConnectivity.SHUTDOWN
        with pytest.raises(aio.UsageError):
            await channel.unary_unary("/Echo/unary")(b"", timeout=5)

    world.run(scenario)


def test_a_channel_closed_with_grace_lets_its_calls_end(world: World) -> None:
    async def scenario(transport: Any) -> None:
        class Slow(Echo):
            async def unary(self, request: bytes, context: Any) -> bytes:
                self.started.set()
                await asyncio.sleep(0.1)
                return b"done"

        echo = Slow()
        _server, address = await serve(transport, echo)
        channel = transport.channel(address)
        call = channel.unary_unary("/Echo/unary")(b"", timeout=5)
        await echo.started.wait()
        await channel.close(5)
        assert await call == b"done"

    world.run(scenario)

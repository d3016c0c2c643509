"""What streams show to both ends, over gRPC and over the in-memory twin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from conformance.transport.worlds import STREAM, UNARY_STREAM, Echo, World, serve
from grpc import aio


def test_responses_can_be_iterated_or_read(world: World) -> None:
    async def scenario(transport: Any) -> None:
        _server, address = await serve(transport)
        count = transport.channel(address).unary_stream("/Echo/count")
        assert [it async for it in count(b"3", timeout=5)] == [b"0", b"1", b"2"]
        call = count(b"2", timeout=5)
        assert [await call.read(), await call.read()] == [b"0", b"1"]
        assert await call.read() is aio.EOF
        assert await call.code() is grpc.StatusCode.OK
        assert await call.read() is aio.EOF

    world.run(scenario)


def test_iterating_and_reading_one_call_is_a_usage_error(world: World) -> None:
    async def scenario(transport: Any) -> None:
        _server, address = await serve(transport)
        call = transport.channel(address).unary_stream("/Echo/count")(b"3", timeout=5)
        assert await call.read() == b"0"
        with pytest.raises(aio.UsageError):
            call.__aiter__()
        call.cancel()

    world.run(scenario)


def test_an_error_comes_after_the_responses_that_precede_it(world: World) -> None:
    async def scenario(transport: Any) -> None:
        _server, address = await serve(transport)
        call = transport.channel(address).unary_stream("/Echo/count_then_abort")(b"3", timeout=5)
        got = [await call.read()]
        await asyncio.sleep(0.02)
        got += [await call.read(), await call.read()]
        assert got == [b"0", b"1", b"2"]
        with pytest.raises(aio.AioRpcError) as caught:
            await call.read()
        assert caught.value.code() is grpc.StatusCode.ABORTED
        assert caught.value.details() == "enough"

    world.run(scenario)


def test_a_stream_that_is_cancelled_cancels_its_handler(world: World) -> None:
    async def scenario(transport: Any) -> None:
        echo = Echo()
        _server, address = await serve(transport, echo)
        call = transport.channel(address).unary_stream("/Echo/count_then_hang")(b"1", timeout=5)
        assert await call.read() == b"0"
        assert call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call.read()
        await echo.ended.wait()

    world.run(scenario)


def test_cancelling_who_waits_for_a_response_cancels_the_call(world: World) -> None:
    async def scenario(transport: Any) -> None:
        echo = Echo()
        _server, address = await serve(transport, echo)
        call = transport.channel(address).unary_stream("/Echo/count_then_hang")(b"0", timeout=5)
        task = asyncio.create_task(call.read())
        await echo.started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert call.cancelled()
        await echo.ended.wait()

    world.run(scenario)


def test_a_deadline_ends_a_stream_at_both_ends(world: World) -> None:
    async def scenario(transport: Any) -> None:
        echo = Echo()
        _server, address = await serve(transport, echo)
        call = transport.channel(address).unary_stream("/Echo/count_then_hang")(b"2", timeout=0.2)
        responses = aiter(call)
        assert [await anext(responses), await anext(responses)] == [b"0", b"1"]
        with pytest.raises(aio.AioRpcError) as caught:
            await anext(responses)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await echo.ended.wait()

    world.run(scenario)


def test_requests_can_be_written_or_iterated(world: World) -> None:
    async def scenario(transport: Any) -> None:
        _server, address = await serve(transport)
        channel = transport.channel(address)

        async def requests() -> AsyncIterator[bytes]:
            yield b"a"
            yield b"b"

        for method in ("join", "join_by_reading"):
            join = channel.stream_unary(f"/Echo/{method}")
            assert await join(requests(), timeout=5) == b"a+b"
            assert await join([b"c", b"d"], timeout=5) == b"c+d"
            call = join(timeout=5)
            await call.write(b"e")
            await call.write(b"f")
            await call.done_writing()
            await call.done_writing()
            assert await call == b"e+f"

    world.run(scenario)


def test_both_styles_of_handler_talk_both_ways(world: World) -> None:
    async def scenario(transport: Any) -> None:
        _server, address = await serve(transport)
        for method in ("chat", "chat_by_reading"):
            call = transport.channel(address).stream_stream(f"/Echo/{method}")(timeout=5)
            await call.write(b"a")
            assert await call.read() == b"re:a"
            await call.write(b"b")
            assert await call.read() == b"re:b"
            await call.done_writing()
            assert await call.read() is aio.EOF
            assert await call.code() is grpc.StatusCode.OK

    world.run(scenario)


def test_writing_to_a_half_closed_or_finished_call_is_an_invalid_state(world: World) -> None:
    async def scenario(transport: Any) -> None:
        _server, address = await serve(transport)
        channel = transport.channel(address)
        call = channel.stream_stream("/Echo/chat")(timeout=5)
        await call.write(b"a")
        await call.done_writing()
        with pytest.raises(asyncio.InvalidStateError):
            await call.write(b"b")
        call = channel.stream_stream("/Echo/hang_up_after_one")(timeout=5)
        await call.write(b"a")
        assert await call.read() == b"a"
        assert await call.read() is aio.EOF
        with pytest.raises(asyncio.InvalidStateError):
            await call.write(b"b")

    world.run(scenario)


def test_writing_beside_an_iterator_is_a_usage_error(world: World) -> None:
    async def scenario(transport: Any) -> None:
        _server, address = await serve(transport)
        call = transport.channel(address).stream_stream("/Echo/chat")([b"a"], timeout=5)
        with pytest.raises(aio.UsageError):
            await call.write(b"b")
        assert [it async for it in call] == [b"re:a"]

    world.run(scenario)


def test_an_iterator_that_fails_cancels_the_call(world: World) -> None:
    async def scenario(transport: Any) -> None:
        _server, address = await serve(transport)

        async def requests() -> AsyncIterator[bytes]:
            yield b"a"
            raise RuntimeError("no more")

        call = transport.channel(address).stream_unary("/Echo/join")(requests(), timeout=5)
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await call.code() is grpc.StatusCode.CANCELLED

    world.run(scenario)


def test_a_client_that_cancels_ends_the_handlers_reading(world: World) -> None:
    async def scenario(transport: Any) -> None:
        ended = asyncio.Event()

        async def listen(requests: Any, context: Any) -> Any:
            try:
                async for request in requests:
                    yield request
            finally:
                ended.set()

        _server, address = await serve(transport, listen=STREAM(listen))
        call = transport.channel(address).stream_stream("/Echo/listen")(timeout=5)
        await call.write(b"a")
        assert await call.read() == b"a"
        call.cancel()
        await ended.wait()

    world.run(scenario)


def test_a_request_above_the_limit_ends_the_stream(world: World) -> None:
    async def scenario(transport: Any) -> None:
        _server, address = await serve(transport)
        call = transport.channel(address).stream_stream("/Echo/chat")(timeout=5)
        await call.write(b"x" * (4 * 1024 * 1024 + 1))
        with pytest.raises(aio.AioRpcError) as caught:
            await call.read()
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    world.run(scenario)


def test_a_response_above_the_limit_ends_the_stream(world: World) -> None:
    async def scenario(transport: Any) -> None:
        async def swell(request: bytes, context: Any) -> Any:
            yield b"small"
            yield b"x" * (4 * 1024 * 1024 + 1)

        _server, address = await serve(transport, swell=UNARY_STREAM(swell))
        call = transport.channel(address).unary_stream("/Echo/swell")(b"", timeout=5)
        assert await call.read() == b"small"
        with pytest.raises(aio.AioRpcError) as caught:
            await call.read()
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    world.run(scenario)


def test_a_writer_waits_for_a_reader_that_does_not_read(world: World) -> None:
    async def scenario(transport: Any) -> None:
        written = 0

        async def pour(request: bytes, context: Any) -> None:
            nonlocal written
            while True:
                await context.write(b"x" * 1_000_000)
                written += 1

        _server, address = await serve(transport, pour=UNARY_STREAM(pour))
        call = transport.channel(address).unary_stream("/Echo/pour")(b"", timeout=5)
        await call.read()
        await asyncio.sleep(0.2)
        assert written < 30
        call.cancel()

    world.run(scenario)


def test_initial_metadata_comes_before_the_first_response(world: World) -> None:
    async def scenario(transport: Any) -> None:
        async def tell(request: bytes, context: Any) -> Any:
            await context.send_initial_metadata((("early", "1"),))
            await asyncio.sleep(0.02)
            yield b"late"

        _server, address = await serve(transport, tell=UNARY_STREAM(tell))
        call = transport.channel(address).unary_stream("/Echo/tell")(b"", timeout=5)
        assert (await call.initial_metadata())["early"] == "1"
        assert [it async for it in call] == [b"late"]

    world.run(scenario)

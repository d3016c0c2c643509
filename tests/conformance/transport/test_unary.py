"""What a unary call shows to both ends, over gRPC and over the in-memory twin."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from conformance.transport.worlds import UNARY, Echo, World, serve
from google.rpc import error_details_pb2, status_pb2
from grpc import aio
from grpc_status import rpc_status

from sexton.internal.v1 import store_pb2, store_pb2_grpc


def test_a_call_carries_messages_and_metadata_both_ways(world: World) -> None:
    async def scenario(transport: Any) -> None:
        async def tell(request: bytes, context: Any) -> bytes:
            await context.send_initial_metadata((("early", "1"),))
            context.set_trailing_metadata((("late", "2"), ("late-bin", b"\x00\xff")))
            seen = dict(context.invocation_metadata())
            return request + seen["asked"].encode() + seen["asked-bin"]

        _server, address = await serve(transport, tell=UNARY(tell))
        call = transport.channel(address).unary_unary("/Echo/tell")(
            b"x", metadata=(("asked", "y"), ("asked-bin", b"\xfe")), timeout=5
        )
        assert await call == b"xy\xfe"
        assert (await call.initial_metadata())["early"] == "1"
        trailing = await call.trailing_metadata()
        assert trailing["late"] == "2"
        assert trailing["late-bin"] == b"\x00\xff"
        assert await call.code() is grpc.StatusCode.OK
        assert call.done()
        assert not call.cancelled()
        assert not call.cancel()

    world.run(scenario)


def test_generated_stubs_and_servicers_work_unchanged(world: World) -> None:
    class Store(store_pb2_grpc.StoreServiceServicer):
        async def Get(self, request: Any, context: Any) -> Any:
            return store_pb2.GetResponse(
                revision=7, kvs=[store_pb2.KeyValue(key=key) for key in request.keys]
            )

        async def Watch(self, request: Any, context: Any) -> Any:
            for revision in (8, 9):
                yield store_pb2.WatchResponse(progress_revision=revision)

        async def CommitStream(self, request_iterator: Any, context: Any) -> Any:
            async for request in request_iterator:
                yield store_pb2.CommitStreamResponse(sequence=request.sequence)

    async def scenario(transport: Any) -> None:
        server = transport.server()
        store_pb2_grpc.add_StoreServiceServicer_to_server(Store(), server)
        port = transport.bind(server, "127.0.0.1:0")
        await server.start()
        stub: Any = store_pb2_grpc.StoreServiceStub(transport.channel(f"127.0.0.1:{port}"))
        answer = await stub.Get(store_pb2.GetRequest(keys=[b"a", b"b"]), timeout=5)
        assert [kv.key for kv in answer.kvs] == [b"a", b"b"]
        watch = stub.Watch(store_pb2.WatchRequest(), timeout=5)
        assert [it.progress_revision async for it in watch] == [8, 9]
        stream = stub.CommitStream(timeout=5)
        await stream.write(store_pb2.CommitStreamRequest(sequence=3))
        assert (await stream.read()).sequence == 3
        await stream.done_writing()
        assert await stream.read() is aio.EOF
        with pytest.raises(aio.AioRpcError) as caught:
            await stub.Status(store_pb2.StatusRequest(), timeout=5)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED

    world.run(scenario)


def test_abort_ends_the_call_with_code_details_and_trailing_metadata(world: World) -> None:
    async def scenario(transport: Any) -> None:
        async def refuse(request: bytes, context: Any) -> bytes:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such thing", (("why", "gone"),))

        _server, address = await serve(transport, refuse=UNARY(refuse))
        with pytest.raises(aio.AioRpcError) as caught:
            await transport.channel(address).unary_unary("/Echo/refuse")(b"", timeout=5)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
        assert caught.value.details() == "no such thing"
        assert caught.value.trailing_metadata()["why"] == "gone"

    world.run(scenario)


def test_a_rich_status_arrives_whole(world: World) -> None:
    status = status_pb2.Status(code=9, message="fenced")
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason="FENCED", domain="sexton"))

    async def scenario(transport: Any) -> None:
        async def refuse(request: bytes, context: Any) -> bytes:
            await context.abort_with_status(rpc_status.to_status(status))

        _server, address = await serve(transport, refuse=UNARY(refuse))
        with pytest.raises(aio.AioRpcError) as caught:
            await transport.channel(address).unary_unary("/Echo/refuse")(b"", timeout=5)
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert rpc_status.from_call(caught.value) == status

    world.run(scenario)


def test_a_set_code_is_what_the_caller_gets(world: World) -> None:
    async def scenario(transport: Any) -> None:
        async def refuse(request: bytes, context: Any) -> bytes:
            context.set_code(grpc.StatusCode.DATA_LOSS)
            context.set_details("gone")
            return b"unseen"

        _server, address = await serve(transport, refuse=UNARY(refuse))
        with pytest.raises(aio.AioRpcError) as caught:
            await transport.channel(address).unary_unary("/Echo/refuse")(b"", timeout=5)
        assert caught.value.code() is grpc.StatusCode.DATA_LOSS
        assert caught.value.details() == "gone"

    world.run(scenario)


def test_an_exception_of_a_handler_becomes_unknown(world: World) -> None:
    async def scenario(transport: Any) -> None:
        async def fail(request: bytes, context: Any) -> bytes:
            raise ZeroDivisionError("oops")

        _server, address = await serve(transport, fail=UNARY(fail))
        with pytest.raises(aio.AioRpcError) as caught:
            await transport.channel(address).unary_unary("/Echo/fail")(b"", timeout=5)
        assert caught.value.code() is grpc.StatusCode.UNKNOWN
        assert caught.value.details() == "Unexpected <class 'ZeroDivisionError'>: oops"

    world.run(scenario)


def test_garbage_and_a_missing_response_become_unknown(world: World) -> None:
    async def scenario(transport: Any) -> None:
        handlers = {
            "parse": UNARY(Echo().unary, store_pb2.GetRequest.FromString, None),
            "nothing": UNARY(Echo().unary, None, store_pb2.GetResponse.SerializeToString),
        }
        _server, address = await serve(transport, **handlers)
        channel = transport.channel(address)
        for method, request in (("parse", b"\xff\xff"), ("nothing", b"")):
            with pytest.raises(aio.AioRpcError) as caught:
                await channel.unary_unary(f"/Echo/{method}")(request, timeout=5)
            assert caught.value.code() is grpc.StatusCode.UNKNOWN

    world.run(scenario)


def test_a_method_that_nobody_serves_is_unimplemented(world: World) -> None:
    async def scenario(transport: Any) -> None:
        _server, address = await serve(transport)
        with pytest.raises(aio.AioRpcError) as caught:
            await transport.channel(address).unary_unary("/Echo/absent")(b"", timeout=5)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert caught.value.details() == "Method not found!"

    world.run(scenario)


def test_a_deadline_ends_both_ends(world: World) -> None:
    async def scenario(transport: Any) -> None:
        echo = Echo()
        _server, address = await serve(transport, echo)
        with pytest.raises(aio.AioRpcError) as caught:
            await transport.channel(address).unary_unary("/Echo/hang")(b"", timeout=0.1)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert caught.value.details() == "Deadline Exceeded"
        await echo.ended.wait()
        remaining, end = echo.seen
        assert 0 < remaining < 0.2
        assert end == "cancelled"

    world.run(scenario)


def test_a_deadline_that_has_passed_sends_nothing(world: World) -> None:
    async def scenario(transport: Any) -> None:
        echo = Echo()
        _server, address = await serve(transport, echo)
        channel = transport.channel(address)
        with pytest.raises(aio.AioRpcError) as caught:
            await channel.unary_unary("/Echo/unary")(b"", timeout=-1)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await channel.unary_unary("/Echo/unary")(b"second", timeout=5)
        assert echo.seen == [b"second"]

    world.run(scenario)


def test_a_call_without_a_deadline_has_no_time_remaining(world: World) -> None:
    async def scenario(transport: Any) -> None:
        async def tell(request: bytes, context: Any) -> bytes:
            return repr(context.time_remaining()).encode()

        _server, address = await serve(transport, tell=UNARY(tell))
        call = transport.channel(address).unary_unary("/Echo/tell")(b"")
        assert call.time_remaining() is None
        assert await call == b"None"

    world.run(scenario)


def test_cancelling_the_waiting_task_cancels_the_handler(world: World) -> None:
    async def scenario(transport: Any) -> None:
        echo = Echo()
        _server, address = await serve(transport, echo)
        call = transport.channel(address).unary_unary("/Echo/hang")(b"", timeout=5)

        async def wait() -> bytes:
            answer: bytes = await call
            return answer

        task = asyncio.create_task(wait())
        await echo.started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert call.cancelled()
        await echo.ended.wait()

    world.run(scenario)


def test_cancelling_the_call_wakes_who_awaits_it(world: World) -> None:
    async def scenario(transport: Any) -> None:
        echo = Echo()
        _server, address = await serve(transport, echo)
        call = transport.channel(address).unary_unary("/Echo/hang")(b"", timeout=5)
        ended: list[Any] = []
        call.add_done_callback(ended.append)
        await echo.started.wait()
        assert call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await call.code() is grpc.StatusCode.CANCELLED
        assert await call.details() == "Locally cancelled by application!"
        assert ended == [call]
        await echo.ended.wait()

    world.run(scenario)


def test_a_handler_learns_of_its_end_by_callback(world: World) -> None:
    async def scenario(transport: Any) -> None:
        ended = asyncio.Event()

        async def tell(request: bytes, context: Any) -> bytes:
            context.add_done_callback(lambda _context: ended.set())
            return b"ok"

        _server, address = await serve(transport, tell=UNARY(tell))
        assert await transport.channel(address).unary_unary("/Echo/tell")(b"", timeout=5) == b"ok"
        await ended.wait()

    world.run(scenario)


def test_a_message_above_four_mebibytes_is_refused_by_its_receiver(world: World) -> None:
    limit = 4 * 1024 * 1024

    async def scenario(transport: Any) -> None:
        async def swell(request: bytes, context: Any) -> bytes:
            return b"x" * int(request)

        async def swallow(request: bytes, context: Any) -> bytes:
            return b"%d" % len(request)

        _server, address = await serve(transport, swell=UNARY(swell), swallow=UNARY(swallow))
        channel = transport.channel(address)
        assert await channel.unary_unary("/Echo/swallow")(b"x" * limit, timeout=5) == b"4194304"
        assert len(await channel.unary_unary("/Echo/swell")(b"%d" % limit, timeout=5)) == limit
        for method, request, side in (
            ("swallow", b"x" * (limit + 1), "SERVER"),
            ("swell", b"%d" % (limit + 1), "CLIENT"),
        ):
            with pytest.raises(aio.AioRpcError) as caught:
                await channel.unary_unary(f"/Echo/{method}")(request, timeout=5)
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert caught.value.details() in {
                f"{side}: Received message larger than max (4194305 vs. 4194304)",
                f"Stream removed ({side}: Received message larger than max (4194305 vs. 4194304))",
            }

    world.run(scenario)


def test_metadata_above_its_limit_is_refused(world: World) -> None:
    async def scenario(transport: Any) -> None:
        _server, address = await serve(transport)
        call = transport.channel(address).unary_unary("/Echo/unary")
        assert await call(b"", metadata=(("big", "x" * 4000),), timeout=5) == b"re:"
        with pytest.raises(aio.AioRpcError) as caught:
            await call(b"", metadata=(("big", "x" * 20_000),), timeout=5)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED

    world.run(scenario)


@pytest.mark.parametrize("entry", [("UPPER", "x"), ("key", "line\nbreak")])
def test_metadata_that_cannot_be_sent_is_no_rpc_error(world: World, entry: Any) -> None:
    async def scenario(transport: Any) -> None:
        _server, address = await serve(transport)
        with pytest.raises(aio.InternalError):
            await transport.channel(address).unary_unary("/Echo/unary")(
                b"", metadata=(entry,), timeout=5
            )

    world.run(scenario)


def test_interceptors_run_in_order_and_may_replace_the_handler(world: World) -> None:
    seen: list[str] = []

    class Note(aio.ServerInterceptor):
        def __init__(self, name: str) -> None:
            self.name = name

        async def intercept_service(self, continuation: Any, details: Any) -> Any:
            metadata = dict(details.invocation_metadata)
            seen.append(f"{self.name} {details.method} {metadata['who']}")
            return await continuation(details)

    class Shout(aio.ServerInterceptor):
        async def intercept_service(self, continuation: Any, details: Any) -> Any:
            handler = await continuation(details)

            async def shout(request: bytes, context: Any) -> bytes:
                answer: bytes = await handler.unary_unary(request, context)
                return answer.upper()

            return UNARY(shout, handler.request_deserializer, handler.response_serializer)

    async def scenario(transport: Any) -> None:
        interceptors = (Note("first"), Note("second"), Shout())
        _server, address = await serve(transport, interceptors=interceptors)
        call = transport.channel(address).unary_unary("/Echo/unary")
        assert await call(b"hi", metadata=(("who", "me"),), timeout=5) == b"RE:HI"

    world.run(scenario)
    assert seen == ["first /Echo/unary me", "second /Echo/unary me"]


def test_an_abort_in_an_interceptor_ends_the_call(world: World) -> None:
    class Refuse(aio.ServerInterceptor):
        async def intercept_service(self, continuation: Any, details: Any) -> Any:
            async def refuse(request: bytes, context: Any) -> bytes:
                await context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you?")

            return UNARY(refuse)

    async def scenario(transport: Any) -> None:
        _server, address = await serve(transport, interceptors=(Refuse(),))
        with pytest.raises(aio.AioRpcError) as caught:
            await transport.channel(address).unary_unary("/Echo/unary")(b"", timeout=5)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED

    world.run(scenario)

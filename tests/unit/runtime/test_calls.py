"""What every call has, from the channel's policy to the server's gate, on both networks."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import grpc
import pytest
from grpc import aio

from sexton import errors
from sexton.internal.v1 import store_pb2 as pb
from sexton.internal.v1 import store_pb2_grpc
from sexton_runtime.rpc.policy_channel import PolicyChannel, cancelling
from sexton_runtime.rpc.wire import MAX_MESSAGE_BYTES
from sexton_runtime.secrets import Role, SecretsConfig, load_secret


class Scripted(store_pb2_grpc.StoreServiceServicer):
    """Does what a test tells it to."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.metadata: dict[str, Any] = {}
        self.remaining_s: float | None = -1.0
        self.entered = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.released = asyncio.Event()

    async def Get(self, request: pb.GetRequest, context: Any) -> pb.GetResponse:
        self.metadata = dict(context.invocation_metadata())
        self.remaining_s = context.time_remaining()
        if self.error is not None:
            raise self.error
        return pb.GetResponse(revision=len(request.keys))

    async def Commit(self, request: pb.CommitRequest, context: Any) -> pb.CommitResponse:
        self.entered.set()
        try:
            await self.released.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return pb.CommitResponse(mesh_time_ns=1)

    async def Watch(self, request: pb.WatchRequest, context: Any) -> Any:
        self.metadata = dict(context.invocation_metadata())
        for number in range(1, request.start_revision + 1):
            yield pb.WatchResponse(progress_revision=number)
        if self.error is not None:
            raise self.error
        self.entered.set()
        try:
            await self.released.wait()
        finally:
            self.cancelled.set()

    async def CommitStream(self, request_iterator: Any, context: Any) -> Any:
        async for request in request_iterator:
            if request.sequence < 0:
                raise errors.InvalidArgument("sequence", request.sequence, "0 or more")
            yield pb.CommitStreamResponse(sequence=request.sequence)


@pytest.fixture
def servicer() -> Scripted:
    return Scripted()


@pytest.fixture
async def server(house, servicer):
    return await house.serve(servicer)


@pytest.fixture
async def channel(house, server):
    return house.channel(server)


@pytest.fixture
async def stub(channel) -> Any:
    return store_pb2_grpc.StoreServiceStub(channel)


# Errors


@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidArgument("keys[0]", b"", "1 to 480 bytes"),
        errors.StaleRevision("dispute", 1, 2),
        errors.WrongIncarnation("a", "b"),
        errors.NoSpace(),
        errors.Compacted(1, 7),
        errors.NotLeader("10.0.0.1:7700"),
        errors.OutcomeUnknown(),
        errors.Cancelled(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_what_a_servicer_raises_is_what_its_caller_catches(stub, servicer, error) -> None:
    servicer.error = error

    with pytest.raises(type(error)) as unary:
        await stub.Get(pb.GetRequest())
    with pytest.raises(type(error)) as streamed:
        async for _ in stub.Watch(pb.WatchRequest()):
            pass

    for raised in (unary, streamed):
        assert type(raised.value) is type(error)
        assert (raised.value.message, raised.value.facts) == (error.message, error.facts)


async def test_a_fault_of_our_own_shows_nothing_but_an_id(stub, servicer, server) -> None:
    servicer.error = ValueError("secret=hunter2")

    with pytest.raises(errors.Internal) as raised:
        await stub.Get(pb.GetRequest())

    assert len(raised.value.error_id) == 16
    assert raised.value.error_id in str(raised.value)
    assert "hunter2" not in str(raised.value)
    servicer.error = None
    assert (await stub.Get(pb.GetRequest(keys=[b"a"]))).revision == 1
    assert server.gate.calls["/sexton.internal.v1.StoreService/Get", "INTERNAL"] == 1
    assert server.gate.calls["/sexton.internal.v1.StoreService/Get", "OK"] == 1


async def test_a_request_that_is_no_message_is_refused(channel) -> None:
    raw = channel.unary_unary("/sexton.internal.v1.StoreService/Get")
    stream = channel.stream_stream("/sexton.internal.v1.StoreService/CommitStream")

    with pytest.raises(errors.InvalidArgument, match=r"request: .* a message of the method's"):
        await raw(b"\xff\xff\xff")
    with pytest.raises(errors.InvalidArgument, match=r"request: "):
        async for _ in stream(_each(b"\xff\xff\xff")):
            pass


async def test_a_message_above_the_limit_is_refused_and_one_at_the_limit_is_not(channel) -> None:
    get = channel.unary_unary("/sexton.internal.v1.StoreService/Get")
    at_limit = pb.GetRequest(keys=[b"x" * (MAX_MESSAGE_BYTES - 5)]).SerializeToString()
    assert len(at_limit) == MAX_MESSAGE_BYTES

    assert pb.GetResponse.FromString(await get(at_limit)).revision == 1
    with pytest.raises(errors.TooLarge):
        await get(at_limit + b"\x10\x01")


async def test_a_call_that_does_not_exist_says_so(channel) -> None:
    for method in ("/sexton.internal.v1.StoreService/Frobnicate", "/no.Service/Get", "/x"):
        with pytest.raises(errors.Unimplemented, match=r"there is no call"):
            await channel.unary_unary(method)(b"")


async def test_a_request_of_a_stream_is_refused_by_what_is_wrong_with_it(stub) -> None:
    stream = stub.CommitStream()
    await stream.write(pb.CommitStreamRequest(sequence=5))
    assert (await stream.read()).sequence == 5

    await stream.write(pb.CommitStreamRequest(sequence=-1))
    with pytest.raises(errors.InvalidArgument, match=r"sequence: -1"):
        await stream.read()


# Secrets, incarnation, trace


async def test_the_secret_and_the_incarnation_travel_with_every_call(
    stub, servicer, channel
) -> None:
    channel.incarnation = "inc-1"

    await stub.Get(pb.GetRequest(), metadata=(("x-own", "1"),))

    assert servicer.metadata["authorization"] == "Bearer " + "m" * 32
    assert servicer.metadata["sexton-incarnation"] == "inc-1"
    assert servicer.metadata["x-own"] == "1"


@pytest.mark.parametrize("secret", ["", "x" * 32])
async def test_a_caller_without_the_secret_reaches_no_servicer(house, server, servicer, secret):
    stub = store_pb2_grpc.StoreServiceStub(house.channel(server, secret))

    with pytest.raises(errors.Unauthenticated):
        await stub.Get(pb.GetRequest())
    with pytest.raises(errors.Unauthenticated):
        async for _ in stub.Watch(pb.WatchRequest()):
            pass

    assert servicer.metadata == {}


async def test_a_secret_that_is_replaced_at_once_costs_one_call(house, servicer, tmp_path) -> None:
    file = tmp_path / "mesh"
    file.write_text("m" * 32)
    secrets = SecretsConfig(dir=tmp_path)
    server = await house.serve(servicer, secrets={Role.MESH: load_secret(secrets, Role.MESH)})
    stub = store_pb2_grpc.StoreServiceStub(house.channel(server, load_secret(secrets, Role.MESH)))
    other = store_pb2_grpc.StoreServiceStub(house.channel(server, "n" * 32))
    await stub.Get(pb.GetRequest())

    file.write_text("n" * 32)
    await other.Get(pb.GetRequest())  # and now the server knows
    with pytest.raises(errors.Unavailable, match="the secret was replaced"):
        await stub.Get(pb.GetRequest())
    await stub.Get(pb.GetRequest())
    assert servicer.metadata["authorization"] == "Bearer " + "n" * 32


async def test_a_guard_refuses_by_method_and_metadata(house, servicer) -> None:
    def guard(method: str, metadata: Any) -> None:
        if method.endswith("/Get") and metadata.get("sexton-incarnation") != "mine":
            raise errors.WrongIncarnation("yours", "mine")

    channel = house.channel(await house.serve(servicer, guards=(guard,)))
    stub = store_pb2_grpc.StoreServiceStub(channel)

    with pytest.raises(errors.WrongIncarnation):
        await stub.Get(pb.GetRequest())
    channel.incarnation = "mine"
    await stub.Get(pb.GetRequest())


# Deadlines and cancellation


async def test_a_call_has_the_default_deadline_unless_it_is_given_one(stub, servicer) -> None:
    await stub.Get(pb.GetRequest())
    assert servicer.remaining_s == pytest.approx(10, abs=1)

    await stub.Get(pb.GetRequest(), timeout=100)
    assert servicer.remaining_s == pytest.approx(100, abs=1)


async def test_a_passed_deadline_is_an_error_and_cancels_the_handler(stub, servicer) -> None:
    with pytest.raises(errors.DeadlineExceeded):
        await stub.Commit(pb.CommitRequest(), timeout=0.05)

    await servicer.cancelled.wait()


async def test_a_caller_without_a_deadline_is_given_one_by_the_server(house, servicer) -> None:
    server = await house.serve(servicer)
    server.gate._default_timeout_s = 0.05
    raw = house.transport.channel(server.address)
    stub: Any = store_pb2_grpc.StoreServiceStub(raw)

    with pytest.raises(aio.AioRpcError) as raised:
        await stub.Commit(pb.CommitRequest(), metadata=(("authorization", "Bearer " + "m" * 32),))

    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert "had no deadline and was given up after 0.05 s" in raised.value.details()
    await raw.close()


async def test_cancelling_the_waiting_task_cancels_the_handler(stub, servicer) -> None:
    async def call() -> None:
        await stub.Commit(pb.CommitRequest())

    waiting = asyncio.create_task(call())
    await servicer.entered.wait()
    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    await servicer.cancelled.wait()


async def test_cancelling_the_call_is_an_error_of_the_caller_s_own(stub, servicer) -> None:
    call = stub.Commit(pb.CommitRequest())
    await servicer.entered.wait()
    call.cancel()

    with pytest.raises(errors.Cancelled):
        await call


async def test_a_closed_channel_fails_calls_in_flight_and_later_ones(
    stub, servicer, channel
) -> None:
    call = asyncio.ensure_future(_awaiting(stub.Commit(pb.CommitRequest())))
    await servicer.entered.wait()
    await channel.close()

    with pytest.raises(errors.Cancelled):
        await call
    with pytest.raises(errors.Unavailable):
        await stub.Get(pb.GetRequest())


async def test_a_dropped_stream_is_cancelled(stub, servicer) -> None:
    stream = stub.Watch(pb.WatchRequest(start_revision=1))
    assert (await stream.read()).progress_revision == 1
    await servicer.entered.wait()

    del stream
    gc.collect()

    await servicer.cancelled.wait()


async def test_leaving_the_loop_over_a_stream_cancels_it(stub, servicer) -> None:
    async with cancelling(stub.Watch(pb.WatchRequest(start_revision=3))) as stream:
        async for answer in stream:
            if answer.progress_revision == 2:
                await servicer.entered.wait()
                break

    await servicer.cancelled.wait()


async def test_writing_to_a_stream_that_has_failed_tells_why(stub) -> None:
    stream = stub.CommitStream()
    await stream.write(pb.CommitStreamRequest(sequence=-1))
    with pytest.raises(errors.InvalidArgument):
        await stream.read()

    with pytest.raises(errors.InvalidArgument):
        await stream.write(pb.CommitStreamRequest(sequence=1))


async def test_a_server_that_is_not_there_is_unavailable_and_nothing_happened(house) -> None:
    channel = house.transport.channel("127.0.0.1:1")
    stub: Any = store_pb2_grpc.StoreServiceStub(PolicyChannel(channel))

    with pytest.raises(errors.Unavailable) as raised:
        await stub.Get(pb.GetRequest())

    assert type(raised.value) is errors.Unavailable
    await channel.close()


async def test_a_server_that_goes_away_in_the_middle_leaves_the_outcome_unknown(
    house, stub, servicer, server
) -> None:
    call = asyncio.ensure_future(_awaiting(stub.Commit(pb.CommitRequest())))
    await servicer.entered.wait()
    await server.stop()

    with pytest.raises((errors.OutcomeUnknown, errors.Cancelled)):
        await call


async def _awaiting(call: Any) -> Any:
    return await call


async def _each(*requests: Any) -> Any:
    for request in requests:
        yield request

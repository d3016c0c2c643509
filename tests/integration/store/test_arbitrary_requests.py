"""Requests that nobody would write: any message of the right type, any bytes at all.

Whatever comes, the answer is a result or a typed refusal, never a fault of our own, and a refused
call leaves the revision as it was (S22).
"""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sexton import errors
from sexton.internal.v1 import store_pb2 as pb
from sexton.internal.v1 import store_pb2_grpc
from sexton_runtime.randomness import SeededRandomness
from sexton_runtime.rpc.policy_channel import PolicyChannel
from sexton_sim.clock import SimClock
from sexton_sim.loop import SimLoop
from sexton_sim.network import Network
from sexton_sim.transport import SimTransport
from sexton_store.app import Store
from sexton_store.memory_disk import MemoryDisk

ADDRESS = "127.0.0.1:7600"
REQUESTS: dict[str, type[Message]] = {
    "Get": pb.GetRequest,
    "Scan": pb.ScanRequest,
    "CompareAndSet": pb.CompareAndSetRequest,
    "Commit": pb.CommitRequest,
    "AcquireLease": pb.AcquireLeaseRequest,
    "RenewLease": pb.RenewLeaseRequest,
    "ReleaseLease": pb.ReleaseLeaseRequest,
    "ListLeases": pb.ListLeasesRequest,
    "AcceptClock": pb.AcceptClockRequest,
}
WRITING = {"CompareAndSet", "Commit", "AcquireLease", "ReleaseLease"}
FAULTS = (errors.Internal, errors.OutcomeUnknown)

INTEGERS = st.sampled_from([-(2**63), -1, 0, 1, 2, 100, 1_000, 3_600_000, 2**53, 2**63 - 1])
KEYS = st.sampled_from(
    [b"", b"a", b"b", b"\0", b"\xff" * 480, b"k" * 481, b"leases/", b"leases/a", b"leases0"]
)
NAMES = st.sampled_from(["", "a", "b/1", "A", "/", "a\0", "ä", "a" * 200, "a" * 201, "\U0001f514"])
SCALARS: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.TYPE_BYTES: KEYS | st.binary(max_size=20),
    FieldDescriptor.TYPE_STRING: NAMES | st.text(max_size=8),
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_INT64: INTEGERS,
    FieldDescriptor.TYPE_INT32: st.sampled_from([-(2**31), -1, 0, 1, 1_000, 1_001, 2**31 - 1]),
}


@st.composite
def messages(draw: st.DrawFn, kind: type[Message]) -> bytes:
    """Gives any message of a type, serialised, now and then cut short or with a byte changed."""
    raw = bytearray(kind(**draw(_fields(kind.DESCRIPTOR))).SerializeToString())
    damage = draw(st.sampled_from(["", "", "", "cut", "change"]))
    if damage and raw:
        at = draw(st.integers(0, len(raw) - 1))
        if damage == "cut":
            del raw[at:]
        else:
            raw[at] = draw(st.integers(0, 255))
    return bytes(raw)


@st.composite
def _fields(draw: st.DrawFn, descriptor: Descriptor) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for field in descriptor.fields:
        if not draw(st.integers(0, 3)):
            continue
        nested = field.type == FieldDescriptor.TYPE_MESSAGE
        value = _fields(field.message_type) if nested else SCALARS[field.type]
        fields[field.name] = draw(st.lists(value, max_size=3) if field.is_repeated else value)
    return fields


async def _revision(stub: Any) -> int:
    return int((await stub.Status(pb.StatusRequest(), wait_for_ready=True)).revision)


async def _ask(network: Network, requests: list[tuple[str, bytes]]) -> None:
    async with PolicyChannel(SimTransport(network).channel(ADDRESS)) as channel:
        stub: Any = store_pb2_grpc.StoreServiceStub(channel)
        before = await _revision(stub)
        for method, raw in requests:
            call = channel.unary_unary(f"/sexton.internal.v1.StoreService/{method}")
            try:
                await call(raw)
                refused = False
            except FAULTS as fault:
                pytest.fail(f"{method} {raw!r}: {fault!r}")
            except errors.SextonError:
                refused = True
            after = await _revision(stub)
            assert after == before or (method in WRITING and not refused), (method, raw)
            before = after


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_every_answer_is_a_result_or_a_typed_refusal(data: st.DataObject) -> None:
    methods = data.draw(st.lists(st.sampled_from(sorted(REQUESTS)), min_size=1, max_size=12))
    requests = [(method, data.draw(messages(REQUESTS[method]))) for method in methods]
    loop, network = SimLoop(), Network(1)
    machine = loop.machine("m")

    async def serve() -> None:
        store = Store(
            disk=MemoryDisk(),
            transport=SimTransport(network),
            clock=SimClock(machine),
            randomness=SeededRandomness(1),
            listen=ADDRESS,
        )
        await store.lifecycle.run(signals=False)

    async def main() -> None:
        loop.process("store", machine).spawn(serve())
        await _ask(network, requests)

    loop.run(main())

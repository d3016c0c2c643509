"""The composed store over a disk that can be made to misbehave, on both networks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sexton import errors
from sexton.internal.v1 import store_pb2 as pb
from sexton.internal.v1 import store_pb2_grpc
from sexton_runtime.clock import SystemClock
from sexton_runtime.lifecycle import ExitCode
from sexton_runtime.randomness import SeededRandomness
from sexton_runtime.rpc.grpc_transport import GrpcTransport
from sexton_runtime.rpc.policy_channel import PolicyChannel
from sexton_runtime.transport import Transport
from sexton_sim.clock import SimClock
from sexton_sim.loop import SimLoop
from sexton_sim.network import Network
from sexton_sim.transport import SimTransport
from sexton_store.app import Store
from sexton_store.commit_stream import MAX_IN_FLIGHT
from sexton_store.contract import EngineConfig
from sexton_store.memory_disk import MemoryDisk

MIB = 1024 * 1024


def put(key: bytes, value: bytes = b"v") -> pb.Txn:
    return pb.Txn(then=[pb.Op(key=key, put=value)])


def commit(*txns: pb.Txn) -> pb.CommitRequest:
    return pb.CommitRequest(txns=txns)


class Gate:
    """Holds every durable step until it is opened."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def __call__(self, _batch: object) -> None:
        self.reached.set()
        await self.opened.wait()


class Running:
    """A running store, and a stub to it."""

    def __init__(self, store: Store, disk: MemoryDisk, transport: Transport) -> None:
        self.store = store
        self.disk = disk
        self.channel = PolicyChannel(transport.channel(store.server.address))
        self.stub: Any = store_pb2_grpc.StoreServiceStub(self.channel)
        self.ending: asyncio.Task[ExitCode]

    async def revision(self) -> int:
        return int((await self.stub.Status(pb.StatusRequest())).revision)


async def running_store(transport: Transport, **config: int) -> AsyncIterator[Running]:
    disk = MemoryDisk()
    store = Store(
        disk=disk,
        transport=transport,
        clock=SystemClock(),
        randomness=SeededRandomness(1),
        listen="127.0.0.1:0",
        config=EngineConfig(**config),
    )
    ending = asyncio.create_task(store.lifecycle.run(signals=False))
    await store.lifecycle.started.wait()
    running = Running(store, disk, transport)
    running.ending = ending
    yield running
    if isinstance(disk.before_durable, Gate):
        disk.before_durable.opened.set()
    await running.channel.close()
    store.lifecycle.request_stop("the test is over")
    await ending


@pytest.fixture(params=["grpc", "simulated"])
def transport(request: pytest.FixtureRequest) -> Transport:
    return GrpcTransport() if request.param == "grpc" else SimTransport(Network())


@pytest.fixture
async def running(transport: Transport) -> AsyncIterator[Running]:
    async for each in running_store(transport):
        yield each


@pytest.fixture
async def small(transport: Transport) -> AsyncIterator[Running]:
    config = {
        "watch_window_bytes": 4 * MIB,
        "watch_window_events": 1_000,
        "max_waiting_requests": 4,
    }
    async for each in running_store(transport, **config):
        yield each


async def test_nothing_is_answered_or_shown_before_it_is_durable(running: Running) -> None:
    """S23."""
    gate = Gate()
    running.disk.before_durable = gate
    watch = running.stub.Watch(pb.WatchRequest())
    await watch.read()
    calls = [
        asyncio.ensure_future(_awaiting(call))
        for call in (
            running.stub.Commit(commit(put(b"a"))),
            running.stub.CompareAndSet(pb.CompareAndSetRequest(key=b"b", put=b"v")),
            running.stub.AcquireLease(pb.AcquireLeaseRequest(name="l", holder="h", ttl_ms=60_000)),
        )
    ]
    seeing = asyncio.ensure_future(watch.read())
    await gate.reached.wait()
    for _ in range(5):
        assert (await running.stub.Get(pb.GetRequest(keys=[b"a"]))).revision == 0

    assert not any(call.done() for call in calls)
    assert not seeing.done()
    gate.opened.set()
    await asyncio.gather(*calls)
    assert (await seeing).revisions[0].revision == 1
    watch.cancel()


async def test_a_commit_whose_caller_has_gone_is_carried_through(running: Running) -> None:
    gate = Gate()
    running.disk.before_durable = gate
    call = asyncio.ensure_future(_awaiting(running.stub.Commit(commit(put(b"a")))))
    await gate.reached.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    gate.opened.set()

    answer = await running.stub.CompareAndSet(pb.CompareAndSetRequest(key=b"b", put=b"v"))
    assert answer.result.revision == 2
    assert (await running.stub.Get(pb.GetRequest(keys=[b"a"]))).kvs[0].mod_revision == 1


async def test_what_was_begun_before_the_stop_is_answered_and_nothing_new_is_begun(
    running: Running,
) -> None:
    gate = Gate()
    running.disk.before_durable = gate
    stream = running.stub.CommitStream()
    await stream.write(pb.CommitStreamRequest(sequence=1, txns=[put(b"streamed")]))
    await gate.reached.wait()
    begun = asyncio.ensure_future(_awaiting(running.stub.Commit(commit(put(b"a")))))
    while running.store.engine.status().waiting_requests == 0:  # noqa: ASYNC110 - no event tells
        await asyncio.sleep(0)
    running.store.lifecycle.request_stop("the test says so")
    # gRPC itself cancels what arrives in the moment in which its server is told to stop.
    with pytest.raises((errors.Unavailable, errors.Cancelled)):
        await _to_the_end(running.stub.Watch(pb.WatchRequest()))
    assert not begun.done()
    gate.opened.set()

    assert (await begun).results[0].outcome == pb.OUTCOME_COMMITTED
    assert (await stream.read()).results[0].outcome == pb.OUTCOME_COMMITTED
    with pytest.raises(errors.Unavailable):
        await stream.read()
    assert await running.ending is ExitCode.OK


@pytest.mark.slow  # the log renders a traceback
@pytest.mark.parametrize("with_effect", [True, False])
async def test_an_unknown_outcome_is_told_and_ends_the_process(running, with_effect) -> None:
    running.disk.fail_next(with_effect=with_effect)

    with pytest.raises(errors.OutcomeUnknown):
        await running.stub.Commit(commit(put(b"a")))

    assert await running.ending is ExitCode.RESTART == 75


async def test_a_refused_compare_and_set_shows_the_key_as_it_stands(running: Running) -> None:
    cas = running.stub.CompareAndSet
    first = await cas(pb.CompareAndSetRequest(key=b"a", put=b"one"))
    again = await cas(pb.CompareAndSetRequest(key=b"a", put=b"two"))
    gone = await cas(pb.CompareAndSetRequest(key=b"b", delete=True, expected_mod_revision=7))

    assert (first.result.outcome, first.result.revision) == (pb.OUTCOME_COMMITTED, 1)
    assert (again.result.outcome, again.result.found_mod_revision) == (pb.OUTCOME_REFUSED, 1)
    assert (again.current.value, again.current.mod_revision) == (b"one", 1)
    assert (gone.result.outcome, gone.current.create_revision) == (pb.OUTCOME_REFUSED, 0)
    assert await running.revision() == 1


async def test_a_stream_of_commits_answers_each_and_ends_when_half_closed(running) -> None:
    stream = running.stub.CommitStream()
    for number in range(1, 41):
        await stream.write(pb.CommitStreamRequest(sequence=number, txns=[put(b"%d" % number)]))
    await stream.done_writing()

    answers = [answer async for answer in stream]

    assert sorted(answer.sequence for answer in answers) == list(range(1, 41))
    assert {result.revision for answer in answers for result in answer.results} == set(range(1, 41))
    assert all(answer.mesh_time_ns > 0 for answer in answers)


async def test_a_stream_of_commits_takes_so_many_at_once_and_no_more(running: Running) -> None:
    gate = Gate()
    running.disk.before_durable = gate
    stream = running.stub.CommitStream()
    for number in range(1, 60):
        await stream.write(pb.CommitStreamRequest(sequence=number, txns=[put(b"%d" % number)]))
    await gate.reached.wait()
    for _ in range(200):
        await asyncio.sleep(0)

    status = running.store.engine.status()
    assert status.waiting_requests <= MAX_IN_FLIGHT
    gate.opened.set()
    await stream.done_writing()
    assert len([answer async for answer in stream]) == 59


async def test_too_many_waiting_requests_are_refused_unevaluated(small: Running) -> None:
    gate = Gate()
    small.disk.before_durable = gate
    calls = [
        asyncio.ensure_future(_awaiting(small.stub.Commit(commit(put(b"%d" % number)))))
        for number in range(12)
    ]
    await gate.reached.wait()
    done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    assert {type(call.exception()) for call in done} == {errors.Overloaded}
    gate.opened.set()
    ends = await asyncio.gather(*calls, return_exceptions=True)

    refused = [end for end in ends if isinstance(end, errors.Overloaded)]
    assert 0 < len(refused) < 12
    assert await small.revision() == 12 - len(refused)


async def test_a_request_that_waited_beyond_its_deadline_is_dropped(running: Running) -> None:
    gate = Gate()
    running.disk.before_durable = gate
    first = asyncio.ensure_future(_awaiting(running.stub.Commit(commit(put(b"a")))))
    await gate.reached.wait()
    with pytest.raises(errors.DeadlineExceeded):
        await running.stub.Commit(commit(put(b"late")), timeout=0.02)
    gate.opened.set()
    await first

    assert (await running.stub.Commit(commit(put(b"b")))).results[0].revision == 2
    assert (await running.stub.Get(pb.GetRequest(keys=[b"late"]))).kvs[0].create_revision == 0


async def test_a_watcher_that_does_not_read_is_cut_and_others_go_on(small: Running) -> None:
    idle = small.stub.Watch(pb.WatchRequest())
    reading = small.stub.Watch(pb.WatchRequest(keys_only=True))
    await reading.read()

    for number in range(24):
        await small.stub.Commit(commit(put(b"%d" % number, b"x" * 1_000_000)))
    seen = 0
    while seen < 24:
        seen = (await reading.read()).progress_revision
    with pytest.raises(errors.SlowWatcher):
        await _to_the_end(idle)

    assert small.store.engine.status().watches == 1
    reading.cancel()


async def test_many_large_changes_reach_a_watcher_in_messages_below_the_limit(running) -> None:
    txns = [put(b"%d" % number, b"x" * 900_000) for number in range(3)]
    for _ in range(3):
        await running.stub.Commit(commit(*txns))

    watch = running.stub.Watch(pb.WatchRequest(start_revision=1))
    revisions: list[int] = []
    while len(revisions) < 9:
        answer = await watch.read()
        assert answer.ByteSize() < 4 * MIB
        revisions += [each.revision for each in answer.revisions]
        assert not answer.revisions or answer.progress_revision >= revisions[-1]

    assert revisions == list(range(1, 10))
    watch.cancel()


async def test_leases_are_listed_page_by_page(running: Running) -> None:
    for name in ("a/1", "a/2", "a/3", "b"):
        request = pb.AcquireLeaseRequest(name=name, holder="h", ttl_ms=60_000, value=b"v")
        assert (await running.stub.AcquireLease(request)).granted

    listing = running.stub.ListLeases
    first = await listing(pb.ListLeasesRequest(prefix="a/", page_size=2))
    token = first.next_page_token
    rest = await listing(pb.ListLeasesRequest(prefix="a/", page_size=2, page_token=token))

    assert [lease.name for lease in first.leases] == ["a/1", "a/2"]
    assert [lease.name for lease in rest.leases] == ["a/3"]
    assert rest.next_page_token == b""
    assert (first.leases[0].holder, first.leases[0].token, first.leases[0].value) == ("h", 1, b"v")
    with pytest.raises(errors.InvalidArgument, match=r"page_token"):
        await listing(pb.ListLeasesRequest(prefix="b", page_token=token))


async def test_calls_of_another_incarnation_are_refused(running: Running) -> None:
    status = await running.stub.Status(pb.StatusRequest())
    running.channel.incarnation = "another"

    with pytest.raises(errors.WrongIncarnation) as raised:
        await running.stub.Commit(commit(put(b"a")))
    with pytest.raises(errors.WrongIncarnation):
        await running.stub.Watch(pb.WatchRequest()).read()

    assert raised.value.incarnation == status.incarnation
    assert await running.revision() == 0
    running.channel.incarnation = status.incarnation
    await running.stub.Commit(commit(put(b"a")))


async def test_a_disk_without_a_file_has_no_backup(running: Running) -> None:
    with pytest.raises(errors.Unavailable, match=r"keeps nothing on a disk"):
        await running.stub.Backup(pb.BackupRequest()).read()


def test_it_runs_on_virtual_time_and_repeats_itself() -> None:
    def story() -> list[object]:
        loop = SimLoop()
        network = Network(7)
        machine = loop.machine("m")
        disk = MemoryDisk()

        async def serve() -> None:
            store = Store(
                disk=disk,
                transport=SimTransport(network),
                clock=SimClock(machine),
                randomness=SeededRandomness(1),
                listen="127.0.0.1:7600",
            )
            await store.lifecycle.run(signals=False)

        async def ask() -> list[object]:
            channel = PolicyChannel(SimTransport(network).channel("127.0.0.1:7600"))
            stub: Any = store_pb2_grpc.StoreServiceStub(channel)
            request = pb.AcquireLeaseRequest(name="l", holder="h", ttl_ms=5_000)
            lease = await stub.AcquireLease(request, wait_for_ready=True)
            watch = stub.Watch(pb.WatchRequest(prefix=b"leases/"))
            await watch.read()
            began = loop.time()
            event: Any = pb.WatchResponse()
            while not event.revisions:
                event = await watch.read()
            return [lease.lease.token, round(loop.time() - began, 3), event.SerializeToString()]

        process = loop.process("store", machine)
        process.spawn(serve())
        return loop.run(ask())

    first, second = story(), story()

    assert first == second
    assert first[0] == 1
    assert 4.9 < float(str(first[1])) < 5.3


async def _to_the_end(stream: Any) -> None:
    async for _ in stream:
        pass


async def _awaiting(call: Any) -> Any:
    return await call

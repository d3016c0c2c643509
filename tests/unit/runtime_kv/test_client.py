from __future__ import annotations

import asyncio
from collections.abc import Generator

import pytest

from sexton import errors
from sexton_runtime.kv.client import StoreClient
from sexton_runtime.kv.config import StoreClientConfig
from sexton_runtime.kv.types import Delete, KeyValue, Outcome, Put, Txn, TxnResult, absent
from sexton_sim.network import LinkProfile
from sexton_store.memory_disk import MemoryDisk

from .world import World


def test_what_is_committed_is_read_back() -> None:
    world = World()

    async def story(client: StoreClient) -> None:
        results = await client.commit(
            [
                Txn((absent(b"a"),), (Put(b"a", b"1"), Put(b"b", b"2"))),
                Txn((absent(b"a"),), (Put(b"a", b"3"),)),
                Txn((), (Delete(b"b"),)),
            ]
        )
        assert results == (
            TxnResult(Outcome.COMMITTED, 1),
            TxnResult(Outcome.REFUSED, 1, 0, 1),
            TxnResult(Outcome.COMMITTED, 2),
        )
        snapshot = await client.get([b"b", b"a"])
        assert snapshot.revision == 2
        assert snapshot.kvs == (KeyValue(b"b", b"", 0, 0, 0), KeyValue(b"a", b"1", 1, 1, 1))

    world.tell(story)


def test_compare_and_set_tells_what_stands_where_it_was_refused() -> None:
    world = World()

    async def story(client: StoreClient) -> None:
        assert await client.compare_and_set(b"a", 0, b"1") == (
            TxnResult(Outcome.COMMITTED, 1),
            KeyValue(b"", b"", 0, 0, 0),
        )
        assert await client.compare_and_set(b"a", 0, b"2") == (
            TxnResult(Outcome.REFUSED, 1, 0, 1),
            KeyValue(b"a", b"1", 1, 1, 1),
        )
        assert (await client.compare_and_set(b"a", 1, None))[0].outcome is Outcome.COMMITTED

    world.tell(story)


class CancelledCall:
    """A call that reached a server in the moment of its stop: gRPC answers CANCELLED."""

    def __await__(self) -> Generator[None, None, None]:
        raise errors.Cancelled

    async def read(self) -> object:
        raise errors.Cancelled

    def cancel(self) -> bool:
        return False


def test_what_a_stopping_server_cancels_is_a_store_that_is_unavailable_for_a_moment() -> None:
    world = World()

    async def story(client: StoreClient) -> None:
        real = client._stub.Get
        calls = [CancelledCall(), CancelledCall()]
        client._stub.Get = lambda request, **options: (
            calls.pop() if calls else real(request, **options)
        )
        assert (await client.get([b"a"])).revision == 0
        assert calls == []
        client._stub.Watch = lambda request: CancelledCall()
        with pytest.raises(errors.Unavailable):
            await anext(client.watch(b""))

    world.tell(story)


def test_a_client_waits_for_its_store_to_start() -> None:
    world = World()

    async def main() -> None:
        world.crash_store()
        started = world.on("member", lambda client: client.status())
        await asyncio.sleep(30)
        assert not started.done()
        await world.start_store()
        assert (await started).revision == 0

    world.run(main)


def test_a_client_that_may_not_wait_says_that_the_store_does_not_answer() -> None:
    world = World()

    async def story() -> None:
        client = world.unstarted_client("member")
        with pytest.raises(errors.Unavailable, match="did not answer within 5 s"):
            await client.start(timeout_s=5)

    async def main() -> None:
        world.crash_store()
        await world.member("member").spawn(story())

    world.run(main)


def test_reads_are_repeated_over_a_restart_of_the_store() -> None:
    world = World()

    async def story(client: StoreClient) -> None:
        await client.commit([Txn(then=(Put(b"a", b"1"),))])
        world.crash_store()
        reading = asyncio.ensure_future(client.get([b"a"]))
        await asyncio.sleep(3)
        await world.start_store()
        assert (await reading).kvs[0].value == b"1"

    world.tell(story)


def test_a_read_gives_up_after_its_time_and_is_never_unknown() -> None:
    world = World()

    async def story(client: StoreClient) -> None:
        world.crash_store()
        with pytest.raises((errors.Unavailable, errors.DeadlineExceeded)) as caught:
            async with asyncio.timeout(11):
                await client.get([b"a"])
        assert not isinstance(caught.value, errors.OutcomeUnknown)

    world.tell(story)


@pytest.mark.parametrize("durable", [False, True])
def test_a_commit_that_was_cut_off_is_unknown_and_commits_go_on_after_the_restart(
    *,
    durable: bool,
) -> None:
    world = World()

    async def story(client: StoreClient) -> None:
        await client.commit([Txn(then=(Put(b"a", b"1"),))])
        world.crash_store_before_it_answers(durable=durable)
        with pytest.raises(errors.OutcomeUnknown):
            await client.commit([Txn(then=(Put(b"a", b"2"),))])
        waiting = asyncio.ensure_future(client.commit([Txn(then=(Put(b"b", b"3"),))]))
        await asyncio.sleep(1)
        await world.start_store()
        assert await waiting == (TxnResult(Outcome.COMMITTED, 3 if durable else 2),)

    world.tell(story)


def test_no_commit_is_sent_to_a_store_that_is_not_there() -> None:
    world = World()

    async def story(client: StoreClient) -> None:
        world.crash_store()
        await asyncio.sleep(20)
        with pytest.raises(errors.Unavailable) as caught:
            await client.commit([Txn(then=(Put(b"a", b"1"),))], timeout_s=3)
        assert not isinstance(caught.value, errors.OutcomeUnknown)

    world.tell(story)


def test_a_store_of_another_incarnation_ends_a_client_for_good() -> None:
    world = World()

    async def story(client: StoreClient) -> None:
        await client.commit([Txn(then=(Put(b"a", b"1"),))])
        world.crash_store()
        world.disk = MemoryDisk()  # another store answers at the same address
        await world.start_store()
        with pytest.raises(errors.WrongIncarnation):
            await client.get([b"a"])
        assert client.expelled.is_set()
        with pytest.raises(errors.WrongIncarnation):
            await client.commit([Txn(then=(Put(b"a", b"2"),))])
        assert (await world.on("newcomer", lambda newcomer: newcomer.status())).revision == 0

    world.tell(story)


def test_a_client_that_only_commits_notices_another_incarnation_too() -> None:
    world = World()

    async def story(client: StoreClient) -> None:
        await client.commit([Txn(then=(Put(b"a", b"1"),))])
        world.crash_store()
        world.disk = MemoryDisk()
        await world.start_store()
        with pytest.raises(errors.WrongIncarnation):
            await client.commit([Txn(then=(Put(b"a", b"2"),))])
        assert client.expelled.is_set()

    world.tell(story)


def test_stopping_sends_what_waits() -> None:
    world = World()

    async def story(client: StoreClient) -> None:
        first = asyncio.ensure_future(client.commit([Txn(then=(Put(b"a", b"1"),))]))
        await asyncio.sleep(0.0001)
        second = asyncio.ensure_future(client.commit([Txn(then=(Put(b"b", b"2"),))]))
        await asyncio.sleep(0)
        await client.stop()
        assert [(await call)[0].revision for call in (first, second)] == [1, 2]
        with pytest.raises(errors.Unavailable):
            await client.commit([Txn(then=(Put(b"a", b"3"),))])

    world.tell(story)


def test_mesh_time_is_known_within_half_a_round_trip_of_the_stores() -> None:
    world = World(profile=LinkProfile(latency_s=0.020, jitter_s=0.010))

    async def story(client: StoreClient) -> None:
        for _ in range(20):
            await client.get([b"a"])
            await asyncio.sleep(0.05)
        assert world.store is not None
        apart_ns = abs(client.mesh_time.now_ns() - world.store.engine.clock().mesh_time_ns)
        assert apart_ns <= client.mesh_time.error_ns
        assert client.mesh_time.error_ns < 40_000_000

    world.tell(story)


def test_a_watch_that_falls_silent_is_broken() -> None:
    world = World()

    async def story(client: StoreClient) -> None:
        watch = client.watch(b"")
        first = await anext(watch)
        assert first.progress_revision == 0
        world.network.cut("store", "member")
        silent = asyncio.ensure_future(anext(watch))
        await asyncio.wait([silent], timeout=25)
        assert isinstance(silent.exception(), errors.Unavailable)

    world.tell(story, StoreClientConfig(watch_idle_s=8))


def test_a_watch_can_be_closed_while_somebody_waits_for_it() -> None:
    world = World()

    async def story(client: StoreClient) -> None:
        watch = client.watch(b"")
        await anext(watch)
        waiting = asyncio.ensure_future(anext(watch, None))
        await asyncio.sleep(0.1)
        await watch.aclose()
        assert await waiting is None
        with pytest.raises(StopAsyncIteration):
            await anext(watch)
        await watch.aclose()

    world.tell(story)

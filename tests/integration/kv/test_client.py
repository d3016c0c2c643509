"""The store client against real processes that are killed and suspended."""

from __future__ import annotations

import asyncio
import signal
from contextlib import aclosing

import pytest
from integration.kv.processes import RestartableStore, client_of

from sexton import errors
from sexton_runtime.clock import SystemClock
from sexton_runtime.kv.client import StoreClient
from sexton_runtime.kv.held_lease import LostBecause
from sexton_runtime.kv.lease_keeper import LeaseKeeper
from sexton_runtime.kv.types import EventKind, Outcome, Put, Txn, TxnResult, absent
from sexton_runtime.kv.unknown import commit_resolved, written
from sexton_runtime.kv.watcher import RelistingWatcher
from sexton_runtime.randomness import SystemRandomness

WRITERS = 8


class Tally:
    """Keys with their revisions, and who waits for there to be many."""

    def __init__(self) -> None:
        self.revisions: dict[bytes, int] = {}
        self._grown = asyncio.Event()

    def add(self, key: bytes, revision: int) -> None:
        self.revisions[key] = revision
        self._grown.set()

    async def grows_to(self, number: int) -> None:
        while len(self.revisions) < number:
            self._grown.clear()
            await self._grown.wait()


@pytest.mark.slow
async def test_under_kill_9_nothing_acknowledged_is_lost_and_nothing_is_done_twice(
    store: RestartableStore,
) -> None:
    committed, seen = Tally(), Tally()
    stopping = asyncio.Event()

    async def write(client: StoreClient, name: str) -> None:
        number = 0
        while not stopping.is_set():
            number += 1
            key, value = b"run/%s/%06d" % (name.encode(), number), b"%s" % name.encode()
            txn = Txn((absent(key),), (Put(key, value),))
            try:
                result = await commit_resolved(
                    client, txn, proof=written(txn, key), randomness=SystemRandomness()
                )
            except errors.OutcomeUnknown:
                raise
            except (errors.Unavailable, errors.DeadlineExceeded):
                continue  # never sent
            assert result.outcome is Outcome.COMMITTED
            committed.add(key, result.revision)

    async def watch(client: StoreClient) -> None:
        watcher = RelistingWatcher(client, b"run/", randomness=SystemRandomness())
        async with aclosing(watcher.updates()) as updates:
            async for update in updates:
                for kind, kv in update.events:
                    assert kind is EventKind.PUT
                    assert kv.version == 1
                    seen.add(kv.key, kv.mod_revision)

    async def disturb() -> None:
        for _ in range(2):
            await committed.grows_to(len(committed.revisions) + 200)
            await asyncio.to_thread(store.kill)
            await asyncio.to_thread(store.start_again)
        await asyncio.sleep(0.2)

    async with client_of(store) as client:
        watching = asyncio.create_task(watch(client))
        writing = [asyncio.create_task(write(client, f"w{n}")) for n in range(WRITERS)]
        async with asyncio.timeout(60):
            await disturb()
            stopping.set()
            await asyncio.gather(*writing)
            kvs = [kv async for kv in all_items(client, b"run/", b"run0")]
            await seen.grows_to(len(kvs))
        watching.cancel()
    found = {kv.key: kv.mod_revision for kv in kvs}
    assert found == committed.revisions == seen.revisions
    assert len(set(found.values())) == len(found)
    assert all(kv.version == 1 for kv in kvs)


async def all_items(client: StoreClient, start: bytes, end: bytes):  # type: ignore[no-untyped-def]
    token = b""
    while True:
        page = await client.scan(start, end, limit=100, page_token=token)
        for kv in page.kvs:
            yield kv
        if not page.next_token:
            return
        token = page.next_token


@pytest.mark.slow
async def test_a_store_that_was_suspended_favours_nobody_and_forgets_nothing(
    store: RestartableStore,
) -> None:
    async with (
        client_of(store) as first,
        client_of(store) as second,
        keeper_of(first) as keeper,
        keeper_of(second) as standby,
    ):
        held = await keeper.acquire("test/role", ttl_s=1.0)
        (result,) = await held.commit([Txn(then=(Put(b"k", b"first"),))])
        waiting = asyncio.create_task(standby.acquire("test/role", ttl_s=1.0))
        await asyncio.sleep(0.3)
        store.send(signal.SIGSTOP)
        await asyncio.wait_for(held.lost.wait(), 5)
        assert held.lost_because is LostBecause.DEADLINE
        await asyncio.sleep(1.0)
        store.send(signal.SIGCONT)
        # The suspension is not counted: whoever asks now still finds the first's lease.
        (lease,) = await second.list_leases("test/role")
        assert lease.token == held.token
        assert (await second.get([b"k"])).kvs[0].mod_revision == result.revision
        successor = await asyncio.wait_for(waiting, 5)
        assert successor.token > held.token
        with pytest.raises(errors.Fenced):
            await held.commit([Txn(then=(Put(b"k", b"late"),))])


@pytest.mark.slow
async def test_a_commit_to_a_suspended_store_is_unknown_and_is_found_out_afterwards(
    store: RestartableStore,
) -> None:
    async with client_of(store) as client:
        await client.commit([Txn(then=(Put(b"before", b""),))])
        store.send(signal.SIGSTOP)
        txn = Txn((absent(b"k"),), (Put(b"k", b"ours"),))
        with pytest.raises(errors.OutcomeUnknown):
            await client.commit([txn], timeout_s=0.3)
        resolving = asyncio.create_task(
            commit_resolved(
                client, txn, proof=written(txn, b"k"), randomness=SystemRandomness(), timeout_s=20
            )
        )
        await asyncio.sleep(0.5)
        store.send(signal.SIGCONT)
        result = await resolving
        assert result == TxnResult(Outcome.COMMITTED, 2)
        assert (await client.status()).revision == 2


def keeper_of(client: StoreClient) -> LeaseKeeper:
    return LeaseKeeper(client, clock=SystemClock(), randomness=SystemRandomness())

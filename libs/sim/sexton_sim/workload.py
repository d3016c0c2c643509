"""What the members of a simulated mesh do with the store: clients, lease holders, watchers.

Values tell whose they are (``client-1#17``), so that the log alone says which call wrote them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sexton.errors import Fenced, SextonError
from sexton_runtime.kv.client import StoreClient
from sexton_runtime.kv.held_lease import HeldLease
from sexton_runtime.kv.lease_keeper import LeaseKeeper
from sexton_runtime.kv.types import Compare, Delete, LeaseRef, Op, Put, Target, Txn
from sexton_runtime.kv.unknown import commit_resolved, created
from sexton_runtime.kv.watcher import RelistingWatcher
from sexton_runtime.randomness import SeededRandomness
from sexton_runtime.rpc.policy_channel import PolicyChannel
from sexton_runtime.transport import Transport
from sexton_sim.check import WriteRules
from sexton_sim.history import Recorder
from sexton_sim.process import Process
from sexton_sim.recorded import RecordedStore

STORE_ADDRESS = "127.0.0.1:7400"
REGISTERS = "reg/"
RULES = WriteRules(fenced=("guarded/",), compared=("count/", "item/"), counters=("count/",))
LEASES = ("alpha", "beta")
LEASE_TTL_S = 3.0
_SHORT_TTL_MS = 500
_REGISTER_COUNT = 4
_COUNTER_COUNT = 2
_SETTLE_P = 0.01
_PAUSE_AFTER_ERROR_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One process that uses the store, and what it needs for it."""

    process: Process
    transport: Transport
    recorder: Recorder
    seed: str
    stopping: Callable[[], bool]

    @property
    def name(self) -> str:
        """Its process's name."""
        return self.process.name

    def random(self) -> random.Random:
        """Gives this incarnation's own source of what it does."""
        return random.Random(f"{self.seed}/{self.name}/{self.process.incarnation}")  # noqa: S311

    def randomness(self) -> SeededRandomness:
        """Gives this incarnation's source of ids and jitter."""
        return SeededRandomness(f"ids/{self.seed}/{self.name}/{self.process.incarnation}")

    @asynccontextmanager
    async def store(self) -> AsyncIterator[RecordedStore]:
        """Opens the store's client."""
        async with PolicyChannel(self.transport.channel(STORE_ADDRESS)) as channel:
            client = StoreClient(channel, clock=self.process.clock, randomness=self.randomness())
            async with client:
                yield RecordedStore(client, self.recorder, self.name)


async def run_client(member: Member, *, pause_s: float) -> None:
    """Reads and writes registers, pairs, counters and items, one call after the other."""
    async with member.store() as store:
        client = _Client(member, store)
        while not member.stopping():
            await client.run_once()
            await asyncio.sleep(client.random.expovariate(1 / pause_s))


async def run_holder(member: Member, *, pause_s: float) -> None:
    """Competes for leases and writes under them, fenced."""
    rng = member.random()
    async with (
        member.store() as store,
        LeaseKeeper(store, clock=member.process.clock, randomness=member.randomness()) as keeper,
    ):
        number = 0
        while not member.stopping():
            name = rng.choice(LEASES)
            try:
                async with asyncio.timeout(20):
                    lease = await keeper.acquire(name, ttl_s=LEASE_TTL_S)
            except TimeoutError:
                continue
            until_s = asyncio.get_running_loop().time() + rng.uniform(1, 15)
            while not member.stopping() and lease.still_held():
                number += 1
                await _act(member, lease, number)
                await asyncio.sleep(rng.expovariate(1 / pause_s))
                if asyncio.get_running_loop().time() > until_s:
                    await lease.release()
            await lease.release()


async def run_renewer(member: Member) -> None:
    """Renews a lease of its own carelessly: in time, just about, or too late."""
    rng = member.random()
    async with member.store() as store:
        name = f"careless/{member.name}"
        holder = f"{member.name}.{member.process.incarnation}"
        while not member.stopping():
            try:
                lease = (await store.acquire_lease(name, holder, _SHORT_TTL_MS)).lease
                renewed = True
                while renewed and not member.stopping():
                    await asyncio.sleep(rng.uniform(0.5, 1.1) * _SHORT_TTL_MS / 1000)
                    (renewal,) = await store.renew_leases([LeaseRef(name, lease.token)])
                    renewed = renewal.renewed
            except SextonError:
                await asyncio.sleep(_PAUSE_AFTER_ERROR_S)


async def run_watcher(member: Member, *, prefix: bytes) -> None:
    """Follows a prefix; now and then it reads slowly."""
    rng = member.random()
    async with member.store() as store:
        watcher = RelistingWatcher(store, prefix, randomness=member.randomness(), page_items=7)
        async with store.recorded_updates(watcher, prefix) as updates:
            async for _update in updates:
                if member.stopping():
                    return
                if rng.random() < 0.01:
                    await asyncio.sleep(rng.uniform(0, 10))


async def audit(member: Member, *, patience_s: float) -> str:
    """Settles a dispute, writes and reads everything. Gives what was wrong; empty: nothing."""
    try:
        async with asyncio.timeout(patience_s), member.store() as store:
            number = 0
            while True:
                number += 1
                try:
                    await store.settle_clock()
                    value = b"%s#%d" % (member.name.encode(), number)
                    (result,) = await store.commit([Txn(then=(Put(b"audit", value),))])
                    await store.get([b"audit"])
                    token = b""
                    while True:
                        page = await store.scan(page_token=token)
                        token = page.next_token
                        if not token:
                            return "" if result.outcome.name == "COMMITTED" else repr(result)
                except SextonError:
                    await asyncio.sleep(_PAUSE_AFTER_ERROR_S)
    except TimeoutError:
        return f"the store did not serve within {patience_s:g} s of healing"


async def _act(member: Member, lease: HeldLease, number: int) -> None:
    value = f"{lease.token}:{member.name}#{member.process.incarnation}.{number}".encode()
    key = f"guarded/{lease.name}/state".encode()
    if lease.still_held():
        member.recorder.exec("act", member.name, lease=lease.name, token=lease.token)
    try:
        await lease.commit([Txn(then=(Put(key, value),))], timeout_s=5.0)
    except Fenced:
        return
    except SextonError:
        await asyncio.sleep(_PAUSE_AFTER_ERROR_S)


class _Client:
    """The operations of a client."""

    def __init__(self, member: Member, store: RecordedStore) -> None:
        self.random = member.random()
        self._randomness = member.randomness()
        self._name = f"{member.name}.{member.process.incarnation}"
        self._store = store
        self._number = 0
        self._operations = (
            self._read,
            self._write,
            self._swap,
            self._swap,
            self._write_pair,
            self._read_pair,
            self._count,
            self._count,
            self._add_item,
            self._write_in_time,
            self._write_many,
        )

    async def run_once(self) -> None:
        """Does one thing; what the store refuses or does not answer is an outcome like others."""
        operation = self.random.choice(self._operations)
        try:
            await operation()
            if self.random.random() < _SETTLE_P:
                await self._store.settle_clock()
        except SextonError:
            await asyncio.sleep(_PAUSE_AFTER_ERROR_S)

    def _value(self) -> bytes:
        self._number += 1
        return f"{self._name}#{self._number}".encode()

    def _register(self) -> bytes:
        return f"{REGISTERS}{self.random.randrange(_REGISTER_COUNT)}".encode()

    async def _read(self) -> None:
        await self._store.get([self._register()])

    async def _write(self) -> None:
        await self._store.commit([Txn(then=(Put(self._register(), self._value()),))])

    async def _swap(self) -> None:
        key = self._register()
        (kv,) = (await self._store.get([key])).kvs
        found = Compare(key, Target.VALUE, kv.value)
        if not kv.create_revision:
            found = Compare(key, Target.EXISTS, operand=False)
        write: Op = Put(key, self._value())
        if kv.create_revision and self.random.random() < 0.2:
            write = Delete(key)
        await self._store.commit([Txn((found,), (write,))])

    async def _write_pair(self) -> None:
        value = self._value()
        number = self.random.randrange(10)
        left, right = f"pair/{number}/left".encode(), f"pair/{number}/right".encode()
        if self.random.random() < 0.2:
            await self._store.commit([Txn(then=(Delete(left), Delete(right)))])
        else:
            await self._store.commit([Txn(then=(Put(left, value), Put(right, value)))])

    async def _read_pair(self) -> None:
        if self.random.random() < 0.5:
            await self._store.scan(b"pair/", b"pair0")
        else:
            number = self.random.randrange(10)
            await self._store.get([f"pair/{number}/{side}".encode() for side in ("left", "right")])

    async def _count(self) -> None:
        key = f"count/{self.random.randrange(_COUNTER_COUNT)}".encode()
        (kv,) = (await self._store.get([key])).kvs
        value = b"%d" % (int(kv.value or b"0") + 1)
        await self._store.compare_and_set(key, kv.mod_revision, value)

    async def _add_item(self) -> None:
        self._number += 1
        key = f"item/{self._name}/{self._number}".encode()
        txn = Txn((Compare(key, Target.MOD_REVISION, 0),), (Put(key, b"here"),))
        await commit_resolved(
            self._store, txn, proof=created(key), randomness=self._randomness, timeout_s=20
        )

    async def _write_in_time(self) -> None:
        key = self._register()
        now_ns = (await self._store.get([key])).mesh_time_ns
        early, late = (now_ns + round(self.random.uniform(-1, 1) * 1e9) for _ in range(2))
        txn = Txn(then=(Put(key, self._value()),), not_before_ns=early, not_after_ns=late)
        await self._store.commit([txn])

    async def _write_many(self) -> None:
        txns = [
            Txn(then=(Put(self._register(), self._value()),))
            for _ in range(self.random.randint(2, 8))
        ]
        await self._store.commit(txns)

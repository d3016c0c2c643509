"""Who holds which lease, followed by watch: leaders, owners, members."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from sexton.errors import SextonError
from sexton.internal.v1 import records_pb2 as pb
from sexton_records import keys
from sexton_runtime.kv.client import StoreClient
from sexton_runtime.kv.types import LEASE_PREFIX
from sexton_runtime.kv.watcher import LASTING, RelistingWatcher
from sexton_runtime.randomness import Randomness

_PAUSE_S: Final = 0.2
"""After a listing that failed."""


class Holder(NamedTuple):
    """Who holds a lease. `address` is empty where the lease's value names none."""

    name: str
    token: int
    id: str
    address: str
    software_version: str


class Directory:
    """The leases as last seen. It may lag: whoever is asked answers for himself."""

    def __init__(self, store: StoreClient, randomness: Randomness) -> None:
        self.failed = asyncio.Event()
        """Set when it can't follow any more, for good."""
        self._store = store
        self._randomness = randomness
        self._holders: dict[str, Holder] = {}
        self._changed = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begins to follow."""
        self._running = asyncio.create_task(self._run(), name="directory")

    async def stop(self) -> None:
        """Ends; idempotent."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    def holder(self, lease: str) -> Holder | None:
        """Returns who holds a lease; None: nobody, as far as is known."""
        return self._holders.get(lease)

    def leader(self, shard: int) -> Holder | None:
        """Returns the leader of a coordinator shard."""
        return self._holders.get(keys.coordinator_lease(shard))

    def owner(self, shard: int) -> Holder | None:
        """Returns the owner of a queue shard."""
        return self._holders.get(keys.queue_lease(shard))

    def holders(self, prefix: str = "") -> Iterator[Holder]:
        """Yields who holds the leases with this prefix, in order of name."""
        return (self._holders[name] for name in sorted(self._holders) if name.startswith(prefix))

    async def changed(self) -> None:
        """Waits for the next change of anything."""
        await self._changed.wait()

    async def _run(self) -> None:
        watcher = RelistingWatcher(
            self._store, LEASE_PREFIX, randomness=self._randomness, keys_only=True
        )
        try:
            async with aclosing(watcher.updates()) as updates:
                async for update in updates:
                    if update.events:
                        await self._list()
        except LASTING:
            self.failed.set()

    async def _list(self) -> None:
        """Reads all leases anew: values are not part of what is watched."""
        while True:
            try:
                leases = await self._store.list_leases()
            except LASTING:
                raise
            except SextonError:
                await asyncio.sleep(_PAUSE_S)
            else:
                break
        self._holders = {
            lease.name: _holder(lease.name, lease.token, lease.value) for lease in leases
        }
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _holder(name: str, token: int, value: bytes) -> Holder:
    try:
        member = pb.MemberRecord.FromString(value)
    except DecodeError:
        member = pb.MemberRecord()
    return Holder(name, token, member.id, member.address, member.software_version)

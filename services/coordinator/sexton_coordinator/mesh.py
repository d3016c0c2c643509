"""What all parts of one coordinator share: the store, who is who, channels to the others."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from sexton.internal.v1 import records_pb2 as pb
from sexton_coordinator.directory import Directory
from sexton_coordinator.ends import Ends
from sexton_coordinator.jobs_store import JobReader
from sexton_core.instants import Instant
from sexton_runtime.clock import Clock
from sexton_runtime.kv.client import StoreClient
from sexton_runtime.kv.lease_keeper import LeaseKeeper
from sexton_runtime.randomness import Randomness
from sexton_runtime.rpc.policy_channel import PolicyChannel
from sexton_runtime.secrets import AnySecret, Role
from sexton_runtime.transport import Transport
from sexton_runtime.version import software_version


class Mesh:
    """A coordinator's view of the mesh, a part of its lifecycle. Usable once started."""

    def __init__(
        self,
        *,
        transport: Transport,
        clock: Clock,
        randomness: Randomness,
        store: str,
        secrets: Mapping[Role, AnySecret] | None = None,
        trace_sample: float = 0.0,
    ) -> None:
        """`trace_sample`: part of the runs whose way is traced, 0 to 1."""
        self.clock: Final = clock
        self.randomness: Final = randomness
        self.trace_sample: Final = trace_sample
        self.id: Final = randomness.token_hex(8)
        self.address = ""
        """Where others reach this replica; set once it listens."""
        self.coordinator_shards = 0
        self.queue_shards = 0
        self.store_address: Final = store
        self._transport = transport
        self._secret = (secrets or {}).get(Role.MESH, "")
        self._store_channel = PolicyChannel(transport.channel(store), secret=self._secret)
        self.store: Final = StoreClient(self._store_channel, clock=clock, randomness=randomness)
        self.keeper: Final = LeaseKeeper(self.store, clock=clock, randomness=randomness)
        self.directory: Final = Directory(self.store, randomness)
        self.ends: Final = Ends()
        self._jobs: JobReader | None = None
        self._channels: dict[str, PolicyChannel] = {}

    @property
    def jobs(self) -> JobReader:
        """Reads jobs."""
        assert self._jobs is not None, "the mesh has not been started"
        return self._jobs

    def now(self) -> Instant:
        """Estimates mesh time."""
        return self.store.mesh_time.now_ns()

    def member(self) -> bytes:
        """Returns this replica as the value of its leases."""
        return pb.MemberRecord(
            id=self.id, address=self.address, software_version=software_version()
        ).SerializeToString()

    def channel(self, address: str) -> PolicyChannel:
        """Returns the channel to another member. It is this object's to close."""
        channel = self._channels.pop(address, None)
        if channel is None:
            channel = PolicyChannel(self._transport.channel(address), secret=self._secret)
            channel.incarnation = self.store.incarnation
        self._channels[address] = channel
        return channel

    async def start(self) -> None:
        """Reaches the store, however long it takes, and begins to follow the leases."""
        status = await self.store.start()
        self.coordinator_shards = status.coordinator_shards
        self.queue_shards = status.queue_shards
        self._jobs = JobReader(self.store, status.coordinator_shards)
        self.keeper.start()
        await self.directory.start()

    async def stop(self) -> None:
        """Gives back every lease and closes every channel. Idempotent."""
        await self.directory.stop()
        await self.keeper.stop()
        await self.store.stop()
        channels, self._channels = list(self._channels.values()), {}
        await asyncio.gather(
            *(channel.close() for channel in [*channels, self._store_channel]),
            return_exceptions=True,
        )

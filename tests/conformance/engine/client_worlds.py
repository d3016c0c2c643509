"""The store client as an implementation of `Engine`: over the simulated network, and over gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from conformance.engine.worlds import DEADLINE_S, LmdbWorld, Scenario, World

from sexton_runtime.clock import SystemClock
from sexton_runtime.kv.client import StoreClient
from sexton_runtime.randomness import SeededRandomness
from sexton_runtime.rpc.grpc_transport import GrpcTransport
from sexton_runtime.rpc.policy_channel import PolicyChannel
from sexton_sim.loop import SimLoop
from sexton_sim.network import Network
from sexton_sim.transport import SimTransport
from sexton_store.app import Store
from sexton_store.lmdb_disk import LmdbDisk
from sexton_store.memory_disk import MemoryDisk

ADDRESS = "127.0.0.1:7600"


class SimulatedClientWorld:
    """A client and a store, each a process of the simulation, in virtual time."""

    engine: StoreClient

    def __init__(self, folder: Path) -> None:
        self._loop = SimLoop()
        self._transport = SimTransport(Network())
        self._disk = MemoryDisk()
        self._member = self._loop.process("member")

    def run(self, scenario: Scenario) -> None:
        async def live() -> None:
            channel = PolicyChannel(self._transport.channel(ADDRESS))
            clock, randomness = self._member.clock, SeededRandomness(2)
            async with StoreClient(channel, clock=clock, randomness=randomness) as self.engine:
                await scenario(self)

        async def main() -> None:
            await self._start()
            async with asyncio.timeout(3_600):
                await self._member.spawn(live())

        self._loop.run(main())

    async def restart(self) -> None:
        """Kills the store; the client goes on."""
        self._process.crash()
        self._disk = self._disk.crash()
        await self._start()
        await self.engine.status()  # is repeated until the client has found it again

    async def _start(self) -> None:
        process, disk = self._loop.process("store"), self._disk

        async def start() -> None:  # made within its process, to which its server then belongs
            store = Store(
                disk=disk,
                transport=self._transport,
                clock=process.clock,
                randomness=SeededRandomness(1),
                listen=ADDRESS,
            )
            await store.lifecycle.start()

        self._process = process
        await process.spawn(start())


class GrpcClientWorld:
    """A client and a store over LMDB, over gRPC on this machine, in real time."""

    engine: StoreClient

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "data"
        self._listen = "127.0.0.1:0"

    def run(self, scenario: Scenario) -> None:
        async def main() -> None:
            await self._start()
            channel = PolicyChannel(GrpcTransport().channel(self._listen))
            clock, randomness = SystemClock(), SeededRandomness(2)
            try:
                async with (
                    asyncio.timeout(DEADLINE_S),
                    channel,
                    StoreClient(channel, clock=clock, randomness=randomness) as self.engine,
                ):
                    await scenario(self)
            finally:
                await self._store.lifecycle.stop()

        asyncio.run(main())

    async def restart(self) -> None:
        """Stops the store in order and starts it on the same folder and port."""
        await self._store.lifecycle.stop()
        await self._start()
        await self.engine.status()

    async def _start(self) -> None:
        self._store = Store(
            disk=LmdbDisk.open(self._folder, LmdbWorld.CONFIG),
            transport=GrpcTransport(),
            clock=SystemClock(),
            randomness=SeededRandomness(1),
            listen=self._listen,
        )
        await self._store.lifecycle.start()
        self._listen = self._store.server.address


CLIENT_WORLDS: dict[str, Callable[[Path], World]] = {
    "simulated client": SimulatedClientWorld,
    "grpc client": GrpcClientWorld,
}

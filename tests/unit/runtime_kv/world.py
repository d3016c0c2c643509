"""A store and its members on the simulated network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from sexton_runtime.kv.client import StoreClient
from sexton_runtime.kv.config import StoreClientConfig
from sexton_runtime.kv.lease_keeper import LeaseKeeper
from sexton_runtime.randomness import SeededRandomness
from sexton_runtime.rpc.policy_channel import PolicyChannel
from sexton_sim.loop import SimLoop
from sexton_sim.network import LinkProfile, Network
from sexton_sim.process import Process
from sexton_sim.transport import SimTransport
from sexton_store.app import Store
from sexton_store.contract import EngineConfig
from sexton_store.memory_disk import MemoryDisk

T = TypeVar("T")
ADDRESS = "127.0.0.1:7600"
LONGEST_STORY_S = 600.0
"""Virtual seconds after which a story hangs."""


class World:
    """One simulation. `run` a story in it; within, talk as a member with `on`."""

    def __init__(
        self,
        *,
        seed: int = 0,
        profile: LinkProfile | None = None,
        engine: EngineConfig | None = None,
    ) -> None:
        self.loop = SimLoop()
        self.network = Network(seed, profile=profile)
        self.transport = SimTransport(self.network)
        self.disk = MemoryDisk()
        self.store: Store | None = None
        self.store_process: Process | None = None
        self._seed = seed
        self._engine = engine
        self._starts = 0
        self._members: dict[str, Process] = {}

    def run(self, story: Callable[[], Awaitable[T]]) -> T:
        """Starts the store, runs the story to its end, and checks that nothing went unheard."""

        async def main() -> T:
            async with asyncio.timeout(LONGEST_STORY_S):
                await self.start_store()
                return await story()

        result = self.loop.run(main())
        assert self.loop.unhandled == []
        return result

    def tell(
        self,
        story: Callable[[StoreClient], Awaitable[T]],
        config: StoreClientConfig | None = None,
    ) -> T:
        """Runs the story of one member, named member."""

        async def main() -> T:
            return await self.on("member", story, config)

        return self.run(main)

    async def start_store(self) -> None:
        """Starts the store on what is durable."""
        self._starts += 1
        process = self.store_process = self.loop.process("store")
        disk, randomness = self.disk, SeededRandomness(f"store-{self._seed}-{self._starts}")

        async def start() -> Store:
            store = Store(
                disk=disk,
                transport=self.transport,
                clock=process.clock,
                randomness=randomness,
                listen=ADDRESS,
                config=self._engine,
            )
            await store.lifecycle.start()
            return store

        self.store = await process.spawn(start())

    def crash_store(self) -> None:
        """Kills the store; what is durable is there for the next one."""
        assert self.store_process is not None
        self.store_process.crash()
        self.disk = self.disk.crash()

    def crash_store_before_it_answers(self, *, durable: bool) -> None:
        """Kills the store within its next step, after or before it is durable."""

        async def crash(_batch: object) -> None:
            self.crash_store()
            await asyncio.sleep(0)

        if durable:
            self.disk.before_return = crash
        else:
            self.disk.before_durable = crash

    def member(self, name: str) -> Process:
        """Gives a member's process."""
        if name not in self._members or not self._members[name].alive:
            self._members[name] = self.loop.process(name)
        return self._members[name]

    def on(self, name: str, story: Callable[[StoreClient], Awaitable[T]],
           config: StoreClientConfig | None = None) -> asyncio.Task[T]:  # fmt: skip
        """Runs a story as a member of its own with a store client."""

        async def run() -> T:
            async with self.client(name, config) as client:
                return await story(client)

        return self.member(name).spawn(run())

    @asynccontextmanager
    async def client(
        self, name: str, config: StoreClientConfig | None = None
    ) -> AsyncIterator[StoreClient]:
        """Connects; to be entered within the member's process."""
        async with self.unstarted_client(name, config) as client:
            yield client

    def unstarted_client(self, name: str, config: StoreClientConfig | None = None) -> StoreClient:
        """Makes a client that has not connected yet, within the member's process."""
        return StoreClient(
            PolicyChannel(self.transport.channel(ADDRESS)),
            clock=self.member(name).clock,
            randomness=SeededRandomness(f"{name}-{self._seed}"),
            config=config,
        )

    def keeper(self, name: str, client: StoreClient) -> LeaseKeeper:
        """Makes a member's lease keeper."""
        clock, randomness = self.member(name).clock, SeededRandomness(f"{name}-keeper-{self._seed}")
        return LeaseKeeper(client, clock=clock, randomness=randomness)

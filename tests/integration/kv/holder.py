"""A process that holds a lease whenever it can, and counts up under it.

    python holder.py ADDRESS SECRETS_DIR LOG

Writes a line into LOG for each write that the store has acknowledged: process id, token, revision,
count.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from sexton.errors import SextonError
from sexton_runtime.clock import SystemClock
from sexton_runtime.kv.client import StoreClient
from sexton_runtime.kv.held_lease import HeldLease
from sexton_runtime.kv.lease_keeper import LeaseKeeper
from sexton_runtime.kv.types import Outcome, Put, Txn, unchanged
from sexton_runtime.randomness import SystemRandomness
from sexton_runtime.rpc.grpc_transport import GrpcTransport
from sexton_runtime.rpc.policy_channel import PolicyChannel
from sexton_runtime.secrets import Role, SecretsConfig, load_secret

LEASE = "test/counter"
KEY = b"counter"
TTL_S = 0.4


async def live(address: str, secrets: Path, log: Path) -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    secret = load_secret(SecretsConfig(dir=secrets), Role.MESH)
    clock, randomness = SystemClock(), SystemRandomness()
    async with (
        PolicyChannel(GrpcTransport().channel(address), secret=secret) as channel,
        StoreClient(channel, clock=clock, randomness=randomness) as store,
        LeaseKeeper(store, clock=clock, randomness=randomness) as keeper,
    ):
        counting = asyncio.create_task(count_for_ever(store, keeper, log))
        await asyncio.wait(
            [counting, asyncio.create_task(stopping.wait())], return_when=asyncio.FIRST_COMPLETED
        )
        counting.cancel()
        await asyncio.gather(counting, return_exceptions=True)


async def count_for_ever(store: StoreClient, keeper: LeaseKeeper, log: Path) -> None:
    while True:
        async with await keeper.acquire(LEASE, ttl_s=TTL_S) as lease:
            while lease.still_held():
                try:
                    await count(store, lease, log)
                except SextonError:
                    await asyncio.sleep(0.01)


async def count(store: StoreClient, lease: HeldLease, log: Path) -> None:
    (kv,) = (await store.get([KEY])).kvs
    number = int(kv.value or b"0") + 1
    txn = Txn((unchanged(kv),), (Put(KEY, b"%d" % number),))
    (result,) = await lease.commit([txn], timeout_s=2)
    if result.outcome is Outcome.COMMITTED:
        with log.open("a") as lines:
            lines.write(f"{os.getpid()} {lease.token} {result.revision} {number}\n")
    await asyncio.sleep(0.002)


if __name__ == "__main__":
    asyncio.run(live(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])))

"""What a store does on this machine: commits, compare-and-set, leases; against raw LMDB.

Starts a store of its own on a temporary folder and loads it from this process over gRPC. Raw LMDB
is measured in the same folder and the same run, so that the ratios compare software, not disks.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Final, TypedDict

import lmdb

from sexton_cli.errors import CliError
from sexton_runtime.clock import SystemClock
from sexton_runtime.kv.client import StoreClient
from sexton_runtime.kv.held_lease import HeldLease
from sexton_runtime.kv.lease_keeper import LeaseKeeper
from sexton_runtime.kv.types import LeaseRef, Op, Put, Txn
from sexton_runtime.randomness import SystemRandomness
from sexton_runtime.rpc.grpc_transport import GrpcTransport
from sexton_runtime.rpc.policy_channel import PolicyChannel

CLIENTS: Final = (1, 4, 16)
OPS_PER_COMMIT: Final = (1, 10, 100)
VALUE: Final = bytes(100)
"""About the size of a run's record."""
LEASES: Final = 500
LEASE_TTL_S: Final = 3.0
"""Renewed after a third of it: every second."""
_START_TIMEOUT_S: Final = 20.0
_UNLOADED_CALLS: Final = 300
_UNLOADED_PAUSE_S: Final = 0.005
_MAP_BYTES: Final = 8 * 2**30

Row = dict[str, float | int]


class Measured(TypedDict):
    """What was measured, by name, with the unit last."""

    commits: list[Row]
    compare_and_set: Row
    leases: Row


async def measure(seconds: float, folder: Path | None) -> Measured:
    """Measures everything; each of some twenty steps takes `seconds`. Data go below `folder`."""
    with tempfile.TemporaryDirectory(prefix="sexton-bench-", dir=folder) as place:
        async with _store(Path(place) / "store") as address:
            return {
                "commits": await _commits(address, Path(place), seconds),
                "compare_and_set": await _compare_and_set(address, Path(place)),
                "leases": await _leases(address, seconds),
            }


async def _commits(address: str, place: Path, seconds: float) -> list[Row]:
    rows: list[Row] = []
    for ops in OPS_PER_COMMIT:
        raw = _RawLmdb(place / f"raw-{ops}", ops)
        for clients in CLIENTS:
            raw.run(seconds / 2)
            async with AsyncExitStack() as stack:
                connected = await _connect(stack, address, clients)
                took_ms, elapsed_s = await _load(connected, ops, seconds)
            raw.run(seconds / 2)
            commits_per_s, lmdb_commits_per_s = len(took_ms) / elapsed_s, raw.take_commits_per_s()
            rows.append(
                {
                    "clients": clients,
                    "ops_per_commit": ops,
                    "commits_per_s": round(commits_per_s),
                    "ops_per_s": round(commits_per_s * ops),
                    "p50_ms": _percentile(took_ms, 50),
                    "p99_ms": _percentile(took_ms, 99),
                    "lmdb_commits_per_s": round(lmdb_commits_per_s),
                    "ratio_to_lmdb": round(commits_per_s / lmdb_commits_per_s, 3),
                }
            )
    return rows


async def _load(
    clients: Sequence[StoreClient], ops: int, seconds: float
) -> tuple[list[float], float]:
    """Lets each client commit one transaction after the other; gives each commit's time."""
    took_ms: list[float] = []
    began = perf_counter()
    until = began + seconds

    async def commit_until(client: StoreClient, number: int) -> None:
        batches = _batches(f"{ops}/{len(clients)}/{number}", ops)
        while perf_counter() < until:
            sent = perf_counter()
            await client.commit([Txn(then=next(batches))])
            took_ms.append((perf_counter() - sent) * 1e3)

    async with asyncio.TaskGroup() as group:
        for number, client in enumerate(clients):
            group.create_task(commit_until(client, number))
    return took_ms, perf_counter() - began


def _batches(name: str, ops: int) -> Iterator[tuple[Op, ...]]:
    """Makes up the records, batch by batch: new keys in order, as a mesh writes its runs."""
    for first in itertools.count(0, ops):
        yield tuple(Put(f"bench/{name}/{first + n:09d}".encode(), VALUE) for n in range(ops))


class _RawLmdb:
    """LMDB alone, with the same records in the same batches: before and after each load."""

    def __init__(self, place: Path, ops: int) -> None:
        self._place = place
        self._batches = _batches(f"{ops}/raw", ops)
        self._commits = 0
        self._elapsed_s = 0.0

    def run(self, seconds: float) -> None:
        """Commits batch after batch."""
        with lmdb.open(str(self._place), map_size=_MAP_BYTES) as environment:
            began = perf_counter()
            while (elapsed_s := perf_counter() - began) < seconds:
                pairs = [(op.key, VALUE) for op in next(self._batches)]
                with environment.begin(write=True) as transaction:
                    transaction.cursor().putmulti(pairs)
                self._commits += 1
        self._elapsed_s += elapsed_s

    def take_commits_per_s(self) -> float:
        """Gives the rate since it was last taken."""
        rate = self._commits / self._elapsed_s
        self._commits, self._elapsed_s = 0, 0.0
        return rate


async def _compare_and_set(address: str, place: Path) -> Row:
    """Measures a compare-and-set on an idle store, and what it can't do without."""
    async with _client(address) as client:
        revisions: dict[bytes, int] = {}

        async def set_one(number: int) -> None:
            key = b"bench/cas/%d" % (number % 16)
            result, _ = await client.compare_and_set(key, revisions.get(key, 0), VALUE)
            revisions[key] = result.revision

        async def call_empty(_number: int) -> None:
            await client.clock()

        set_ms = await _unloaded(set_one)
        call_ms = await _unloaded(call_empty)
    with lmdb.open(str(place / "raw-cas"), map_size=_MAP_BYTES) as environment:

        async def sync_one(number: int) -> None:
            with environment.begin(write=True) as transaction:
                transaction.put(b"bench/cas/%d" % (number % 16), VALUE)

        sync_ms = await _unloaded(sync_one)
    floor_ms = statistics.median(call_ms) + statistics.median(sync_ms)
    return {
        "p50_ms": _percentile(set_ms, 50),
        "p99_ms": _percentile(set_ms, 99),
        "empty_call_p50_ms": _percentile(call_ms, 50),
        "lmdb_commit_p50_ms": _percentile(sync_ms, 50),
        "ratio_to_commit_plus_call": round(statistics.median(set_ms) / floor_ms, 2),
    }


async def _unloaded(call: Callable[[int], Awaitable[None]]) -> list[float]:
    took_ms = []
    for number in range(_UNLOADED_CALLS):
        await asyncio.sleep(_UNLOADED_PAUSE_S)
        sent = perf_counter()
        await call(number)
        took_ms.append((perf_counter() - sent) * 1e3)
    return took_ms


async def _leases(address: str, seconds: float) -> Row:
    """Renews as fast as it goes; then keeps many leases while bulk commits run."""
    async with AsyncExitStack() as stack:
        keeping, *loading = await _connect(stack, address, 1 + CLIENTS[-1])
        clock, randomness = SystemClock(), SystemRandomness()
        keeper = await stack.enter_async_context(
            LeaseKeeper(keeping, clock=clock, randomness=randomness)
        )
        held = await asyncio.gather(
            *(keeper.acquire(f"bench/{number}", ttl_s=LEASE_TTL_S) for number in range(LEASES))
        )
        renewals_per_s = await _renew(keeping, held, seconds)
        took_ms: list[float] = []
        renewing = asyncio.create_task(_renew_every_second(keeping, held, took_ms))
        commits, elapsed_s = await _load(loading, 100, max(3 * seconds, 2 * LEASE_TTL_S))
        renewing.cancel()
        lost = sum(not lease.still_held() for lease in held)
    return {
        "renewals_per_s": round(renewals_per_s),
        "held_under_load": LEASES,
        "lost_under_load": lost,
        "unanswered_under_load": keeper.renewals_unanswered,
        "renewal_call_p50_ms": _percentile(took_ms, 50),
        "renewal_call_max_ms": round(max(took_ms), 2),
        "commits_meanwhile_per_s": round(len(commits) / elapsed_s),
    }


async def _renew(client: StoreClient, held: Sequence[HeldLease], seconds: float) -> float:
    refs = [LeaseRef(lease.name, lease.token) for lease in held]
    calls = 0
    began = perf_counter()
    while perf_counter() - began < seconds:
        await client.renew_leases(refs)
        calls += 1
    return calls * len(refs) / (perf_counter() - began)


async def _renew_every_second(
    client: StoreClient, held: Sequence[HeldLease], took_ms: list[float]
) -> None:
    """Times calls of the size that the keeper makes, beside the keeper's own."""
    refs = [LeaseRef(lease.name, lease.token) for lease in held]
    while True:
        await asyncio.sleep(0.25)
        sent = perf_counter()
        await client.renew_leases(refs)
        took_ms.append((perf_counter() - sent) * 1e3)


@asynccontextmanager
async def _store(data: Path) -> AsyncIterator[str]:
    """Runs a store in a process of its own and gives its address.

    It is measured as it is by default: what the surroundings configure is another store's.
    """
    environment = {name: it for name, it in os.environ.items() if not name.startswith("SEXTON_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sexton_store",
        "--data", str(data), "--listen", "127.0.0.1:0", "--log-level", "error",
        stdout=asyncio.subprocess.PIPE, env=environment,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_START_TIMEOUT_S):
            line = (await process.stdout.readline()).decode().strip()
        if not line:
            raise CliError("the store did not start; its own message is above")
        yield line.removeprefix("store ready on ")
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _connect(stack: AsyncExitStack, address: str, number: int) -> list[StoreClient]:
    return [await stack.enter_async_context(_client(address)) for _ in range(number)]


@asynccontextmanager
async def _client(address: str) -> AsyncIterator[StoreClient]:
    channel = PolicyChannel(GrpcTransport().channel(address))
    clock, randomness = SystemClock(), SystemRandomness()
    async with channel, StoreClient(channel, clock=clock, randomness=randomness) as client:
        yield client


def _percentile(values: Sequence[float], percent: int) -> float:
    ranked = sorted(values)
    return round(ranked[min(len(ranked) - 1, len(ranked) * percent // 100)], 3)

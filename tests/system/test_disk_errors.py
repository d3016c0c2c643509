"""A disk that reports an error: the outcome is unknown, the store ends, a restart has it all."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from faults.store_load import CONFIG, durable_states, max_revision, records

from sexton.errors import OutcomeUnknown
from sexton.internal.v1 import store_pb2 as pb
from sexton.internal.v1.store_pb2_grpc import StoreServiceStub
from sexton_runtime.rpc.grpc_transport import GrpcTransport
from sexton_runtime.rpc.policy_channel import PolicyChannel
from sexton_store.doctor import child_environment, examine
from sexton_store.lmdb_disk import LmdbDisk
from sexton_store.memory_disk import MemoryDisk

if TYPE_CHECKING:
    from sexton.internal.v1.store_pb2_grpc import StoreServiceAsyncStub

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.usefixtures("strace")]

UNKNOWN_OUTCOME = 75
"""The exit code that asks a supervisor for a restart."""
STEPS = 30


class Ended(NamedTuple):
    """How a load ended."""

    code: int
    last_line: str
    answered: int  # the last revision that it was told


def load(folder: Path, strace: list[str]) -> Ended:
    """Runs the load under strace."""
    command = [sys.executable, "-m", "faults.store_load", str(folder), "errors", str(STEPS)]
    ended = subprocess.run(
        ["strace", "-f", "-y", *strace, *command],
        env=child_environment(),
        stdout=subprocess.PIPE,
        check=False,
    )
    lines = ended.stdout.decode().splitlines()
    revisions = [int(line) for line in lines if line.isdigit()]
    return Ended(ended.returncode, lines[-1], max(revisions, default=0))


def meta_writes(tmp_path: Path) -> list[int]:
    """Tells which of the writer thread's pwrite64 calls write a meta page, counted from 1."""
    trace = tmp_path / "trace"
    calls = ["-ff", "-e", "trace=openat,pwrite64", "-o", str(trace)]
    assert load(tmp_path / "traced", calls)[:2] == (0, "done")
    main, writer = sorted(tmp_path.glob("trace.*"), key=lambda path: int(path.suffix[1:]))[:2]
    opened = re.findall(r"O_DSYNC.* = (\d+)<", main.read_text())
    descriptors = re.findall(r"^pwrite64\((\d+)<", writer.read_text(), re.MULTILINE)
    return [number for number, fd in enumerate(descriptors, start=1) if fd == opened[-1]]


async def check_after(folder: Path, answered: int) -> None:
    """The folder is sound and holds exactly one durable state, no older one than was answered."""
    assert examine(folder).findings == ()
    states = await durable_states(MemoryDisk(), "errors", STEPS)
    disk = LmdbDisk.open(folder, CONFIG)
    assert max_revision(disk) >= answered
    assert records(disk) == states[max_revision(disk)]
    await disk.close()


@pytest.mark.parametrize("call", ["fdatasync", "writev"])
@pytest.mark.parametrize("count", [4, 9])
async def test_an_error_before_the_meta_page(tmp_path: Path, call: str, count: int) -> None:
    folder = tmp_path / "data"
    inject = ["-e", f"inject={call}:error=EIO:when={count}", "-e", f"trace={call}"]
    ended = load(folder, [*inject, "-o", str(tmp_path / "trace")])
    assert ended[:2] == (UNKNOWN_OUTCOME, "ended by OutcomeUnknown")
    await check_after(folder, ended.answered)


@pytest.mark.parametrize("restored", [True, False])
async def test_an_error_of_the_meta_page(tmp_path: Path, *, restored: bool) -> None:
    """LMDB then writes the old meta page again; `restored`: that goes through."""
    number = meta_writes(tmp_path)[10]
    folder = tmp_path / "data"
    when = f"{number}" if restored else f"{number}+"
    inject = ["-e", f"inject=pwrite64:error=EIO:when={when}", "-e", "trace=pwrite64"]
    ended = load(folder, [*inject, "-o", str(tmp_path / "injected")])
    assert ended[:2] == (UNKNOWN_OUTCOME, "ended by OutcomeUnknown")
    await check_after(folder, ended.answered)


async def test_a_store_answers_unknown_ends_and_has_all_after_a_restart(tmp_path: Path) -> None:
    data = tmp_path / "data"
    inject = ["-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=20"]
    answered: list[bytes] = []
    with store(data, ["strace", "-f", "-o", str(tmp_path / "trace"), *inject]) as process:
        async with PolicyChannel(GrpcTransport().channel(address_of(process))) as channel:
            with pytest.raises(OutcomeUnknown):
                await put_until_refused(StoreServiceStub(channel), answered)
        assert await asyncio.to_thread(process.wait) == UNKNOWN_OUTCOME
    assert len(answered) > 10

    with store(data, []) as process:
        async with PolicyChannel(GrpcTransport().channel(address_of(process))) as channel:
            stub: StoreServiceAsyncStub = StoreServiceStub(channel)
            found = await stub.Get(pb.GetRequest(keys=answered))
            assert [kv.value for kv in found.kvs] == answered
            await stub.CompareAndSet(pb.CompareAndSetRequest(key=b"it works", put=b"again"))
        process.terminate()
        assert await asyncio.to_thread(process.wait) == 0
    assert examine(data).findings == ()


@contextmanager
def store(data: Path, wrapper: list[str]) -> Iterator[subprocess.Popen[str]]:
    """Runs a store, which the test ends."""
    arguments = ["-m", "sexton_store", "--data", str(data), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        [*wrapper, sys.executable, *arguments],
        env=child_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def address_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().removeprefix("store ready on ").strip()


async def put_until_refused(stub: StoreServiceAsyncStub, answered: list[bytes]) -> None:
    for number in range(1_000):
        key = b"key/%04d" % number
        await stub.CompareAndSet(pb.CompareAndSetRequest(key=key, put=key))
        answered.append(key)

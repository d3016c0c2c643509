"""Two holders compete for a lease; the one that is suspended can't do harm when it wakes up.

Real processes: one store, two holders. The sentences are always the same, the numbers in them are
the store's own. Exits non-zero when anything goes otherwise than told.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from sexton_runtime.clock import SystemClock
from sexton_runtime.kv.client import StoreClient
from sexton_runtime.kv.held_lease import HeldLease
from sexton_runtime.kv.lease_keeper import LeaseKeeper
from sexton_runtime.kv.types import Outcome, Put, Txn
from sexton_runtime.randomness import SystemRandomness
from sexton_runtime.rpc.grpc_transport import GrpcTransport
from sexton_runtime.rpc.policy_channel import PolicyChannel
from sexton_runtime.secrets import Role, SecretsConfig, load_secret

LEASE = "demo/bell"
KEY = b"demo/bell-rope"
TTL_S = 2.0
PATIENCE_S = 20.0
"""Nothing in this story takes longer; what does is a failure."""


class OtherwiseError(Exception):
    """Something went otherwise than the story tells."""


# The story ------------------------------------------------------------------------------------


async def tell() -> None:
    """Tells the story from beginning to end."""
    with tempfile.TemporaryDirectory(prefix="sexton-demo-") as folder:
        secrets = Path(folder) / "secrets"
        store = await Actor.start(
            "-m", "sexton_store", "--data", f"{folder}/data", "--listen", "127.0.0.1:0",
            "--secrets-dir", str(secrets), "--log-level", "error",
        )  # fmt: skip
        actors = [store]
        try:
            address = (await store.line()).removeprefix("store ready on ")
            say("A store has started on an empty folder. It asks every caller for the mesh secret.")
            for name in ("first", "second"):
                holder = await Actor.start(__file__, "holder", name, address, str(secrets))
                actors.append(holder)
            await compete(*actors[1:])
            await store.end()
        finally:
            for actor in reversed(actors):
                await actor.kill()
    say("The store has stopped. Nothing is left behind.")


async def compete(first: Actor, second: Actor) -> None:
    """Lets two holders compete for the lease."""
    await first.do("acquire")
    token = (await first.expect("acquired"))["token"]
    say(f"The first process acquired the lease {LEASE!r}. Its fencing token is {token}:")
    say("the revision of the commit that created the lease. The second process stands by.")
    await second.do("acquire")
    await second.expect("waiting")

    await first.do("write")
    written = await first.expect("written")
    require(written["outcome"] == "COMMITTED", "the holder's write is committed", written)
    say(f"The first wrote {KEY.decode()!r} under its token: committed at {written['revision']}.")

    first.signal(signal.SIGSTOP)
    say("Now the first process is suspended (SIGSTOP) and can't renew its lease.")
    successor = (await second.expect("acquired"))["token"]
    require(successor > token, "the new token is higher", successor)
    say(f"The lease ran out after {TTL_S:g} s without a renewal. The second process acquired it,")
    say(f"with token {successor}: higher than {token}, as every later one will be.")
    await second.do("write")
    taken = await second.expect("written")
    require(taken["outcome"] == "COMMITTED", "the successor's write is committed", taken)
    say(f"The second wrote {KEY.decode()!r}: committed at {taken['revision']}.")

    first.signal(signal.SIGCONT)
    say("The first process wakes up (SIGCONT). It has no idea how long it was away.")
    lost = await first.expect("lost")
    require(lost["because"] == "deadline", "its own clock tells the first", lost)
    say("Its own clock tells it first: the time of its lease is over, it stops acting.")
    await first.do("write-anyway")
    refused = await first.expect("written")
    require(refused["outcome"] == "REFUSED", "the old holder's write is refused", refused)
    require(refused["failed_compare"] == 0, "it is refused by the fence", refused)
    say(f"Suppose it had sent the write that it had ready: the store compares token {token}, finds")
    say(f"another lease, and refuses. The revision is still {refused['revision']}.")
    await second.do("read")
    found = await second.expect("read")
    require(found["value"] == "second", "the successor's write stands", found)
    require(found["mod_revision"] == taken["revision"], "nothing was written since", found)
    say(f"{KEY.decode()!r} is as the second left it, at revision {found['mod_revision']}.")

    await second.end()
    await first.do("acquire")
    again = (await first.expect("acquired"))["token"]
    require(again > successor, "the token has risen again", again)
    say("The second process stops and gives the lease back, so that nobody has to wait for it:")
    say(f"the first acquires it again at once, with token {again}.")
    await first.end()


def say(sentence: str) -> None:
    """Tells a sentence."""
    print(sentence, flush=True)


def require(holds: bool, what: str, found: object) -> None:  # noqa: FBT001 - reads like a sentence
    """Raises unless the story goes as told."""
    if not holds:
        raise OtherwiseError(f"expected that {what}; found {found}")


class Actor:
    """A process of the story: commands in, one line out for everything that happens to it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, *arguments: str) -> Actor:
        """Starts a Python process."""
        pipe = asyncio.subprocess.PIPE
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable, *arguments, stdin=pipe, stdout=pipe
            )
        )

    async def line(self) -> str:
        """Waits for what it says next."""
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            line = await self._process.stdout.readline()
        if not line:
            raise OtherwiseError(f"process {self._process.pid} ended before its time")
        return line.decode().strip()

    async def expect(self, event: str) -> dict[str, Any]:
        """Waits for the next event, which must be this one."""
        found: dict[str, Any] = json.loads(await self.line())
        require(found["event"] == event, f"the next event is {event!r}", found)
        return found

    async def do(self, command: str) -> None:
        """Gives a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n".encode())
        await self._process.stdin.drain()

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal."""
        os.kill(self._process.pid, number)

    async def end(self) -> None:
        """Asks it to stop and waits for it."""
        self._process.terminate()
        async with asyncio.timeout(PATIENCE_S):
            code = await self._process.wait()
        require(code == 0, f"process {self._process.pid} stops cleanly", code)

    async def kill(self) -> None:
        """Ends it whatever it does."""
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


# A holder -------------------------------------------------------------------------------------


async def hold(name: str, address: str, secrets: Path) -> None:
    """Is a holder: does what it is told on stdin until SIGTERM."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    secret = load_secret(SecretsConfig(dir=secrets), Role.MESH)
    clock, randomness = SystemClock(), SystemRandomness()
    channel = PolicyChannel(GrpcTransport().channel(address), secret=secret)
    async with (
        channel,
        StoreClient(channel, clock=clock, randomness=randomness) as store,
        LeaseKeeper(store, clock=clock, randomness=randomness) as keeper,
    ):
        obeying = asyncio.create_task(obey(name, store, keeper))
        await stopping.wait()
        obeying.cancel()
        await asyncio.gather(obeying, return_exceptions=True)


async def obey(name: str, store: StoreClient, keeper: LeaseKeeper) -> None:
    """Does what it is told."""
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(commands), sys.stdin
    )
    prepared = Txn()
    async with asyncio.TaskGroup() as watching:
        lease: HeldLease | None = None
        while command := (await commands.readline()).decode().strip():
            if command == "acquire":
                if await store.list_leases(LEASE):
                    report("waiting")
                lease = await keeper.acquire(LEASE, ttl_s=TTL_S)
                # What a careless program does: it makes up its write now and sends it whenever.
                prepared = Txn(compares=(lease.fence(),), then=(Put(KEY, name.encode()),))
                report("acquired", token=lease.token)
                watching.create_task(report_loss(lease))
            elif command == "write":
                assert lease is not None
                (result,) = await lease.commit([Txn(then=(Put(KEY, name.encode()),))])
                report("written", outcome=result.outcome.name, revision=result.revision)
            elif command == "write-anyway":
                (result,) = await store.commit([prepared])
                report(
                    "written",
                    outcome=result.outcome.name,
                    revision=result.revision,
                    failed_compare=result.failed_compare
                    if result.outcome is Outcome.REFUSED
                    else None,
                )
            elif command == "read":
                (kv,) = (await store.get([KEY])).kvs
                report("read", value=kv.value.decode(), mod_revision=kv.mod_revision)


async def report_loss(lease: HeldLease) -> None:
    """Reports the end of a tenure."""
    await lease.lost.wait()
    if lease.lost_because != "released":
        report("lost", because=lease.lost_because)


def report(event: str, **facts: object) -> None:
    """Tells the narrator what has happened."""
    print(json.dumps({"event": event, **facts}), flush=True)


def main() -> int:
    """Tells the story, or plays a part in it."""
    if sys.argv[1:2] == ["holder"]:
        asyncio.run(hold(sys.argv[2], sys.argv[3], Path(sys.argv[4])))
        return 0
    try:
        asyncio.run(tell())
    except (OtherwiseError, TimeoutError) as error:
        print(f"This is not how the story goes: {error or 'nothing happens'}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

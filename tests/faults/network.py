"""A network between local processes that can be cut, slowed and broken: a TCP proxy of our own.

Each member sends its gRPC connections through a door of its own, an HTTP CONNECT proxy on
127.0.0.1 that `Network.environment` makes gRPC use for every address. The door knows who connects,
CONNECT says to whom, so each direction of each pair can be treated apart, open connections
included.

TCP loses nothing: what a cut holds back is kept and arrives after the healing, as with packets
that are sent again, unless somebody has closed the connection meanwhile; the other end of that one
is not told before the healing (it is half open). A connection cannot be made where either
direction is cut.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, NamedTuple, TypeVar

HOST: Final = "127.0.0.1"
_MOST_HELD_BYTES: Final = 256 * 1024
"""A sender whose bytes are held back is not read any further beyond this."""
_MOST_HEADER_BYTES: Final = 8 * 1024
_CONNECT_S: Final = 5.0
_AT_ONCE: Final = struct.pack("ii", 1, 0)

T = TypeVar("T")


class Roughness(NamedTuple):
    """How bad the network of a member is; see `FaultMesh.rough`."""

    delay_ms: int
    stalls: float
    resets: float


class Network:
    """All doors, in a thread with a loop of its own. `counts` tells what was done to bytes."""

    def __init__(self, seed: int = 0) -> None:
        self.counts: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._doors: dict[str, asyncio.Server] = {}
        self._names: dict[int, str] = {}
        self._cut: set[tuple[str, str]] = set()
        self._rough: dict[str, Roughness] = {}
        self._changed = asyncio.Event()
        self._connections: set[_Connection] = set()
        self._thread.start()

    def name(self, port: int, member: str) -> None:
        """Says who listens on a port."""
        self._names[port] = member

    def environment(self, member: str) -> Mapping[str, str]:
        """Opens the member's door, and gives the variables that send its connections there."""
        port = self._do(self._open(member))
        return {
            "GRPC_ADDRESS_HTTP_PROXY": f"{HOST}:{port}",
            "GRPC_ADDRESS_HTTP_PROXY_ENABLED_ADDRESSES": f"{HOST}/32",
        }

    def forward(self, source: str, port: int) -> int:
        """Gives a port at which the source reaches this one, for who can't be sent to a door."""
        return self._do(self._forward(source, port))

    def cut(self, source: str, target: str) -> None:
        """From now on nothing that `source` sends reaches `target`."""
        self._do(self._set(lambda: self._cut.add((source, target))))

    def rough(self, member: str, roughness: Roughness) -> None:
        """Makes everything bad that a member sends or is sent."""
        self._do(self._set(lambda: self._rough.__setitem__(member, roughness)))

    def heal(self) -> None:
        """Lets everything through again."""

        def heal() -> None:
            self._cut.clear()
            self._rough.clear()

        self._do(self._set(heal))

    def reset(self, member: str) -> int:
        """Resets every connection of a member; gives how many there were."""

        async def reset() -> int:
            theirs = [each for each in self._connections if member in (each.source, each.target)]
            for connection in theirs:
                connection.abort()
            return len(theirs)

        return self._do(reset())

    def stop(self) -> None:
        """Closes everything. Idempotent."""
        if self._loop.is_closed():
            return
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # In the thread

    def is_plain(self, source: str, target: str) -> bool:
        """Tells whether what the one sends to the other passes as it is."""
        return (source, target) not in self._cut and not self._rough.keys() & {source, target}

    async def pass_through(self, source: str, target: str) -> bool:
        """Waits as long as a piece takes that the one sends to the other; False: a reset."""
        while (source, target) in self._cut:
            self.counts["held"] += 1
            await self._changed.wait()
        for name in (source, target):
            roughness = self._rough.get(name)
            if roughness is None:
                continue
            if self._random.random() < roughness.resets:
                self.counts["reset"] += 1
                return False
            wait_s = self._random.uniform(0, roughness.delay_ms / 1000)
            if self._random.random() < roughness.stalls:
                self.counts["stalled"] += 1
                wait_s += self._random.uniform(0.2, 1.5)
            self.counts["delayed"] += 1
            await asyncio.sleep(wait_s)
        return True

    def target_of(self, port: int) -> str:
        """Gives who listens on a port."""
        return self._names.get(port, str(port))

    def opened(self, connection: _Connection) -> None:
        """Takes note of a connection."""
        self._connections.add(connection)

    def closed(self, connection: _Connection) -> None:
        """Forgets it."""
        self._connections.discard(connection)

    async def _open(self, member: str) -> int:
        if member not in self._doors:
            self._doors[member] = await self._loop.create_server(
                lambda: _Connection(self, member).near, HOST, 0
            )
        return int(self._doors[member].sockets[0].getsockname()[1])

    async def _forward(self, source: str, port: int) -> int:
        name = f"{source} to {port}"
        if name not in self._doors:
            self._doors[name] = await self._loop.create_server(
                lambda: _Connection(self, source, port).near, HOST, 0
            )
        return int(self._doors[name].sockets[0].getsockname()[1])

    async def _set(self, change: Callable[[], object]) -> None:
        change()
        self._changed.set()
        self._changed = asyncio.Event()

    async def _close(self) -> None:
        for door in self._doors.values():
            door.close()
        for connection in list(self._connections):
            connection.abort()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class _Connection:
    """One connection: `near` is the end at the member whose door it is, `far` the other one."""

    def __init__(self, network: Network, source: str, port: int = 0) -> None:
        """Begins to connect to a port at once; 0: to the one that a CONNECT will name."""
        self.network = network
        self.source = source
        self.target = ""
        self.near = _End(self, self._name_source)
        self.far = _End(self, self._name_target)
        self._port = port
        self._received = b""
        self._tasks: set[asyncio.Task[None]] = set()

    def _name_source(self) -> tuple[str, str]:
        return self.source, self.target

    def _name_target(self) -> tuple[str, str]:
        return self.target, self.source

    def made(self, end: _End) -> None:
        """One of its ends is there."""
        self.network.opened(self)
        if end is self.near and self._port:
            self.spawn(self._connect(self._port))

    def receive_early(self, data: bytes) -> None:
        """Takes what comes before the connection is made."""
        self._received += data
        if self._port:
            return
        header, separator, rest = self._received.partition(b"\r\n\r\n")
        if separator:
            self._received = rest
            self._port = int(header.split()[1].rpartition(b":")[2])
            self.spawn(self._connect(self._port, b"HTTP/1.1 200 Connection established\r\n\r\n"))
        elif len(self._received) > _MOST_HEADER_BYTES:
            self.abort()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs something until the connection is aborted."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, port: int, answer: bytes = b"") -> None:
        self.target = self.network.target_of(port)
        for direction in ((self.source, self.target), (self.target, self.source)):
            if not await self.network.pass_through(*direction):
                self.abort()
                return
        if self.near.has_ended():
            return
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_S):
                await loop.create_connection(lambda: self.far, HOST, port)
        except (OSError, TimeoutError):
            self.abort()
            return
        self.near.write(answer)
        self.near.other, self.far.other = self.far, self.near
        if self._received:
            self.near.data_received(self._received)
        if self.near.has_ended():  # while it was being made
            self.far.end_after(self.near)

    def abort(self) -> None:
        """Resets it, at both ends."""
        self.network.closed(self)
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()
        for end in (self.near, self.far):
            end.other = None
            if end.transport is not None:
                # Closed without this it would be an end like others.
                connected = end.transport.get_extra_info("socket")
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
                end.transport.abort()


class _End(asyncio.Protocol):
    """One end of a connection: what it is sent goes to the other one."""

    def __init__(self, connection: _Connection, names: Callable[[], tuple[str, str]]) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _End | None = None
        self._ended = False
        self._connection = connection
        self._names = names
        self._held = bytearray()
        self._moving = False

    def has_ended(self) -> bool:
        """Tells whether whoever is there has closed or reset the connection."""
        return self._ended

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._connection.made(self)

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._connection.receive_early(data)
        elif not self._moving and self._connection.network.is_plain(*self._names()):
            self.other.write(data)
        else:
            self._held += data
            if len(self._held) > _MOST_HELD_BYTES and self.transport is not None:
                self.transport.pause_reading()
            self._move()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended, self.transport = True, None
        if self.other is None:
            self._connection.network.closed(self._connection)
        else:
            self.other.end_after(self)

    def write(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def end_after(self, peer: _End) -> None:
        """Closes this end once what the other one, which has ended, had sent is through."""
        if self._ended:
            self._connection.network.closed(self._connection)
        elif not peer._moving and self._connection.network.is_plain(*peer._names()):
            self._close()
        else:
            peer._move()

    def _close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    def _move(self) -> None:
        if not self._moving:
            self._moving = True
            self._connection.spawn(self._move_held())

    async def _move_held(self) -> None:
        """Sends on what was held, piece by piece, and the end of it where it has ended."""
        other = self.other
        assert other is not None, "it is connected"
        try:
            while self._held or self._ended:
                if not await self._connection.network.pass_through(*self._names()):
                    self._connection.abort()
                    return
                piece, self._held = bytes(self._held), bytearray()
                other.write(piece)
                if self.has_ended():
                    if not self._held:
                        other._close()
                        return
                elif self.transport is not None:
                    self.transport.resume_reading()
        finally:
            self._moving = False

"""The in-memory network: links between processes, their delays and their faults, from one seed.

A call is two ordered pipes, one each way; frames of different calls overtake each other freely. A
link loses nothing inside a living connection (TCP would send it again): what is cut is held until
the link heals or the connection is given up. What is lost is whole connections, with the replies
that they would have carried.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sexton_sim.loop import SimLoop
from sexton_sim.process import PROCESS, Process

if TYPE_CHECKING:
    from sexton_sim._connection import Connection, Exchange


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkProfile:
    """How one direction between two processes behaves. Probabilities are per frame."""

    latency_s: float = 0.0002
    """Least time on the way."""
    jitter_s: float = 0.0003
    """Mean of the exponential time on top of it."""
    stall_p: float = 0.0
    """A lost packet: the frame is late by `stall_s`, as after a retransmission."""
    stall_s: tuple[float, float] = (0.2, 2.0)
    """Range of that lateness."""
    reset_p: float = 0.0
    """The connection breaks at the receiver, so that this frame (a reply, say) is lost with it."""
    duplicate_p: float = 0.0
    """A unary request is delivered a second time, `ghost_s` later, its reply going nowhere."""
    ghost_s: tuple[float, float] = (0.0, 15.0)
    """Range of that lateness."""


class Event(NamedTuple):
    """What the network tells its observer."""

    what: str
    source: str
    target: str
    label: str
    size: int
    checksum: int


class Pipe:
    """One direction of one call: frames arrive in the order in which they were sent."""

    __slots__ = ("free_at_ns",)

    def __init__(self) -> None:
        self.free_at_ns = 0


class _Held(NamedTuple):
    pipe: Pipe
    deliver: Callable[..., None]
    args: tuple[Any, ...]
    expired: Callable[[], bool]
    ghost: Callable[[], None] | None
    wanted: Callable[[], bool]


class Link:
    """One direction between two processes."""

    __slots__ = ("breaks", "cut", "held", "profile", "source", "target")

    def __init__(self, source: str, target: str, profile: LinkProfile) -> None:
        self.source = source
        self.target = target
        self.profile = profile
        self.cut = False
        self.breaks: Callable[[], None] | None = None
        """Told when the connection of the next reply breaks under it; None: nothing is to break."""
        self.held: list[_Held] = []


class Endpoint:
    """The process at one end: whose context callbacks run in. Outside a simulation: the caller."""

    __slots__ = ("context", "loop", "name", "process")

    def __init__(self, process: Process | None) -> None:
        self.process = process
        self.loop = asyncio.get_running_loop() if process is None else process.loop
        self.name = "local" if process is None else process.name
        self.context = contextvars.copy_context() if process is None else process.context.copy()

    @classmethod
    def of_caller(cls) -> Endpoint:
        """Makes the endpoint of the running code."""
        return cls(PROCESS.get(None))

    @property
    def alive(self) -> bool:
        """Tells whether anything of it can still happen."""
        return self.process is None or self.process.alive

    @property
    def responsive(self) -> bool:
        """Tells whether it would answer a ping now."""
        return self.process is None or self.process.runnable

    def now(self) -> float:
        """Gives this process's awake time in seconds, whoever asks."""
        if self.process is None:
            return self.loop.time()
        return self.process.machine.monotonic_ns() / 1e9

    def soon(self, callback: Callable[..., object], *args: Any) -> None:
        """Runs a callback as this process."""
        self.loop.call_soon(callback, *args, context=self.context)

    def later(
        self, delay_s: float, callback: Callable[..., object], *args: Any
    ) -> asyncio.TimerHandle:
        """Runs a callback as this process after a time of its own clock."""
        return self.loop.call_later(delay_s, callback, *args, context=self.context)


class Listener(Protocol):
    """What is bound to an address."""

    @property
    def endpoint(self) -> Endpoint:
        """Whose it is."""
        ...

    def accept(self, connection: Connection) -> None:
        """Takes a connection."""
        ...

    def open(self, exchange: Exchange) -> None:
        """Begins a call."""
        ...


class Network:
    """All links and addresses of a simulation. Works on any event loop (there without delays)."""

    def __init__(
        self,
        seed: int | str = 0,
        *,
        profile: LinkProfile | None = None,
        observer: Callable[[Event], None] | None = None,
    ) -> None:
        self.random = random.Random(f"network-{seed}")  # noqa: S311 - determinism is the point
        self.profile = profile or LinkProfile()
        self.observer = observer
        self.injected: Counter[str] = Counter()
        self.connections: dict[int, Connection] = {}
        self._listeners: dict[str, Listener] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._dark: dict[str, None] = {}
        self._next_port = 20_000
        self._next_number = 0
        self._outside = contextvars.Context()
        self._loop: asyncio.AbstractEventLoop | None = None

    # Addresses

    def bind(self, address: str, listener: Listener) -> int:
        """Binds an address (port 0: any free one) and gives the port.

        Raises `OSError` where a living process has it.
        """
        host, port = _split(address)
        if port == 0:
            self._next_port += 1
            port = self._next_port
        key = f"{host}:{port}"
        owner = self._listeners.get(key)
        if owner is not None and owner.endpoint.alive:
            raise OSError(98, f"address {address} is in use by {owner.endpoint.name}")
        self._listeners[key] = listener
        self.power_on(listener.endpoint.name)
        return port

    def unbind(self, listener: Listener) -> None:
        """Frees every address of a listener."""
        self._listeners = {key: it for key, it in self._listeners.items() if it is not listener}

    def listener(self, address: str) -> Listener | None:
        """Finds who listens on an address, if a living process does."""
        host, port = _split(address)
        found = self._listeners.get(f"{host}:{port}")
        return found if found is not None and found.endpoint.alive else None

    def is_dark(self, address: str) -> bool:
        """Tells whether the machine that last had this address is without power."""
        host, port = _split(address)
        owner = self._listeners.get(f"{host}:{port}")
        return owner is not None and self.is_off(owner.endpoint.name)

    def is_off(self, name: str) -> bool:
        """Tells whether the machine of a process is without power."""
        return name in self._dark

    def number(self) -> int:
        """Gives the next number of a connection or call."""
        self._next_number += 1
        return self._next_number

    # Faults

    def link(self, source: str, target: str) -> Link:
        """Gives the link from one process (by name) to another."""
        link = self._links.get((source, target))
        if link is None:
            link = self._links[source, target] = Link(source, target, self.profile)
        return link

    def set_profile(self, profile: LinkProfile) -> None:
        """Lets every link behave so from now on."""
        self.profile = profile
        for link in self._links.values():
            link.profile = profile

    def cut(self, source: str, target: str) -> None:
        """Cuts one direction; what is sent is held. Both directions: call it twice."""
        self.link(source, target).cut = True
        self.injected["cut"] += 1

    def heal(self, source: str, target: str) -> None:
        """Mends one direction: what was held is delivered, if its connection still lives.

        Where the sender has given its connection up and the receiver does not know yet, what it
        sent may come all the same, in its order, before the news that nobody is there any more.
        """
        link = self.link(source, target)
        link.cut = False
        held, link.held = link.held, []
        comes: dict[int, bool] = {}
        last_ns = 0
        for frame in held:
            frame.pipe.free_at_ns = max(frame.pipe.free_at_ns, last_ns)
            if not frame.expired():
                self._dispatch(link, frame.pipe, frame.deliver, frame.args)
            elif frame.wanted() and comes.setdefault(id(frame.pipe), self.random.random() < 0.5):
                self.injected["late_frame"] += 1
                self._dispatch(link, frame.pipe, frame.deliver, frame.args)
                last_ns = frame.pipe.free_at_ns
            elif frame.ghost is not None and self.random.random() < 0.5:
                self.injected["ghost"] += 1
                frame.ghost()

    def heal_all(self) -> None:
        """Mends every link, and ends what is half open."""
        for link in self._links.values():
            link.breaks = None
        for link in list(self._links.values()):
            self.heal(link.source, link.target)
        for connection in list(self.connections.values()):
            if connection.vanished:
                connection.vanished = False
                connection.fail_client("connection reset by peer")

    def partition(self, left: Iterable[str], right: Iterable[str]) -> None:
        """Cuts every link between two groups, both ways."""
        others = list(right)
        for one in left:
            for other in others:
                self.cut(one, other)
                self.cut(other, one)

    def reset(self, one: str, other: str) -> None:
        """Breaks every connection between two processes; what was on the way is lost."""
        for connection in self._between(one, other):
            connection.fail_client("connection reset by peer")
            connection.fail_server()

    def connected(self) -> list[tuple[str, str]]:
        """Lists who has connections with whom: client, server."""
        pairs = ((it.client.name, it.server_name) for it in self.connections.values())
        return list(dict.fromkeys(pairs))

    def break_next(self, source: str, target: str, strike: Callable[[], None]) -> None:
        """Lets the next reply from `source` be lost with its connection; tells when it was."""
        self.link(source, target).breaks = strike

    def half_open(self, one: str, other: str) -> None:
        """Lets every connection between two processes carry nothing; neither end is told."""
        for connection in self._between(one, other):
            connection.vanished = True

    def power_off(self, name: str) -> None:
        """Turns a machine off: its peers are told nothing, until it runs again (`power_on`)."""
        self._dark[name] = None
        for connection in list(self.connections.values()):
            if connection.server_name == name:
                connection.power_off_server()
            elif connection.client.name == name:
                connection.power_off_client()

    def power_on(self, name: str) -> None:
        """Turns it on: it answers again, also that it knows nothing of an old connection."""
        self._dark.pop(name, None)

    def _between(self, one: str, other: str) -> list[Connection]:
        return [
            connection
            for connection in self.connections.values()
            if {connection.client.name, connection.server_name} == {one, other}
        ]

    # Frames

    def send(  # noqa: PLR0917 - the hottest call of a simulation
        self,
        link: Link,
        pipe: Pipe,
        deliver: Callable[..., None],
        args: tuple[Any, ...],
        expired: Callable[[], bool],
        ghost: Callable[[], None] | None = None,
        wanted: Callable[[], bool] = bool,
    ) -> None:
        """Sends a frame along a pipe; held while the link is cut.

        `expired` tells that the sender has given it up, `wanted` that the receiver would take it.
        """
        if link.cut:
            link.held.append(_Held(pipe, deliver, args, expired, ghost, wanted))
            return
        profile = link.profile
        if ghost is not None and profile.duplicate_p > self.random.random():
            self.injected["duplicate"] += 1
            self.later(self.random.uniform(*profile.ghost_s), ghost)
        self._dispatch(link, pipe, deliver, args)

    def later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> None:
        """Runs a callback as the network itself."""
        loop = self._its_loop()
        if isinstance(loop, SimLoop):
            loop.call_later(delay_s, callback, *args, context=loop.system.context)
        else:
            loop.call_soon(callback, *args, context=self._outside)

    def observe(self, what: str, link: Link, label: str, payload: bytes = b"") -> None:
        """Tells the observer of something, with a checksum of what was carried."""
        if self.observer is not None:
            checksum = zlib.crc32(payload)
            self.observer(Event(what, link.source, link.target, label, len(payload), checksum))

    def _its_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop

    def _dispatch(
        self, link: Link, pipe: Pipe, deliver: Callable[..., None], args: tuple[Any, ...]
    ) -> None:
        loop = self._its_loop()
        if not isinstance(loop, SimLoop):
            loop.call_soon(deliver, *args, context=self._outside)
            return
        profile = link.profile
        delay_s = profile.latency_s
        if profile.jitter_s:
            delay_s += self.random.expovariate(1.0) * profile.jitter_s
        if profile.stall_p > self.random.random():
            self.injected["stall"] += 1
            delay_s += self.random.uniform(*profile.stall_s)
        now_ns = loop.now_ns
        at_ns = max(now_ns + round(delay_s * 1e9), pipe.free_at_ns)
        pipe.free_at_ns = at_ns
        loop.call_later((at_ns - now_ns) / 1e9, deliver, *args, context=loop.system.context)


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"an address is host:port, got {address!r}")
    loopback = host in {"localhost", "0.0.0.0", "[::]", "[::1]", "::"}  # noqa: S104 - names only
    return ("127.0.0.1" if loopback else host), int(port)

"""The stream to the queue's owner: found, kept, found again.

One writer sends what has gathered, at most one message per pace; one reader takes what comes; one
ticker does what is due. All of them run in the control part's event loop, which no user code
shares, and after each wait the session's deadline is looked at before anything else.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from grpc import aio

from sexton.errors import NotLeader, SextonError, Unavailable
from sexton.v1 import worker_pb2 as pb
from sexton.v1 import worker_pb2_grpc
from sexton_core.instants import MAX_INSTANT, SECOND, Duration, Instant
from sexton_runtime.clock import Clock
from sexton_runtime.patience import Pace, Patience
from sexton_runtime.randomness import Randomness
from sexton_runtime.retry import RetryPolicy
from sexton_runtime.rpc.policy_channel import PolicyChannel, cancelling
from sexton_runtime.secrets import AnySecret
from sexton_runtime.transport import Transport
from sexton_worker import _wire as wire
from sexton_worker.contract import Ended, Executor, Order
from sexton_worker.machine import Machine
from sexton_worker.messages import Action

_LONGEST_SLEEP_S: Final = 1.0
"""A sleep counts awake time, deadlines count real time: the machine may have been suspended."""
_CLOSING_S: Final = 2.0
"""How long the owner is given to end the stream after `closing`."""
_DYING: Final = 2 * SECOND
"""How long what was killed is given to be dead, before the process ends without it."""
_RECONNECT: Final = RetryPolicy(first_pause_s=0.05, longest_pause_s=1.0)
"""Between two rounds through all addresses: well within the grace that a broken stream has."""

_STEADY_PER_S: Final = 400
"""Ends of attempts: from here on what is said is gathered for longer."""

_make = tuple.__new__
"""Makes a named tuple of all its parts; its own constructor costs twice as much."""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PullConfig:
    """What a worker says about itself, and how it speaks."""

    worker: str
    """Its name for people."""
    queues: tuple[str, ...]
    addresses: tuple[str, ...]
    """Of the queue's replicas, `host:port`."""
    software_version: str = ""
    secret: AnySecret = field(default="", repr=False)
    pace_s: float = 0.003
    """Between two messages at least; what gathers meanwhile travels together."""
    begun_s: float = 0.01
    """How long it may wait to say that an attempt has begun: many have ended by then."""
    steady_pace_s: float = 0.02
    """The same while many attempts end, unless the queue could run out of free slots meanwhile."""
    hello_timeout_s: float = 3.0
    """How long an address is given to welcome."""
    drain_timeout: Duration = 30 * SECOND
    """How long runs may go on after the worker was told to stop."""
    stop_grace: Duration = 10 * SECOND
    """How long those have that are then asked to end."""


class Puller:
    """A part of the worker's lifecycle: takes runs from its start to its stop."""

    def __init__(
        self,
        machine: Machine,
        executor: Executor,
        *,
        config: PullConfig,
        transport: Transport,
        clock: Clock,
        randomness: Randomness,
        die: Callable[[str], object],
        on_connected: Callable[[bool], object] = lambda _connected: None,
    ) -> None:
        """`die` ends the process at once; called when what must be dead is not.

        `on_connected` is told when the queue's owner has welcomed this worker, and when it is lost.
        """
        self.connected = asyncio.Event()
        """Set while the queue's owner has welcomed this worker."""
        self.failed = asyncio.Event()
        """Set by a fault of our own, after which nothing is taken on any more."""
        self.drain_asked = asyncio.Event()
        """Set when the queue's owner asks this worker to drain and end."""
        self._machine = machine
        self._executor = executor
        self._config = config
        self._transport = transport
        self._clock = clock
        self._randomness = randomness
        self._die = die
        self._on_connected = on_connected
        self._told: dict[str, str] = {}
        self._planned: Instant = MAX_INSTANT
        self._write = asyncio.Event()
        self._hurry = asyncio.Event()
        """Set when the next message is not to wait for others."""
        self._tick = asyncio.Event()
        self._hang_up = asyncio.Event()
        self._changed = asyncio.Event()
        self._finished = False
        self._tasks: list[asyncio.Task[None]] = []

    # The lifecycle

    async def start(self) -> None:
        """Begins to look for the owner; returns at once."""
        await self._executor.start(self)
        self._tasks = [
            asyncio.create_task(self._guarded(self._keep_time())),
            asyncio.create_task(self._guarded(self._keep_on())),
        ]

    async def stop(self) -> None:
        """Drains, closes the session, and ends. Idempotent.

        Runs go on up to the drain's time, with heartbeats; what then still runs is asked to end,
        killed after its grace, and lost to the session, which is closed.
        """
        if not self._tasks:
            return
        self._machine.drain()
        self._hurry.set()
        self._act()
        drain = 0 if self.failed.is_set() else self._config.drain_timeout
        if not await self._wait_idle(drain):
            _log.warning(
                "What still runs is ended: the time to drain is over.",
                action="drain",
                attempts=self._machine.executing,
            )
            self._machine.give_up(self._clock.boot_ns())
            self._act()
            if not await self._wait_idle(self._config.stop_grace):
                self._machine.abandon()
                self._act()
                await self._wait_idle(_DYING)
        await self._wait_closed()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._executor.stop()

    # The executor's listener

    def ended(self, token: int, ended: Ended) -> None:
        """Takes that an attempt has ended."""
        self._machine.ended(token, ended, self._clock.boot_ns())
        if self._machine.wants_work:
            self._hurry.set()
        self._write.set()
        self._changed.set()

    def progressed(self, token: int, fraction: float, message: str) -> None:
        """Takes how far an attempt is."""
        self._machine.progressed(token, fraction, message)

    # Finding the owner

    async def _keep_on(self) -> None:
        """Converses with one owner after the other, for as long as there is something to say."""
        failures = 0
        first = last = ""
        while not self._finished:
            while not self._machine.may_connect:
                self._changed.clear()
                await self._changed.wait()
            for address in self._in_order(first, last):
                if not self._may_go_on():
                    break
                welcomed, onward = await self._try(address)
                if onward:
                    first = onward
                else:
                    first, last = "" if address == first else first, address
                if welcomed:
                    failures = 0
                    break
            failures += 1
            await asyncio.sleep(_RECONNECT.pause_s(failures, self._randomness))

    def _in_order(self, first: str, last: str) -> list[str]:
        addresses = [address for address in self._config.addresses if address != first]
        addresses.sort(key=lambda address: address == last)  # stable
        return [first, *addresses] if first else addresses

    def _may_go_on(self) -> bool:
        return self._machine.may_connect and not self._finished

    async def _try(self, address: str) -> tuple[bool, str]:
        """Converses with one address; tells whether it welcomed and where to go on, if known.

        One that was left, because it had fallen silent for example, is no place to go on: it may be
        suspended, and each hello to it takes its whole time from the session.
        """
        welcomed, onward = False, ""
        try:
            async with self._stream(address) as call:
                await self._greet(call)
                welcomed, onward = True, address
                await self._converse(call)
        except NotLeader as error:
            onward = error.leader
            self._tell(address, error)
        except SextonError as error:
            if self._machine.hang_up:
                onward = ""
            self._tell(address, error)
        finally:
            self.connected.clear()
            self._on_connected(False)
            self._machine.disconnected()
            self._act()
        return welcomed, onward

    @asynccontextmanager
    async def _stream(self, address: str) -> AsyncIterator[Any]:
        # The connection is as short-lived as the stream: the old one is closed before a new hello.
        channel = PolicyChannel(self._transport.channel(address), secret=self._config.secret)
        stub = worker_pb2_grpc.WorkerServiceStub(channel)
        async with channel, cancelling(stub.Pull()) as call:
            yield call

    async def _greet(self, call: Any) -> None:
        now = self._clock.boot_ns()
        self._hang_up.clear()
        held = self._machine.hello(now)
        hello = pb.Hello(
            session=self._machine.session,
            worker=self._config.worker,
            queues=self._config.queues,
            tasks=self._executor.tasks,
            kinds=self._executor.kinds,
            slots=self._machine.slots,
            held=wire.refs_to_wire(held),
            software_version=self._config.software_version,
            owner_token=self._machine.owner_token,
            keeps=True,
        )
        try:
            async with asyncio.timeout(self._config.hello_timeout_s):
                await call.write(pb.PullRequest(hello=hello))
                response = await call.read()
        except TimeoutError:
            limit = self._config.hello_timeout_s
            raise Unavailable(f"the hello was not answered within {limit:g} s") from None
        if not isinstance(response, pb.PullResponse) or not response.HasField("welcome"):
            raise Unavailable("the other side did not answer the hello")
        self._receive(response)
        if self._machine.hang_up:
            raise Unavailable(self._machine.hang_up)
        self._told.clear()
        self.connected.set()
        self._on_connected(True)
        _log.info(
            "The queue has welcomed this worker.",
            action="connect",
            session=self._machine.session,
        )

    def _tell(self, address: str, error: Exception) -> None:
        """Says why an address did not serve, once until it changes."""
        said = f"{type(error).__name__}: {error}"
        if self._told.get(address) != said and not self._finished:
            self._told[address] = said
            _log.warning(
                "A queue's address does not serve this worker; it goes on trying.",
                action="connect",
                address=address,
                error=said,
            )

    # One conversation

    async def _converse(self, call: Any) -> None:
        """Reads and writes until the stream ends or is to be closed."""
        parts = [
            asyncio.create_task(self._read(call)),
            asyncio.create_task(self._write_all(call)),
            asyncio.create_task(self._wait_hang_up()),
        ]
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            for part in done:
                part.result()
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)

    async def _read(self, call: Any) -> None:
        while isinstance(response := await call.read(), pb.PullResponse):
            if self._receive(response):
                return
        raise Unavailable("the queue has ended the stream")

    def _receive(self, response: pb.PullResponse) -> bool:
        """Takes a message; tells whether the owner hands over."""
        machine, now = self._machine, self._clock.boot_ns()
        machine.wake(now)
        if machine.hang_up:
            self._act()
            return True
        if response.HasField("welcome"):
            machine.welcome(wire.welcome_from_wire(response.welcome), now)
            if machine.welcomed:
                self._extend()
        if response.heartbeat and machine.answered(response.heartbeat, now):
            self._extend()
        for result in response.results:
            machine.acknowledged(wire.ref_from_wire(result.attempt), accepted=result.accepted)
        for assignment in response.assignments:
            order = wire.order_from_wire(assignment)
            if order.start_in > 0:
                order = _make(Order, (*order[:-1], self._executor.prepare(order)))
            machine.assigned(order, now)
        for cancellation in response.cancellations:
            machine.stop(wire.stop_from_wire(cancellation), now)
        if response.drain:
            self.drain_asked.set()
        self._act()
        return response.reconnect

    async def _write_all(self, call: Any) -> None:
        config = self._config
        pace = Pace(config.pace_s, config.steady_pace_s, _STEADY_PER_S)
        patience = Patience(config.begun_s, self._write.set)
        while True:
            await self._write.wait()
            self._write.clear()
            if self._machine.may_wait and patience.wait():
                continue
            patience.end()
            message = self._machine.take(self._clock.boot_ns())
            self._carry_out()
            if message is None:
                continue
            await call.write(wire.request_to_wire(message))
            if message.closing:
                await self._close(call)
                return
            pause_s = pace.after(len(message.completions), asyncio.get_running_loop().time())
            self._hurry.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._hurry.wait()
            if self._machine.has_more:
                self._write.set()

    async def _close(self, call: Any) -> None:
        """Ends this side; the other one, which the reader waits for, has a moment to follow.

        A stream that is cancelled at once may lose what was last written on it.
        """
        self._finished = True
        with contextlib.suppress(aio.AioRpcError, asyncio.InvalidStateError):
            await call.done_writing()
            await asyncio.sleep(_CLOSING_S)

    async def _wait_hang_up(self) -> None:
        await self._hang_up.wait()
        raise Unavailable(self._machine.hang_up or "the stream is closed")

    # Time and effects

    async def _keep_time(self) -> None:
        while True:
            now = self._clock.boot_ns()
            self._machine.wake(now)
            self._act()
            self._planned = self._machine.next_wake()
            left = (self._planned - now) / SECOND
            self._tick.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(max(left, 0.001), _LONGEST_SLEEP_S)):
                    await self._tick.wait()

    def _extend(self) -> None:
        self._executor.extend(self._machine.end_at, self._machine.dead_at)

    def _act(self) -> None:
        """Does what the machine wants done, and lets everybody look again."""
        self._carry_out()
        if self._machine.next_wake() < self._planned:
            self._tick.set()
        self._write.set()
        self._changed.set()

    def _carry_out(self) -> None:
        machine = self._machine
        if machine.fatal:
            self._die(machine.fatal)
        commands, machine.commands = machine.commands, []
        for action, order in commands:
            if action is Action.BEGIN:
                self._executor.begin(order)
            elif action is Action.CANCEL:
                self._executor.cancel(order.ref.token)
            else:
                self._executor.kill(order.ref.token)
        if machine.hang_up:
            self._hang_up.set()

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception:  # noqa: BLE001 - nobody else would hear of it
            _log.exception("A fault of the worker's own ends it.", action="fail")
            self.failed.set()

    # The end

    async def _wait_idle(self, limit: Duration) -> bool:
        """Waits until nothing is held; tells whether that came before the limit."""
        end = self._clock.boot_ns() + limit
        while not self._machine.idle:
            left = (end - self._clock.boot_ns()) / SECOND
            if left <= 0:
                return False
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, _LONGEST_SLEEP_S)):
                    await self._changed.wait()
        return True

    async def _wait_closed(self) -> None:
        """Waits until the owner has been told that nothing is held, if it listens."""
        keeping_on = self._tasks[1]
        if self._machine.welcomed and self._machine.idle and not keeping_on.done():
            self._write.set()
            await asyncio.wait([keeping_on], timeout=2 * _CLOSING_S)

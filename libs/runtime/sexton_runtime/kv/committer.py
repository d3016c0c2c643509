"""Gathers the transactions of many callers into few commit messages.

Cost is messages per second, not transactions per second: an idle committer sends at once, then at
most one small message per `pace_s` carries what has gathered; a full one never waits. One or two
messages are outstanding. Messages travel on one `CommitStream`, which is opened again after it
broke; a fresh stream is trusted only after the store has answered on it (the greeting), so that
nothing is sent into a connection that does not stand.

What a caller is told is exact:

- results: durable, or refused, for good;
- `OutcomeUnknown`: sent, and no answer came. It may have happened, it may still happen;
- every other error: nothing happened, and nothing of it is under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from sexton._error_table import from_failure
from sexton.errors import (
    Cancelled,
    DeadlineExceeded,
    Fenced,
    Internal,
    OutcomeUnknown,
    Overloaded,
    SextonError,
    Unavailable,
)
from sexton.internal.v1 import store_pb2 as pb
from sexton_runtime.clock import Clock
from sexton_runtime.kv._backoff import Backoff
from sexton_runtime.kv._wire import add_txns, results_from_wire
from sexton_runtime.kv.columns import Run
from sexton_runtime.kv.config import StoreClientConfig
from sexton_runtime.kv.mesh_time import MeshTime
from sexton_runtime.kv.packed import pack
from sexton_runtime.kv.types import Limits, Txn, TxnResult
from sexton_runtime.kv.validate import check_txns
from sexton_runtime.randomness import Randomness

_GREETING = 0
"""Sequence of the message without transactions that opens a stream; the store answers at once."""

_GREETING_TIMEOUT_S = 5.0
"""A stream on which the store has not greeted within this is given up."""

_SILENCE_S = 15.0
"""A message unanswered for this long, and for longer than any of its callers waits, condemns its
stream. Not sooner: a disk may be slow, and what else was sent would become unknown."""


class CommitCall(Protocol):
    """What the committer needs of a `CommitStream` call; failures are `sexton.errors`."""

    async def write(self, request: pb.CommitStreamRequest) -> None:
        """Sends a message."""
        ...

    async def read(self) -> object:
        """Receives a message, or `grpc.aio.EOF`."""
        ...

    def cancel(self) -> bool:
        """Ends the call."""
        ...


class _Caller:
    """One caller's transactions on their way."""

    __slots__ = ("expires", "future", "only_while", "runs", "sent", "size_bytes", "txns")

    def __init__(
        self,
        txns: Sequence[Txn],
        runs: Sequence[Run],
        size_bytes: int,
        *,
        expires: float,
        only_while: Callable[[], bool] | None,
        future: asyncio.Future[tuple[TxnResult, ...]],
    ) -> None:
        self.txns = txns
        self.runs = runs
        self.size_bytes = size_bytes
        self.expires = expires  # on the loop's clock
        self.only_while = only_while
        self.future = future
        self.sent = False

    def fail(self, error: SextonError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class _Message:
    """One commit message without an answer."""

    __slots__ = ("callers", "condemns_at", "expires", "sent_ns")

    def __init__(self, callers: list[_Caller], sent_ns: int, now: float) -> None:
        self.callers = callers
        self.sent_ns = sent_ns
        self.expires = max(caller.expires for caller in callers)
        self.condemns_at = max(self.expires, now + _SILENCE_S)


class Committer:
    """Sends what waits: `run` carries it, `commit` is called from anywhere in the same loop."""

    def __init__(
        self,
        *,
        open_call: Callable[[], CommitCall],
        limits: Limits,
        clock: Clock,
        randomness: Randomness,
        mesh_time: MeshTime,
        config: StoreClientConfig,
        on_error: Callable[[SextonError], None],
    ) -> None:
        """Takes what opens a stream; `on_error` hears of every error that ended one."""
        self._open_call = open_call
        self._limits = limits
        self._clock = clock
        self._mesh_time = mesh_time
        self._config = config
        self._on_error = on_error
        self._backoff = Backoff(randomness, config.reconnect_first_s, config.reconnect_max_s)
        self._waiting: dict[_Caller, None] = {}  # in order of arrival, removable anywhere
        self._waiting_txns = 0
        self._waiting_bytes = 0
        self._outstanding: dict[int, _Message] = {}
        self._sequence = _GREETING
        self._reads_packed = False  # the store at the other end of the stream
        self._next_send = 0.0  # on the loop's clock
        self._may_send = asyncio.Event()
        self._pace_timer: asyncio.TimerHandle | None = None
        self._watchdog: asyncio.Timeout | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._broken: SextonError | None = None  # why the latest stream ended
        self._closed: SextonError | None = None
        self.messages_sent = 0
        self.streams_broken = 0

    async def commit(
        self,
        txns: Sequence[Txn],
        *,
        timeout_s: float,
        only_while: Callable[[], bool] | None = None,
    ) -> tuple[TxnResult, ...]:
        """Commits a caller's transactions in one message, in their order.

        Calls that are under way together are evaluated in any order: wait for the first answer
        where the second needs it.

        `only_while` is asked at the moment of sending; once it says no, `Fenced` is raised and
        nothing is sent.

        Raises `OutcomeUnknown` where it was sent and no answer came within `timeout_s` or before
        the stream broke. After every other error (`DeadlineExceeded`, `Unavailable`, `Overloaded`,
        `Fenced`, `InvalidArgument`, `TooLarge`, ...) nothing happened.
        """
        runs, size_bytes = self._admit(txns)
        loop = asyncio.get_running_loop()
        expires = loop.time() + timeout_s
        caller = _Caller(
            txns,
            runs,
            size_bytes,
            expires=expires,
            only_while=only_while,
            future=loop.create_future(),
        )
        self._waiting[caller] = None
        self._waiting_txns += len(txns)
        self._waiting_bytes += size_bytes
        self._idle.clear()
        self._arm()
        timer = loop.call_at(expires, self._expire, caller)
        try:
            return await caller.future
        finally:
            timer.cancel()
            if caller in self._waiting:
                self._unqueue(caller)
                self._note_idle()
            if caller.future.done() and not caller.future.cancelled():
                caller.future.exception()  # seen, also if the caller is cancelled just now

    async def run(self) -> None:
        """Opens streams and sends, until cancelled or closed; then everything fails."""
        try:
            while self._closed is None:
                await self._serve_stream()
                await asyncio.sleep(self._backoff.next_s())
        except Exception as error:
            self.close(Unavailable(f"the store client has failed: {error!r}"))
            raise
        finally:
            self.close(Unavailable("the store client has stopped"))

    def close(self, why: SextonError) -> None:
        """Refuses from now on: what waits fails with `why`, what was sent is unknown."""
        if self._closed is None:
            self._closed = why
        for caller in list(self._waiting):
            self._unqueue(caller)
            caller.fail(self._closed)
        self._fail_outstanding("the store client stopped before the answer came")

    async def drain(self) -> None:
        """Returns once nothing waits and nothing is outstanding."""
        await self._idle.wait()

    def _admit(self, txns: Sequence[Txn]) -> tuple[Sequence[Run], int]:
        """Checks bounds; gives the transactions as they are sent, and their weight in bytes."""
        if self._closed is not None:
            raise self._closed
        runs, (_, size_bytes) = check_txns(txns, self._limits)
        config = self._config
        if (
            len(self._waiting) >= config.max_waiting_callers
            or self._waiting_txns + len(txns) > config.max_waiting_txns
            or self._waiting_bytes + size_bytes > config.max_waiting_bytes
        ):
            raise Overloaded(
                f"{len(self._waiting):,} commits with {self._waiting_txns:,} transactions wait "
                f"for the store already; try again after a pause"
            )
        return runs, size_bytes

    def _unqueue(self, caller: _Caller) -> None:
        del self._waiting[caller]
        self._waiting_txns -= len(caller.txns)
        self._waiting_bytes -= caller.size_bytes

    def _expire(self, caller: _Caller) -> None:
        if caller.sent:
            caller.fail(OutcomeUnknown("the store did not answer the commit in time"))
        elif self._broken is not None:
            caller.fail(Unavailable(f"not sent: {self._broken.message}"))
        else:
            caller.fail(DeadlineExceeded("the commit's time was up before it was sent"))

    def _note_idle(self) -> None:
        if not self._waiting and not self._outstanding:
            self._idle.set()

    # One stream -------------------------------------------------------------------------------

    async def _serve_stream(self) -> None:
        """Opens one stream and sends on it until it ends."""
        call = self._open_call()
        sender: asyncio.Task[None] | None = None
        try:
            await self._greet(call)
            self._broken = None
            self._backoff.reset()
            sender = asyncio.create_task(self._send_all(call), name="store-commit-sender")
            sender.add_done_callback(lambda _: call.cancel())  # then the reader ends too
            await self._receive_all(call)
        except SextonError as error:
            self._broken = error
            self.streams_broken += 1
            self._on_error(error)
        finally:
            call.cancel()
            if sender is not None:
                sender.cancel()
                await asyncio.gather(sender, return_exceptions=True)
            self._fail_outstanding("the stream to the store broke before the answer came")

    async def _greet(self, call: CommitCall) -> None:
        sent_ns = self._clock.boot_ns()
        try:
            async with asyncio.timeout(_GREETING_TIMEOUT_S):
                await call.write(pb.CommitStreamRequest(sequence=_GREETING))
                answer = await self._read(call)
        except TimeoutError:
            raise Unavailable("the store does not answer") from None
        self._reads_packed = answer.reads_packed
        self._observe(answer, sent_ns)

    async def _receive_all(self, call: CommitCall) -> None:
        try:
            async with asyncio.timeout(None) as self._watchdog:
                while True:
                    self._settle(await self._read(call))
                    self._watch_outstanding()
        except TimeoutError:
            raise Unavailable("the store does not answer on the stream") from None
        finally:
            self._watchdog = None

    async def _read(self, call: CommitCall) -> pb.CommitStreamResponse:
        answer = await call.read()
        if not isinstance(answer, pb.CommitStreamResponse):
            raise Unavailable("the store closed the stream")
        return answer

    def _watch_outstanding(self) -> None:
        """Sets the time at which the stream is given up for want of an answer."""
        if self._watchdog is not None and not self._watchdog.expired():
            condemning = (message.condemns_at for message in self._outstanding.values())
            self._watchdog.reschedule(min(condemning, default=None))

    def _settle(self, answer: pb.CommitStreamResponse) -> None:
        message = self._outstanding.pop(answer.sequence, None)
        if message is None:
            return
        self._observe(answer, message.sent_ns)
        if answer.HasField("error"):
            for caller in message.callers:
                caller.fail(_exact(from_failure(answer.error)))
        else:
            results = results_from_wire(answer)
            first = 0
            for caller in message.callers:
                last = first + len(caller.txns)
                if not caller.future.done():
                    caller.future.set_result(results[first:last])
                first = last
        self._note_idle()
        self._arm()

    def _observe(self, answer: pb.CommitStreamResponse, sent_ns: int) -> None:
        if answer.mesh_time_ns:
            self._mesh_time.observe(answer.mesh_time_ns, sent_ns, self._clock.boot_ns())

    def _fail_outstanding(self, why: str) -> None:
        messages, self._outstanding = self._outstanding, {}
        for message in messages.values():
            for caller in message.callers:
                caller.fail(OutcomeUnknown(why))
        self._note_idle()

    # Sending ----------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Lets the sender go on now, at the next beat, or not before something changes."""
        if not self._waiting or len(self._outstanding) >= self._config.max_outstanding:
            return
        loop = asyncio.get_running_loop()
        full = (
            self._waiting_bytes >= self._config.full_bytes
            or self._waiting_txns >= self._limits.max_txns_per_commit
        )
        if full or loop.time() >= self._next_send:
            self._may_send.set()
        elif self._pace_timer is None:
            self._pace_timer = loop.call_at(self._next_send, self._beat)

    def _beat(self) -> None:
        self._pace_timer = None
        self._may_send.set()

    async def _send_all(self, call: CommitCall) -> None:
        loop = asyncio.get_running_loop()
        self._arm()
        while True:
            await self._may_send.wait()
            self._may_send.clear()
            if len(self._outstanding) < self._config.max_outstanding and (callers := self._take()):
                now = loop.time()
                self._next_send = now + self._config.pace_s
                await call.write(self._message(callers, now))
            self._arm()

    def _take(self) -> list[_Caller]:
        """Takes the next message's callers out of the line."""
        taken: list[_Caller] = []
        fenced: list[_Caller] = []
        gone: list[_Caller] = []  # told that nothing happened, or cancelled, a moment ago
        txns = size_bytes = 0
        most_txns, most_bytes = self._limits.max_txns_per_commit, self._limits.max_commit_bytes
        for caller in self._waiting:
            if caller.future.done():
                gone.append(caller)
                continue
            if caller.only_while is not None and not caller.only_while():
                fenced.append(caller)
                continue
            txns += len(caller.txns)
            size_bytes += caller.size_bytes
            if txns > most_txns or size_bytes > most_bytes:
                break
            taken.append(caller)
        for caller in (*gone, *fenced):
            self._unqueue(caller)
        for caller in fenced:
            caller.fail(Fenced("the right to write this was lost before it was sent"))
        for caller in taken:
            self._unqueue(caller)
            caller.sent = True
        if not taken:
            self._note_idle()
        return taken

    def _message(self, callers: list[_Caller], now: float) -> pb.CommitStreamRequest:
        self._sequence += 1
        message = _Message(callers, self._clock.boot_ns(), now)
        self._outstanding[self._sequence] = message
        self._watch_outstanding()
        self.messages_sent += 1
        request = pb.CommitStreamRequest(
            sequence=self._sequence,
            timeout_ms=min(max(int((message.expires - now) * 1000), 1), 60_000),
        )
        runs = [run for caller in callers for run in caller.runs]
        if not (self._reads_packed and pack(runs, request.packed)):
            add_txns(request, [txn for caller in callers for txn in caller.txns])
        return request


def _exact(error: SextonError) -> SextonError:
    """Lets an error say what it knows: only `OutcomeUnknown` leaves the outcome open."""
    if isinstance(error, Internal | Cancelled):
        return OutcomeUnknown(error.message)
    return error

"""What waits to be written on the streams to workers and leaders.

A sender takes what has gathered, as one message, at its own pace. All of it is bounded: assignments
by credits, answers by what the peer has sent; a peer that sends and never reads is cut.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from sexton.errors import Overloaded
from sexton_core.instants import Duration, Instant
from sexton_core.words import RunState
from sexton_queue.pieces import Origin

MAX_ANSWERS: Final = 20_000
"""Answers and cancellations that wait for a worker that does not read; one more cuts it off."""

MAX_TOLD_BYTES: Final = 16 * 1024
MAX_TOLD: Final = 500
"""A notice brings a record of up to so many bytes, if no more than so many notices wait."""

MAX_NOTICES: Final = 20_000
"""Settled notices that wait for a leader. Hints: of more, the oldest are dropped."""


_make = tuple.__new__
"""Makes a named tuple of all its parts; its own constructor costs twice as much."""


class Ref(NamedTuple):
    """One attempt: its run's handle and its token."""

    handle: bytes
    token: int


class Assigned(NamedTuple):
    """An attempt to be sent."""

    ref: Ref
    number: int
    origin: Origin
    timeout: Duration
    start_timeout: Duration
    """0: no bound."""
    not_before: Instant
    """Mesh time; the worker does not begin it sooner. 0: the store has seen it pass."""


class Answered(NamedTuple):
    """The answer to a completion; no state: not known."""

    ref: Ref
    accepted: bool
    state: RunState | None


class Stopped(NamedTuple):
    """An attempt that is to be ended."""

    ref: Ref
    terminate: bool
    reason: str


class Greeting(NamedTuple):
    """The answer to a hello."""

    session: str
    revoked: tuple[Ref, ...]


class Settled(NamedTuple):
    """A run's end, as leaders hear of it."""

    handle: bytes
    uid: str
    state: RunState
    record: bytes = b""
    """As it ended; empty: it was not asked for, or is too large."""
    revision: int = 0


class Outbox:
    """What every stream has: it is woken, and it ends with an error."""

    def __init__(self, wake: Callable[[], object]) -> None:
        self.error: Exception | None = None
        self.finished = False
        """The peer says no more: what waits is sent, then the stream ends."""
        self._wake = wake

    def wake(self) -> None:
        """Lets the sender look."""
        self._wake()

    def end(self, error: Exception) -> None:
        """Ends the stream; the first reason stands."""
        if self.error is None:
            self.error = error
            self._wake()

    def finish(self) -> None:
        """Ends the stream after what waits."""
        self.finished = True
        self._wake()


class WorkerStream(Outbox):
    """The way to one worker."""

    def __init__(self, wake: Callable[[], object]) -> None:
        super().__init__(wake)
        self.session = ""
        self.welcome: Greeting | None = None
        self.assignments: list[Assigned] = []
        self.heartbeat = 0
        self.answers: list[Answered] = []
        self.stops: list[Stopped] = []
        self.reconnect = False
        self.drain = False

    @property
    def waiting(self) -> bool:
        """Tells whether there is anything to be sent."""
        return bool(
            self.welcome
            or self.assignments
            or self.heartbeat
            or self.answers
            or self.stops
            or self.reconnect
            or self.drain
        )

    def answer(self, ref: Ref, state: RunState | None, *, accepted: bool) -> None:
        """Answers a completion."""
        self.answered(ref, accepted, state)

    def answered(self, ref: Ref, accepted: bool, state: RunState | None) -> None:  # noqa: FBT001 - a callback
        """Answers a completion; by position, for it is done for every run."""
        answers = self.answers
        answers.append(_make(Answered, (ref, accepted, state)))
        if len(answers) == 1 or len(answers) > MAX_ANSWERS:
            self._bound(len(answers))

    def stop(self, ref: Ref, reason: str, *, terminate: bool) -> None:
        """Asks for an attempt's end."""
        self.stops.append(Stopped(ref, terminate, reason))
        self._bound(len(self.stops))

    def _bound(self, waiting: int) -> None:
        if waiting > MAX_ANSWERS:
            self.end(Overloaded(f"{waiting:,} answers wait for this worker, which reads none"))
        self._wake()


class LeaderStream(Outbox):
    """The way to one leading coordinator."""

    def __init__(self, wake: Callable[[], object], shard: int, token: int) -> None:
        super().__init__(wake)
        self.shard = shard
        self.token = token
        self.settled: deque[Settled] = deque(maxlen=MAX_NOTICES)

    def notify(self, notice: Settled) -> None:
        """Tells of a run's end."""
        if notice.record and len(self.settled) > MAX_TOLD:
            notice = notice._replace(record=b"", revision=0)
        self.settled.append(notice)
        self._wake()

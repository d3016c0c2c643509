"""Sessions: which workers there are, and until when what they have is theirs.

All times here are this machine's boot time in nanoseconds: durations, never another host's clock. A
session that is loaded or resumed gets its full time, so that an outage of store or owner that stays
shorter costs no running job.

Where the owner itself sees the current stream end, and had heard from the worker just before, the
worker was most likely killed: it has the grace to come back, then its runs go to others. Not those
for which two executions, or an end that is none, would be worse than waiting: they, and with them
their session, wait the full time.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from heapq import heappop, heappush
from typing import Final, NamedTuple

from sexton_core.instants import MAX_INSTANT, SECOND
from sexton_core.words import Delivery, RunState
from sexton_queue.entries import End, Entry
from sexton_queue.records import SessionRecord
from sexton_queue.streams import Ref, WorkerStream

MAX_SESSIONS: Final = 10_000
"""Sessions of a shard at once: a worker that reconnects without its session must not add up."""

_HEARTBEATS_OF_A_LIVING: Final = 2
"""A worker that was not heard for longer than this many intervals had fallen silent."""


class SessionTimes(NamedTuple):
    """How long things last, in nanoseconds of boot time."""

    session: int = 30 * SECOND
    heartbeat: int = 1 * SECOND
    grace: int = 2 * SECOND


class Overdue(Enum):
    """Why a session comes up."""

    GRACE = "grace"
    FULL_TIME = "full time"


class Session:
    """One worker's session."""

    __slots__ = (
        "credits",
        "deadline",
        "drain_asked",
        "draining",
        "durable",
        "ended",
        "grace_at",
        "greeting",
        "heard",
        "id",
        "offers",
        "offset",
        "opening",
        "queues",
        "record",
        "runs",
        "slots",
        "stream",
        "unsent",
        "worker",
    )

    def __init__(self, session: str, record: SessionRecord, deadline: int) -> None:
        self.id = session
        self.deadline = deadline
        self.grace_at = MAX_INSTANT
        self.heard = 0
        self.stream: WorkerStream | None = None
        self.greeting: tuple[Ref, ...] | None = None
        """What the hello lists that is still to be answered."""
        self.credits = 0
        self.durable = False
        self.opening = False
        self.ended = False
        self.draining = False
        self.drain_asked = False
        """Somebody wants its worker to drain and end."""
        self.runs: dict[bytes, Entry] = {}
        """Everything assigned to it, commits under way included."""
        self.unsent: dict[bytes, Entry] = {}
        """Assigned and not with the worker; sent, with the same token, as credits allow."""
        self.offset = 0
        self.describe(record)

    def describe(self, record: SessionRecord) -> None:
        """Takes what the worker says about itself."""
        self.record = record
        self.worker = record.worker
        self.queues = tuple(dict.fromkeys(record.queues))
        self.offers = frozenset((*(f"python:{task}" for task in record.tasks), *record.kinds))
        self.slots = record.slots

    @property
    def welcomed(self) -> bool:
        """Tells whether a stream is open on which runs may be sent."""
        return self.stream is not None and self.greeting is None and not self.ended

    @property
    def may_keep_one_more(self) -> bool:
        """Tells whether it is handed a run before its time: half of its slots stay free."""
        return self.record.keeps and 2 * (self.credits - 1) >= self.slots

    @property
    def outstanding(self) -> bool:
        """Tells whether a hello has to wait: something about its runs is not settled yet."""
        return any(entry.busy or entry.asks for entry in self.runs.values())


class Sessions:
    """All sessions of a shard."""

    def __init__(self, times: SessionTimes) -> None:
        self.times = times
        self.by_id: dict[str, Session] = {}
        self._due: list[tuple[int, str]] = []

    def add(self, session: str, record: SessionRecord, boot: int) -> Session:
        """Adds a session with its full time."""
        added = Session(session, record, boot + self.times.session)
        self.by_id[session] = added
        heappush(self._due, (added.deadline, session))
        return added

    def live(self, session: str) -> Session | None:
        """Gives a session that a worker may go on with."""
        found = self.by_id.get(session)
        return None if found is None or found.ended else found

    def connect(self, session: Session, stream: WorkerStream, boot: int) -> None:
        """Takes a worker's new stream for the session's only one."""
        session.stream = stream
        session.credits = 0
        session.draining = False
        session.grace_at = MAX_INSTANT
        self.hear(session, boot)

    def silence(self, session: Session, boot: int) -> int:
        """Tells for how long nothing was heard, from this owner's takeover on."""
        return boot - (session.deadline - self.times.session)

    def hear(self, session: Session, boot: int) -> None:
        """Gives the session its full time again: the worker has just been heard."""
        session.heard = boot
        session.deadline = boot + self.times.session

    def disconnect(self, session: Session, stream: WorkerStream, boot: int) -> bool:
        """Notes that a stream has ended; tells whether it was the session's current one."""
        if session.stream is not stream:
            return False
        session.stream = None
        session.greeting = None
        session.credits = 0
        if boot - session.heard <= _HEARTBEATS_OF_A_LIVING * self.times.heartbeat:
            session.grace_at = boot + self.times.grace
            heappush(self._due, (session.grace_at, session.id))
        return True

    def overdue(self, boot: int) -> Iterable[tuple[Session, Overdue]]:
        """Gives the sessions whose grace or full time has passed, each once."""
        while self._due and self._due[0][0] <= boot:
            _, name = heappop(self._due)
            session = self.by_id.get(name)
            if session is None or session.ended:
                continue
            if session.deadline <= boot:
                yield session, Overdue.FULL_TIME
            elif session.grace_at <= boot:
                session.grace_at = MAX_INSTANT
                heappush(self._due, (session.deadline, name))
                yield session, Overdue.GRACE
            else:
                heappush(self._due, (min(session.deadline, session.grace_at), name))

    def next_due(self) -> int:
        """Tells the boot time at which `overdue` has something to look at."""
        return self._due[0][0] if self._due else MAX_INSTANT


def waits_full_time(entry: Entry) -> bool:
    """Tells whether a run is not taken away after the grace."""
    policy = entry.run.policy
    return (
        policy.exclusive
        or policy.delivery is Delivery.AT_MOST_ONCE
        or entry.run.state in (RunState.CANCELLING, RunState.TERMINATING)
        or any(isinstance(ask, End) for ask in entry.asks)
    )

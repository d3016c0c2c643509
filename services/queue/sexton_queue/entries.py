"""A run in flight as its owner has it in memory, and what is asked of it.

Everything that happens to a run becomes an ask. Asks of one run are worked off one after the other,
each against the record as the last commit left it, so that no two commits of one run are ever under
way and every decision rests on a revision that the commit compares.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from sexton_core.instants import Duration, Instant
from sexton_core.runs import Run
from sexton_core.words import RunEvent, RunState
from sexton_queue.pieces import Record
from sexton_queue.records import AttemptEnd

if TYPE_CHECKING:
    from sexton_queue.sessions import Session


class Now(NamedTuple):
    """The two times by which an owner acts, in nanoseconds.

    mesh: as estimated; what must not be early is compared by the store too.
    boot: this machine's own, for sessions.
    """

    mesh: Instant
    boot: int


class Place(Enum):
    """Where an entry stands."""

    NOWHERE = "nowhere"  # not in line: just read, or between two states
    READY = "ready"
    DELAYED = "delayed"
    HELD = "held"  # with a session


_NOWHERE: Final = Place.NOWHERE  # a function call each time in CPython 3.11


class Complete(NamedTuple):
    """A worker reports the end of an attempt."""

    token: int
    event: RunEvent
    end: AttemptEnd
    """The same as the attempt's record is to keep it."""
    answer: Callable[[bool, RunState | None], object]
    """Takes whether it counts or has counted, and where the run stands (None: not known)."""
    retry_after: Duration = 0


class GiveBack(NamedTuple):
    """A worker returns an attempt unbegun."""

    token: int


class Lose(NamedTuple):
    """The session has ended for this attempt."""

    session: str
    cause: str


class End(NamedTuple):
    """Somebody asks for the run's end."""

    terminate: bool
    reason: str
    answer: Callable[[RunState | None], object] | None = None
    """Takes where the run stands once that is durable (None: there is no such run)."""


class TimeUp(NamedTuple):
    """`start_within` or the deadline may have passed."""


Ask = Complete | GiveBack | Lose | End | TimeUp


class Entry:
    """One handle. `record` is replaced and never changed, `run` is what the rules see of it."""

    __slots__ = (
        "arrived_at",
        "asks",
        "busy",
        "key",
        "place",
        "priority",
        "progress",
        "queue",
        "ready_since",
        "record",
        "requirement",
        "revision",
        "run",
        "sent",
        "session",
        "started_at",
        "tells_record",
        "too_early",
        "uid",
        "unsure",
    )

    def __init__(self, key: bytes, revision: int, record: Record, run: Run) -> None:
        template = record.origin.template
        self.key = key
        self.queue = template.queue
        self.priority = template.priority
        self.uid = template.uid
        self.revision = revision
        self.record = record
        self.run = run
        self.requirement = template.requirement
        self.arrived_at: Instant = 0
        """Mesh time at which this owner was told of it; 0: it had been there before."""
        self.tells_record = False
        """Whether leaders are told its record when it ends."""
        self.place = _NOWHERE
        self.busy = False
        """A commit of it is under way, or what became of one is being read."""
        self.asks: list[Ask] = []
        self.session: Session | None = None
        self.sent = 0
        """Token of the attempt that was put on the session's present stream, or is listed there."""
        self.unsure = False
        """Whether the attempt has begun was known to another owner only."""
        self.started_at: Instant = 0
        self.ready_since: Instant = 0
        self.too_early = False
        """The store has refused to have it assigned before its time."""
        self.progress: tuple[float, str] | None = None

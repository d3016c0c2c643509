"""What a leader knows about jobs between two looks at them. Pure: no I/O, no clock.

A job is looked at because it is due, because something about it changed, because a run of it has
ended, or because somebody asked for a run. At most one look at a job is under way; what comes
meanwhile is looked at afterwards. Whatever is remembered here may be behind the store: each commit
compares, and a refused one is read again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple

from sexton.internal.v1 import coordinator_pb2, records_pb2
from sexton.v1 import backfill_pb2
from sexton_coordinator.jobs_store import JobRef, LoadedJob
from sexton_coordinator.leader.horizon import Horizon
from sexton_coordinator.leader.tally import NewestRules
from sexton_core.ids import RunId
from sexton_core.instants import MILLISECOND, SECOND, Duration, Instant
from sexton_core.policy import AHEAD_NS, Backfill
from sexton_records import keys
from sexton_runtime.kv.types import Compare, KeyValue, Put, Target

_FIRST_PAUSE_NS: Final[Duration] = 2 * MILLISECOND
_LONGEST_PAUSE_NS: Final[Duration] = SECOND
"""Pause before a job is looked at again after looks that came to nothing; doubled up to this."""
MOST_KEPT: Final = 20_000
"""Jobs that stay read between two looks, at about 6 KiB each. Where more are due soon, the others
are read again when they are due."""
MOST_ASIDE: Final = 1_000
"""Jobs that stay read although they are not due soon, because somebody has asked for a start."""
MOST_LOOKED_AT: Final = 5_000
"""Jobs that are looked through for those that can be decided about before they are due: a few
milliseconds, so that a hundred thousand that are due together hold up nobody."""
UNREADABLE_NS: Final[Duration] = 30 * SECOND
"""Pause before a job is looked at again whose records can't be read."""


class Created(NamedTuple):
    """A run of a step: its handle's shard and key, and its record."""

    shard: int
    handle: bytes
    record: bytes


@dataclass(slots=True, kw_only=True, eq=False)
class Asked:
    """Something that somebody asks for about a job, until it is answered."""

    ref: JobRef
    answer: asyncio.Future[Any]
    """Takes the message that answers it, or an error."""
    sent: bool = False
    """Whether a commit of it may still take effect."""
    proof_first: bool = True
    """Whether it is read, before it is decided about, if it has had its effect already. Otherwise
    its commit, which compares that, finds out."""


@dataclass(slots=True, kw_only=True, eq=False)
class Trigger(Asked):
    """A start."""

    request: coordinator_pb2.TriggerRequest
    body: bytes
    """The hash of the request's body."""
    revision: int = 0
    """Of the commit that has made its run; 0: none has, as far as is known."""
    dead: KeyValue | None = None
    """The dead letter that it takes off the list, as read; None: it takes none."""


@dataclass(slots=True, kw_only=True, eq=False)
class StartFill(Asked):
    """A backfill that is to begin."""

    backfill_id: str
    request: backfill_pb2.CreateBackfillRequest
    body: bytes
    """The hash of the request."""
    version: int
    """Of the definition for which the range was counted."""
    total: int
    backfill: Backfill | None = None
    """Once it was found to be possible."""


@dataclass(slots=True, kw_only=True, eq=False)
class StopFill(Asked):
    """A backfill that is to start nothing any more."""

    backfill_id: str
    standing: KeyValue | None = None
    """Its record, as read."""


class Filled(NamedTuple):
    """What a step makes of a backfill: its record, and the revision of the one that it replaces."""

    uid: str
    id: str
    record: records_pb2.BackfillRecord
    revision: int
    """0: it is a new one."""

    def compare(self, shard: int) -> Compare:
        """Returns that nobody else has written it."""
        return Compare(self._key(shard), Target.MOD_REVISION, self.revision)

    def put(self, shard: int) -> Put:
        """Returns what writes it."""
        return Put(self._key(shard), self.record.SerializeToString())

    def _key(self, shard: int) -> bytes:
        return keys.backfill_key(shard, self.uid, self.id)


@dataclass(slots=True, kw_only=True, eq=False)
class Known:
    """A job that is due soon, or about which there is something to do.

    loaded: as read or committed last; None: to be read.
    ended: of its live runs, those that are known to have ended.
    verify: whether its live handles are to be read before the next decision.
    force: whether its timer is to be written although it should stand.
    again, reread: whether it is to be looked at, or read, again after the look under way.
    changed_at: revision of the last change that somebody else made.
    scanned: when a timer in the store is due that named it; to be compared with its state.
    by_hand: whether somebody has asked for something about it.
    not_ahead: as it was when nothing could be decided about it before it was due; None: a run of
        it has ended since, or nobody has tried.
    sent, sent_runs: the state, and the runs, of a commit whose outcome is not known.
    strikes: looks one after the other that came to nothing.
    """

    uid: str
    ref: JobRef
    loaded: LoadedJob | None = None
    ended: set[RunId] = field(default_factory=set)
    verify: bool = True
    force: bool = False
    in_flight: bool = False
    again: bool = False
    reread: bool = False
    changed_at: int = 0
    scanned: Instant | None = None
    by_hand: bool = False
    not_ahead: LoadedJob | None = None
    sent: bytes = b""
    sent_runs: tuple[Created, ...] = ()
    strikes: int = 0
    asked: list[Asked] = field(default_factory=list)  # an empty deque takes 600 bytes

    def pause_ns(self) -> Duration:
        """Counts a look that came to nothing, and returns how long to wait after it."""
        self.strikes += 1
        return min(_FIRST_PAUSE_NS << min(self.strikes - 1, 20), _LONGEST_PAUSE_NS)


class Machine:
    """Which jobs are to be looked at next."""

    def __init__(self) -> None:
        self.horizon: Final = Horizon()
        self.waiting: set[str] = set()
        """Jobs with starts in the buffer."""
        self.filling: set[str] = set()
        """Jobs with backfills that go on."""
        self.made: Final = NewestRules()
        """What is kept of the runs of jobs that have started."""
        self.woken: Final = asyncio.Event()
        """Set when there may be something to look at before the next job is due."""
        self._known: dict[str, Known] = {}
        self._names: dict[tuple[str, str], str] = {}  # the uid last known by this name
        self._ready: dict[str, None] = {}  # to be looked at at once, in order
        self._unread: deque[str] = deque()  # armed by a timer and not read yet, earliest first
        self._kept: set[str] = set()  # what may stay read
        self._aside: dict[str, None] = {}  # read, not due soon; the latest to be asked for last

    def __len__(self) -> int:
        return len(self._known)

    def get(self, uid: str) -> Known | None:
        """Returns what is known about a job."""
        return self._known.get(uid)

    def timer(self, uid: str, due: Instant, record: records_pb2.TimerRecord) -> bool:
        """Takes a timer of the due index; tells whether it is news."""
        if uid in self._aside:
            self._forget(self._known[uid])  # it is due soon now
        known = self._known.get(uid)
        if known is not None and (known.in_flight or known.loaded is not None):
            return False  # its state says when it is due
        if known is not None and known.scanned is not None and known.scanned < due:
            return False  # the earlier one is looked at first
        news = uid not in self.horizon
        known = self._know(JobRef(uid, record.namespace, record.job))
        known.scanned = due
        self.horizon.arm(uid, due)
        if news:
            self._unread.append(uid)
        return news

    def changed(self, ref: JobRef, revision: int, timer: Instant | None = None) -> None:
        """Notes that somebody else has changed a job, and when the timer is due that they wrote.

        A job that nothing is known about and that is due later is left to the due index, so that
        jobs which are not due soon cost nothing here, however many are created or changed.
        """
        if timer is not None and not self._concerns(ref.uid, timer):
            self._forget_aside(ref.uid, revision)
            return
        known = self._know(ref)
        known.changed_at = max(known.changed_at, revision)
        if known.in_flight:
            known.again = True  # what it is being decided by stays until the look has ended
            return
        if known.loaded is not None and _read_at(known.loaded) < revision:
            known.loaded = None
        if known.loaded is None:
            self._wake(known)

    def removed(self, namespace: str, job: str, revision: int) -> None:
        """Notes that a definition has gone."""
        uid = self._names.get((namespace, job))
        if uid is not None:
            self.changed(JobRef(uid, namespace, job), revision)

    def ended(self, uid: str, run_id: RunId) -> None:
        """Notes that a run has ended."""
        known = self._known.get(uid)
        if known is not None and known.loaded is not None:
            known.ended.add(run_id)
            known.not_ahead = None
        if uid in self.waiting or uid in self.filling:
            self._wake(self._know(JobRef(uid)))

    def look(self, uid: str, *, force: bool = False) -> None:
        """Has a job looked at, with its live handles read; `force`: and its timer written."""
        known = self._know(JobRef(uid))
        known.verify = True
        known.force = known.force or force
        self._wake(known)

    def ask(self, asked: Asked) -> None:
        """Takes what somebody asks for."""
        known = self._know(asked.ref)
        known.asked.append(asked)
        known.by_hand = True
        if asked.proof_first and known.uid in self._aside:
            known.loaded = None  # no compare of its own guards what it is refused for
        self._wake(known)

    def forget_all_read(self) -> None:
        """Has every job read again before it is decided about: changes may have been missed."""
        for uid in list(self._aside):
            self._forget(self._known[uid])
        for known in self._known.values():
            if known.in_flight:
                known.again = known.reread = True
            else:
                known.loaded = None

    def take(self, now: Instant, limit: int) -> list[Known]:
        """Takes up to `limit` jobs that are to be looked at now; each is then in flight."""
        taken: list[Known] = []
        while self._ready and len(taken) < limit:
            uid = next(iter(self._ready))
            del self._ready[uid]
            taken.append(self._known[uid])
        for uid in self.horizon.take(now, limit - len(taken)):
            known = self._known[uid]
            if known.in_flight:
                known.again = True
            elif uid not in self._ready:
                taken.append(known)
        for known in taken:
            known.in_flight = True
            known.again = False
        self.woken.clear()
        if self._ready:
            self.woken.set()
        return [*dict.fromkeys(taken)]

    def take_unread(self, limit: int) -> list[Known]:
        """Takes up to `limit` jobs that are due later, to be read ahead; each is in flight."""
        taken: list[Known] = []
        if len(self._kept) >= MOST_KEPT:
            self._unread.clear()  # they would not stay read
        while self._unread and len(taken) < limit:
            known = self._known.get(self._unread.popleft())
            if known is None or known.loaded is not None or known.in_flight:
                continue
            if known.uid not in self._ready:
                known.in_flight = True
                known.again = False
                taken.append(known)
        return taken

    def take_ahead(self, now: Instant, limit: int) -> list[Known]:
        """Takes up to `limit` jobs that are due soon, to be decided about now; each is in flight.

        They are read, due by their own timer, have nothing else to do, and are as nobody has tried
        to decide about before.
        """
        taken: list[Known] = []
        left: list[tuple[Instant, str]] = []
        for due, uid in islice(self.horizon.due(now + AHEAD_NS), MOST_LOOKED_AT):
            known = self._known[uid]
            loaded = known.loaded
            if (
                loaded is None
                or not loaded.timer == due > now
                or known.not_ahead is loaded
                or (known.in_flight or known.asked or known.verify or known.force)
                or (uid in self._ready or uid in self.waiting or uid in self.filling)
            ):
                left.append((due, uid))
                continue
            known.in_flight = True
            known.again = False
            if known.scanned == due:
                known.scanned = None  # it stands for the state, and moves with it
            taken.append(known)
            if len(taken) == limit:
                break
        self.horizon.put_back(left)
        return taken

    def finish(self, known: Known, next_due: Instant | None) -> None:
        """Ends a look at a job, and arms it for the next."""
        known.in_flight = False
        self.woken.set()
        loaded, changed_at = known.loaded, known.changed_at
        if changed_at and loaded is not None and changed_at > _read_at(loaded):
            known.reread = known.again = True
        if known.reread:
            known.loaded, known.reread = None, False
        if known.again or known.asked:
            self._wake(known)
        armed = self.horizon.arm(known.uid, next_due)
        if not armed and known.uid not in self._ready:
            self._set_aside(known)
        elif len(self._kept) < MOST_KEPT:
            self._kept.add(known.uid)
        elif known.uid not in self._kept:
            known.loaded = None

    def postpone(self, known: Known, until: Instant) -> None:
        """Ends a look at a job that came to nothing; it is looked at again at `until`."""
        known.in_flight = False
        self.woken.set()
        if known.reread:
            known.loaded, known.reread = None, False
        self._ready.pop(known.uid, None)
        self.horizon.arm(known.uid, until, anyway=True)

    def gone(self, known: Known) -> None:
        """Ends a look at a job that is not there any more."""
        known.in_flight = False
        self.waiting.discard(known.uid)
        self.horizon.arm(known.uid, None)
        if known.again or known.asked:
            self._wake(known)
        else:
            self._forget(known)

    def drain(self) -> Iterable[Asked]:
        """Takes out everything that waits for an answer."""
        for known in self._known.values():
            while known.asked:
                yield known.asked.pop(0)

    def _concerns(self, uid: str, timer: Instant) -> bool:
        """Tells whether there may be something to do about a job before it is loaded as due."""
        known = uid in self._known and uid not in self._aside
        pending = known or uid in self.waiting or uid in self.filling
        return pending or self.horizon.takes(timer)

    def _know(self, ref: JobRef) -> Known:
        known = self._known.get(ref.uid)
        if known is None:
            known = self._known[ref.uid] = Known(uid=ref.uid, ref=ref)
        elif ref.job and not known.ref.job:
            known.ref = ref
        if ref.job:
            self._names[ref.namespace, ref.job] = ref.uid
        return known

    def _wake(self, known: Known) -> None:
        if known.in_flight:
            known.again = True
            return
        self._aside.pop(known.uid, None)
        self._ready[known.uid] = None
        self.woken.set()

    def _set_aside(self, known: Known) -> None:
        """Ends what there is to do about a job: one that was asked for may be so again soon."""
        if known.loaded is None or not known.by_hand:
            self._forget(known)
            return
        self._kept.discard(known.uid)
        self._aside[known.uid] = None
        if len(self._aside) > MOST_ASIDE:
            self._forget(self._known[next(iter(self._aside))])

    def _forget_aside(self, uid: str, revision: int) -> None:
        """Forgets a job that was set aside before it was changed."""
        if uid in self._aside:
            known = self._known[uid]
            if known.loaded is None or _read_at(known.loaded) < revision:
                self._forget(known)

    def _forget(self, known: Known) -> None:
        self._known.pop(known.uid, None)
        self._kept.discard(known.uid)
        self._aside.pop(known.uid, None)
        name = (known.ref.namespace, known.ref.job)
        if self._names.get(name) == known.uid:
            del self._names[name]


def _read_at(loaded: LoadedJob) -> int:
    """Returns the revision of the newest of what was read: not every change rewrites the state."""
    return max(loaded.state_revision, loaded.job_revision)

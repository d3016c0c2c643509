"""The line: which runs wait, in which order, and as much of it as memory may hold.

A lane is one priority of one queue: a range of keys, read from its beginning up to its `end`. Every
run below the end is in memory, or was passed over for a reason that the lane remembers:

- it needs what no worker offers, while the window was full of such runs. The lane is read anew
  when a worker offers it;
- it is delayed, and longer than `max_delayed` others. The lane is read anew when its time comes.

The end moves to the lane's very end before a page is asked for, so that whatever arrives meanwhile
is taken, and back to the page's last key when it has come. What is already in memory is newer than
the page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final, NamedTuple

from sexton_core.instants import MAX_INSTANT, MILLISECOND, Duration, Instant
from sexton_queue.entries import Entry, Place
from sexton_records.keys import active_prefix
from sexton_runtime.kv.types import prefix_end

WINDOW: Final = 4_000
"""Runs of a lane that are kept ready: what about a second of full load takes. Up to twice as many
before the last ones are forgotten again: those have to be read once more, at a tenth of what the
whole run costs."""

PAGE: Final = 1_000
"""Runs that are read at once: a page of the store."""

MAX_DELAYED: Final = 10_000
"""Delayed runs of a lane that are kept, the next ones; up to twice as many."""

GATHER_NS: Final[Duration] = 50 * MILLISECOND
"""Runs that may be handed out before their time are gathered for so long: many go together."""

_SLACK: Final = 64

# Members of an Enum take a function call each in CPython 3.11: those of every run are kept here.
_NOWHERE: Final = Place.NOWHERE
_READY: Final = Place.READY
_DELAYED: Final = Place.DELAYED


class Refill(NamedTuple):
    """A page to be read: from `start` on, before `end`, at most `limit` items."""

    lane: Lane
    start: bytes
    end: bytes
    limit: int


class Lane:
    """One priority of one queue."""

    __slots__ = (
        "delayed",
        "end",
        "limit",
        "passed",
        "prefix",
        "queue",
        "ready",
        "rescan_at",
        "scanning",
        "wanted",
    )

    def __init__(self, shard: int, queue: str, priority: int) -> None:
        self.queue = queue
        self.prefix = active_prefix(shard, queue, priority)
        self.limit = prefix_end(self.prefix)
        self.end = self.prefix
        self.ready: dict[bytes, Entry] = {}
        self.delayed: dict[bytes, Entry] = {}
        self.wanted: Counter[str] = Counter()
        """Ready runs by what they require."""
        self.passed: Counter[str] = Counter()
        """Passed-over runs by what they require, as far as the lane has been read."""
        self.rescan_at: Instant = MAX_INSTANT
        self.scanning = False

    def begin_anew(self) -> None:
        """Has the lane read from its beginning."""
        self.end = self.prefix
        self.passed.clear()
        self.rescan_at = MAX_INSTANT


class Line:
    """All lanes of a shard, and how many runs of each queue are assigned."""

    def __init__(
        self,
        shard: int,
        *,
        max_running: Mapping[str, int] | None = None,
        window: int = WINDOW,
        max_delayed: int = MAX_DELAYED,
        on_dropped: Callable[[Entry], object],
    ) -> None:
        """Takes the bounds, and what is told of each run that memory has no room for any more."""
        self.running: Counter[str] = Counter()
        """Assigned runs by queue, those whose commit is under way included."""
        self.max_running = dict(max_running or {})
        """Bounds on them; a queue that is not named has none."""
        self.paused: dict[str, str] = {}
        """Queues whose runs are not assigned, with the reason."""
        self.ready: dict[bytes, Entry] = {}
        """Ready runs in memory, of all queues."""
        self.early: dict[bytes, Entry] = {}
        """Delayed runs in memory that may be handed out before their time, of all queues."""
        self._shard = shard
        self._window = window
        self._max_delayed = max_delayed
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._dropped = on_dropped
        self._served: Counter[tuple[str, str]] = Counter()
        self._served_queues: Counter[str] = Counter()
        self._heads: dict[str, dict[str, list[bytes]]] = {}
        self._order = count()
        """Tells apart what would be equal in a heap."""
        self._waking: list[tuple[Instant, int, Entry]] = []
        self._nearing: list[tuple[Instant, int, Entry]] = []
        """Delayed runs by when they may be handed out, where that is before their time."""
        self._near: dict[str, dict[str, list[bytes]]] = {}
        self._rescans: list[tuple[Instant, bytes, Lane]] = []

    # Coming and going

    def discover(self, queue: str, priority: int) -> Lane:
        """Gives a lane, made to be read from its beginning where it was not known."""
        lane = self._lanes.get((queue, priority))
        if lane is None:
            lane = self._lanes[queue, priority] = Lane(self._shard, queue, priority)
        return lane

    def arrive(self, entry: Entry, now: Instant) -> bool:
        """Takes a run into line if it belongs into what memory holds; tells whether."""
        lane = self._lanes.get((entry.queue, entry.priority))
        if lane is None:
            lane = self.discover(entry.queue, entry.priority)
            lane.end = lane.limit
            lane.rescan_at = now  # whatever else stands there has not been read
            heappush(self._rescans, (now, lane.prefix, lane))
        if entry.key >= lane.end:
            return False
        if entry.run.not_before > now:
            self._delay(lane, entry)
            return True
        if self._passes_over(lane, entry):
            return False
        self._ready(lane, entry)
        return True

    def covers(self, queue: str, priority: int, key: bytes) -> bool:
        """Tells whether a run stands where it is to be in memory."""
        lane = self._lanes.get((queue, priority))
        return lane is None or key < lane.end

    def leave(self, entry: Entry) -> None:
        """Takes a run out of the line; no effect where it is not in it."""
        if entry.place is _READY:
            self._unready(self._lanes[entry.queue, entry.priority], entry)
        elif entry.place is _DELAYED:
            self._undelay(self._lanes[entry.queue, entry.priority], entry)

    def wake(self, now: Instant) -> None:
        """Makes ready what was delayed until now, and has lanes read whose forgotten runs wake."""
        while self._waking and self._waking[0][0] <= now:
            delayed = heappop(self._waking)
            if _is_delayed(*delayed):
                entry = delayed[2]
                lane = self._lanes[entry.queue, entry.priority]
                self._undelay(lane, entry)
                self._ready(lane, entry)
        if self._nearing and self._nearing[0][0] + GATHER_NS <= now:
            self._draw_near(now)
        while self._rescans and self._rescans[0][0] <= now:
            at, _, lane = heappop(self._rescans)
            if lane.rescan_at == at:
                lane.begin_anew()

    def next_wake(self) -> Instant:
        """Tells when `wake` has something to do."""
        while self._waking and not _is_delayed(*self._waking[0]):
            heappop(self._waking)  # handed out before its time, or gone: no reason to wake
        waking = self._waking[0][0] if self._waking else MAX_INSTANT
        nearing = self._nearing[0][0] + GATHER_NS if self._nearing else MAX_INSTANT
        return min(waking, nearing, self._rescans[0][0] if self._rescans else MAX_INSTANT)

    # Handing out

    def pick(self, queue: str, offers: Collection[str]) -> Entry | None:
        """Gives the first ready run of a queue that `offers` allows for; None: there is none now.

        Priorities are strict: they come first in the keys.
        """
        if queue in self.paused or self.is_full(queue):
            return None
        return _foremost(self._heads.get(queue, {}), self.ready, offers)

    def pick_early(self, queue: str, offers: Collection[str]) -> Entry | None:
        """Gives the first run of a queue that may be handed out before its time, if any.

        Of a queue whose assigned runs are bounded none is: it would keep others out meanwhile.
        """
        if queue in self.paused or queue in self.max_running:
            return None
        return _foremost(self._near.get(queue, {}), self.early, offers)

    def is_full(self, queue: str) -> bool:
        """Tells whether as many runs of a queue are assigned as may be."""
        limit = self.max_running.get(queue)
        return limit is not None and self.running[queue] >= limit

    def offer(self, queues: Collection[str], offers: Collection[str]) -> None:
        """Notes that one more session takes such runs of these queues."""
        for queue in queues:
            self._served_queues[queue] += 1
            for requirement in offers:
                self._served[queue, requirement] += 1
                if self._served[queue, requirement] == 1:
                    self._newly_served(queue, requirement)

    def withdraw(self, queues: Collection[str], offers: Collection[str]) -> None:
        """Notes that a session that had offered this is gone."""
        for queue in queues:
            self._served_queues[queue] -= 1
            if self._served_queues[queue] <= 0:
                del self._served_queues[queue]
            for requirement in offers:
                self._served[queue, requirement] -= 1
                if self._served[queue, requirement] <= 0:
                    del self._served[queue, requirement]

    # Reading

    def refills(self, most: int) -> Iterator[Refill]:
        """Gives the pages to be read now; each must be followed by `refilled` or `not_refilled`."""
        for lane in list(self._lanes.values()):
            if not most:
                return
            if lane.scanning or lane.end == lane.limit:
                continue
            if len(lane.ready) >= self._window // 2:
                self._make_room(lane)
                if len(lane.ready) >= self._window // 2:
                    continue
            start, lane.end, lane.scanning = lane.end, lane.limit, True
            most -= 1
            yield Refill(lane, start, lane.limit, min(self._window, PAGE))

    def refilled(self, refill: Refill, last_key: bytes) -> None:
        """Notes that the page's runs have arrived; `last_key` is empty where it was the last page.

        Runs that arrived beyond the page are forgotten again: others before them have not been
        read yet.
        """
        lane = refill.lane
        lane.scanning = False
        if last_key:
            self._cut(lane, last_key + b"\0")

    def not_refilled(self, refill: Refill) -> None:
        """Notes that the page could not be read."""
        lane = refill.lane
        lane.scanning = False
        lane.end = min(lane.end, refill.start)

    # For people

    def queues(self) -> list[str]:
        """Names the queues that have ever been seen."""
        return sorted({queue for queue, _ in self._lanes} | set(self.running))

    def lanes_of(self, queue: str) -> list[Lane]:
        """Gives a queue's lanes."""
        return [lane for (name, _), lane in self._lanes.items() if name == queue]

    def offers_of(self, queue: str) -> list[str]:
        """Names what the live sessions of a queue can do."""
        return sorted(requirement for name, requirement in self._served if name == queue)

    # Inside

    def _ready(self, lane: Lane, entry: Entry) -> None:
        entry.place = _READY
        entry.ready_since = entry.ready_since or max(entry.run.not_before, entry.run.due)
        lane.ready[entry.key] = self.ready[entry.key] = entry
        lane.wanted[entry.requirement] += 1
        _put(entry, self._heads, self.ready)
        if len(lane.ready) > 2 * self._window:
            self._shorten(lane)

    def _unready(self, lane: Lane, entry: Entry) -> None:
        del lane.ready[entry.key], self.ready[entry.key]
        left = lane.wanted[entry.requirement] - 1
        if left:
            lane.wanted[entry.requirement] = left
        else:
            del lane.wanted[entry.requirement]
        entry.place = _NOWHERE

    def _undelay(self, lane: Lane, entry: Entry) -> None:
        del lane.delayed[entry.key]
        self.early.pop(entry.key, None)
        entry.place = _NOWHERE

    def _delay(self, lane: Lane, entry: Entry) -> None:
        entry.place = _DELAYED
        entry.ready_since = 0
        lane.delayed[entry.key] = entry
        not_before, assignable_at = entry.run.not_before, entry.run.assignable_at
        heappush(self._waking, (not_before, next(self._order), entry))
        if assignable_at < not_before and not entry.too_early:
            heappush(self._nearing, (assignable_at, next(self._order), entry))
        if len(lane.delayed) > 2 * self._max_delayed:
            ordered = sorted(lane.delayed.values(), key=lambda one: one.run.not_before)
            for far in ordered[self._max_delayed :]:
                self._undelay(lane, far)
                self._dropped(far)
            wakes = ordered[self._max_delayed].run.not_before
            if wakes < lane.rescan_at:
                lane.rescan_at = wakes
                heappush(self._rescans, (wakes, lane.prefix, lane))
            self._waking = [item for item in self._waking if item[2].place is _DELAYED]
            heapify(self._waking)

    def _draw_near(self, now: Instant) -> None:
        """Lets be handed out what may be by now."""
        while self._nearing and self._nearing[0][0] <= now:
            entry = heappop(self._nearing)[2]
            mature = entry.run.assignable_at <= now and not entry.too_early
            if entry.place is _DELAYED and mature:
                self.early[entry.key] = entry
                _put(entry, self._near, self.early)

    def _make_room(self, lane: Lane) -> None:
        useful = sum(
            count
            for requirement, count in lane.wanted.items()
            if (lane.queue, requirement) in self._served
        )
        if useful < self._window // 2 and len(lane.ready) >= self._window:
            self._pass_over_unserved(lane)

    def _shorten(self, lane: Lane) -> None:
        self._pass_over_unserved(lane)
        if len(lane.ready) <= self._window:
            return
        self._cut(lane, sorted(lane.ready)[self._window])

    def _cut(self, lane: Lane, end: bytes) -> None:
        lane.end = min(lane.end, end)
        for entry in [entry for key, entry in lane.ready.items() if key >= lane.end]:
            self._unready(lane, entry)
            self._dropped(entry)

    def _passes_over(self, lane: Lane, entry: Entry) -> bool:
        """Tells whether a run is left where it is, like others that need the same."""
        if entry.requirement not in lane.passed:
            return False
        lane.passed[entry.requirement] += 1
        return True

    def _pass_over_unserved(self, lane: Lane) -> None:
        """Makes room for what may stand behind runs that no worker takes.

        Where no worker takes anything of the queue there is nothing to be found behind them.
        """
        if lane.queue not in self._served_queues:
            return
        unserved = [
            entry
            for entry in lane.ready.values()
            if (entry.queue, entry.requirement) not in self._served
        ]
        for entry in unserved:
            lane.passed[entry.requirement] += 1
            self._unready(lane, entry)
            self._dropped(entry)

    def _newly_served(self, queue: str, requirement: str) -> None:
        for lane in self.lanes_of(queue):
            if requirement in lane.passed:
                lane.begin_anew()


def _is_delayed(not_before: Instant, _order: int, entry: Entry) -> bool:
    return entry.place is _DELAYED and entry.run.not_before == not_before


def _put(entry: Entry, heads: dict[str, dict[str, list[bytes]]], which: Collection[bytes]) -> None:
    """Notes a run by its queue and what it requires; `which`: the keys of those that count."""
    try:
        keys = heads[entry.queue][entry.requirement]
    except KeyError:
        keys = heads.setdefault(entry.queue, {}).setdefault(entry.requirement, [])
    heappush(keys, entry.key)
    if len(keys) > _SLACK + 4 * len(which):  # most of them have left by another door
        keys[:] = sorted({key for key in keys if key in which})


def _foremost(
    heads: Mapping[str, list[bytes]], runs: Mapping[bytes, Entry], offers: Collection[str]
) -> Entry | None:
    """Gives the first of the runs of a queue that `offers` allows for."""
    best: Entry | None = None
    for requirement, keys in heads.items():
        if requirement not in offers:
            continue
        while keys:
            first = runs.get(keys[0])
            if first is not None:
                if best is None or first.key < best.key:
                    best = first
                break
            heappop(keys)
    return best

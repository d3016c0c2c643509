"""Watches: one bounded window of the last revisions, and watchers that read from it.

What happened is kept once, in the window; a watcher is a position in it. So a watcher that reads
slowly costs nothing, and is cut when what it has yet to read leaves the window. A watcher to whose
prefix nothing happens has no position that could be lost: it is only told how far it is.

Everything here runs between two awaits of the event loop: publishing is atomic for every watcher.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Sequence

from sexton.errors import (
    Compacted,
    FutureRevision,
    Overloaded,
    SextonError,
    SlowWatcher,
    Unavailable,
)
from sexton_runtime.kv.types import Event, EventKind, KeyValue, RevisionEvents, WatchBatch
from sexton_store.known import Written
from sexton_store.machine import Entry

MAX_BATCH_EVENTS = 1_000
MAX_BATCH_BYTES = 2 * 1024 * 1024
"""A batch ends before it passes this; with one more revision it stays below gRPC's 4 MiB."""
_GROUP_BYTES = 5
"""Watchers are grouped by so many first bytes of their prefix: a change below `runs/` looks at no
watcher of `jobs/`. It tells all of the mesh's kinds of keys apart."""


class _Window:
    """The last revisions, without a gap, bounded by events and bytes."""

    def __init__(self, revision: int, max_events: int, max_bytes: int) -> None:
        self.latest = revision
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._entries: list[Entry] = []
        self._sizes: list[int] = []
        self._head = 0  # entries before it have left; the lists are cut when half of them have
        self._events = 0
        self._bytes = 0

    @property
    def oldest(self) -> int:
        """The oldest revision from which a watch can start."""
        return self.latest - (len(self._entries) - self._head) + 1

    def append(self, entries: Sequence[Entry], size_bytes: int) -> None:
        """Takes in what happened next, in order.

        Of its bytes each revision counts as an equal part: to weigh each by itself costs more than
        to evaluate it, and they come and go together.
        """
        self.latest = entries[-1][0]
        self._entries += entries
        part = -(-size_bytes // len(entries))
        self._sizes += [part] * len(entries)
        self._bytes += part * len(entries)
        self._events += sum([len(entry[2]) for entry in entries])
        while self._events > self._max_events or self._bytes > self._max_bytes:
            self._events -= len(self._entries[self._head][2])
            self._bytes -= self._sizes[self._head]
            self._head += 1
        if self._head > 64 and self._head * 2 > len(self._entries):
            del self._entries[: self._head]
            del self._sizes[: self._head]
            self._head = 0

    def read(
        self, first: int, prefix: bytes, *, keys_only: bool
    ) -> tuple[list[RevisionEvents], int | None]:
        """Reads what concerns a prefix from a revision on, and where to go on (None: all read)."""
        found: list[RevisionEvents] = []
        events_left, bytes_left = MAX_BATCH_EVENTS, MAX_BATCH_BYTES
        position = self._head + first - self.oldest
        for index in range(position, len(self._entries)):
            revision, mesh_ns, written = self._entries[index]
            concerned = [change for change in written if change[0].startswith(prefix)]
            if not concerned:
                continue
            events_left -= len(concerned)
            bytes_left -= sum([len(change[0]) + len(change[1] or b"") for change in concerned])
            if found and (events_left < 0 or bytes_left < 0):
                return found, revision
            events = tuple(_event(revision, change, keys_only=keys_only) for change in concerned)
            found.append(RevisionEvents(revision, mesh_ns, events))
        return found, None


class WatchHub:
    """Hands what became durable to whoever watches it."""

    def __init__(
        self,
        *,
        revision: int,
        max_events: int,
        max_bytes: int,
        max_watchers: int,
        mesh_ns: Callable[[], int],
    ) -> None:
        self.cut = 0
        """Watchers cut so far."""
        self._window = _Window(revision, max_events, max_bytes)
        self._max_watchers = max_watchers
        self._mesh_ns = mesh_ns
        self._by_group: dict[bytes, list[Watcher]] = {}
        self._watchers: dict[Watcher, bytes] = {}
        self._ended: type[SextonError] | None = None

    def __len__(self) -> int:
        return len(self._watchers)

    @property
    def oldest(self) -> int:
        """The oldest revision from which a watch can start."""
        return self._window.oldest

    def publish(self, entries: Sequence[Entry], keys: Sequence[bytes], size_bytes: int) -> None:
        """Takes in revisions that have become durable, in order, and wakes who watches them.

        `keys` are those that were changed, in order, and `size_bytes` what keys and values take.
        """
        if not entries:
            return
        self._window.append(entries, size_bytes)
        for group, watchers in self._by_group.items():
            if _any_below(group, keys):
                for watcher in watchers:
                    if _any_below(watcher.prefix, keys):
                        watcher.note(entries)

    def open(self, prefix: bytes, start_revision: int, *, keys_only: bool) -> Watcher:
        """Opens a watch; what is wrong with it is raised by its first `__anext__`."""
        latest = self._window.latest
        start = start_revision or latest + 1
        first = start if start <= latest else None  # what is yet to come can't leave the window
        watcher = Watcher(self, prefix, keys_only=keys_only, first=first)
        if self._ended is not None:
            watcher.end(self._ended())
        elif start > latest + 1:
            watcher.end(FutureRevision(start, latest))
        elif start < self.oldest:
            watcher.end(Compacted(start, self.oldest))
        elif len(self._watchers) >= self._max_watchers:
            watcher.end(Overloaded(f"{self._max_watchers:,} watches are open already"))
        else:
            group = prefix[:_GROUP_BYTES]
            self._watchers[watcher] = group
            self._by_group.setdefault(group, []).append(watcher)
        return watcher

    def refuse(self, error: SextonError) -> Watcher:
        """Gives a watch that runs into an error at once."""
        watcher = Watcher(self, b"", keys_only=False, first=None)
        watcher.end(error)
        return watcher

    def remind(self) -> None:
        """Tells every waiting watcher how far it is."""
        for watcher in self._watchers:
            watcher.remind()

    def end(self, error: type[SextonError] = Unavailable) -> None:
        """Ends all watches, and every later one, with an error. Idempotent."""
        self._ended = self._ended or error
        for watcher in list(self._watchers):
            self.forget(watcher)
            watcher.end(error())

    def forget(self, watcher: Watcher) -> None:
        """Stops waking a watcher; idempotent."""
        group = self._watchers.pop(watcher, None)
        if group is None:
            return
        neighbours = self._by_group[group]
        neighbours.remove(watcher)
        if not neighbours:
            del self._by_group[group]

    def read(self, watcher: Watcher, first: int | None) -> tuple[WatchBatch, int | None]:
        """Gives a watcher's next batch and the revision at which it goes on (None: all read).

        Raises `SlowWatcher` where the window has left it behind.
        """
        found: list[RevisionEvents] = []
        rest = None
        if first is not None:
            if first < self.oldest:
                self.cut += 1
                self.forget(watcher)
                raise SlowWatcher
            found, rest = self._window.read(first, watcher.prefix, keys_only=watcher.keys_only)
        progress = self._window.latest if rest is None else rest - 1
        return WatchBatch(tuple(found), progress, self._mesh_ns()), rest


class Watcher:
    """An open watch: an asynchronous iterator over batches. One reader at a time."""

    def __init__(self, hub: WatchHub, prefix: bytes, *, keys_only: bool, first: int | None) -> None:
        self.prefix = prefix
        self.keys_only = keys_only
        self._hub = hub
        self._next = first  # the first revision that is to be read; None: none yet
        self._told = True  # a batch is due even if nothing happened
        self._error: SextonError | None = None
        self._closed = False
        self._waiting: asyncio.Future[None] | None = None

    def __aiter__(self) -> Watcher:
        return self

    async def __anext__(self) -> WatchBatch:
        """Waits for the next batch; the first comes at once."""
        while self._next is None and not self._told and self._error is None and not self._closed:
            self._waiting = asyncio.get_running_loop().create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None
        if self._closed:
            raise StopAsyncIteration
        if self._error is not None:
            raise self._error
        try:
            batch, self._next = self._hub.read(self, self._next)
        except SlowWatcher as error:
            self._error = error
            raise
        self._told = False
        return batch

    async def aclose(self) -> None:
        """Ends the watch; idempotent."""
        self._closed = True
        self._hub.forget(self)
        self._wake()

    def note(self, entries: Sequence[Entry]) -> None:
        """Looks whether revisions concern this watch, and wakes its reader if so."""
        if self._next is not None:
            return
        prefix = self.prefix
        for revision, _, written in entries:
            if any(change[0].startswith(prefix) for change in written):
                self._next = revision
                self._wake()
                return

    def remind(self) -> None:
        """Lets the next batch come although nothing happened."""
        self._told = True
        self._wake()

    def end(self, error: SextonError) -> None:
        """Lets the reader run into an error."""
        self._error = self._error or error
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


def _any_below(prefix: bytes, keys: Sequence[bytes]) -> bool:
    """Tells whether one of some keys, which are in order, starts with a prefix."""
    first = bisect_left(keys, prefix)
    return first < len(keys) and keys[first].startswith(prefix)


def _event(revision: int, change: Written, *, keys_only: bool) -> Event:
    key, value, *numbers = change
    if value is None:
        return Event(EventKind.DELETE, KeyValue(key, b"", 0, revision, 0))
    return Event(EventKind.PUT, KeyValue(key, b"" if keys_only else value, *numbers))

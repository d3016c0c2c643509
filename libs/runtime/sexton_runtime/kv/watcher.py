"""Follows everything below a prefix, over broken connections and lost history.

The store gives a consistent whole as pages and then a watch from the first page's revision + 1.
`RelistingWatcher` does both, resumes the watch after a break from the last revision that it has
told, and where that has left the store's window ("compacted") reads the pages again and tells the
difference, so that its consumer misses neither a put nor a delete.

Memory: one small entry (about 150 bytes and the key) for every key below the prefix, needed for
that difference; values are not kept. One page or one watch message is in flight.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import NamedTuple

from sexton.errors import (
    Compacted,
    FutureRevision,
    InvalidArgument,
    PermissionDenied,
    SextonError,
    Unauthenticated,
    Unimplemented,
    WrongIncarnation,
)
from sexton_runtime.kv._backoff import Backoff
from sexton_runtime.kv.engine import Engine
from sexton_runtime.kv.types import (
    Event,
    EventKind,
    KeyValue,
    Page,
    prefix_end,
)
from sexton_runtime.randomness import Randomness

LASTING = (
    FutureRevision,
    InvalidArgument,
    PermissionDenied,
    Unauthenticated,
    Unimplemented,
    WrongIncarnation,
)
"""Errors that trying again does not cure. FutureRevision: the store has lost what it had told."""

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
_RELIST_JITTER_S = 1.0
"""Watchers that lost their place together do not all read everything at once."""


class Update(NamedTuple):
    """Changes in order, and how far the picture that they make up has come.

    While `synced` is false the pages are being read: the picture is a mixture of revisions. Once
    it is true, the changes told so far make up exactly the state at `revision`, each update
    carries whole revisions, and may be empty (only time has passed). It turns false again when
    history was lost and the pages are read anew.

    Of a deletion that was found by reading anew, `mod_revision` is a later revision at which the
    key was absent.
    """

    events: tuple[Event, ...]
    revision: int
    mesh_time_ns: int
    synced: bool


class RelistingWatcher:
    """The state below a prefix as one endless stream of changes. One consumer."""

    def __init__(
        self,
        engine: Engine,
        prefix: bytes,
        *,
        randomness: Randomness,
        keys_only: bool = False,
        page_items: int = 0,
    ) -> None:
        """Watches all keys that start with `prefix`; `page_items` 0: as many as a page takes."""
        self._engine = engine
        self._prefix = prefix
        self._randomness = randomness
        self._keys_only = keys_only
        self._page_items = page_items
        self._backoff = Backoff(randomness, _FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        self._known: dict[bytes, int] = {}  # key -> mod revision last told
        self._listed = False
        self._told = 0  # every change up to this revision has been told
        self._synced_from = 0  # the picture is consistent once `_told` has reached this
        self.lists = 0
        self.breaks = 0

    async def updates(self) -> AsyncGenerator[Update, None]:
        """Yields the initial items, then changes, without end; raises one of `LASTING`.

        Close it (`aclose`) when done. To be called once.
        """
        while True:
            try:
                if not self._listed:
                    async with aclosing(self._list()) as listing:
                        async for update in listing:
                            yield update
                async with aclosing(self._follow()) as following:
                    async for update in following:
                        yield update
            except LASTING:
                raise
            except Compacted:
                self._listed = False
                await asyncio.sleep(self._randomness.uniform(0, _RELIST_JITTER_S))
            except SextonError:
                self.breaks += 1
                await asyncio.sleep(self._backoff.next_s())

    async def _list(self) -> AsyncGenerator[Update, None]:
        """Reads all pages and tells how they differ from what was told before."""
        self.lists += 1
        before = iter(sorted(self._known))
        earlier = next(before, None)
        token = b""
        first_revision = 0
        while True:
            page = await self._page(token)
            first_revision = first_revision or page.revision
            events: list[Event] = []
            for kv in page.kvs:
                while earlier is not None and earlier < kv.key:
                    self._tell_absent(earlier, page.revision, events)
                    earlier = next(before, None)
                if earlier == kv.key:
                    earlier = next(before, None)
                if kv.mod_revision > self._known.get(kv.key, 0):
                    self._known[kv.key] = kv.mod_revision
                    events.append(Event(EventKind.PUT, kv))
            if not page.next_token:
                while earlier is not None:
                    self._tell_absent(earlier, page.revision, events)
                    earlier = next(before, None)
                self._listed = True
                self._told, self._synced_from = first_revision, page.revision
            yield Update(tuple(events), first_revision, page.mesh_time_ns, synced=False)
            if not page.next_token:
                return
            token = page.next_token

    async def _page(self, token: bytes) -> Page:
        return await self._engine.scan(
            self._prefix,
            prefix_end(self._prefix),
            limit=self._page_items,
            keys_only=self._keys_only,
            page_token=token,
        )

    def _tell_absent(self, key: bytes, revision: int, events: list[Event]) -> None:
        del self._known[key]
        events.append(Event(EventKind.DELETE, KeyValue(key, b"", 0, revision, 0)))

    async def _follow(self) -> AsyncGenerator[Update, None]:
        """Watches from where the telling has come to."""
        watch = self._engine.watch(self._prefix, self._told + 1, keys_only=self._keys_only)
        async with aclosing(watch) as batches:
            async for batch in batches:
                self._backoff.reset()
                events = tuple(
                    self._new(event for revision in batch.revisions for event in revision.events)
                )
                self._told = max(self._told, batch.progress_revision)
                synced = self._told >= self._synced_from
                yield Update(events, self._told, batch.mesh_time_ns, synced)

    def _new(self, events: Iterable[Event]) -> Iterable[Event]:
        """Leaves out what the pages have told already, and notes the rest."""
        known = self._known
        for event in events:
            key, revision = event.kv.key, event.kv.mod_revision
            if event.kind is EventKind.PUT:
                if revision > known.get(key, 0):
                    known[key] = revision
                    yield event
            elif key in known and revision > known[key]:
                del known[key]
                yield event

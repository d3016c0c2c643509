"""In which order runs are listed, as keys: read in small pages, resumable behind any of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final, NamedTuple

from sexton.internal.v1 import records_pb2 as records
from sexton_coordinator.api.checks import Name
from sexton_coordinator.api.cursors import Cursor
from sexton_coordinator.api.run_finding import RunFinder
from sexton_coordinator.api.showing import handle_key
from sexton_coordinator.mesh import Mesh
from sexton_core.ids import format_time
from sexton_core.instants import SECOND, Instant
from sexton_core.policy.state import Handle
from sexton_records import keys
from sexton_runtime.kv.types import KeyValue, prefix_end

_LIVE: Final = "live"
_ENDED: Final = "ended"
_FILLED: Final = "filled"
_AFTER_ALL: Final = "~"
"""Sorts behind every character of a key."""
_TIME_ENDS: Final = 17
"""Of a run's id: behind its letter and its time, `t20261129T030000Z`."""


class Candidate(NamedTuple):
    """A run that may be asked for.

    key: of its record.
    position: behind which the list goes on.
    entry: what the index of ended runs says about it, where it was found there.
    """

    key: bytes
    position: list[str]
    entry: records.EndedRecord | None = None


class RunOrder:
    """Orders the runs of a job, or all. `before`: none that ended later need be listed; 0: all."""

    def __init__(self, mesh: Mesh, finder: RunFinder, before: Instant) -> None:
        self._mesh = mesh
        self._finder = finder
        self._before = before

    async def of_job(
        self, job: Name, position: Sequence[str], *, live: bool, ended: bool
    ) -> AsyncGenerator[Candidate, None]:
        """Yields a job's runs that come behind a position (empty: all)."""
        phase = position[0] if position else _LIVE
        if phase == _LIVE and live:
            for uid, handle in await self._live_of(job):
                place = [_LIVE, f"{handle.not_before:020}", handle.run_id]
                if not position or place[1:] < list(position[1:]):
                    yield Candidate(handle_key(self._mesh, uid, handle), place)
        if not ended:
            return
        reached, last, first = ("", "", await self._current(job))
        if phase != _LIVE:
            reached, last, first = position[1:]
        for uid in await self._incarnations(job, first, reached):
            prefix = keys.run_key(job.namespace, job.job, uid, "")
            if uid != reached:
                last = ""
            if not last or phase == _ENDED:
                async with aclosing(self._timed(prefix, last)) as timed:
                    async for key, run_id in timed:
                        yield Candidate(key, [_ENDED, uid, run_id, first])
                last = ""
            filled = self._ids(prefix, "b", last or "b" + _AFTER_ALL)
            while (kv := await filled.next()) is not None:
                run_id = kv.key[len(prefix) :].decode()
                yield Candidate(kv.key, [_FILLED, uid, run_id, first])
            last = ""

    async def of_all(
        self, position: Sequence[str], *, live: bool, ended: bool, after: Instant
    ) -> AsyncGenerator[Candidate, None]:
        """Yields everybody's runs that come behind a position (empty: all).

        Of the ended ones those that ended at `after` or later.
        """
        phase = position[0] if position else _LIVE
        if phase == _LIVE and live:
            start = position[1].encode() + b"\0" if position else keys.ACTIVE
            active = self._cursor(max(start, keys.ACTIVE), prefix_end(keys.ACTIVE), keys_only=True)
            while (kv := await active.next()) is not None:
                yield Candidate(kv.key, [_LIVE, kv.key.decode()])
        if ended:
            last = position[1] if phase == _ENDED else ""
            async with aclosing(self._by_end(last, after)) as by_end:
                async for suffix, entry in by_end:
                    _, uid, run_id = suffix.split("/")
                    key = keys.run_key(entry.namespace, entry.job, uid, run_id)
                    yield Candidate(key, [_ENDED, suffix], entry)

    # Of one job -------------------------------------------------------------------------------

    async def _live_of(self, job: Name) -> list[tuple[str, Handle]]:
        """Returns the runs of a job that may be in flight, newest first."""
        found = [
            (name.uid, handle)
            async for name, handles in self._finder.in_flight(job)
            for handle in handles
        ]
        return sorted(found, key=lambda item: (item[1].not_before, item[1].run_id), reverse=True)

    async def _current(self, job: Name) -> str:
        name = await self._finder.current(job)
        return name.uid if name is not None else ""

    async def _incarnations(self, job: Name, first: str, reached: str) -> list[str]:
        """Returns the uids under which ended runs are kept from `reached` on, `first` first."""
        uids = [uid async for uid in self._finder.incarnations(job)]
        uids.sort(key=lambda uid: uid != first)
        return uids[uids.index(reached) :] if reached in uids else uids

    async def _timed(self, prefix: bytes, last: str) -> AsyncGenerator[tuple[bytes, str], None]:
        """Yields scheduled and manual runs behind `last`, newest first by the time in their id."""
        cursors = [self._ids(prefix, letter, self._end(letter, last)) for letter in ("t", "m")]
        heads = [await cursor.next() for cursor in cursors]
        skipped = len(prefix)
        while any(heads):
            index = max(
                (index for index, head in enumerate(heads) if head is not None),
                key=lambda index: _age(heads[index], skipped),
            )
            newest = heads[index]
            assert newest is not None, "the newest is one of those that are there"
            yield newest.key, newest.key[skipped:].decode()
            heads[index] = await cursors[index].next()

    def _end(self, letter: str, last: str) -> str:
        """Returns before which id (exclusive) the runs of a letter come behind `last`."""
        if not last:
            if not self._before:
                return letter + _AFTER_ALL
            # No run ends before the time in its id.
            return letter + format_time(self._before // SECOND * SECOND) + _AFTER_ALL
        if letter == last[0]:
            return last
        bound = letter + last[1:_TIME_ENDS]
        return bound + _AFTER_ALL if letter < last[0] else bound

    def _ids(self, prefix: bytes, letter: str, end: str) -> Cursor:
        start = prefix + letter.encode()
        return self._cursor(start, prefix + end.encode(), reverse=True, keys_only=True)

    # Of all -----------------------------------------------------------------------------------

    async def _by_end(
        self, last: str, after: Instant
    ) -> AsyncGenerator[tuple[str, records.EndedRecord], None]:
        """Yields the index of ended runs behind `last`, newest first, over all shards."""
        cursors = []
        skipped = len(keys.ended_prefix(0))
        for shard in range(self._mesh.coordinator_shards):
            prefix = keys.ended_prefix(shard)
            end = prefix_end(prefix)
            if self._before:
                end = prefix + f"{self._before:020}".encode()
            if last:
                end = min(end, prefix + last.encode())
            start = prefix + f"{after:020}".encode()
            cursors.append(self._cursor(start, end, reverse=True))
        heads = [await cursor.next() for cursor in cursors]
        while any(heads):
            index = max(
                (index for index, head in enumerate(heads) if head is not None),
                key=lambda index: _suffix(heads[index], skipped),
            )
            newest = heads[index]
            assert newest is not None, "the newest is one of those that are there"
            entry = records.EndedRecord.FromString(newest.value)
            yield newest.key[skipped:].decode(), entry
            heads[index] = await cursors[index].next()

    def _cursor(
        self, start: bytes, end: bytes, *, reverse: bool = False, keys_only: bool = False
    ) -> Cursor:
        return Cursor(self._mesh.store, start, end, reverse=reverse, keys_only=keys_only)


def _age(kv: KeyValue | None, skipped: int) -> tuple[bytes, bytes]:
    """Returns what runs of different letters are ordered by: the time in the id, then the id."""
    assert kv is not None, "it is one of those that are there"
    run_id = kv.key[skipped:]
    return run_id[1:_TIME_ENDS], run_id


def _suffix(kv: KeyValue | None, skipped: int) -> bytes:
    assert kv is not None, "it is one of those that are there"
    return kv.key[skipped:]

"""Which jobs are listed, and in which order: read in pieces, resumable behind any of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Final, NamedTuple

from sexton.errors import InvalidArgument
from sexton.internal.v1 import records_pb2 as records
from sexton.v1 import scheduler_pb2 as api
from sexton_coordinator.api import checks
from sexton_coordinator.api.checks import Name
from sexton_coordinator.api.cursors import Cursor
from sexton_coordinator.jobs_store import get_all
from sexton_coordinator.mesh import Mesh
from sexton_records import keys
from sexton_runtime.kv.types import KeyValue, prefix_end

MAX_WORDS: Final = 200
"""Characters."""
MAX_NAMES: Final = 1_000
_TIMERS: Final = 100
"""Timers whose jobs are read together."""

_ORDERS: Final = {
    api.JOB_ORDER_UNSPECIFIED: False,
    api.JOB_ORDER_NAME: False,
    api.JOB_ORDER_NEXT_TIME: True,
}
"""Whether an order is that of the timers."""


class Piece(NamedTuple):
    """Some jobs, with the position behind which the list goes on after each."""

    found: Sequence[tuple[str, KeyValue]]
    complete: bool


class Fit:
    """Tells which jobs are asked for."""

    def __init__(self, request: api.ListJobsRequest, parent: Name | None) -> None:
        """Raises `InvalidArgument` where there are too many words."""
        if len(request.words) > MAX_WORDS:
            expected = f"at most {MAX_WORDS} characters"
            raise InvalidArgument("words", f"{len(request.words):,} characters", expected)
        self._words = request.words.lower().split()
        # Only ASCII has one lower case in bytes: other words are looked for once it is decoded.
        self._bytes = [word.encode() for word in self._words if word.isascii()]
        self._paused = request.paused if request.HasField("paused") else None
        self._prefix = request.prefix
        self._namespace = parent.namespace if parent is not None else ""

    @property
    def searches(self) -> bool:
        """Tells whether most jobs may be looked at in vain."""
        return bool(self._words) or self._paused is not None

    def fits(self, kv: KeyValue) -> bool:
        """Tells whether a job is asked for; `kv`: its definition."""
        namespace, job = keys.parse_job_key(kv.key)
        if not job.startswith(self._prefix) or (self._namespace not in ("", namespace)):
            return False
        if not self.searches:
            return True
        held = b"%s %s" % (kv.key.lower(), kv.value.lower())
        if not all(word in held for word in self._bytes):
            return False
        record = records.JobRecord.FromString(kv.value)
        if self._paused not in (None, record.paused):
            return False
        spec = record.spec
        said = f"{namespace}/{job} {spec.queue} {spec.description}".lower()
        return all(word in said for word in self._words)


class JobOrder:
    """Orders the jobs of a request."""

    def __init__(self, mesh: Mesh, request: api.ListJobsRequest, parent: Name | None) -> None:
        """Raises `InvalidArgument` where fields contradict each other, or can't be used."""
        self._mesh = mesh
        self._by_timer = checks.word(_ORDERS, "order", request.order)
        self._names = [checks.job_name("names", name) for name in request.names[: MAX_NAMES + 1]]
        if len(self._names) > MAX_NAMES:
            raise InvalidArgument("names", len(request.names), f"at most {MAX_NAMES:,}")
        if self._names and (parent is not None or request.prefix or self._by_timer):
            raise InvalidArgument("names", request.names[0], "no parent, prefix or order with it")
        self._start = keys.JOBS
        if parent is not None:
            self._start = keys.namespace_prefix(parent.namespace) + request.prefix.encode()

    def behind(self, position: str, size: int) -> AsyncGenerator[Piece, None]:
        """Yields the jobs behind a position (empty: all), so many at once."""
        if self._names:
            return self._of_names(position, size)
        return self._of_timers(position) if self._by_timer else self._of_keys(position, size)

    async def _of_keys(self, position: str, size: int) -> AsyncGenerator[Piece, None]:
        end = prefix_end(self._start)
        start = max(self._start, position.encode() + b"\0") if position else self._start
        while True:
            page = await self._mesh.store.scan(start, end, limit=size)
            found = [(kv.key.decode(), kv) for kv in page.kvs]
            yield Piece(found, not page.next_token)
            if not page.next_token:
                return
            start = page.kvs[-1].key + b"\0"

    async def _of_names(self, position: str, size: int) -> AsyncGenerator[Piece, None]:
        reached = int(position or 0)
        while True:
            some = self._names[reached : reached + size]
            kvs = await get_all(
                self._mesh.store, [keys.job_key(name.namespace, name.job) for name in some]
            )
            found = [
                (str(number), kv)
                for number, kv in enumerate(kvs, reached + 1)
                if kv.create_revision
            ]
            reached += len(some)
            yield Piece(found, reached >= len(self._names))
            if reached >= len(self._names):
                return

    async def _of_timers(self, position: str) -> AsyncGenerator[Piece, None]:
        """Merges the timers of all shards; a job that was created anew has one of its own."""
        skipped = len(keys.timers_prefix(0))
        cursors = []
        for shard in range(self._mesh.coordinator_shards):
            prefix = keys.timers_prefix(shard)
            start = prefix + position.encode() + b"\0" if position else prefix
            cursors.append(
                Cursor(self._mesh.store, start, prefix_end(prefix), reverse=False, keys_only=False)
            )
        heads = [await cursor.next() for cursor in cursors]
        while True:
            timers: list[KeyValue] = []
            while any(heads) and len(timers) < _TIMERS:
                index = min(
                    (index for index, head in enumerate(heads) if head is not None),
                    key=lambda index: _suffix(heads[index], skipped),
                )
                head = heads[index]
                assert head is not None, "the earliest is one of those that are there"
                timers.append(head)
                heads[index] = await cursors[index].next()
            yield Piece(await self._timed(timers, skipped), not any(heads))
            if not any(heads):
                return

    async def _timed(self, timers: Sequence[KeyValue], skipped: int) -> list[tuple[str, KeyValue]]:
        """Reads the jobs whose timers these are."""
        named = [records.TimerRecord.FromString(kv.value) for kv in timers]
        kvs = await get_all(
            self._mesh.store, [keys.job_key(timer.namespace, timer.job) for timer in named]
        )
        return [
            (timer.key[skipped:].decode(), kv)
            for timer, kv in zip(timers, kvs, strict=True)
            if kv.create_revision
            and records.JobRecord.FromString(kv.value).uid == keys.parse_timer_key(timer.key).uid
        ]


def _suffix(kv: KeyValue | None, skipped: int) -> bytes:
    assert kv is not None, "it is one of those that are there"
    return kv.key[skipped:]

"""Follows runs: each as it stands, then each change, told by watches of the store.

In flight a run is a handle below `active/`, in the line of its queue; ended it is a record below
`runs/`. What is followed:

a run        its handle, and its record; where only its end is asked for, its record alone, from
             the commit on that made it if that was a moment ago; for the first second the notice
             of its queue's owner is waited for instead, where this replica has told it of the run
a job        its definition for its incarnation, that one's state for the queues in which its runs
             stand, the lines of these queues, and its records
a namespace  all lines, and its records

Two watches may tell of one run in either order, so a change is told only if its revision is newer
than what was told of that run before. A caller that does not read holds up the feeds, which read
no further; the store then cuts them, and the stream ends with `SlowWatcher`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from typing import Final, NamedTuple

from sexton.errors import (
    Compacted,
    DeadlineExceeded,
    NotFound,
    SextonError,
    SlowWatcher,
    Unavailable,
)
from sexton.internal.v1 import records_pb2 as records
from sexton.v1 import scheduler_pb2 as api
from sexton_coordinator.api.checks import Name
from sexton_coordinator.api.run_finding import FoundRun, Place, RunFinder
from sexton_coordinator.api.showing import handle_key
from sexton_coordinator.ends import RunEnd
from sexton_coordinator.mesh import Mesh
from sexton_core.ids import RunId
from sexton_records import keys
from sexton_records.runs import run_message
from sexton_records.state import handle_of
from sexton_runtime.kv.types import EventKind, KeyValue, prefix_end

MAX_BATCHES: Final = 64
"""Batches of changes that wait for a caller that does not read."""

BYTES_PER_MESSAGE: Final = 256 * 1024
"""A message has about this much; a single run may have up to 1 MiB."""

_PAGE: Final = 100
_MAX_REMEMBERED: Final = 10_000
"""Runs of which it is known what was told: those in flight, and those that ended lately."""

_NOTICE_S: Final = 1.0
"""So long the notice of a new run's end is waited for without a watch of the store."""

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0

Interpret = Callable[[KeyValue], Iterable[KeyValue]]
"""Turns what a feed brings into what is told: records of runs."""


class RunWatcher:
    """Opens watches; `stop` ends them all."""

    def __init__(self, mesh: Mesh, finder: RunFinder) -> None:
        self._mesh = mesh
        self._finder = finder
        self._open: set[_Inbox] = set()
        self._stopping = False

    async def stop(self) -> None:
        """Ends all streams; their callers watch again elsewhere. Idempotent."""
        self._stopping = True
        for inbox in self._open:
            inbox.fail(_stopping())

    async def watch(
        self, name: Name, *, ended_only: bool = False
    ) -> AsyncGenerator[api.WatchRunsResponse, None]:
        """Streams a run until it has ended, or the runs in flight of a job or namespace for ever.

        `ended_only`: of a run only its end.

        Raises:
            NotFound: there is no such run or job.
            SlowWatcher: the caller read too slowly.
            Unavailable: this replica stops.

        """
        if self._stopping:
            raise _stopping()
        watch = _Watch(self._mesh, self._finder, name, ended_only=ended_only)
        self._open.add(watch.inbox)
        try:
            async with aclosing(watch.responses()) as responses:
                async for response in responses:
                    yield response
        finally:
            self._open.discard(watch.inbox)
            await watch.close()


class _Told(NamedTuple):
    """What was told last of a run."""

    revision: int
    ended: bool


class _Watch:
    """One stream."""

    def __init__(
        self, mesh: Mesh, finder: RunFinder, name: Name, *, ended_only: bool = False
    ) -> None:
        self.inbox = _Inbox()
        self._mesh = mesh
        self._finder = finder
        self._name = name
        self._ended_only = ended_only
        self._told: OrderedDict[tuple[str, RunId], _Told] = OrderedDict()
        self._feeds: dict[bytes, asyncio.Task[None]] = {}
        self._uids: set[str] = set()
        self._ended = False
        self._closed = False
        self._patience: asyncio.TimerHandle | None = None

    async def close(self) -> None:
        """Ends the feeds."""
        self._closed = True
        if self._patience is not None:
            self._patience.cancel()
        for feed in self._feeds.values():
            feed.cancel()
        await asyncio.gather(*self._feeds.values(), return_exceptions=True)

    async def responses(self) -> AsyncGenerator[api.WatchRunsResponse, None]:
        """Yields what is sent."""
        name = self._name
        if name.run:
            standing = self._begin_run()
        elif name.job:
            standing = self._begin_job()
        else:
            standing = self._begin_namespace()
        async with aclosing(standing) as pages:
            async for kvs in pages:
                for response in self._messages(kvs, synced=False):
                    yield response
        yield api.WatchRunsResponse(synced=True)
        while not self._ended:
            kvs = await self.inbox.take()
            for response in self._messages(kvs, synced=True):
                yield response

    # What stands, and from when on it is followed ---------------------------------------------

    async def _begin_run(self) -> AsyncGenerator[list[KeyValue], None]:
        """Yields a run, and follows it where it is in flight."""
        new = self._finder.take_new(self._name) if self._ended_only else None
        if new is not None:
            self._expect_end(new)
            return
        found = await self._finder.find(self._name)
        if found is None:
            raise NotFound("run", str(self._name))
        if found.handle:
            if not self._ended_only:
                self._follow(found.handle, found.as_of, _exactly(found.handle))
            ended = _ended_key(found)
            self._follow(ended, found.as_of, _exactly(ended))
        yield self._stand(found)

    def _stand(self, found: FoundRun) -> list[KeyValue]:
        """Returns what is told of a run that was found."""
        if found.handle and self._ended_only:
            return []
        key = found.handle or _ended_key(found)
        return [KeyValue(key, found.record.SerializeToString(), 1, found.revision, 1)]

    async def _begin_job(self) -> AsyncGenerator[list[KeyValue], None]:
        """Yields a job's runs in flight, and follows it through its incarnations."""
        name = self._name
        if not await self._finder.exists(name):
            raise NotFound("job", str(name))
        key = keys.job_key(name.namespace, name.job)
        snapshot = await self._mesh.store.get([key])
        self._follow(keys.runs_prefix(name.namespace, name.job), snapshot.revision, _all)
        self._follow(key, snapshot.revision, self._definition(key))
        async for job, handles in self._finder.in_flight(name):
            self._uids.add(job.uid)
            self._follow(job.state_key, snapshot.revision, self._state)
            for handle in handles:
                self._follow_line(handle.queue, snapshot.revision)
            for first in range(0, len(handles), _PAGE):
                wanted = [
                    handle_key(self._mesh, job.uid, handle)
                    for handle in handles[first : first + _PAGE]
                ]
                found = await self._mesh.store.get(wanted)
                yield [kv for kv in found.kvs if kv.create_revision]

    async def _begin_namespace(self) -> AsyncGenerator[list[KeyValue], None]:
        """Yields a namespace's runs in flight, and follows them."""
        namespace = self._name.namespace
        runs = keys.RUNS + namespace.encode() + b"/"
        token, followed = b"", False
        while True:
            page = await self._mesh.store.scan(
                keys.ACTIVE, prefix_end(keys.ACTIVE), limit=_PAGE, page_token=token
            )
            if not followed:
                self._follow(keys.ACTIVE, page.revision, _of_namespace(namespace))
                self._follow(runs, page.revision, _all)
                followed = True
            yield [kv for kv in page.kvs if _of_namespace(namespace)(kv)]
            token = page.next_token
            if not token:
                return

    # Feeds ------------------------------------------------------------------------------------

    def _expect_end(self, new: Place) -> None:
        """Waits for the notice of a new run's end; where that does not come soon, in the store."""

        def follow() -> None:
            self._follow(new.ended, new.made_at, _exactly(new.ended))

        def take(told: asyncio.Future[RunEnd | None]) -> None:
            if self._patience is not None:
                self._patience.cancel()
            if self._closed:
                return
            end = told.result()
            if end is None:
                follow()
            else:
                self.inbox.add([KeyValue(new.ended, end.record, end.revision, end.revision, 1)])

        told = self._mesh.ends.of(new.handle)
        if told is None:
            follow()
            return
        if not told.done():
            self._patience = asyncio.get_running_loop().call_later(_NOTICE_S, follow)
        told.add_done_callback(take)

    def _follow(self, prefix: bytes, revision: int, interpret: Interpret) -> None:
        """Follows what changes below a prefix after a revision, once."""
        if prefix not in self._feeds:
            feed = self._feed(prefix, revision, interpret)
            self._feeds[prefix] = asyncio.create_task(feed, name="watch-runs")

    def _follow_line(self, queue: str, revision: int) -> None:
        shard = keys.shard_of(queue, self._mesh.queue_shards)
        self._follow(keys.active_prefix(shard, queue), revision, self._of_job)

    async def _feed(self, prefix: bytes, revision: int, interpret: Interpret) -> None:
        store, told, pause_s = self._mesh.store, revision, _FIRST_PAUSE_S
        lost = False
        while True:
            try:
                if lost:
                    told, lost = await self._read_run(), False
                async with aclosing(store.watch(prefix, told + 1)) as batches:
                    async for batch in batches:
                        kvs = [
                            found
                            for changes in batch.revisions
                            for event in changes.events
                            if event.kind is EventKind.PUT
                            for found in interpret(event.kv)
                        ]
                        if kvs:
                            await self.inbox.put(kvs)
                        told = max(told, batch.progress_revision)
                        pause_s = _FIRST_PAUSE_S
            except (Compacted, SlowWatcher) as error:
                if self._name.run and isinstance(error, Compacted):
                    lost = True
                    continue
                self.inbox.fail(SlowWatcher("changes came faster than they were read; watch again"))
                return
            except (Unavailable, DeadlineExceeded):
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            except SextonError as error:
                self.inbox.fail(error)
                return

    async def _read_run(self) -> int:
        """Tells how the one run stands whose changes are lost, and returns as of when.

        Raises:
            NotFound: it is no longer kept.

        """
        found = await self._finder.find(self._name)
        if found is None:
            raise NotFound("run", str(self._name))
        if kvs := self._stand(found):
            await self.inbox.put(kvs)
        return found.as_of

    def _definition(self, key: bytes) -> Interpret:
        """Returns what follows a new incarnation of the job."""

        def interpret(kv: KeyValue) -> Iterable[KeyValue]:
            if kv.key == key:
                uid = records.JobRecord.FromString(kv.value).uid
                self._uids.add(uid)
                job = self._mesh.jobs.name_of(self._name.namespace, self._name.job, uid)
                self._follow(job.state_key, kv.mod_revision - 1, self._state)
            return ()

        return interpret

    def _state(self, kv: KeyValue) -> Iterable[KeyValue]:
        """Follows the lines in which a job's runs stand: the state's own commit made them."""
        for name in records.StateRecord.FromString(kv.value).live:
            self._follow_line(handle_of(name).queue, kv.mod_revision - 1)
        return ()

    def _of_job(self, kv: KeyValue) -> Iterable[KeyValue]:
        return (kv,) if keys.parse_handle_key(kv.key).uid in self._uids else ()

    # Messages ---------------------------------------------------------------------------------

    def _messages(self, kvs: Iterable[KeyValue], *, synced: bool) -> list[api.WatchRunsResponse]:
        """Returns what is new as messages of bounded size."""
        messages: list[api.WatchRunsResponse] = []
        size = 0
        for kv in kvs:
            record = records.RunRecord.FromString(kv.value)
            key = (record.template.job_uid, record.run_id)
            before = self._told.get(key)
            if before is not None and (before.ended or before.revision >= kv.mod_revision):
                continue
            ended = not kv.key.startswith(keys.ACTIVE)
            self._told[key] = _Told(kv.mod_revision, ended)
            self._told.move_to_end(key)
            if len(self._told) > _MAX_REMEMBERED:
                self._told.popitem(last=False)
            self._ended = ended and bool(self._name.run)
            run = run_message(record, kv.mod_revision, full=bool(self._name.run))
            size += run.ByteSize()
            if not messages or size > BYTES_PER_MESSAGE:
                messages.append(api.WatchRunsResponse(synced=synced))
                size = 0
            messages[-1].runs.append(run)
        return messages


class _Inbox:
    """What the feeds of one stream bring, bounded: they wait while the caller does not read."""

    def __init__(self) -> None:
        self._batches: deque[list[KeyValue]] = deque()
        self._error: SextonError | None = None
        self._some = asyncio.Event()
        self._room = asyncio.Event()

    async def put(self, kvs: list[KeyValue]) -> None:
        """Adds a batch, when there is room."""
        while len(self._batches) >= MAX_BATCHES:
            self._room.clear()
            await self._room.wait()
        self.add(kvs)

    def add(self, kvs: list[KeyValue]) -> None:
        """Adds a batch, room or none."""
        self._batches.append(kvs)
        self._some.set()

    def fail(self, error: SextonError) -> None:
        """Ends the stream, after what was added before."""
        self._error = self._error or error
        self._some.set()

    async def take(self) -> list[KeyValue]:
        """Waits for changes; raises what a feed ended with."""
        await self._some.wait()
        if not self._batches:
            assert self._error is not None, "there is something, or the end"
            raise self._error
        kvs = [kv for batch in self._batches for kv in batch]
        self._batches.clear()
        self._room.set()
        if self._error is None:
            self._some.clear()
        return kvs


def _ended_key(found: FoundRun) -> bytes:
    """Returns the key of a run's record once it has ended."""
    job = found.record.template
    return keys.run_key(job.namespace, job.job, job.job_uid, found.record.run_id)


def _all(kv: KeyValue) -> Iterable[KeyValue]:
    return (kv,)


def _exactly(key: bytes) -> Interpret:
    return lambda kv: (kv,) if kv.key == key else ()


def _of_namespace(namespace: str) -> Interpret:
    def interpret(kv: KeyValue) -> Iterable[KeyValue]:
        template = records.RunRecord.FromString(kv.value).template
        return (kv,) if template.namespace == namespace else ()

    return interpret


def _stopping() -> Unavailable:
    return Unavailable("this replica is stopping; watch again, at another one")

"""Finds a run by its name: in flight, or ended, of this incarnation of its job or a former one.

Where a job's incarnation and a run's keys were found is remembered. A run never moves but once, to
its end, so that its keys tell all about it at once; an incarnation may be another by now, which
whoever uses it finds out: by reading it together with the definition, or from the leader.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

from sexton.internal.v1 import records_pb2 as records
from sexton.v1 import run_pb2
from sexton_coordinator.api.checks import Name
from sexton_coordinator.api.showing import handle_key
from sexton_coordinator.mesh import Mesh
from sexton_coordinator.writes import JobName
from sexton_core.ids import RunId, parse_run_id
from sexton_core.policy.state import Handle
from sexton_core.words import Origin
from sexton_records import keys
from sexton_records.state import handle_of
from sexton_records.times import instant_of
from sexton_runtime.kv.types import KeyValue, prefix_end

MAX_INCARNATIONS: Final = 100
"""Former incarnations of a job whose runs are looked through."""

_MAX_DELETED: Final = 1_000
"""Deleted jobs of a shard that are looked through: they are there until their runs have ended."""

_MOST_REMEMBERED: Final = 2_000
"""Jobs, and runs, of which it is remembered where they are, at about 600 bytes each."""

_AFTER_SLASH: Final = b"0"

Value = TypeVar("Value")


class FoundRun(NamedTuple):
    """A run as read.

    handle: its key while it is in flight; empty: it has ended.
    as_of: revision of the snapshot that it was read from.
    """

    record: records.RunRecord
    revision: int
    handle: bytes
    as_of: int


class Place(NamedTuple):
    """The keys of a run: in flight (empty: not known), and once it has ended.

    made_at: revision of the commit that made it; 0: not known.
    """

    handle: bytes
    ended: bytes
    made_at: int = 0


class RunFinder:
    """Finds runs."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._jobs = _Latest[JobName]()
        self._places = _Latest[Place]()

    def remembered(self, name: Name) -> JobName | None:
        """Returns a job's incarnation as it was last seen; it may be another by now."""
        return self._jobs.get(name)

    def forget(self, name: Name) -> None:
        """Forgets a job's incarnation."""
        self._jobs.forget(name)

    def remember_run(self, name: Name, run: run_pb2.Run, made_at: int) -> None:
        """Remembers where a run of a job is that was made a moment ago, at a revision, if known."""
        run_id = run.name.rpartition("/")[2]
        handle = Handle(run_id, run.queue, run.priority, instant_of(run.not_before_time))
        key = handle_key(self._mesh, run.job_uid, handle)
        ended = keys.run_key(name.namespace, name.job, run.job_uid, run_id)
        self._places.put(name._replace(run=run_id), Place(key, ended, made_at))

    def take_new(self, name: Name) -> Place | None:
        """Returns where a run is that was made a moment ago, once; None: it is to be found."""
        place = self._places.get(name)
        if place is None or not place.made_at:
            return None
        self._places.put(name, place._replace(made_at=0))
        return place

    async def find(self, name: Name) -> FoundRun | None:
        """Returns a run; None: there is none, or it is no longer kept."""
        place = self._places.get(name)
        if place is not None:
            found = await self._at(place)
            if found is not None:
                return found
        found = await self._search(name)
        if found is not None:
            job = found.record.template
            ended = keys.run_key(job.namespace, job.job, job.job_uid, name.run)
            self._places.put(name, Place(found.handle, ended))
        return found

    async def _search(self, name: Name) -> FoundRun | None:
        """Finds a run by what its job's incarnations say."""
        run_id = name.run
        hint = uid_hint(run_id)
        async for job, handles in self.in_flight(name, hint):
            found = await self.of_incarnation(job, handles, run_id)
            if found is not None:
                return found
        async for uid in self.incarnations(name, hint):
            ended = keys.run_key(name.namespace, name.job, uid, run_id)
            found = await self._at(Place(b"", ended))
            if found is not None:
                return found
        return None

    async def exists(self, name: Name) -> bool:
        """Tells whether there is a job, or a run of one of its former incarnations."""
        if await self.current(name) is not None:
            return True
        async for _ in self.in_flight(name):
            return True
        async for _ in self.incarnations(name):
            return True
        return False

    async def current(self, name: Name) -> JobName | None:
        """Returns a job's present incarnation."""
        key = keys.job_key(name.namespace, name.job)
        (kv,) = (await self._mesh.store.get([key])).kvs
        return self._named(name, kv)

    def _named(self, name: Name, kv: KeyValue) -> JobName | None:
        """Returns the incarnation that a definition is of, and remembers it."""
        job = name._replace(run="")
        if not kv.create_revision:
            self._jobs.forget(job)
            return None
        uid = records.JobRecord.FromString(kv.value).uid
        known = self._jobs.get(job)
        if known is None or known.uid != uid:
            known = self._mesh.jobs.name_of(name.namespace, name.job, uid)
        self._jobs.put(job, known)
        return known

    async def _current_state(self, name: Name) -> tuple[JobName | None, KeyValue | None]:
        """Reads a job's present incarnation and its state, in one call if it is remembered."""
        guess = self._jobs.get(name._replace(run=""))
        wanted = [keys.job_key(name.namespace, name.job)]
        wanted += [guess.state_key] if guess is not None else []
        definition, *states = (await self._mesh.store.get(wanted)).kvs
        job = self._named(name, definition)
        if job is None:
            return None, None
        if guess is None or guess.uid != job.uid:
            states = list((await self._mesh.store.get([job.state_key])).kvs)
        return job, states[0]

    async def in_flight(
        self, name: Name, hint: str = ""
    ) -> AsyncIterator[tuple[JobName, list[Handle]]]:
        """Yields what may be in flight of each incarnation whose uid begins with `hint`."""
        job, kv = await self._current_state(name)
        if job is not None and kv is not None and job.uid.startswith(hint):
            live = records.StateRecord.FromString(kv.value).live
            yield job, [handle_of(handle) for handle in live]
        for shard in range(self._mesh.coordinator_shards):
            prefix = keys.deleted_prefix(shard)
            start = prefix + hint.encode()
            page = await self._mesh.store.scan(start, prefix_end(start), limit=_MAX_DELETED)
            for kv in page.kvs:
                deleted = records.DeletedRecord.FromString(kv.value)
                if (deleted.namespace, deleted.job) == (name.namespace, name.job):
                    uid = kv.key[len(prefix) :].decode()
                    yield (
                        JobName(name.namespace, name.job, uid, shard),
                        [handle_of(handle) for handle in deleted.live],
                    )

    async def of_incarnation(
        self, job: JobName, live: Iterable[Handle], run_id: RunId
    ) -> FoundRun | None:
        """Returns a run of one incarnation: in flight if `live` names it, else ended."""
        handle = next((handle for handle in live if handle.run_id == run_id), None)
        key = b"" if handle is None else handle_key(self._mesh, job.uid, handle)
        return await self._at(Place(key, keys.run_key(job.namespace, job.job, job.uid, run_id)))

    async def incarnations(self, name: Name, hint: str = "") -> AsyncIterator[str]:
        """Yields the uids under which ended runs of a job are kept, at most `MAX_INCARNATIONS`."""
        prefix = keys.runs_prefix(name.namespace, name.job)
        start, end = prefix + hint.encode(), prefix_end(prefix + hint.encode())
        for _ in range(MAX_INCARNATIONS):
            page = await self._mesh.store.scan(start, end, limit=1, keys_only=True)
            if not page.kvs:
                return
            uid = page.kvs[0].key[len(prefix) :].split(b"/")[0]
            yield uid.decode()
            start = prefix + uid + _AFTER_SLASH

    async def _at(self, place: Place) -> FoundRun | None:
        """Reads a run at its keys, in one snapshot: it ends in one commit, so it is at one."""
        wanted = [key for key in (place.handle, place.ended) if key]
        snapshot = await self._mesh.store.get(wanted)
        for key, kv in zip(wanted, snapshot.kvs, strict=True):
            if kv.create_revision:
                return found_run(kv, key if key == place.handle else b"", snapshot.revision)
        return None


class _Latest(Generic[Value]):
    """Remembers something of the latest names."""

    def __init__(self) -> None:
        self._values: OrderedDict[Name, Value] = OrderedDict()

    def get(self, name: Name) -> Value | None:
        return self._values.get(name)

    def put(self, name: Name, value: Value) -> None:
        self._values[name] = value
        self._values.move_to_end(name)
        if len(self._values) > _MOST_REMEMBERED:
            self._values.popitem(last=False)

    def forget(self, name: Name) -> None:
        self._values.pop(name, None)


def found_run(kv: KeyValue, handle: bytes, as_of: int = 0) -> FoundRun:
    """Returns the run of a record as read from a snapshot."""
    return FoundRun(records.RunRecord.FromString(kv.value), kv.mod_revision, handle, as_of)


def uid_hint(run_id: RunId) -> str:
    """Returns with what the uid of a run's job begins, as far as the run's id tells."""
    parsed = parse_run_id(run_id)
    return parsed.source if parsed.origin is Origin.SCHEDULE else ""

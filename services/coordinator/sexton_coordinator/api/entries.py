"""The jobs of a file on their way through an apply, and the answer about them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from sexton.errors import InvalidArgument
from sexton.internal.v1 import records_pb2 as records
from sexton.v1 import scheduler_pb2 as api
from sexton.v1.job_pb2 import Job, JobSpec
from sexton_coordinator.api import checks
from sexton_coordinator.api.checks import Name
from sexton_coordinator.api.definitions import Checked, Uids, check_spec, require_a_time
from sexton_coordinator.api.refusals import Refusals
from sexton_coordinator.jobs_store import get_all
from sexton_coordinator.mesh import Mesh
from sexton_coordinator.templates import Template
from sexton_coordinator.writes import JobName
from sexton_core.policy.state import Handle
from sexton_records import keys
from sexton_runtime.kv.types import Txn

YIELD_EVERY: Final = 20
"""Jobs worked on in one go, some milliseconds: the leader's lease is renewed on the same loop."""

_LOOKED_UP: Final = 200
"""Jobs read together, to see which of them stand there as they are given."""

EXTRAS_BYTES: Final = 512 * 1024
"""Of an answer of at most 4 MiB, for what GetJob tells too; the rest is 260 bytes per job."""
_PLAIN_BYTES: Final = 260
_TIME_BYTES: Final = 14

_NOTHING: Final = api.AppliedJob()
"""Stands for an answer that is not known yet, or not needed any more; never changed."""
_NO_RUNS: Final[tuple[str, Sequence[Handle]]] = ("", ())


class Entry:
    """One job on its way.

    spec: as it was given.
    checked: as it would be of a new job; None: so it stood there already, and was checked then.
    fresh: the incarnation that it was checked for, until it is used; None: as it would be of any.
    txn: what is to be committed; None: nothing.
    size_bytes: of the keys and values that the commit writes.
    applied: the answer. That about a new job is shared with others: name, uid and etag are left
        out.
    uid: of a new job.
    etag: once it is written.
    live: of a job that stood there before: its uid, and the runs that its state names.
    """

    __slots__ = (
        "applied",
        "checked",
        "etag",
        "fresh",
        "key",
        "live",
        "name",
        "size_bytes",
        "spec",
        "txn",
        "uid",
    )

    def __init__(self, name: Name, key: bytes, spec: JobSpec) -> None:
        self.name: Final = name
        self.key: Final = key
        self.spec: Final = spec
        self.checked: Checked | None = None
        self.fresh: JobName | None = None
        self.txn: Txn | None = None
        self.size_bytes = 0
        self.applied = _NOTHING
        self.uid = ""
        self.etag = ""
        self.live: tuple[str, Sequence[Handle]] = _NO_RUNS

    @property
    def wanted(self) -> JobSpec:
        """Returns the definition with every default written out."""
        return self.spec if self.checked is None else self.checked.spec

    def check(self, known: Known) -> Checked:
        """Checks the definition, once.

        Raises:
            InvalidArgument: it can't be used.

        """
        if self.checked is None:
            self.checked, self.fresh = known.check(self.name, self.spec)
        return self.checked

    def tell(self, answer: api.ApplyJobsResponse, room: int) -> int:
        """Adds to an answer what became of it, and forgets it; `room` as of `trim`."""
        applied = answer.jobs.add()
        applied.CopyFrom(self.applied)
        if self.uid:
            applied.job.name, applied.job.uid = str(self.name), self.uid
        if self.etag:
            applied.job.etag = self.etag
        self.applied, self.txn, self.live = _NOTHING, None, _NO_RUNS
        return trim(applied, room)


class Known:
    """What the definitions of one request come to, equal ones once; and the uids of its jobs."""

    def __init__(self, mesh: Mesh) -> None:
        self.uids: Final = Uids(mesh.randomness)
        self._mesh = mesh
        self._shared: dict[Template, Checked] = {}

    def check(self, name: Name, spec: JobSpec) -> tuple[Checked, JobName | None]:
        """Checks the definition of a new job; gives with it the incarnation that it is of.

        None: it is as it would be of any other.

        Raises:
            InvalidArgument: it can't be used.

        """
        reader = self._mesh.jobs
        template = reader.shared_template(spec, 1)
        checked = None if template is None else self._shared.get(template)
        if checked is not None:
            return checked, None
        fresh = reader.name_of(name.namespace, name.job, self.uids.take())
        checked = check_spec(reader, fresh, spec, 1, self._mesh.now())
        if not checked.template.shared:
            return checked, fresh
        self.uids.give_back(fresh.uid)
        self._shared[checked.template] = checked
        return checked, None


async def check_all(mesh: Mesh, request: api.ApplyJobsRequest, known: Known) -> list[Entry]:
    """Checks all jobs of a request, as it stands before anything is written.

    Raises:
        InvalidArgument: some can't be used.

    """
    refusals = Refusals("job", len(request.jobs))
    entries: list[Entry] = []
    seen: set[bytes] = set()
    look = True
    for first in range(0, len(request.jobs), _LOOKED_UP):
        part = [_entry_of(job, seen) for job in request.jobs[first : first + _LOOKED_UP]]
        new = [entry for entry in part if isinstance(entry, Entry)]
        same = await _that_stand(mesh, new) if look else set()
        look = bool(same)  # a file that has brought only what is new is taken to go on so
        for index, entry in enumerate(part, first):
            if index % YIELD_EVERY == 0:
                await asyncio.sleep(0)
            refused = entry if isinstance(entry, InvalidArgument) else None
            if isinstance(entry, Entry) and entry.key not in same:
                refused = _refusal(entry, known)
            if refused is not None:
                refusals.add(f"jobs[{index}]", request.jobs[index].name, refused)
        entries += new
    refusals.refuse()
    await _require_times(mesh, entries, known, refusals)
    return entries


def _entry_of(job: Job, seen: set[bytes]) -> Entry | InvalidArgument:
    """Returns what a job becomes on its way, or why its name can't be used."""
    try:
        name = checks.job_name("name", job.name)
    except InvalidArgument as error:
        return error
    key = keys.job_key(name.namespace, name.job)
    if key in seen:
        return InvalidArgument("name", job.name, "each name once")
    seen.add(key)
    return Entry(name, key, job.spec)


def _refusal(entry: Entry, known: Known) -> InvalidArgument | None:
    """Returns why a definition can't be used; None: it can."""
    try:
        entry.check(known)
    except InvalidArgument as error:
        return error
    return None


async def _that_stand(mesh: Mesh, entries: Sequence[Entry]) -> set[bytes]:
    """Returns the keys of the jobs that have the very definition that is given."""
    kvs = await get_all(mesh.store, [entry.key for entry in entries])
    return {
        kv.key
        for entry, kv in zip(entries, kvs, strict=True)
        if kv.create_revision and records.JobRecord.FromString(kv.value).spec == entry.spec
    }


async def _require_times(
    mesh: Mesh, entries: Sequence[Entry], known: Known, refusals: Refusals
) -> None:
    """Refuses schedules that are over, unless they are those of jobs that stand there already."""
    now = mesh.now()
    over = [
        (number, entry)
        for number, entry in enumerate(entries)
        if entry.checked is not None
        and (schedule := entry.checked.definition.schedule) is not None
        and schedule.next_after(now) is None
    ]
    kvs = await get_all(mesh.store, [entry.key for _, entry in over])
    for (number, entry), kv in zip(over, kvs, strict=True):
        before = records.JobRecord.FromString(kv.value).spec.schedules
        if kv.create_revision and list(before) == list(entry.wanted.schedules):
            continue  # its times are over, and it may still be edited
        with refusals.collecting(f"jobs[{number}]", str(entry.name)):
            require_a_time(entry.check(known).definition, now)
    refusals.refuse()


def trim(applied: api.AppliedJob, room: int) -> int:
    """Leaves out what GetJob tells too where an answer would grow too large.

    Returns the bytes that are left for the jobs after it.
    """
    size = max(0, applied.ByteSize() - _PLAIN_BYTES)
    if size <= room:
        return room - size
    job = applied.job
    for times in (applied.gained_times, applied.lost_times):
        room -= _TIME_BYTES * len(times)
        if room < 0:
            del times[:]
            room = 0
    for texts, notice in (
        (applied.changed_paths, "*"),
        (job.warnings, "there are warnings; GetJob has them"),
        (job.notices, "there are notices; GetJob has them"),
        (job.live_runs, ""),
    ):
        size = sum(len(text.encode()) + 3 for text in texts)
        if size > room:
            del texts[:]
            texts.extend(filter(None, [notice]))
        else:
            room -= size
    for name, size in (("source", len(job.source.encode())), ("spec", job.spec.ByteSize())):
        if size > room:
            job.ClearField(name)  # type: ignore[arg-type]  # both are fields of a job
        else:
            room -= size
    return room

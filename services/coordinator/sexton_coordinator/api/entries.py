"""The jobs of a file on their way through an apply, and the answer about them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from sexton.errors import InvalidArgument
from sexton.internal.v1 import records_pb2 as records
from sexton.v1 import scheduler_pb2 as api
from sexton.v1.job_pb2 import JobSpec
from sexton_coordinator.api import checks
from sexton_coordinator.api.checks import Name
from sexton_coordinator.api.definitions import Checked, check_spec, new_name, require_a_time
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

EXTRAS_BYTES: Final = 512 * 1024
"""Of an answer of at most 4 MiB, for what GetJob tells too; the rest is 260 bytes per job."""
_PLAIN_BYTES: Final = 260
_TIME_BYTES: Final = 14


@dataclass(slots=True, kw_only=True)
class Entry:
    """One job on its way."""

    name: Name
    key: bytes
    checked: Checked
    """As it would be of a new job."""
    fresh: JobName | None
    """The incarnation that it was checked for, until it is used; None: as it would be of any."""
    txn: Txn | None = None
    """What is to be committed; None: nothing."""
    applied: api.AppliedJob = field(default_factory=api.AppliedJob)
    """The answer. That about a new job is shared with others: name, uid and etag are left out."""
    uid: str = ""
    """Of a new job."""
    etag: str = ""
    """Once it is written."""
    live: tuple[str, Sequence[Handle]] = ("", ())
    """Of a job that stood there before: its uid, and the runs that its state names."""

    def tell(self, answer: api.ApplyJobsResponse, room: int) -> int:
        """Adds to an answer what became of it, and forgets it; `room` as of `trim`."""
        applied = answer.jobs.add()
        applied.CopyFrom(self.applied)
        if self.uid:
            applied.job.name, applied.job.uid = str(self.name), self.uid
        if self.etag:
            applied.job.etag = self.etag
        self.applied, self.txn, self.live = api.AppliedJob(), None, ("", ())
        return trim(applied, room)


async def check_all(mesh: Mesh, request: api.ApplyJobsRequest) -> list[Entry]:
    """Checks all jobs of a request, as it stands before anything is written.

    Raises:
        InvalidArgument: some can't be used.

    """
    refusals = Refusals("job", len(request.jobs))
    entries: list[Entry] = []
    seen: set[Name] = set()
    shared: dict[Template, Checked] = {}
    for index, job in enumerate(request.jobs):
        if index % YIELD_EVERY == 0:
            await asyncio.sleep(0)
        try:
            name = _new_one(job.name, seen)
            entries.append(_checked(mesh, name, job.spec, shared))
        except InvalidArgument as error:
            refusals.add(f"jobs[{index}]", job.name, error)
    refusals.refuse()
    await _require_times(mesh, entries, refusals)
    return entries


def _new_one(text: str, seen: set[Name]) -> Name:
    name = checks.job_name("name", text)
    if name in seen:
        raise InvalidArgument("name", text, "each name once")
    seen.add(name)
    return name


def _checked(mesh: Mesh, name: Name, spec: JobSpec, shared: dict[Template, Checked]) -> Entry:
    """Checks one job; `shared` holds what was found out about definitions that others have too."""
    key = keys.job_key(name.namespace, name.job)
    template = mesh.jobs.shared_template(spec, 1)
    checked = None if template is None else shared.get(template)
    if checked is not None:
        return Entry(name=name, key=key, checked=checked, fresh=None)
    fresh = new_name(mesh.jobs, name, mesh.randomness)
    checked = check_spec(mesh.jobs, fresh, spec, 1, mesh.now())
    if not checked.template.shared:
        return Entry(name=name, key=key, checked=checked, fresh=fresh)
    shared[checked.template] = checked
    return Entry(name=name, key=key, checked=checked, fresh=None)


async def _require_times(mesh: Mesh, entries: Sequence[Entry], refusals: Refusals) -> None:
    """Refuses schedules that are over, unless they are those of jobs that stand there already."""
    now = mesh.now()
    over = [
        (number, entry)
        for number, entry in enumerate(entries)
        if (schedule := entry.checked.definition.schedule) is not None
        and schedule.next_after(now) is None
    ]
    kvs = await get_all(mesh.store, [entry.key for _, entry in over])
    for (number, entry), kv in zip(over, kvs, strict=True):
        before = records.JobRecord.FromString(kv.value).spec.schedules
        if kv.create_revision and list(before) == list(entry.checked.spec.schedules):
            continue  # its times are over, and it may still be edited
        with refusals.collecting(f"jobs[{number}]", str(entry.name)):
            require_a_time(entry.checked.definition, now)
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

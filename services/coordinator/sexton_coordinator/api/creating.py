"""New jobs of a file: what those with the same definition share is made once.

Of a job alone are its name, its uid and its keys. All else of its records and of the answer is the
same for every job with this definition that is created at the same instant, and is kept as bytes
and as a message to be copied.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sexton.internal.v1 import records_pb2 as records
from sexton.v1 import scheduler_pb2 as api
from sexton_coordinator.api import checks
from sexton_coordinator.api.changes import note_timer
from sexton_coordinator.api.checks import Name
from sexton_coordinator.api.definitions import SPEC, Checked, check_spec, draw_uids
from sexton_coordinator.api.editing import first_record
from sexton_coordinator.api.showing import full_message
from sexton_coordinator.mesh import Mesh
from sexton_coordinator.templates import Template
from sexton_coordinator.writes import JobName
from sexton_core.instants import MILLISECOND, Duration, Instant
from sexton_records import keys
from sexton_records.state import encode_state
from sexton_runtime.kv.types import Put, Txn, absent

_SAME_NS: Final[Duration] = 200 * MILLISECOND
"""How long jobs are created at one instant: far less than the time that a commit may take."""
_UIDS_AT_ONCE: Final = 50
"""Drawn together: each draw asks the operating system."""
_ALIKE: Final = 2
"""Characters with which the uids of one request begin, 10 of 120 bits. So their states stand near
each other: of a million jobs, each new one would otherwise have a page of the store to itself."""


class Created(NamedTuple):
    """A job that is to be created: its uid, its commit, and the answer but for name and uid."""

    uid: str
    txn: Txn
    answer: api.AppliedJob


class _Kind(NamedTuple):
    """What the jobs share that have one definition and are created at one instant."""

    record: bytes
    """The record of a job, but for its uid."""
    state: bytes
    """The state of a job, but for its name."""
    timer: Instant | None
    not_after: Instant
    answer: api.AppliedJob


class Creator:
    """Computes the commits of the new jobs of one request."""

    def __init__(self, mesh: Mesh, source: str) -> None:
        self._mesh = mesh
        self._source = source
        self._now: Instant = 0
        self._kinds: dict[Template, _Kind] = {}
        self._uids: list[str] = []
        self._beginning = ""

    def create(self, name: Name, checked: Checked, fresh: JobName | None) -> Created:
        """Computes a job's commit; `fresh`: the incarnation that it was checked for.

        Raises:
            InvalidArgument: no time is left that its schedules ask for.

        """
        mesh = self._mesh
        now = mesh.now()
        if not self._now <= now < self._now + _SAME_NS:
            self._now = now
            self._kinds.clear()
        job = fresh or mesh.jobs.name_of(name.namespace, name.job, self._new_uid())
        if checked.template.shared:
            kind = self._kinds.get(checked.template)
            if kind is None:
                kind = self._kinds[checked.template] = self._kind(job, checked)
        else:
            if fresh is None or any(each.max_runs for each in checked.spec.schedules):
                # What was checked was another incarnation; and runs are counted from now on.
                checked = check_spec(mesh.jobs, job, checked.spec, 1, self._now)
            kind = self._kind(job, checked)
        return Created(job.uid, _txn(job, kind), kind.answer)

    def _new_uid(self) -> str:
        if not self._uids:
            self._uids = draw_uids(self._mesh.randomness, _UIDS_AT_ONCE)
            self._beginning = self._beginning or self._uids[0][:_ALIKE]
        return self._beginning + self._uids.pop()[_ALIKE:]

    def _kind(self, name: JobName, checked: Checked) -> _Kind:
        now = self._now
        with checks.refusing(SPEC):
            record, change = first_record(name, checked, now)
        record.source = self._source
        note_timer(record, change.next_due)
        message = full_message(name, record, change.state, checked.definition, revision=0, now=now)
        for own in (record, message):
            own.ClearField("uid")
        message.ClearField("name")
        return _Kind(
            record=record.SerializeToString(),
            state=encode_state(change.state, change.next_due),
            timer=change.next_due,
            not_after=change.not_after,
            answer=api.AppliedJob(job=message, change=api.AppliedJob.CHANGE_CREATED),
        )


def _txn(name: JobName, kind: _Kind) -> Txn:
    """Returns the commit of a job: messages that are put together are read as one.

    A state begins with the fields, namespace and job, of which a timer's record is made.
    """
    job_key, state_key = name.job_key, name.state_key
    record = records.JobRecord(uid=name.uid).SerializeToString() + kind.record
    then = [Put(job_key, record), Put(state_key, name.timer_value + kind.state)]
    if kind.timer is not None:
        then.append(Put(keys.timer_key(name.shard, kind.timer, name.uid), name.timer_value))
    return Txn(
        compares=(absent(job_key), absent(state_key)),
        then=tuple(then),
        not_after_ns=kind.not_after,
    )

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
from sexton_coordinator.api.definitions import SPEC, Checked, Uids, check_spec
from sexton_coordinator.api.editing import first_record
from sexton_coordinator.api.showing import complete, set_standing
from sexton_coordinator.mesh import Mesh
from sexton_coordinator.templates import Template
from sexton_coordinator.writes import JobName
from sexton_core.ids import UID_ENTROPY_BYTES, make_uid
from sexton_core.instants import MILLISECOND, Duration, Instant
from sexton_records import keys
from sexton_records.state import encode_state, encode_timer
from sexton_runtime.kv.types import Compare, Put, Target, Txn

_SAME_NS: Final[Duration] = 200 * MILLISECOND
"""How long jobs are created at one instant: far less than the time that a commit may take."""
_UID: Final = make_uid(bytes(UID_ENTROPY_BYTES))
_UID_HEAD: Final = records.JobRecord(uid=_UID).SerializeToString().removesuffix(_UID.encode())
"""What stands before the uid where a job's record begins with it: uids are all equally long."""
_make = tuple.__new__
"""Makes a named tuple of what is known to be whole; its own constructor costs twice as much."""


class Created(NamedTuple):
    """A job that is to be created: its uid, its commit, and the answer but for name and uid.

    size_bytes: of the keys and values that the commit writes.
    """

    uid: str
    txn: Txn
    size_bytes: int
    answer: api.AppliedJob


class _Kind(NamedTuple):
    """What the jobs share that have one definition and are created at one instant."""

    record: bytes
    """The record of a job, but for its uid."""
    state: bytes
    """The state of a job, but for its name."""
    timer: Instant | None
    timer_stems: dict[int, bytes]
    """Of each shard, the key of a job's timer but for its uid."""
    not_after: Instant
    answer: api.AppliedJob


class Creator:
    """Computes the commits of the new jobs of one request."""

    def __init__(self, mesh: Mesh, source: str, uids: Uids) -> None:
        self._mesh = mesh
        self._source = source
        self._uids = uids
        self._now: Instant = 0
        self._kinds: dict[Template, _Kind] = {}

    def look_at_time(self) -> None:
        """Goes on to a later instant where the last one has become too old; to be called often."""
        now = self._mesh.now()
        if not self._now <= now < self._now + _SAME_NS:
            self._now = now
            self._kinds.clear()

    def create(self, name: Name, key: bytes, checked: Checked, fresh: JobName | None) -> Created:
        """Computes a job's commit, at the instant that was looked at.

        Args:
            name: its name.
            key: that of its definition.
            checked: its definition.
            fresh: the incarnation that it was checked for; None: any.

        Raises:
            InvalidArgument: no time is left that its schedules ask for.

        """
        uid = self._uids.take() if fresh is None else fresh.uid
        template = checked.template
        kind = self._kinds.get(template)
        if kind is None:
            job = fresh or self._mesh.jobs.name_of(name.namespace, name.job, uid)
            if not template.shared and (
                fresh is None or any(each.max_runs for each in checked.spec.schedules)
            ):
                # What was checked was another incarnation; and runs are counted from now on.
                checked = check_spec(self._mesh.jobs, job, checked.spec, 1, self._now)
            kind = self._kind(job, checked)
            if template.shared:
                self._kinds[template] = kind
        return self._created(name, key, uid, kind)

    def _kind(self, name: JobName, checked: Checked) -> _Kind:
        now = self._now
        with checks.refusing(SPEC):
            record, change = first_record(name, checked, now)
        record.source = self._source
        note_timer(record, change.next_due)
        record.ClearField("uid")
        answer = api.AppliedJob(change=api.AppliedJob.CHANGE_CREATED)
        message = answer.job
        message.spec.CopyFrom(checked.spec)
        set_standing(message, record, change.state, now)
        complete(message, checked.definition, now)
        return _Kind(
            record=record.SerializeToString() + checked.template.stored(),
            state=encode_state(change.state, change.next_due),
            timer=change.next_due,
            timer_stems={},
            not_after=change.not_after,
            answer=answer,
        )

    def _created(self, name: Name, key: bytes, uid: str, kind: _Kind) -> Created:
        """Returns a job's commit: messages that are put together are read as one.

        A state begins with the fields, namespace and job, of which a timer's record is made.
        """
        shard = keys.shard_of(uid, self._mesh.coordinator_shards)
        state_key = keys.state_key(shard, uid)
        own = encode_timer(name.namespace, name.job)
        raw_uid = uid.encode()
        record = _UID_HEAD + raw_uid + kind.record
        state = own + kind.state
        then: tuple[Put, ...] = (_make(Put, (key, record)), _make(Put, (state_key, state)))
        size_bytes = len(key) + len(record) + len(state_key) + len(state)
        if kind.timer is not None:
            stem = kind.timer_stems.get(shard)
            if stem is None:
                stem = kind.timer_stems[shard] = keys.timer_key(shard, kind.timer, "")
            timer_key = stem + raw_uid
            then = (*then, _make(Put, (timer_key, own)))
            size_bytes += len(timer_key) + len(own)
        compares = (
            _make(Compare, (key, Target.MOD_REVISION, 0)),
            _make(Compare, (state_key, Target.MOD_REVISION, 0)),
        )
        txn = _make(Txn, (compares, then, (), 0, kind.not_after, False))
        return _make(Created, (uid, txn, size_bytes, kind.answer))

"""A run's record in the pieces that it is written from, so that a write costs what it changes.

A record is what its leader wrote, which stays as it came, followed by what its owner has to say:
concatenated protobuf messages are one message, in which the last value of a field counts and
repeated ones add up. A template is most of a record and shared by all runs of a version: it is read
once.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import worker_pb2
from sexton_core.ids import RunId
from sexton_core.instants import Instant
from sexton_core.runs import WITH_WORKER, Run, RunPolicy
from sexton_core.words import RunState
from sexton_records import keys
from sexton_records.runs import decode_run
from sexton_records.spec import template_policy

RunRecord = pb.RunRecord

MAX_TEMPLATES: Final = 10_000
"""Templates that are remembered, one per version of a job; about 2 KiB each beside its task."""
MAX_POLICIES: Final = 1_000
"""Policies that are remembered: many jobs share one."""

OWNED: Final = (
    "state",
    "not_before_ns",
    "failures",
    "deliveries",
    "started",
    "session",
    "token",
    "cancel",
    "attempts",
    "end_time_ns",
    "result_json",
    "error",
    "completed",
    "deadline_passed",
)
"""What the owner says of a run; everything else of a record is its leader's and for ever."""

_TEMPLATE: Final = 0x0A
"""What the field `template` begins with: its number, 1, and that its length follows."""
_WAITING: Final = RunState.WAITING
_NEW: Final = Run("", RunPolicy(), 0, 0, 0)[5:]
"""What all runs have in common of which no attempt was made."""
_make = tuple.__new__
"""Makes a named tuple of all its parts; its own constructor costs twice as much."""


class Template:
    """What all runs of one version of a job share, and what is made of it for each of them."""

    __slots__ = (
        "assignment",
        "name",
        "policy",
        "priority",
        "queue",
        "requirement",
        "run_keys",
        "run_names",
        "shard",
        "state_key",
        "summary",
        "uid",
    )

    def __init__(self, template: pb.RunTemplate, policy: RunPolicy, shards: int) -> None:
        """Takes a template, its policy, and the number of coordinator shards."""
        namespace, job, uid = template.namespace, template.job, template.job_uid
        self.uid = uid
        self.queue = template.queue
        self.priority = template.priority
        self.policy = policy
        self.requirement = _requirement_of(template)
        self.shard = keys.shard_of(uid, shards)
        """Of the job's coordinator."""
        self.state_key = keys.state_key(self.shard, uid)
        self.run_keys = keys.run_key(namespace, job, uid, "")
        self.name = uid.encode() + b"/"
        """What the names of its runs begin with in keys by time: see `keys.ended_at`."""
        self.run_names = f"namespaces/{namespace}/jobs/{job}/runs/"
        assignment = worker_pb2.Assignment(task=template.task, job_uid=uid)
        self.assignment = assignment.SerializeToString()
        """What all assignments have in common, serialised."""
        self.summary = pb.EndedRecord(namespace=namespace, job=job).SerializeToString()
        """What all entries of the lists of ended runs have in common, serialised."""


class Origin(NamedTuple):
    """What a run's leader wrote: `value` is all of it, serialised."""

    value: bytes
    template: Template
    run_id: RunId
    nominal_ns: Instant
    traceparent: str
    not_before_ns: Instant
    """As it stands in `value`; 0: it does not."""

    @property
    def run_key(self) -> bytes:
        """Where the record is once the run has ended."""
        return self.template.run_keys + self.run_id.encode()

    @property
    def run_name(self) -> str:
        """The run's resource name."""
        return self.template.run_names + self.run_id


class Live(NamedTuple):
    """The attempt that is under way."""

    piece: bytes
    """Its `AttemptRecord`, serialised; the token is not in it before it has been copied."""
    assign_time_ns: Instant


class Record(NamedTuple):
    """A record as it stands, but for what `Run` holds. Nothing in it is ever changed."""

    origin: Origin
    not_before_ns: Instant
    """As recorded; the owner may have put the run off further, by its estimate of the time."""
    past: tuple[bytes, ...] = ()
    """Ended attempts, oldest first, each a serialised record with nothing else."""
    live: Live | None = None
    cancel: pb.CancelRecord | None = None


class RecordReader:
    """Reads records, remembering templates."""

    def __init__(self, coordinator_shards: int) -> None:
        self._shards = coordinator_shards
        self._templates: dict[bytes, Template] = {}
        self._policies: dict[tuple[object, ...], RunPolicy] = {}

    def read(self, value: bytes, revision: int) -> tuple[Record, Run]:
        """Returns a record and its run, as it stood at a revision.

        Whether a live attempt has begun no record knows: it counts as unbegun.

        Raises:
            DecodeError, ValueError, KeyError: it can't be read.

        """
        end = _template_end(value)
        rest = RunRecord.FromString(value[end:])
        if not end or rest.deliveries or rest.state != 1 or rest.HasField("template"):
            return self._read_written(value, revision)
        # No owner has written it: all that an owner writes follows an assignment or is the end.
        field = value[:end]
        template = self._templates.get(field) or self._template(field)
        run_id, not_before = rest.run_id, rest.not_before_ns
        parts = (value, template, run_id, rest.nominal_ns, rest.traceparent, not_before)
        record = _make(Record, (_make(Origin, parts), not_before, (), None, None))
        times = (rest.create_time_ns, rest.due_ns, not_before)
        return record, _make(Run, (run_id, template.policy, *times, *_NEW))

    def _read_written(self, value: bytes, revision: int) -> tuple[Record, Run]:
        """Takes apart what an owner has written."""
        whole = RunRecord.FromString(value)
        template = self._template(RunRecord(template=whole.template).SerializeToString())
        run = decode_run(whole, revision, template.policy)
        if run.state in WITH_WORKER:
            run = run._replace(started=False, ever_started=whole.started)
        attempts = [*whole.attempts]
        live = live_of(attempts.pop()) if attempts and run.state in WITH_WORKER else None
        past = tuple([RunRecord(attempts=[one]).SerializeToString() for one in attempts])
        cancel = whole.cancel if whole.HasField("cancel") else None
        fixed = RunRecord()
        fixed.CopyFrom(whole)
        for field in OWNED:
            fixed.ClearField(field)
        origin = Origin(
            fixed.SerializeToString(), template, run.run_id, whole.nominal_ns, whole.traceparent, 0
        )
        return Record(origin, run.not_before, past, live, cancel), run

    def _template(self, field: bytes) -> Template:
        """Returns the template of a serialised record that has nothing else."""
        known = self._templates.get(field)
        if known is None:
            if len(self._templates) >= MAX_TEMPLATES:
                self._templates.clear()
            template = RunRecord.FromString(field).template
            known = Template(template, self._policy(template), self._shards)
            self._templates[field] = known
        return known

    def _policy(self, template: pb.RunTemplate) -> RunPolicy:
        key = _policy_key(template)
        policy = self._policies.get(key)
        if policy is None:
            if len(self._policies) >= MAX_POLICIES:
                self._policies.clear()
            policy = self._policies[key] = template_policy(template)
        return policy


def live_of(attempt: pb.AttemptRecord) -> Live:
    """Returns an attempt that is under way as a record in pieces has it."""
    return Live(attempt.SerializeToString(), attempt.assign_time_ns)


def only_waits(run: Run) -> bool:
    """Tells whether a run only waits: no session holds it and no timer of its own runs."""
    policy = run.policy
    in_line = run.state is _WAITING or run.state is RunState.RETRYING
    return in_line and policy.deadline_ns is None and policy.start_within_ns is None


def _template_end(value: bytes) -> int:
    """Returns where the template ends that a record begins with; 0: it begins with something else.

    What is too short for its length is told by whoever reads the template.
    """
    if not value or value[0] != _TEMPLATE:
        return 0
    if len(value) > 2 and value[1] >= 0x80 > value[2]:  # almost always
        return 3 + (value[1] & 0x7F | value[2] << 7)
    size = shift = 0
    for index in range(1, min(len(value), 6)):
        byte = value[index]
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return index + 1 + size
        shift += 7
    return 0


def _requirement_of(template: pb.RunTemplate) -> str:
    """Returns what a worker must be able to do for this run: a kind, or a task of Python."""
    kind = template.task.WhichOneof("kind")
    return f"python:{template.task.python.task}" if kind == "python" else str(kind)


def _policy_key(template: pb.RunTemplate) -> tuple[object, ...]:
    """Returns all of a template that its policy is made of."""
    return (
        template.queue,
        template.priority,
        template.timeout_ns,
        template.deadline_ns,
        template.start_within_ns,
        template.at_most_once,
        template.exclusive,
        template.max_attempts,
        template.max_deliveries,
        template.initial_backoff_ns,
        template.multiplier,
        template.max_backoff_ns,
        template.backoff_jitter,
    )

"""Runs in line for tests of the pure machines: an entry, a key, a record, without any store."""

from __future__ import annotations

from typing import Any

from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import job_pb2
from sexton_core.ids import scheduled_run_id
from sexton_core.instants import SECOND, Instant
from sexton_core.policy.state import Handle, NewRun
from sexton_core.schedules import JobIdentity, ScheduleCache
from sexton_core.words import Origin, Reason
from sexton_queue.entries import Entry
from sexton_queue.pieces import RecordReader
from sexton_records import keys, runs, spec
from sexton_runtime.kv.types import KeyValue

UID = "abcdefghijklmnopqrstuvwx"
T: Instant = 1_796_083_200 * SECOND
"""2026-12-01T00:00:00Z."""


def waiting(number: int = 0, *, delay: int = 0, revision: int = 9, **fields: Any) -> KeyValue:
    """Gives a run as its leader has committed it; `number` tells runs apart, in order."""
    task = job_pb2.Task(shell=job_pb2.ShellTask(command="true"))
    message = job_pb2.JobSpec(**({"task": task} | fields))
    identity = JobIdentity(namespace="default", name="nightly", uid=UID)
    definition = spec.decode_definition(message, 1, identity, ScheduleCache())
    template = spec.run_template("default", "nightly", UID, message, definition)
    due = T + number * SECOND
    handle = Handle(
        scheduled_run_id(UID, due), template.queue, template.priority, T + number + delay
    )
    new = NewRun(handle, Origin.SCHEDULE, due, T, 1, Reason.ON_TIME)
    value = pb.RunRecord(template=template).SerializeToString()
    value += runs.new_record(new, T, "").SerializeToString()
    return KeyValue(keys.handle_key(0, UID, handle), value, revision, revision, 1)


def entry_of(kv: KeyValue) -> Entry:
    record, run = RecordReader(coordinator_shards=1).read(kv.value, kv.mod_revision)
    return Entry(kv.key, kv.mod_revision, record, run)


def python_task(name: str) -> job_pb2.Task:
    return job_pb2.Task(python=job_pb2.PythonTask(task=name))

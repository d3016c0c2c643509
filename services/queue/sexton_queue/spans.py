"""The spans of a run's way, written from its record once it has ended: the state rail as a trace.

No span is open while a run is under way, and none costs anything where its run is not sampled. What
failed is written all the same: the traces that somebody will look for are not left to chance.

run             due -> settled; its id is that of the trace context which the leader gave the run
  fire          due -> committed
  push          committed -> in this owner's line, where this owner was told
  line          in line -> assigned, once per attempt
  attempt       assigned -> settled, once per attempt; the worker's span is below it
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import run_pb2
from sexton_core.instants import Instant, format_instant
from sexton_core.runs import STATES
from sexton_core.words import RunState
from sexton_queue.records import RunRecord
from sexton_records.runs import STATE_OF
from sexton_runtime import otlp, semconv
from sexton_runtime.exporting import Exporter

Ended: TypeAlias = Callable[[bytes, str, RunState, Instant], object]
"""Takes the record of a run that has ended, serialised, its trace context, how it ended, and when
it came into this owner's line, or 0."""

_BAD: Final = frozenset(
    {
        run_pb2.ATTEMPT_STATE_FAILED,
        run_pb2.ATTEMPT_STATE_TIMED_OUT,
        run_pb2.ATTEMPT_STATE_LOST,
    }
)
_RAIL: Final = otlp.truth(semconv.RAIL, value=True)
_TEMPLATES: Final = 10_000
"""Of which the attributes are remembered: one per version of a job."""


class _Settled(NamedTuple):
    value: bytes
    arrived_at: Instant


def spans_to(exporter: Exporter) -> Ended:
    """Gives what takes the records of runs that have ended, and has their spans sent."""
    sink = exporter.sink("spans", _encode, semconv.SCOPE_RUN)

    def ended(value: bytes, traceparent: str, state: RunState, arrived_at: Instant) -> None:
        if traceparent.endswith("1") or STATES[state].dead_letter:
            sink.add(_Settled(value, arrived_at))

    return ended


def spans_of(record: RunRecord, arrived_at: Instant = 0) -> list[bytes]:
    """Writes the spans of a run that has ended; none where it has no trace."""
    trace = otlp.trace_of(record.traceparent)
    if trace is None:
        return []
    template = record.template
    shared = _shared(
        template.namespace, template.job, template.version, template.queue, _kind_of(template)
    )
    run_id = record.run_id
    own = otlp.text(semconv.RUN, run_id) + otlp.text(semconv.MESSAGE_ID, run_id) + shared
    due, created = record.due_ns, record.create_time_ns
    root = trace.span_id
    spans = [
        otlp.span(
            trace.trace_id, root, b"", b"run " + template.job.encode(), otlp.INTERNAL,
            min(due, created), record.end_time_ns, own + _run_attributes(record), _error(record),
        ),
        otlp.span(
            trace.trace_id, otlp.derived_span(root, _OF_FIRE), root, semconv.SPAN_FIRE.encode(),
            otlp.PRODUCER, min(due, created), created, _RAIL + _FIRE,
        ),
    ]  # fmt: skip
    before = created
    first = record.attempts[0].assign_time_ns if record.attempts else record.end_time_ns
    if created <= arrived_at <= first:
        spans.append(
            otlp.span(
                trace.trace_id, otlp.derived_span(root, _OF_PUSH), root, semconv.SPAN_PUSH.encode(),
                otlp.INTERNAL, created, arrived_at, _RAIL,
            )
        )  # fmt: skip
        before = arrived_at
    before = max(before, due)  # what was written before its time was in line by then
    for attempt in record.attempts:
        spans += _attempt(trace, attempt, before, due if attempt.number == 1 else 0)
        before = attempt.end_time_ns or before
    return spans


def _attempt(
    trace: otlp.Trace, attempt: pb.AttemptRecord, before: Instant, not_before: Instant
) -> Sequence[bytes]:
    number, assigned = attempt.number, max(attempt.assign_time_ns, not_before)
    span_id = otlp.attempt_span(trace, number)
    attributes = b"".join(
        (
            otlp.whole(semconv.ATTEMPT, number),
            otlp.whole(semconv.TOKEN, attempt.token),
            _of_session(attempt.worker, attempt.session),
        )
    )
    error = None
    if attempt.state in _BAD:
        error = f"{attempt.error.kind}: {attempt.error.message}"[:_ERROR_CHARACTERS]
        attributes += otlp.text(semconv.ERROR_TYPE, attempt.error.kind)
    end = max(attempt.end_time_ns, assigned)
    return (
        otlp.span(
            trace.trace_id, otlp.derived_span(span_id, _OF_LINE), trace.span_id,
            semconv.SPAN_LINE.encode(), otlp.INTERNAL, min(before, assigned), assigned, _RAIL,
        ),
        otlp.span(
            trace.trace_id, span_id, trace.span_id, b"attempt %d" % number, otlp.CLIENT,
            assigned, end, attributes, error,
        ),
    )  # fmt: skip


def _encode(settled: _Settled) -> list[bytes]:
    return spans_of(RunRecord.FromString(settled.value), settled.arrived_at)


def _run_attributes(record: RunRecord) -> bytes:
    nominal = otlp.text(semconv.NOMINAL_TIME, _shown(record.nominal_ns))
    return _of_end(record.state, record.reason) + nominal


@lru_cache(1_000)
def _of_end(state: run_pb2.RunState.ValueType, reason: str) -> bytes:
    ended = otlp.text(semconv.RUN_STATE, STATE_OF[state].value)
    return _RAIL + ended + otlp.text(semconv.RUN_REASON, reason)


@lru_cache(1_000)
def _of_session(worker: str, session: str) -> bytes:
    held = otlp.text(semconv.WORKER, worker) + otlp.text(semconv.SESSION, session)
    return _RAIL + held + _SETTLE


@lru_cache(_TEMPLATES)
def _shared(namespace: str, job: str, version: int, queue: str, kind: str) -> bytes:
    """Writes the attributes that all runs of a version have."""
    return b"".join(
        (
            otlp.text(semconv.NAMESPACE, namespace),
            otlp.text(semconv.JOB, job),
            otlp.whole(semconv.JOB_VERSION, version),
            otlp.text(semconv.MESSAGING_SYSTEM, "sexton"),
            otlp.text(semconv.DESTINATION, queue),
            otlp.text(semconv.KIND, kind),
        )
    )


@lru_cache(1_000)
def _shown(instant: Instant) -> str:
    return format_instant(instant)  # many runs are of the same instant


def _kind_of(template: pb.RunTemplate) -> str:
    return str(template.task.WhichOneof("kind"))


def _is_bad(record: RunRecord) -> bool:
    return STATES[STATE_OF[record.state]].dead_letter


def _error(record: RunRecord) -> str | None:
    if not _is_bad(record):
        return None
    return f"{record.error.kind}: {record.error.message}"[:_ERROR_CHARACTERS]


_OF_LINE, _OF_FIRE, _OF_PUSH = 2, 3, 4
"""What the ids of these spans differ by from the attempt's, or the run's; 1 is the worker's."""
_ERROR_CHARACTERS: Final = 500
_FIRE: Final = otlp.text(semconv.MESSAGING_OPERATION, "create") + otlp.text(
    semconv.FAAS_TRIGGER, "timer"
)
_SETTLE: Final = otlp.text(semconv.MESSAGING_OPERATION, "settle")

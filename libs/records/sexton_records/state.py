"""Between a job's state in the core and its records: state, decisions, buffered starts.

Enums of the core and of the wire are joined by one table per pair, so that a new word fails here
and not in the store.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import job_pb2, run_pb2
from sexton_core.instants import Instant
from sexton_core.policy.state import (
    Buffered,
    Counters,
    DecisionRange,
    Handle,
    JobState,
    Rule,
    make,
)
from sexton_core.words import Ask, Decision, Origin, Overlap, Reason
from sexton_records._bytes import field, message, text, varint

ORIGINS: Final[dict[Origin, run_pb2.RunOrigin.ValueType]] = {
    Origin.SCHEDULE: run_pb2.RUN_ORIGIN_SCHEDULE,
    Origin.MANUAL: run_pb2.RUN_ORIGIN_MANUAL,
    Origin.BACKFILL: run_pb2.RUN_ORIGIN_BACKFILL,
}
OVERLAPS: Final[dict[Overlap, job_pb2.OverlapPolicy.ValueType]] = {
    Overlap.SKIP: job_pb2.OVERLAP_POLICY_SKIP,
    Overlap.BUFFER_ONE: job_pb2.OVERLAP_POLICY_BUFFER_ONE,
    Overlap.BUFFER_ALL: job_pb2.OVERLAP_POLICY_BUFFER_ALL,
    Overlap.CANCEL_OTHER: job_pb2.OVERLAP_POLICY_CANCEL_OTHER,
    Overlap.TERMINATE_OTHER: job_pb2.OVERLAP_POLICY_TERMINATE_OTHER,
    Overlap.ALLOW_ALL: job_pb2.OVERLAP_POLICY_ALLOW_ALL,
}
DECISIONS: Final[dict[Decision, pb.DecisionKind.ValueType]] = {
    Decision.SKIPPED: pb.DECISION_KIND_SKIPPED,
    Decision.MISSED: pb.DECISION_KIND_MISSED,
    Decision.DROPPED: pb.DECISION_KIND_DROPPED,
    Decision.EXCLUDED: pb.DECISION_KIND_EXCLUDED,
}
ASKS: Final[dict[Ask, pb.Ask.ValueType]] = {
    Ask.NOTHING: pb.ASK_UNSPECIFIED,
    Ask.CANCEL: pb.ASK_CANCEL,
    Ask.TERMINATE: pb.ASK_TERMINATE,
}
ORIGIN_OF: Final = {value: word for word, value in ORIGINS.items()}
OVERLAP_OF: Final = {value: word for word, value in OVERLAPS.items()}
DECISION_OF: Final = {value: word for word, value in DECISIONS.items()}
ASK_OF: Final = {value: word for word, value in ASKS.items()}


_RULES_REMEMBERED: Final = 4_096
_LINES_REMEMBERED: Final = 1_024
_COUNTERS_REMEMBERED: Final = 1_024
"""Fields of a state, of 10 to 80 bytes each."""


def encode_timer(namespace: str, job: str) -> bytes:
    """Returns the record of a timer, which is also what the record of its state begins with."""
    first, second = namespace.encode(), job.encode()
    # Names have 1 to 63 characters: each length is in one byte.
    return b"\x0a%c%b\x12%c%b" % (len(first), first, len(second), second)


def encode_state(state: JobState, timer: Instant | None) -> bytes:
    """Returns the record of a state whose timer is due at `timer` (None: there is none).

    All of it but the job's names, with which it begins: they are of the bytes of a timer's record.
    The waiting starts are records of their own and not part of it.
    """
    cursor, armed, rules, live, _, counted, paused_at, resumed = state
    # By hand, once per fire; in the order of the fields, as the message writes them.
    written = b"\x18" + varint(cursor) if cursor else b""
    if armed is not None:
        written += b"\x20" + varint(armed)
    for rule in rules:
        written += _rule_bytes(rule)
    for run_id, queue, priority, not_before in live:
        name = run_id.encode()
        # A run's id has 26 to 34 characters, and a queue's at most 63: the length is in one byte.
        body = b"\x0a%c%b%b" % (len(name), name, _line_bytes(queue, priority))
        if not_before:
            body += b"\x20" + varint(not_before)
        written += b"\x32%c%b" % (len(body), body)
    written += _counters_bytes(counted)
    if paused_at is not None:
        written += b"\x40" + varint(paused_at)
    if resumed is not None:
        written += b"\x48" + varint(resumed)
    return written if timer is None else written + b"\x50" + varint(timer)


@lru_cache(_RULES_REMEMBERED)
def _rule_bytes(rule: Rule) -> bytes:
    """Returns the field of a rule: the same from one edit to the next, and of jobs of one file."""
    after, version = rule
    return message(5, field(1, after) + field(2, version))


@lru_cache(_LINES_REMEMBERED)
def _line_bytes(queue: str, priority: int) -> bytes:
    """Returns what a handle's name says of its place in line."""
    return text(2, queue) + field(3, priority)


@lru_cache(_COUNTERS_REMEMBERED)
def _counters_bytes(counted: Counters) -> bytes:
    """Returns the field of the counters: of jobs that are as old and equally often due the same."""
    return message(7, b"".join([field(at, count) for at, count in enumerate(counted, 1)]))


def decode_state(record: pb.StateRecord, buffered: Sequence[Buffered]) -> JobState:
    """Returns the state, with its waiting starts in the order of their keys."""
    counted = record.counters
    counters = (
        counted.fired,
        counted.skipped,
        counted.missed,
        counted.dropped,
        counted.excluded,
    )
    return make(
        JobState,
        (
            record.cursor_ns,
            record.armed_ns if record.HasField("armed_ns") else None,
            tuple([make(Rule, (rule.after_ns, rule.version)) for rule in record.rules]),
            tuple([handle_of(name) for name in record.live]),
            tuple(buffered),
            make(Counters, counters),
            record.paused_at_ns if record.HasField("paused_at_ns") else None,
            record.resumed_ns if record.HasField("resumed_ns") else None,
        ),
    )


def handle_name(handle: Handle) -> pb.HandleName:
    """Returns a handle as records name it."""
    return pb.HandleName(
        run_id=handle.run_id,
        queue=handle.queue,
        priority=handle.priority,
        not_before_ns=handle.not_before,
    )


def handle_of(name: pb.HandleName) -> Handle:
    """Returns the handle that a record names."""
    return Handle(name.run_id, name.queue, name.priority, name.not_before_ns)


def encode_decision(decision: DecisionRange) -> bytes:
    """Returns the record of a decided range."""
    return pb.DecisionRecord(
        kind=DECISIONS[decision.decision],
        reason=decision.reason.value,
        first_ns=decision.first,
        last_ns=decision.last,
        times=decision.times,
        counted_all=decision.counted_all,
        version=decision.version,
        decide_time_ns=decision.decided_at,
        blocked_by=decision.blocked_by or "",
        run_id=decision.run_id or "",
        origin=ORIGINS[decision.origin],
    ).SerializeToString()


def decode_decision(record: pb.DecisionRecord) -> DecisionRange:
    """Returns the decided range."""
    return DecisionRange(
        DECISION_OF[record.kind],
        Reason(record.reason),
        record.first_ns,
        record.last_ns,
        record.times,
        record.counted_all,
        record.version,
        record.decide_time_ns,
        record.blocked_by or None,
        record.run_id or None,
        ORIGIN_OF[record.origin],
    )


def encode_buffered(start: Buffered) -> bytes:
    """Returns the record of a start that waits."""
    return pb.BufferedRecord(
        run_id=start.run_id,
        origin=ORIGINS[start.origin],
        nominal_ns=start.nominal,
        due_ns=start.due,
        version=start.version,
        overlap=OVERLAPS[start.overlap],
        ask=ASKS[start.ask],
        waits_for=start.waits_for,
        buffered_at_ns=start.buffered_at,
        retry_of=start.retry_of,
    ).SerializeToString()


def decode_buffered(record: pb.BufferedRecord) -> Buffered:
    """Returns the start that waits."""
    return Buffered(
        record.run_id,
        ORIGIN_OF[record.origin],
        record.nominal_ns,
        record.due_ns,
        record.version,
        OVERLAP_OF[record.overlap],
        ASK_OF[record.ask],
        record.waits_for,
        record.buffered_at_ns,
        record.retry_of,
    )

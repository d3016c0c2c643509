"""Between a backfill in the core and its record, and the record as the API shows it."""

from typing import Final

from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import backfill_pb2 as api
from sexton.v1 import job_pb2
from sexton_core.instants import Instant
from sexton_core.policy import Backfill
from sexton_core.words import BackfillOrder, Overlap
from sexton_records.state import OVERLAP_OF, OVERLAPS
from sexton_records.times import timestamp

ORDERS: Final[dict[BackfillOrder, api.BackfillOrder.ValueType]] = {
    BackfillOrder.OLDEST_FIRST: api.BACKFILL_ORDER_OLDEST_FIRST,
    BackfillOrder.NEWEST_FIRST: api.BACKFILL_ORDER_NEWEST_FIRST,
}
_ORDER_OF: Final = {value: word for word, value in ORDERS.items()}
ASKED_ORDERS: Final = _ORDER_OF | {
    api.BACKFILL_ORDER_UNSPECIFIED: BackfillOrder.OLDEST_FIRST,
}
"""What a request may say."""
ASKED_OVERLAPS: Final = OVERLAP_OF | {job_pb2.OVERLAP_POLICY_UNSPECIFIED: Overlap.BUFFER_ALL}
"""What a request may say; nothing said: one run after another."""


def new_backfill_record(
    namespace: str, job: str, backfill: Backfill, body: bytes, now: Instant
) -> pb.BackfillRecord:
    """Returns the record of a backfill that begins; `body` is the hash of what asked for it."""
    return pb.BackfillRecord(
        namespace=namespace,
        job=job,
        first_ns=backfill.first,
        last_ns=backfill.last,
        version=backfill.version,
        overlap=OVERLAPS[backfill.overlap],
        order=ORDERS[backfill.order],
        skip_succeeded=backfill.skip_succeeded,
        total=backfill.total,
        state=api.BACKFILL_STATE_STARTING,
        create_time_ns=now,
        body_hash=body,
    )


def decode_backfill(backfill_id: str, record: pb.BackfillRecord) -> Backfill:
    """Returns the backfill of a record."""
    return Backfill(
        id=backfill_id,
        first=record.first_ns,
        last=record.last_ns,
        version=record.version,
        overlap=OVERLAP_OF[record.overlap],
        order=_ORDER_OF[record.order],
        skip_succeeded=record.skip_succeeded,
        total=record.total,
        position=record.position_ns if record.HasField("position_ns") else None,
        started=record.started,
        skipped=record.skipped,
    )


def advanced_record(record: pb.BackfillRecord, backfill: Backfill) -> pb.BackfillRecord:
    """Returns the record of a backfill that has come further."""
    after = pb.BackfillRecord()
    after.CopyFrom(record)
    if backfill.position is not None:
        after.position_ns = backfill.position
    after.started, after.skipped = backfill.started, backfill.skipped
    return after


def ended_record(
    record: pb.BackfillRecord, state: api.BackfillState.ValueType, now: Instant
) -> pb.BackfillRecord:
    """Returns the record of a backfill that starts nothing any more."""
    after = pb.BackfillRecord()
    after.CopyFrom(record)
    after.state, after.end_time_ns = state, now
    return after


def backfill_message(uid: str, backfill_id: str, record: pb.BackfillRecord) -> api.Backfill:
    """Returns a backfill as the API shows it, but for what it waits for."""
    return api.Backfill(
        name=f"namespaces/{record.namespace}/jobs/{record.job}/backfills/{backfill_id}",
        job_uid=uid,
        start_time=timestamp(record.first_ns),
        end_time=timestamp(record.last_ns),
        order=record.order,
        overlap=record.overlap,
        skip_succeeded=record.skip_succeeded,
        job_version=record.version,
        state=record.state,
        total=record.total,
        started=record.started,
        skipped=record.skipped,
        create_time=timestamp(record.create_time_ns),
        end_state_time=timestamp(record.end_time_ns) if record.end_time_ns else None,
    )

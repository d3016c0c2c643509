"""Requests that have had their effect: the same again gets the same answer, another is refused.

The record is written in the effect's own commit, which compares that it is absent; the leader
sweeps it after `KEPT_NS`.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, TypeVar

from google.protobuf.message import Message

from sexton.errors import IllegalState, InvalidArgument, SextonError, shown
from sexton.internal.v1 import records_pb2 as pb
from sexton_core.errors import PolicyError
from sexton_core.instants import MINUTE, Duration, Instant
from sexton_runtime.kv.types import KeyValue

KEPT_NS: Final[Duration] = 10 * MINUTE
"""How long a request is known."""

_BACKFILL_FIELDS: Final = {"first": "start_time", "last": "end_time", "range": "end_time"}
"""What the core calls the fields of a backfill's request."""

Answer = TypeVar("Answer", bound=Message)


def body_hash(request: Message) -> bytes:
    """Returns the mark of a request's body, the same for equal messages."""
    body = request.SerializeToString(deterministic=True)
    return blake2b(body, digest_size=20, person=b"sexton-body").digest()


def encode_request(body: bytes, answer: Message, now: Instant) -> bytes:
    """Returns the record of a request with this body's hash and this answer."""
    return pb.RequestRecord(
        body_hash=body, answer=answer.SerializeToString(), create_time_ns=now
    ).SerializeToString()


def recorded_answer(kv: KeyValue, body: bytes, request_id: str, answer: Answer) -> Answer | None:
    """Fills `answer` from a request's record and returns it; None where there is no record.

    Raises:
        InvalidArgument: the record is of a request with another body.

    """
    if not kv.create_revision:
        return None
    record = pb.RequestRecord.FromString(kv.value)
    if record.body_hash != body:
        raise InvalidArgument(
            "request_id", request_id, "one that no other request had in the last ten minutes"
        )
    answer.ParseFromString(record.answer)
    return answer


def refused_backfill(error: PolicyError, job: str) -> SextonError:
    """Returns what the caller gets for a backfill that the core refuses.

    That a job has no schedule is no fault of the request: it is refused for the job's state.
    """
    if error.field == "schedule":
        return IllegalState.restore(
            f"job {shown(job)} has no schedule, and so no times that a backfill could run; a "
            f"trigger starts it",
            {"state": "without a schedule", "allowed": "with a schedule"},
        )
    field = _BACKFILL_FIELDS.get(error.field, error.field)
    return InvalidArgument(field, error.value, error.expected)

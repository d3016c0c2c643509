"""The one table between exceptions and what travels: (gRPC code, reason).

Servers turn an exception into a google.rpc.Status with it (`to_status`), clients a failed call back
into the same exception (`from_rpc_error`); `to_failure` and `from_failure` do it for errors that
stand inside a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from google.protobuf.any_pb2 import Any
from google.protobuf.message import DecodeError
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc import Call, StatusCode, aio

from sexton import errors
from sexton.errors import SextonError
from sexton.v1.errors_pb2 import ErrorReason, Failure

DOMAIN = "sexton"
"""The `domain` of every ErrorInfo of ours."""

STATUS_DETAILS_KEY = "grpc-status-details-bin"
"""The trailing metadata in which gRPC carries a google.rpc.Status."""

_NEVER_SENT = "failed to connect to all addresses"
"""How gRPC's own message begins when a call failed without having been sent anywhere."""

_TOO_LARGE = ("larger than max", "metadata size exceeds")
"""Of what gRPC's own messages speak when a message or the metadata passed its limit."""


class Row(NamedTuple):
    """What one class of errors is on the wire."""

    error: type[SextonError]
    code: StatusCode
    reason: ErrorReason.ValueType


TABLE: tuple[Row, ...] = (
    Row(
        errors.InvalidArgument,
        StatusCode.INVALID_ARGUMENT,
        ErrorReason.ERROR_REASON_INVALID_ARGUMENT,
    ),
    Row(errors.NotFound, StatusCode.NOT_FOUND, ErrorReason.ERROR_REASON_NOT_FOUND),
    Row(errors.AlreadyExists, StatusCode.ALREADY_EXISTS, ErrorReason.ERROR_REASON_ALREADY_EXISTS),
    Row(errors.StaleRevision, StatusCode.ABORTED, ErrorReason.ERROR_REASON_STALE_REVISION),
    Row(
        errors.IllegalState, StatusCode.FAILED_PRECONDITION, ErrorReason.ERROR_REASON_ILLEGAL_STATE
    ),
    Row(errors.Fenced, StatusCode.FAILED_PRECONDITION, ErrorReason.ERROR_REASON_FENCED),
    Row(
        errors.WrongIncarnation,
        StatusCode.FAILED_PRECONDITION,
        ErrorReason.ERROR_REASON_WRONG_INCARNATION,
    ),
    Row(
        errors.Unauthenticated,
        StatusCode.UNAUTHENTICATED,
        ErrorReason.ERROR_REASON_UNAUTHENTICATED,
    ),
    Row(
        errors.PermissionDenied,
        StatusCode.PERMISSION_DENIED,
        ErrorReason.ERROR_REASON_PERMISSION_DENIED,
    ),
    Row(errors.NoSpace, StatusCode.RESOURCE_EXHAUSTED, ErrorReason.ERROR_REASON_NO_SPACE),
    Row(errors.TooLarge, StatusCode.RESOURCE_EXHAUSTED, ErrorReason.ERROR_REASON_TOO_LARGE),
    Row(errors.Overloaded, StatusCode.RESOURCE_EXHAUSTED, ErrorReason.ERROR_REASON_OVERLOADED),
    Row(errors.SlowWatcher, StatusCode.RESOURCE_EXHAUSTED, ErrorReason.ERROR_REASON_SLOW_WATCHER),
    Row(errors.Compacted, StatusCode.OUT_OF_RANGE, ErrorReason.ERROR_REASON_COMPACTED),
    Row(errors.FutureRevision, StatusCode.OUT_OF_RANGE, ErrorReason.ERROR_REASON_FUTURE_REVISION),
    Row(errors.NotLeader, StatusCode.UNAVAILABLE, ErrorReason.ERROR_REASON_NOT_LEADER),
    Row(errors.Unavailable, StatusCode.UNAVAILABLE, ErrorReason.ERROR_REASON_UNAVAILABLE),
    Row(errors.OutcomeUnknown, StatusCode.UNAVAILABLE, ErrorReason.ERROR_REASON_OUTCOME_UNKNOWN),
    Row(
        errors.DeadlineExceeded,
        StatusCode.DEADLINE_EXCEEDED,
        ErrorReason.ERROR_REASON_DEADLINE_EXCEEDED,
    ),
    Row(errors.Cancelled, StatusCode.CANCELLED, ErrorReason.ERROR_REASON_CANCELLED),
    Row(errors.Internal, StatusCode.INTERNAL, ErrorReason.ERROR_REASON_INTERNAL),
    Row(errors.Unimplemented, StatusCode.UNIMPLEMENTED, ErrorReason.ERROR_REASON_UNIMPLEMENTED),
)

_GROUPS: tuple[Row, ...] = (
    Row(errors.Conflict, StatusCode.ABORTED, ErrorReason.ERROR_REASON_STALE_REVISION),
    Row(errors.Refused, StatusCode.FAILED_PRECONDITION, ErrorReason.ERROR_REASON_ILLEGAL_STATE),
    Row(
        errors.ResourceExhausted,
        StatusCode.RESOURCE_EXHAUSTED,
        ErrorReason.ERROR_REASON_OVERLOADED,
    ),
    Row(errors.OutOfRange, StatusCode.OUT_OF_RANGE, ErrorReason.ERROR_REASON_INVALID_ARGUMENT),
    Row(SextonError, StatusCode.INTERNAL, ErrorReason.ERROR_REASON_INTERNAL),
)
"""Groups are caught, not raised: only an error without a reason of ours is read back as one.
Should one be passed on, it travels as the most general of its members."""

_BY_ERROR = {row.error: row for row in (*TABLE, *_GROUPS)}
_BY_REASON = {row.reason: row.error for row in TABLE}
_BY_CODE: dict[StatusCode, type[SextonError]] = {
    # A broken connection says nothing about what the server did with the request.
    StatusCode.UNAVAILABLE: errors.OutcomeUnknown,
    StatusCode.ABORTED: errors.Conflict,
    StatusCode.FAILED_PRECONDITION: errors.Refused,
    StatusCode.RESOURCE_EXHAUSTED: errors.ResourceExhausted,
    StatusCode.OUT_OF_RANGE: errors.OutOfRange,
    StatusCode.INVALID_ARGUMENT: errors.InvalidArgument,
    StatusCode.NOT_FOUND: errors.NotFound,
    StatusCode.ALREADY_EXISTS: errors.AlreadyExists,
    StatusCode.UNAUTHENTICATED: errors.Unauthenticated,
    StatusCode.PERMISSION_DENIED: errors.PermissionDenied,
    StatusCode.DEADLINE_EXCEEDED: errors.DeadlineExceeded,
    StatusCode.CANCELLED: errors.Cancelled,
    StatusCode.UNIMPLEMENTED: errors.Unimplemented,
}
_CODE_NUMBERS = {code: code_pb2.Code.Value(code.name) for code in StatusCode}


def row_of(error: SextonError) -> Row:
    """Gives the table's row for an error, or for the nearest of its base classes."""
    return next(_BY_ERROR[base] for base in type(error).__mro__ if base in _BY_ERROR)


def to_status(error: SextonError) -> status_pb2.Status:
    """Turns an error into what travels: code, message, one ErrorInfo, a BadRequest."""
    row = row_of(error)
    status = status_pb2.Status(code=_CODE_NUMBERS[row.code], message=error.message)
    info = error_details_pb2.ErrorInfo(
        domain=DOMAIN, reason=reason_name(row.reason), metadata=error.facts
    )
    status.details.add().Pack(info, deterministic=True)
    if isinstance(error, errors.InvalidArgument):
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=error.field, description=error.message
        )
        status.details.add().Pack(error_details_pb2.BadRequest(field_violations=[violation]))
    return status


def from_status(status: status_pb2.Status) -> SextonError | None:
    """Gives the error that a status was made of; None where it holds no ErrorInfo of ours."""
    found = (_from_detail(detail, status.message) for detail in status.details)
    return next(filter(None, found), None)


def from_rpc_error(error: aio.AioRpcError | Call) -> SextonError:
    """Turns a failed call back into the error that the server raised.

    What gRPC itself reported (no connection, a broken one, a message too large) becomes the class
    of its code. A broken connection is `OutcomeUnknown`, unless the request was never sent.
    """
    for key, value in error.trailing_metadata() or ():
        if key == STATUS_DETAILS_KEY and isinstance(value, bytes):
            try:
                ours = from_status(status_pb2.Status.FromString(value))
            except DecodeError:
                break
            if ours is not None:
                return ours
    return _from_code(error.code(), error.details() or "")


def to_failure(error: SextonError) -> Failure:
    """Turns an error into the form in which it stands inside a message."""
    row = row_of(error)
    return Failure(
        code=_CODE_NUMBERS[row.code],
        reason=row.reason,
        message=error.message,
        metadata=error.facts,
    )


def from_failure(failure: Failure) -> SextonError:
    """Gives the error that stands inside a message."""
    known = _BY_REASON.get(failure.reason)
    if known is not None:
        return known.restore(failure.message, failure.metadata)
    code = next((c for c, n in _CODE_NUMBERS.items() if n == failure.code), StatusCode.UNKNOWN)
    return _from_code(code, failure.message)


def reason_name(reason: ErrorReason.ValueType) -> str:
    """Gives a reason's name as it stands in an ErrorInfo, without the prefix."""
    return ErrorReason.Name(reason).removeprefix("ERROR_REASON_")


def _from_detail(detail: Any, message: str) -> SextonError | None:
    info = error_details_pb2.ErrorInfo()
    if not detail.Unpack(info) or info.domain != DOMAIN:
        return None
    name = f"ERROR_REASON_{info.reason}"
    if name not in ErrorReason.keys():  # noqa: SIM118 - an enum wrapper, not a mapping
        return None  # a reason of a newer version: its code still tells what to do
    known = _BY_REASON.get(ErrorReason.Value(name))
    facts: Mapping[str, str] = info.metadata
    return known.restore(message, facts) if known else None


def _from_code(code: StatusCode, details: str) -> SextonError:
    kind = _BY_CODE.get(code, errors.Internal)
    if code is StatusCode.UNAVAILABLE and details.startswith(_NEVER_SENT):
        kind = errors.Unavailable
    if code is StatusCode.RESOURCE_EXHAUSTED and any(words in details for words in _TOO_LARGE):
        kind = errors.TooLarge
    return kind.restore(details, {})

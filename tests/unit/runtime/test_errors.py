"""The tree of errors and its one table."""

import pickle

import pytest
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc import StatusCode, aio

from sexton import errors
from sexton._error_table import (
    TABLE,
    from_failure,
    from_rpc_error,
    from_status,
    reason_name,
    to_failure,
    to_status,
)
from sexton.v1.errors_pb2 import ErrorReason, Failure


def rpc_error(code: StatusCode, details: str) -> aio.AioRpcError:
    return aio.AioRpcError(code, aio.Metadata(), aio.Metadata(), details)


def info_of(status: status_pb2.Status) -> error_details_pb2.ErrorInfo:
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    return info


def test_every_reason_but_unspecified_stands_in_the_table_once() -> None:
    reasons = [row.reason for row in TABLE]

    assert sorted(reasons) == sorted(ErrorReason.values())[1:]
    assert len({row.error for row in TABLE}) == len(TABLE)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.error.__name__)
def test_an_error_comes_back_as_the_class_that_was_raised(row) -> None:
    raised = row.error.restore("what was wrong", {"oldest": "7", "current": "8"})

    status = to_status(raised)

    assert status.code == code_pb2.Code.Value(row.code.name)
    assert info_of(status).domain == "sexton"
    assert info_of(status).reason == reason_name(row.reason)
    for back in (from_status(status), from_failure(to_failure(raised))):
        assert type(back) is row.error
        assert back.message == "what was wrong"
        assert back.facts == {"oldest": "7", "current": "8"}


def test_a_refused_field_is_named_with_its_value_and_what_would_be_right() -> None:
    error = errors.InvalidArgument("ttl_ms", -1, "100 to 3600000 milliseconds")

    assert str(error) == "ttl_ms: -1 can't be used; expected 100 to 3600000 milliseconds"
    assert error.field == "ttl_ms"
    request = error_details_pb2.BadRequest()
    assert to_status(error).details[1].Unpack(request)
    assert [violation.field for violation in request.field_violations] == ["ttl_ms"]


def test_a_long_value_is_not_repeated_whole() -> None:
    error = errors.InvalidArgument("name", "x" * 10_000, "a short one")

    assert len(str(error)) < 200
    assert "(10000 characters)" in str(error)


def test_facts_are_typed() -> None:
    assert errors.Compacted(3, 7).oldest == 7
    assert errors.FutureRevision(9, 5).current == 5
    assert errors.NotLeader("10.0.0.1:7700").leader == "10.0.0.1:7700"
    assert errors.StaleRevision("dispute", 1, 2).current == 2
    assert errors.TooLarge("value", 11, 10).limit == 10
    assert errors.IllegalState("run r", "SUCCEEDED", ["RUNNING"]).allowed == ("RUNNING",)
    assert errors.Internal("abc").error_id == "abc"


def test_the_docstring_is_the_default_message() -> None:
    assert str(errors.Fenced()) == "The caller's lease or token has been replaced: stop acting"


def test_errors_survive_pickling() -> None:
    back = pickle.loads(pickle.dumps(errors.Compacted(3, 7)))

    assert type(back) is errors.Compacted
    assert (back.oldest, str(back)) == (7, str(errors.Compacted(3, 7)))


@pytest.mark.parametrize(
    ("code", "details", "expected"),
    [
        (StatusCode.UNAVAILABLE, "Socket closed", errors.OutcomeUnknown),
        (
            StatusCode.UNAVAILABLE,
            "failed to connect to all addresses; last error: refused",
            errors.Unavailable,
        ),
        (StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max", errors.TooLarge),
        (StatusCode.RESOURCE_EXHAUSTED, "metadata size exceeds hard limit", errors.TooLarge),
        (StatusCode.RESOURCE_EXHAUSTED, "too many streams", errors.ResourceExhausted),
        (StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", errors.DeadlineExceeded),
        (StatusCode.UNKNOWN, "Unexpected", errors.Internal),
        (StatusCode.UNIMPLEMENTED, "Method not found!", errors.Unimplemented),
    ],
)
def test_what_grpc_itself_reports_becomes_the_class_of_its_code(code, details, expected) -> None:
    error = from_rpc_error(rpc_error(code, details))

    assert type(error) is expected
    assert error.message == details


def test_a_reason_of_a_newer_version_is_read_by_its_code() -> None:
    error = from_failure(Failure(code=9, reason=999, message="no"))  # type: ignore[arg-type]

    assert type(error) is errors.Refused


def test_damaged_details_are_passed_over() -> None:
    damaged = aio.AioRpcError(
        StatusCode.NOT_FOUND,
        aio.Metadata(),
        aio.Metadata(("grpc-status-details-bin", b"\xff\xff")),
        "gone",
    )

    assert type(from_rpc_error(damaged)) is errors.NotFound


def test_a_group_that_is_passed_on_travels_as_the_most_general_of_its_members() -> None:
    status = to_status(errors.ResourceExhausted("bare"))

    assert info_of(status).reason == "OVERLOADED"

"""What a request says, checked before anything is read.

Whatever is refused names the field, the value, and what would be right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple, TypeVar

from google.protobuf.timestamp_pb2 import Timestamp

from sexton.errors import IllegalState, InvalidArgument, shown
from sexton_core.errors import FieldError, IdError, IllegalChange
from sexton_core.ids import RunId, check_backfill_id, check_name, check_uid, parse_run_id
from sexton_core.instants import MAX_INSTANT, MIN_INSTANT, Instant, format_instant
from sexton_records.times import instant_of

MAX_PAGE: Final = 1_000
DEFAULT_PAGE: Final = 100
MAX_REQUEST_ID: Final = 128
MAX_NOTE: Final = 200
"""Characters of a reason or source."""

_ID: Final = "an id is 1 to 63 of a-z, 0-9 and -, with a letter first and no - at the end"
NAMESPACE_FORM: Final = "namespaces/{namespace}"
JOB_FORM: Final = "namespaces/{namespace}/jobs/{job}"
RUN_FORM: Final = "namespaces/{namespace}/jobs/{job}/runs/{run}"

_NAME: Final = "([a-z](?:[a-z0-9-]{0,61}[a-z0-9])?)"
_JOB_NAME: Final = re.compile(f"namespaces/{_NAME}/jobs/{_NAME}")
"""What `_name` takes too, which knows what is wrong with everything else."""

Word = TypeVar("Word")
Value = TypeVar("Value", bound=int)


class Name(NamedTuple):
    """What a resource name says; empty: the name ends before it."""

    namespace: str
    job: str = ""
    run: RunId = ""

    def __str__(self) -> str:
        text = f"namespaces/{self.namespace}"
        if self.job:
            text += f"/jobs/{self.job}"
        return f"{text}/runs/{self.run}" if self.run else text


def job_name(field: str, text: str) -> Name:
    """Reads the name of a job."""
    read = _JOB_NAME.fullmatch(text)
    if read is not None:
        return Name(read[1], read[2])
    return _name(field, text, (JOB_FORM,))


def run_name(field: str, text: str) -> Name:
    """Reads the name of a run."""
    return _name(field, text, (RUN_FORM,))


def parent_name(field: str, text: str, *, jobs: bool) -> Name | None:
    """Reads the name of a namespace or, with `jobs`, of a job; None: everything is asked for."""
    if not text:
        return None
    return _name(field, text, (NAMESPACE_FORM, JOB_FORM) if jobs else (NAMESPACE_FORM,))


def watched_name(field: str, text: str) -> Name:
    """Reads the name of a namespace, a job or a run."""
    return _name(field, text, (NAMESPACE_FORM, JOB_FORM, RUN_FORM))


def backfill_name(field: str, text: str) -> tuple[Name, str]:
    """Reads the name of a backfill: its job's, and its id."""
    job, _, backfill = text.rpartition("/backfills/")
    try:
        return _name(field, job, (JOB_FORM,)), check_backfill_id(backfill)
    except (InvalidArgument, IdError):
        expected = f"{JOB_FORM}/backfills/{{backfill}}, as the server made it"
        raise InvalidArgument(field, text, expected) from None


def _name(field: str, text: str, forms: tuple[str, ...]) -> Name:
    parts = text.split("/")
    words = parts[::2]
    expected = f"{' or '.join(forms)}; {_ID}"
    if not any(words == form.split("/")[::2] and len(parts) == _parts(form) for form in forms):
        raise InvalidArgument(field, text, expected)
    try:
        for value in parts[1:4:2]:
            check_name(field, value)
        if len(parts) == _parts(RUN_FORM):
            parse_run_id(parts[5])
    except IdError as error:
        what = "none" if error.field == field else f"not {error.expected}"
        raise InvalidArgument(field, text, f"{expected}; {shown(error.value)} is {what}") from None
    return Name(*parts[1::2])


def _parts(form: str) -> int:
    return form.count("/") + 1


def request_id(text: str, *, required: bool) -> str:
    """Checks the id of a request."""
    if (required and not text) or len(text) > MAX_REQUEST_ID or not text.isprintable():
        expected = f"1 to {MAX_REQUEST_ID} printable characters, unique per intention"
        raise InvalidArgument("request_id", text, expected)
    return text


def note(field: str, text: str) -> str:
    """Checks a text for people."""
    if len(text) > MAX_NOTE or not text.isprintable():
        raise InvalidArgument(field, text, f"at most {MAX_NOTE} printable characters")
    return text


def page_size(size: int) -> int:
    """Returns how many entries a page may have."""
    if not 0 <= size <= MAX_PAGE:
        raise InvalidArgument("page_size", size, f"1 to {MAX_PAGE}, or 0 for {DEFAULT_PAGE}")
    return size or DEFAULT_PAGE


def etag(text: str) -> int:
    """Returns the revision that an etag stands for; 0: none was given."""
    if text and not (text.isascii() and text.isdecimal() and len(text) <= 18 and text[0] != "0"):
        raise InvalidArgument("etag", text, "the etag of an earlier answer, or none")
    return int(text or 0)


def uid(text: str) -> str:
    """Checks a uid, where one was given."""
    with refusing():
        return check_uid(text) if text else ""


def instant(field: str, value: Timestamp | None) -> Instant:
    """Returns the instant of a timestamp that has to be there."""
    if value is None:
        raise InvalidArgument(field, None, "a time")
    found = instant_of(value)
    if not (0 <= value.nanos < 1_000_000_000 and MIN_INSTANT <= found <= MAX_INSTANT):
        expected = f"from {format_instant(MIN_INSTANT)} to {format_instant(MAX_INSTANT)}"
        raise InvalidArgument(field, f"{value.seconds}s {value.nanos}ns", expected)
    return found


def word(table: Mapping[Value, Word], field: str, value: Value) -> Word:
    """Returns what an enum's value stands for."""
    if value not in table:
        raise InvalidArgument(field, value, "a value that this version knows")
    return table[value]


@contextmanager
def refusing(prefix: str = "") -> Iterator[None]:
    """Turns what the core refuses into what the caller gets; fields are named below `prefix`."""
    try:
        yield
    except FieldError as error:
        raise InvalidArgument(prefix + error.field, error.value, error.expected) from None
    except IllegalChange as error:
        facts = {"state": error.current, "allowed": error.allowed}
        raise IllegalState.restore(str(error), facts) from None

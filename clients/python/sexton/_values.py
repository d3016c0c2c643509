"""Between single values of the SDK and of the wire: names, words, times, durations."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from sexton.errors import InvalidArgument, Unimplemented

Word = TypeVar("Word", bound=StrEnum)

_ID_TEXT: Final = "[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?"
_ID: Final = re.compile(_ID_TEXT)
_FULL_JOB: Final = re.compile(f"{_ID_TEXT}/{_ID_TEXT}")
_ID_RULE: Final = "1 to 63 of a-z, 0-9 and -, with a letter first and no - at the end"
_LARGEST_INT32: Final = 2**31 - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class EnumWords:
    """Between one protobuf enum and one of ours, whose values are its names without the prefix."""

    def __init__(self, names: Any, prefix: str) -> None:
        self._names = names
        self._prefix = prefix
        self._numbers: dict[StrEnum, Any] = {}
        self._words: dict[tuple[type[StrEnum], int], Any] = {}

    def message(self, word: StrEnum) -> Any:
        """Gives a word's number, typed as any enum's: the stubs have one type for each.

        Raises:
            InvalidArgument: it is no word of this enum; its text alone (`"skip"`) is one.
        """
        number = self._numbers.get(word) if isinstance(word, str) else None
        if number is None:
            number = self._numbers[word] = self._number(word)
        return number

    def _number(self, word: object) -> Any:
        numbers = {
            name.removeprefix(self._prefix).lower(): number
            for name, number in self._names.items()
            if number != 0
        }
        if not isinstance(word, str) or str(word) not in numbers:
            field = self._prefix.rstrip("_").lower()
            raise InvalidArgument(field, word, f"one of {', '.join(numbers)}")
        return numbers[str(word)]

    def word(self, kind: type[Word], number: int, default: Word | None = None) -> Word:
        """Gives the word of a number; that of 0, which means unspecified, is the default.

        Raises:
            Unimplemented: the other side is newer and says something that this side can't.
        """
        if number == 0 and default is not None:
            return default
        known: Word | None = self._words.get((kind, number))
        if known is not None:
            return known
        try:
            word = kind(self._names.Name(number).removeprefix(self._prefix).lower())
        except ValueError:
            raise Unimplemented(
                f"{kind.__name__}: the mesh answers with {number}, which this version of the SDK "
                f"does not know; update it"
            ) from None
        self._words[kind, number] = word
        return word


def namespace_name(namespace: str) -> str:
    """Gives `namespaces/{namespace}`. Raises `InvalidArgument`."""
    return f"namespaces/{_checked('namespace', namespace)}"


def job_name(reference: str, namespace: str) -> str:
    """Gives `namespaces/{namespace}/jobs/{job}` of `JOB` or `NAMESPACE/JOB`.

    Raises:
        InvalidArgument: it is something else.
    """
    # One look at what almost all are; what is wrong with the others is found part by part.
    whole = f"{namespace}/{reference}"
    if isinstance(reference, str) and "/" not in reference and _FULL_JOB.fullmatch(whole):
        return f"namespaces/{namespace}/jobs/{reference}"
    parts = text("job", reference).split("/")
    if len(parts) > 2:
        raise InvalidArgument("job", reference, "JOB or NAMESPACE/JOB")
    given = parts[0] if len(parts) == 2 else namespace
    return f"{namespace_name(given)}/jobs/{_checked('job', parts[-1])}"


def run_name(reference: str, namespace: str) -> str:
    """Gives `namespaces/{namespace}/jobs/{job}/runs/{run}` of `JOB/RUN` or `NAMESPACE/JOB/RUN`.

    Raises:
        InvalidArgument: it is something else.
    """
    job, slash, run = text("run", reference).rpartition("/")
    if not slash or not run or not run.isascii() or not run.isprintable():
        raise InvalidArgument("run", reference, "JOB/RUN or NAMESPACE/JOB/RUN")
    return f"{job_name(job, namespace)}/runs/{run}"


def backfill_name(reference: str, namespace: str) -> str:
    """Gives the name of `JOB/BACKFILL` or `NAMESPACE/JOB/BACKFILL`.

    Raises:
        InvalidArgument: it is something else.
    """
    job, slash, backfill = text("backfill", reference).rpartition("/")
    if not slash or not backfill or not backfill.isascii() or not backfill.isprintable():
        raise InvalidArgument("backfill", reference, "JOB/BACKFILL or NAMESPACE/JOB/BACKFILL")
    return f"{job_name(job, namespace)}/backfills/{backfill}"


def text(field: str, value: str) -> str:
    """Checks a text. Raises `InvalidArgument` where it is none, or UTF-8 can't hold it."""
    if not isinstance(value, str):
        raise InvalidArgument(field, value, "a str")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidArgument(field, value, "text that UTF-8 can hold") from None
    return value


def parts_of(name: str) -> tuple[str, ...]:
    """Gives the ids of a resource name: (namespace, job) or (namespace, job, run)."""
    return tuple(name.split("/")[1::2])


def datetime_of(message: Timestamp) -> datetime:
    """Gives an aware UTC datetime; what is below a microsecond is cut off."""
    return _moment(message.seconds, message.nanos // 1_000)


@lru_cache(maxsize=1_024)
def _moment(seconds: int, microseconds: int) -> datetime:
    """Gives a datetime; the jobs of one answer have few different ones."""
    return _EPOCH + timedelta(seconds=seconds, microseconds=microseconds)


def timestamp(field: str, moment: datetime) -> Timestamp:
    """Gives a Timestamp. Raises `InvalidArgument` where it is no datetime with a time zone."""
    if not isinstance(moment, datetime):
        raise InvalidArgument(field, moment, "a datetime with a time zone")
    if moment.tzinfo is None:
        raise InvalidArgument(field, moment.isoformat(), "a datetime with a time zone")
    message = Timestamp()
    message.FromDatetime(moment)
    return message


def timedelta_of(message: Duration) -> timedelta:
    """Gives a timedelta; what is below a microsecond is cut off."""
    return timedelta(seconds=message.seconds, microseconds=message.nanos // 1_000)


def duration(value: timedelta) -> Duration:
    """Gives a Duration."""
    message = Duration()
    message.FromTimedelta(value)
    return message


def count(field: str, value: int) -> int:
    """Checks a number of which 0 would mean "the default" on the wire.

    Raises:
        InvalidArgument: it is no whole number from 1 on.
    """
    if not isinstance(value, int) or not 1 <= value <= _LARGEST_INT32:
        raise InvalidArgument(field, value, "a whole number from 1 on")
    return value


def _checked(field: str, value: str) -> str:
    if _ID.fullmatch(text(field, value)) is None:
        raise InvalidArgument(field, value, _ID_RULE)
    return value

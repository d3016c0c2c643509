"""Ids: of namespaces, jobs and queues (chosen by people), of incarnations, and of runs.

A run's id is a pure function of what asked for it, so that asking twice makes one run:

==============================  ==================================================================
`t20261129T030000Z-<uid8>`      for a nominal time of the job with this uid
`m20261129T030000Z-<hash>`      for a manual trigger or a retry by hand: the time and the hash of
                                the request; for a dead letter that is requeued: when it had ended,
                                and the hash of its run's id
`b<backfill>-20261129T030000Z`  for a nominal time within a backfill
==============================  ==================================================================

Within one job all three are unique. A `t` id holds only the first eight characters (40 bits) of
the uid, so two jobs can share one for the same nominal time: keys outside a job must not rest on
the run id alone.
"""

import re
from base64 import b32encode
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple, TypeAlias

from sexton_core.errors import IdError
from sexton_core.instants import MAX_INSTANT, MIN_INSTANT, SECOND, Instant, from_datetime
from sexton_core.words import Origin

RunId: TypeAlias = str

UID_ENTROPY_BYTES: Final = 15
"""120 random bits make a uid of 24 characters without padding."""
UID_CHARACTERS: Final = 24
_UID_OF_BYTE: Final = b"abcdefghijklmnopqrstuvwxyz234567" * 8

_NAME = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_UID = re.compile(r"[a-z2-7]{24}")
_BACKFILL = re.compile(r"[a-z2-7]{16}")
_RUN_ID = re.compile(
    r"t(?P<nominal>\d{8}T\d{6}Z)-(?P<uid8>[a-z2-7]{8})"
    r"|m(?P<asked>\d{8}T\d{6}Z)-(?P<request>[a-z2-7]{16})"
    r"|b(?P<backfill>[a-z2-7]{16})-(?P<filled>\d{8}T\d{6}Z)",
    re.ASCII,
)
_TIME_FORMAT = "%Y%m%dT%H%M%SZ"
_HASH_BYTES = 10
"""80 bits, 16 characters: no two requests of one job will meet."""


class RunName(NamedTuple):
    """What a run id says.

    time: the nominal time, or the second of the request for a manual run.
    source: the first eight characters of the job's uid, the hash of the request, or the backfill.
    """

    origin: Origin
    time: Instant
    source: str


def check_name(field: str, value: str) -> str:
    """Returns the id of a namespace, job or queue if it is one.

    Raises:
        IdError: it is not 1 to 63 of a-z, 0-9 and `-`, with a letter first and no `-` last.

    """
    if not isinstance(value, str) or _NAME.fullmatch(value) is None:
        raise IdError(
            field, value, "1 to 63 of a-z, 0-9 and -, with a letter first and no - at the end"
        )
    return value


def make_uid(entropy: bytes) -> str:
    """Returns the uid of a new incarnation from `UID_ENTROPY_BYTES` random bytes."""
    assert len(entropy) == UID_ENTROPY_BYTES, "a uid is made of 15 random bytes"
    return base32(entropy)


def make_uids(entropy: bytes) -> list[str]:
    """Returns uids of several incarnations, of `UID_CHARACTERS` random bytes each.

    Five bits of each byte are used: to ask for more bytes costs a tenth of what packing them does.
    """
    assert len(entropy) % UID_CHARACTERS == 0, "a uid is made of 24 random bytes"
    text = entropy.translate(_UID_OF_BYTE).decode()
    return [text[at : at + UID_CHARACTERS] for at in range(0, len(text), UID_CHARACTERS)]


def check_uid(value: str, *, field: str = "uid") -> str:
    """Returns the uid if it is one.

    Raises:
        IdError: it is not 24 of a-z and 2-7.

    """
    if not isinstance(value, str) or _UID.fullmatch(value) is None:
        raise IdError(field, value, "24 of a-z and 2-7, as the server made it")
    return value


def scheduled_run_id(uid: str, nominal: Instant) -> RunId:
    """Returns the id of the one run for a nominal time of a job's incarnation."""
    return f"t{format_time(nominal)}-{uid[:8]}"


def manual_run_id(uid: str, asked_at: Instant, request_id: str) -> RunId:
    """Returns the id of a run that was asked for by a request; below a second is cut off."""
    return f"m{format_time(asked_at - asked_at % SECOND)}-{_hash(uid, request_id)}"


def retry_run_id(uid: str, asked_at: Instant, request_id: str) -> RunId:
    """Returns the id of a run that repeats another, asked for by a request.

    Never a trigger's: a request id has no NUL, and may be used for one of each.
    """
    return manual_run_id(uid, asked_at, f"retry\0{request_id}")


def requeued_run_id(uid: str, ended_at: Instant, run_id: RunId) -> RunId:
    """Returns the id of the one run that repeats a dead letter, whoever asks and how often."""
    return manual_run_id(uid, ended_at, f"requeue\0{run_id}")


def backfill_id(uid: str, request_id: str) -> str:
    """Returns the id of a backfill that was asked for by a request."""
    return _hash(uid, request_id)


def check_backfill_id(value: str, *, field: str = "backfill") -> str:
    """Returns the id of a backfill if it is one.

    Raises:
        IdError: it is not 16 of a-z and 2-7.

    """
    if not isinstance(value, str) or _BACKFILL.fullmatch(value) is None:
        raise IdError(field, value, "16 of a-z and 2-7, as the server made it")
    return value


def backfill_run_id(backfill: str, nominal: Instant) -> RunId:
    """Returns the id of a backfill's run for a nominal time."""
    return f"b{backfill}-{format_time(nominal)}"


def is_backfill_run(run_id: RunId) -> bool:
    """Tells whether a run is a backfill's."""
    return run_id.startswith("b")


def parse_run_id(value: str, *, field: str = "run_id") -> RunName:
    """Reads a run id of any origin.

    Raises:
        IdError: it has none of the three forms, or its time does not exist.

    """
    expected = "a run id such as t20261129T030000Z-abcdefgh"
    match = _RUN_ID.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise IdError(field, value, expected)
    try:
        if match["nominal"]:
            return RunName(Origin.SCHEDULE, parse_time(match["nominal"]), match["uid8"])
        if match["asked"]:
            return RunName(Origin.MANUAL, parse_time(match["asked"]), match["request"])
        return RunName(Origin.BACKFILL, parse_time(match["filled"]), match["backfill"])
    except ValueError:
        raise IdError(field, value, expected + "; its time does not exist") from None


@lru_cache(maxsize=4_096)
def format_time(instant: Instant) -> str:
    """Returns a whole second as ids have it: `20261129T030000Z`.

    Remembered, because many jobs share a nominal time.
    """
    assert instant % SECOND == 0, "an id names whole seconds"
    assert MIN_INSTANT <= instant <= MAX_INSTANT, "an id names a time from 1970 to 2261"
    moment = datetime.fromtimestamp(instant // SECOND, UTC)
    return (
        f"{moment.year:04}{moment.month:02}{moment.day:02}"
        f"T{moment.hour:02}{moment.minute:02}{moment.second:02}Z"
    )


def parse_time(text: str) -> Instant:
    """Reads what `format_time` wrote.

    Raises:
        ValueError: the text is something else.

    """
    return from_datetime(datetime.strptime(text, _TIME_FORMAT).replace(tzinfo=UTC))


def _hash(uid: str, request_id: str) -> str:
    return base32(blake2b(f"{uid}/{request_id}".encode(), digest_size=_HASH_BYTES).digest())


def base32(data: bytes) -> str:
    """Returns bytes as ids have them: a-z and 2-7; 5 bytes are 8 characters, without padding."""
    return b32encode(data).decode("ascii").lower()

"""Values of the command line: read once, refused with what would be right."""

import os
import re
import sys
import time
from typing import Final

from sexton_cli.errors import NotFound, Refused, UsageError
from sexton_cli.jobfile import FileJob, JobFile, JobFileError, load, load_file
from sexton_core.errors import FieldError
from sexton_core.instants import SECOND, Duration, Instant, parse_duration, parse_instant

_NAMES_SHOWN: Final = 20
_SHORTENED: Final = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)"
    r"([T ](?P<time>\d\d:\d\d)(?P<seconds>:\d\d)?(?P<offset>Z|[+-]\d\d:\d\d)?)?",
    re.ASCII,
)


def read_instant(text: str, option: str) -> Instant:
    """Reads RFC 3339; without an offset it is one of UTC, without seconds a whole minute.

    A date is its midnight.

    Raises:
        UsageError: it is neither.

    """
    given = text
    try:
        found = _SHORTENED.fullmatch(text)
        if found is not None:
            time = f"{found['time'] or '00:00'}{found['seconds'] or ':00'}"
            text = f"{found['date']}T{time}{found['offset'] or 'Z'}"
        return parse_instant(text)
    except FieldError as error:
        expected = f"{error.expected}, or a date"
        raise UsageError(f"{option}: {given!r} can't be used; expected {expected}") from None


def read_duration(text: str, option: str) -> Duration:
    """Reads `30s` or `1h30m`.

    Raises:
        UsageError: it is something else.

    """
    try:
        return parse_duration(text, field=option)
    except FieldError as error:
        raise UsageError(str(error)) from None


def now() -> Instant:
    """Returns this machine's time, in whole seconds: what an offline command has."""
    return time.time_ns() // SECOND * SECOND


def is_file_name(text: str) -> bool:
    """Tells whether a word names a job file rather than being an expression."""
    return text == "-" or text.endswith((".yaml", ".yml", ".json")) or os.path.isfile(text)


def read_job_file(path: str) -> JobFile:
    """Loads a job file; `-` is standard input.

    Raises:
        NotFound: it does not exist.
        Refused: it can't be read or used; the message names the lines.

    """
    try:
        return load(sys.stdin.buffer.read(), "stdin") if path == "-" else load_file(path)
    except FileNotFoundError:
        raise NotFound(f"{path}: no such file") from None
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from None
    except JobFileError as error:
        raise Refused(str(error)) from None


def job_of(file: JobFile, name: str, option: str = "") -> FileJob:
    """Finds a job of a file, which `option` names.

    Raises:
        NotFound: the file has none of this name.

    """
    found = file.job(name)
    if found is None:
        names = ", ".join(each.name for each in file.jobs[:_NAMES_SHOWN])
        where = f"{option}: " if option else ""
        raise NotFound(f"{where}{file.source} has no job {name!r}; it has {names}")
    return found

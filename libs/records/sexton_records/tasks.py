"""What a task may be: checked before anything is written, and again by nobody.

The core knows no tasks: what a run executes is between the client and the worker. This is the one
place that says what is well formed.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

from sexton.v1 import job_pb2 as pb
from sexton_core.errors import PolicyError
from sexton_core.ids import check_name

MAX_ARGS_BYTES: Final = 64 * 1024
MAX_COMMAND_BYTES: Final = 32 * 1024
MAX_URL: Final = 2_000
MAX_BODY_BYTES: Final = 64 * 1024
MAX_PATH: Final = 4_096
MAX_ENV: Final = 200
MAX_ENV_BYTES: Final = 32 * 1024
"""All variables or headers of a task together."""
MAX_JSON_DEPTH: Final = 28
"""What a job file can hold below the job's own levels."""
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_NO_URL: Final = re.compile(r"[\x00-\x20\x7f]")
_NO_HEADER_VALUE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
"""What would end the header, or the request, in the middle of its value."""
_RESERVED: Final = re.compile(r"SEXTON_|TRACEPARENT$", re.IGNORECASE)
_RESERVED_HEADERS: Final = re.compile(
    r"SEXTON-.*|TRACEPARENT|IDEMPOTENCY-KEY|CONNECTION|CONTENT-LENGTH|TRANSFER-ENCODING",
    re.IGNORECASE,
)
"""What tells of the run, and what says where the request ends."""


def check_task(task: pb.Task) -> dict[str, Any]:
    """Checks a task; gives the arguments that it names as JSON.

    Raises:
        FieldError: it has no kind, or a field of its kind has a value that can't be used.
    """
    kind = task.WhichOneof("kind")
    if kind == "python":
        check_name("task.python", task.python.task)
        if task.python.args_json:
            return check_json_object("task.args", task.python.args_json)
    elif kind == "shell":
        _check_text("task.shell", task.shell.command, MAX_COMMAND_BYTES)
        if "\0" in task.shell.cwd or len(task.shell.cwd) > MAX_PATH:
            expected = f"a path of at most {MAX_PATH:,} characters, without NUL"
            raise PolicyError("task.cwd", task.shell.cwd, expected)
        _check_values("task.env", task.shell.env, _VARIABLE, "a name of letters, digits and _")
    elif kind == "http":
        _check_http(task.http)
    else:
        raise PolicyError("task", "nothing", "one of python, shell and http")
    return {}


def canonical_task(task: pb.Task) -> pb.Task:
    """Returns the task in the one form in which equal ones are equal: as job files write it.

    Raises:
        FieldError: as `check_task`.
    """
    args = check_task(task)
    written = pb.Task()
    written.CopyFrom(task)
    if written.HasField("http"):
        written.http.method = written.http.method or "POST"
    elif written.python.args_json:
        text = _write_sorted(args) if args else ""
        if len(text) > MAX_ARGS_BYTES:
            raise PolicyError("task.args", f"{len(text):,} bytes", f"at most {MAX_ARGS_BYTES:,}")
        written.python.args_json = text
    return written


def check_json_object(field: str, text: str) -> dict[str, Any]:
    """Checks a JSON object of bounded size and depth, with unique names and no NaN; gives it.

    Raises:
        PolicyError: it is something else.
    """
    if len(text.encode()) > MAX_ARGS_BYTES:
        raise PolicyError(field, f"{len(text.encode()):,} bytes", f"at most {MAX_ARGS_BYTES:,}")
    if text.count("[") + text.count("{") > MAX_JSON_DEPTH and (depth := _depth(text)):
        raise PolicyError(field, f"{depth} levels", f"at most {MAX_JSON_DEPTH} levels of nesting")
    try:
        value = _READER.decode(text)
        if "\\u" in text:
            _write_plain(value).encode()  # half a surrogate pair is no text
    except ValueError as error:
        raise PolicyError(field, text, f"a JSON object ({error})") from None
    if not isinstance(value, dict):
        raise PolicyError(field, text, "a JSON object, such as {}")
    return value


def _depth(text: str) -> int:
    """Returns how deep a text nests where that is too deep, else 0.

    Brackets inside strings count too: a bound, not a measure.
    """
    depth = deepest = 0
    for character in text:
        depth += (character in "[{") - (character in "]}")
        deepest = max(deepest, depth)
    return deepest if deepest > MAX_JSON_DEPTH else 0


def _check_http(task: pb.HttpTask) -> None:
    if task.method and task.method not in METHODS:
        raise PolicyError("task.http.method", task.method, ", ".join(METHODS))
    try:
        url = urlsplit(task.url)
        valid = (
            url.scheme in ("http", "https")
            and bool(url.hostname)
            and url.port != 0
            and len(task.url) <= MAX_URL
            and _NO_URL.search(task.url) is None
        )
    except ValueError:
        valid = False
    if not valid:
        raise PolicyError(
            "task.http.url",
            task.url,
            f"an absolute http or https URL without blanks, at most {MAX_URL:,} characters",
        )
    if len(task.body.encode()) > MAX_BODY_BYTES:
        raise PolicyError(
            "task.http.body", f"{len(task.body.encode()):,} bytes", f"at most {MAX_BODY_BYTES:,}"
        )
    for status in task.expect:
        if not 100 <= status <= 599:
            raise PolicyError("task.http.expect", status, "status codes from 100 to 599")
    _check_values("task.http.headers", task.headers, _HEADER, "the name of an HTTP header")
    for key, value in task.headers.items():
        if _RESERVED_HEADERS.fullmatch(key):
            raise PolicyError("task.http.headers", key, "a name that Sexton does not set itself")
        if _NO_HEADER_VALUE.search(value.value):
            field = f"task.http.headers.{key}"
            raise PolicyError(field, value.value, "one line without control characters")


def _check_values(
    field: str, values: Mapping[str, pb.EnvValue], name: re.Pattern[str], expected: str
) -> None:
    size = 0
    if len(values) > MAX_ENV:
        raise PolicyError(field, len(values), f"at most {MAX_ENV} entries")
    for key, value in values.items():
        if name.fullmatch(key) is None:
            raise PolicyError(field, key, expected)
        if _RESERVED.match(key):
            raise PolicyError(field, key, "a name that Sexton does not set itself")
        source = value.WhichOneof("source")
        if source is None:
            raise PolicyError(f"{field}.{key}", "nothing", "a value, or from_worker: NAME")
        text = value.value if source == "value" else value.from_worker
        if source == "from_worker" and _VARIABLE.fullmatch(text) is None:
            raise PolicyError(f"{field}.{key}.from_worker", text, "the name of a variable")
        if "\0" in text:
            raise PolicyError(f"{field}.{key}", text, "a text without NUL")
        size += len(key) + len(text.encode())
    if size > MAX_ENV_BYTES:
        raise PolicyError(field, f"{size:,} bytes", f"at most {MAX_ENV_BYTES:,} in all")


def _check_text(field: str, text: str, limit: int) -> None:
    if not text.strip():
        raise PolicyError(field, text, "a command")
    if "\0" in text:
        raise PolicyError(field, text, "a text without NUL")
    if len(text.encode()) > limit:
        raise PolicyError(field, f"{len(text.encode()):,} bytes", f"at most {limit:,}")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} stands in it twice")
    return dict(pairs)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large")
    return number


def _of_64_bits(text: str) -> int:
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{text} does not fit 64 bits")
    return number


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


# Made once: with options of one's own `json` makes them anew for each text.
_READER: Final = json.JSONDecoder(
    object_pairs_hook=_unique,
    parse_constant=_no_constant,
    parse_float=_finite,
    parse_int=_of_64_bits,
)
_write_plain: Final = json.JSONEncoder(ensure_ascii=False).encode
_write_sorted: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode

"""What a mesh refuses, in the words of the command line: flags for fields, short names for long."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from sexton.errors import SextonError

FLAGS: Final[Mapping[str, str]] = {
    "after_time": "--after",
    "backfill": "BACKFILL",
    "before_time": "--before",
    "count": "--count",
    "end_time": "--to",
    "fingerprint": "--fingerprint",
    "interval": "--interval",
    "interval_s": "--interval",
    "job": "JOB",
    "mode": "--mode",
    "names": "JOB",
    "order": "--order",
    "overlap": "--overlap",
    "parent": "JOB",
    "prefix": "--prefix",
    "queue": "QUEUE",
    "reason": "--reason",
    "request_id": "--request-id",
    "run": "RUN",
    "runs": "RUN",
    "session": "WORKER",
    "source": "--source",
    "start_time": "--from",
    "states": "--state",
    "time": "--at",
    "until_time": "--to",
    "words": "--search",
}
"""Where the value of a request's field stands on the command line, but for a command's own."""

_KINDS: Final = {"/runs/": "RUN", "/backfills/": "BACKFILL"}
"""What a name is of; else it is a job's."""
_GROUP: Final = "filter."
"""Before the fields that say which dead letters."""
_PART: Final = r"([^\s/'\";:,]+)"
_NAME: Final = re.compile(f"namespaces/{_PART}/jobs/{_PART}(?:/(?:runs|backfills)/{_PART})?")


def as_typed(error: SextonError, own: Mapping[str, str] | None = None) -> str:
    """Gives the message of an error, about what was typed.

    Args:
        error: what the mesh, or the client, says.
        own: fields that this command gives otherwise than most.
    """
    message, field = error.message, error.facts.get("field", "")
    short = field.removeprefix(_GROUP)
    flag = (own or {}).get(short) or FLAGS.get(short)
    if short == "name":
        value = message.partition(" can't be used")[0]
        flag = next((word for part, word in _KINDS.items() if part in value), "JOB")
    if flag is not None and message.startswith(f"{field}: "):
        message = flag + message.removeprefix(field)
    return short_names(message)


def short_names(text: str) -> str:
    """Writes `NAMESPACE/JOB/RUN` for the names that travel, as the command line takes them."""
    return _NAME.sub(_short, text).replace("namespaces/{namespace}", "NAMESPACE")


def _short(found: re.Match[str]) -> str:
    parts = (part for part in found.groups() if part)
    return "/".join(p[1:-1].upper() if p.startswith("{") else p for p in parts)

"""How a worker is configured."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from sexton_core.errors import IdError
from sexton_core.ids import check_name
from sexton_runtime.binding import parse_address
from sexton_runtime.config import ConfigError
from sexton_worker.contract import HTTP, SHELL

_KINDS: Final = (SHELL, HTTP)
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_WORKER_CHARACTERS: Final = 200


def _each(check: Callable[[str], str]) -> BeforeValidator:
    def split(given: object) -> object:
        if not isinstance(given, str):
            return given
        return tuple(check(part.strip()) for part in given.split(",") if part.strip())

    return BeforeValidator(split)


def _address(text: str) -> str:
    try:
        parse_address(text, "queue")
    except ConfigError as error:
        raise ValueError(str(error).partition(": ")[2]) from None
    return text


def _queue_name(text: str) -> str:
    try:
        return check_name("queues", text)
    except IdError as error:
        raise ValueError(str(error)) from None


def _kind(text: str) -> str:
    if text not in _KINDS:
        raise ValueError(f"{text!r} can't be allowed; there is {', '.join(_KINDS)}")
    return text


def _module(text: str) -> str:
    if _MODULE.fullmatch(text) is None:
        raise ValueError(f"{text!r} is no module's name; give it as in `import`: package.module")
    return text


def _name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """The section `worker`. Several values of one field are separated by commas."""

    queue: Annotated[
        tuple[str, ...],
        _each(_address),
        Field(min_length=1, description="host:port of the queue's replicas, by commas"),
    ]
    queues: Annotated[
        tuple[str, ...],
        _each(_queue_name),
        Field(min_length=1, max_length=100, description="queues that are served, by commas"),
    ] = ("default",)
    app: Annotated[
        tuple[str, ...],
        _each(_module),
        Field(description="modules with @sexton.task functions, imported at the start, by commas"),
    ] = ()
    allow: Annotated[
        tuple[str, ...],
        _each(_kind),
        Field(description="kinds of tasks besides Python, by commas: shell, http"),
    ] = ()
    slots: Annotated[
        int, Field(ge=1, le=100_000, description="attempts that are executed at once")
    ] = 100
    name: Annotated[
        str,
        Field(max_length=_WORKER_CHARACTERS, description="for people; host and process if not set"),
    ] = ""
    scratch: Annotated[
        Path | None, Field(description="where attempts get their folders; the system's if not set")
    ] = None
    health_listen: Annotated[
        str,
        Field(description="host:port of a gRPC health service, which tells `queue` too; none"),
    ] = ""
    cancel_grace_s: Annotated[
        float, Field(ge=0, le=3_600, description="seconds from asking an attempt to end to force")
    ] = 10.0
    drain_timeout_s: Annotated[
        float, Field(ge=0, le=86_400, description="seconds that runs have after SIGTERM")
    ] = 30.0

    @property
    def shown_name(self) -> str:
        """Gives the name for people."""
        return self.name or _name()

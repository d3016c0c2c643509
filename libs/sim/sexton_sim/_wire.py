"""What travels between the two ends of a call, as gRPC would carry it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import grpc
from grpc import aio

MAX_METADATA_BYTES = 16 * 1024
"""gRPC's hard limit for the metadata of a call."""
WINDOW_BYTES = 1024 * 1024
"""Unread bytes of a stream beyond which its writer waits (flow control)."""
_ENTRY_OVERHEAD_BYTES = 32
_LEGAL_KEY = re.compile(r"[0-9a-z_.-]+\Z")


class Metadatum(NamedTuple):
    """One entry of a call's metadata."""

    key: str
    value: str | bytes


class Head(NamedTuple):
    """What opens a call. `message` is None where the requests come as a stream."""

    method: str
    metadata: tuple[Metadatum, ...]
    timeout_s: float | None
    message: bytes | None


class Status(NamedTuple):
    """What ends a call."""

    code: grpc.StatusCode
    details: str
    trailing: tuple[Metadatum, ...] = ()


class CallDetails(grpc.HandlerCallDetails):
    """What a server interceptor is told of a call."""

    def __init__(self, method: str, invocation_metadata: tuple[Metadatum, ...]) -> None:
        self.method = method
        self.invocation_metadata = invocation_metadata


def metadata_of(given: Iterable[Any] | None) -> tuple[Metadatum, ...]:
    """Checks metadata as gRPC does.

    Raises `grpc.aio.InternalError` where a key or value can't be sent.
    """
    entries = tuple(Metadatum(key, value) for key, value in given or ())
    for key, value in entries:
        binary = isinstance(value, bytes)
        if not _LEGAL_KEY.match(key) or (binary and not key.endswith("-bin")):
            raise aio.InternalError(f"metadata was invalid: {key!r}")
        if not binary and not all(" " <= char <= "~" for char in str(value)):
            raise aio.InternalError(f"metadata was invalid: {key!r} = {value!r}")
    return entries


def metadata_bytes(metadata: Iterable[Metadatum]) -> int:
    """Counts metadata as HTTP/2 does."""
    return sum(len(key) + len(value) + _ENTRY_OVERHEAD_BYTES for key, value in metadata)


def too_large(side: str, size: int, limit: int) -> Status | None:
    """Gives the status of a message that is over the receiver's limit; None if it fits."""
    if size <= limit:
        return None
    details = f"{side}: Received message larger than max ({size} vs. {limit})"
    return Status(grpc.StatusCode.RESOURCE_EXHAUSTED, details)

"""The words of the wire that both sides share: metadata keys, limits, how methods are named."""

from __future__ import annotations

from collections.abc import Mapping

AUTHORIZATION = "authorization"
"""Metadata: `Bearer <secret>`."""

INCARNATION = "sexton-incarnation"
"""Metadata: the incarnation of the cluster that the caller believes to speak to."""

TRACEPARENT = "traceparent"
"""Metadata: W3C trace context."""

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
"""Largest message either way: what gRPC clients of every language take by default."""

MAX_CARRIED_BYTES = 2 * MAX_MESSAGE_BYTES
"""Where gRPC itself cuts. Above MAX_MESSAGE_BYTES, so that up to here our own refusal answers."""

MAX_SERVER_METADATA_BYTES = 16 * 1024
"""Largest metadata of a call; gRPC refuses what is larger."""

DEFAULT_TIMEOUT_S = 10.0
"""Deadline of a call with one answer that was given none, on either side."""

Metadata = Mapping[str, str | bytes]
"""A call's metadata; the last of repeated keys counts."""


def service_of(method: str) -> str:
    """Gives the service of a full method name: `/pkg.Service/Call` -> `pkg.Service`."""
    return method[1:].partition("/")[0]

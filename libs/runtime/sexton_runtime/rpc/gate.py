"""The one interceptor through which every call enters a server.

It checks the secret, gives a deadline to calls that have none, takes up the caller's trace, refuses
what can't be read, and turns what a servicer raises into what the caller gets: errors of the tree
by the one table, everything else as INTERNAL with an id under which the log has the details. So no
traceback and no repr ever leaves the process.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, TypeAlias

import grpc
import structlog
from google.protobuf.message import DecodeError
from grpc import aio
from grpc_status import rpc_status

from sexton import errors
from sexton._error_table import row_of, to_status
from sexton_runtime.randomness import Randomness
from sexton_runtime.rpc.wire import (
    AUTHORIZATION,
    DEFAULT_TIMEOUT_S,
    MAX_MESSAGE_BYTES,
    TRACEPARENT,
    Metadata,
)
from sexton_runtime.secrets import Access
from sexton_runtime.telemetry import Telemetry

SHORTEST_S = 0.001
"""With less time left than this a call is not begun: its answer would come too late, and a deadline
of nothing would still have an effect."""

Guard = Callable[[str, Metadata], None]
"""Looks at a call's method and metadata and raises an error of the tree to refuse it."""

_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
_Continuation: TypeAlias = "Callable[[grpc.HandlerCallDetails], Awaitable[_Handler | None]]"
_log = structlog.get_logger(__name__)


class CallGate(aio.ServerInterceptor):
    """The interceptor. `calls` counts ended calls by (method, code)."""

    def __init__(
        self,
        *,
        access: Access,
        randomness: Randomness,
        telemetry: Telemetry,
        guards: Sequence[Guard] = (),
        default_timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self._access = access
        self._randomness = randomness
        self._telemetry = telemetry
        self._guards = tuple(guards)
        self._default_timeout_s = default_timeout_s
        self._handlers: dict[str, _Handler] = {}

    async def intercept_service(
        self, continuation: _Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> _Handler | None:
        """Gives the method's handler, wrapped once."""
        method = handler_call_details.method
        handler = self._handlers.get(method)
        if handler is None:
            found = await continuation(handler_call_details)
            if found is None:  # not kept: anybody may make up names without end
                return _unimplemented(method)
            handler = self._handlers[method] = self._wrapped(method, found)
        return handler

    def _wrapped(self, method: str, handler: _Handler) -> _Handler:
        kind = (
            f"{'stream' if handler.request_streaming else 'unary'}"
            f"_{'stream' if handler.response_streaming else 'unary'}"
        )
        inner = getattr(handler, kind)
        if not handler.response_streaming:
            behaviour: Any = self._one_answer(method, inner)
        elif inspect.isasyncgenfunction(inner):
            behaviour = self._many_answers(method, inner)
        else:
            behaviour = self._one_answer(method, inner, endless=True)  # it writes by itself
        make: Any = getattr(grpc, f"{kind}_rpc_method_handler")
        reading = _reading(handler.request_deserializer)
        wrapped: _Handler = make(
            behaviour,
            # What a stream's reader raises comes out where its handler reads. A single request is
            # read before there is a handler.
            request_deserializer=reading if handler.request_streaming else _noting(reading),
            response_serializer=handler.response_serializer,
        )
        return wrapped

    def _one_answer(
        self, method: str, inner: Callable[..., Awaitable[Any]], *, endless: bool = False
    ) -> Callable[..., Awaitable[Any]]:
        async def answer(request: Any, context: Any) -> Any:
            code = "CANCELLED"
            try:
                with self._telemetry.server_span(method, self._admitted(method, context)):
                    _require_readable(request)
                    if endless or context.time_remaining() is not None:
                        result = await inner(request, context)
                    else:
                        async with asyncio.timeout(self._default_timeout_s):
                            result = await inner(request, context)
                code = "OK"
            except Exception as error:  # noqa: BLE001 - the last stop: nothing unmapped may leave
                refusal = self._refusal(method, error)
                code = row_of(refusal).code.name
                await context.abort_with_status(rpc_status.to_status(to_status(refusal)))
            finally:
                self.calls[method, code] += 1
            return result

        return answer

    def _many_answers(
        self, method: str, inner: Callable[..., AsyncIterator[Any]]
    ) -> Callable[..., Awaitable[None]]:
        # Writes by itself: as a generator it would be one more for each answer to go through.
        async def answers(request: Any, context: Any) -> None:
            code = "CANCELLED"
            try:
                with self._telemetry.server_span(method, self._admitted(method, context)):
                    _require_readable(request)
                    stream: Any = inner(request, context)
                    async with aclosing(stream):
                        async for answer in stream:
                            await context.write(answer)
                code = "OK"
            except aio.BaseError:  # of gRPC itself: the caller is gone, or was told
                raise
            except Exception as error:  # noqa: BLE001 - the last stop: nothing unmapped may leave
                refusal = self._refusal(method, error)
                code = row_of(refusal).code.name
                await context.abort_with_status(rpc_status.to_status(to_status(refusal)))
            finally:
                self.calls[method, code] += 1

        return answers

    def _admitted(self, method: str, context: Any) -> str:
        """Refuses the call, or gives its trace context as it came."""
        metadata: Metadata = dict(context.invocation_metadata() or ())
        self._access.check(method, metadata.get(AUTHORIZATION))
        for guard in self._guards:
            guard(method, metadata)
        remaining_s = context.time_remaining()
        if remaining_s is not None and remaining_s < SHORTEST_S:
            raise errors.DeadlineExceeded("the deadline had passed when the call was begun")
        trace = metadata.get(TRACEPARENT, "")
        return trace if isinstance(trace, str) else ""

    def _refusal(self, method: str, error: Exception) -> errors.SextonError:
        if isinstance(error, errors.SextonError):
            return error
        if isinstance(error, aio.AbortError):  # a servicer of somebody else's, with its own words
            raise error
        if isinstance(error, TimeoutError):
            return errors.DeadlineExceeded(
                f"the call had no deadline and was given up after {self._default_timeout_s:g} s; "
                f"its outcome is unknown"
            )
        error_id = self._randomness.token_hex(8)
        _log.error(
            "A call failed by a fault of our own.",
            action="answer_call",
            method=method,
            error_id=error_id,
            exc_info=error,
        )
        return errors.Internal(error_id)


class _Unreadable:
    """Stands for a request that could not be read, until the gate refuses it."""

    def __init__(self, error: errors.SextonError) -> None:
        self.error = error


def _reading(deserialize: Callable[[bytes], Any] | None) -> Callable[[bytes], Any]:
    def read(raw: bytes) -> Any:
        if len(raw) > MAX_MESSAGE_BYTES:
            raise errors.TooLarge("request", len(raw), MAX_MESSAGE_BYTES)
        if deserialize is None:
            return raw
        try:
            return deserialize(raw)
        except DecodeError:
            expected = "a message of the method's request type"
            raise errors.InvalidArgument("request", raw, expected) from None

    return read


def _noting(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def note(raw: bytes) -> Any:
        try:
            return read(raw)
        except errors.SextonError as error:
            return _Unreadable(error)

    return note


def _require_readable(request: Any) -> None:
    if isinstance(request, _Unreadable):
        raise request.error


def _unimplemented(method: str) -> _Handler:
    async def refuse(_request: Any, context: Any) -> Any:
        error = errors.Unimplemented(
            f"there is no call {errors.shown(method)} here; the versions of the two sides differ, "
            f"or this is another service's address"
        )
        await context.abort_with_status(rpc_status.to_status(to_status(error)))

    return grpc.unary_unary_rpc_method_handler(refuse)

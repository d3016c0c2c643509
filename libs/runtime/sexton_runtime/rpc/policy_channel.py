"""What every call of ours has, over gRPC and over the simulated network alike.

A `PolicyChannel` wraps a channel and takes its place under the generated stubs: it adds the secret,
the incarnation and the trace context, gives a deadline to every call with one answer, turns failed
calls into `sexton.errors`, and cancels calls that are dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Generic, Protocol, Self, TypeVar, cast

import grpc
from grpc import aio
from opentelemetry import trace

from sexton import errors
from sexton._error_table import from_rpc_error
from sexton_runtime.rpc.wire import AUTHORIZATION, DEFAULT_TIMEOUT_S, INCARNATION, TRACEPARENT
from sexton_runtime.secrets import AnySecret, Secret

Answer = TypeVar("Answer")
Judge = Callable[[errors.SextonError], errors.SextonError]
"""Gives the error that a call is to fail with."""
_Pairs = tuple[tuple[str, str | bytes], ...]


class Cancellable(Protocol):
    """What can be cancelled: any call."""

    def cancel(self) -> bool:
        """Cancels it; no effect where it has ended."""
        ...


CallT = TypeVar("CallT", bound=Cancellable)


@asynccontextmanager
async def cancelling(call: CallT) -> AsyncIterator[CallT]:
    """Cancels a stream when its block is left, however it is left.

    A stream that is merely dropped lives on at both ends until it ends by itself.
    """
    try:
        yield call
    finally:
        call.cancel()


class PolicyChannel(aio.Channel):
    """A channel with Sexton's rules for every call.

    `incarnation` is added to every call once it is known; whoever learns it sets it. Streams have
    no deadline unless they are given one.
    """

    def __init__(
        self,
        channel: aio.Channel,
        *,
        secret: AnySecret = "",
        default_timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        self.incarnation = ""
        self._channel = channel
        self._secret = Secret.of(secret)
        self._default_timeout_s = default_timeout_s

    def metadata(self, given: Any = None) -> _Pairs:
        """Gives the metadata of a call that is made now."""
        secret = self._secret.shown
        pairs: _Pairs = ((AUTHORIZATION, f"Bearer {secret}"),) if secret else ()
        if self.incarnation:
            pairs = (*pairs, (INCARNATION, self.incarnation))
        span = trace.get_current_span().get_span_context()
        if span.is_valid:
            ids = f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
            pairs = (*pairs, (TRACEPARENT, ids))
        return (*pairs, *given) if given else pairs

    def unary_unary(self, *args: Any, **kwargs: Any) -> Any:
        """Gives the callable of a method with one request and one answer."""
        call = self._channel.unary_unary(*args, **kwargs)
        return self._callable(call, _UnaryCall, self._default_timeout_s)

    def unary_stream(self, *args: Any, **kwargs: Any) -> Any:
        """Gives the callable of a method with one request and a stream of answers."""
        return self._callable(self._channel.unary_stream(*args, **kwargs), _StreamCall, None)

    def stream_unary(self, *args: Any, **kwargs: Any) -> Any:
        """Gives the callable of a method with a stream of requests and one answer."""
        call = self._channel.stream_unary(*args, **kwargs)
        return self._callable(call, _StreamUnaryCall, self._default_timeout_s)

    def stream_stream(self, *args: Any, **kwargs: Any) -> Any:
        """Gives the callable of a method with streams both ways."""
        return self._callable(self._channel.stream_stream(*args, **kwargs), _StreamCall, None)

    async def close(self, grace: float | None = None) -> None:
        """Closes the channel; calls in flight are cancelled after `grace` seconds."""
        await self._channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:  # noqa: FBT001
        """Tells how the connection stands."""
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Waits until the connection stands otherwise than last observed."""
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Waits until there is a connection."""
        await self._channel.channel_ready()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _callable(
        self, call: Any, wrapper: type[_Call[Any]], default_timeout_s: float | None
    ) -> Callable[..., Any]:
        def invoke(
            request: Any = None,
            *,
            timeout: float | None = None,
            metadata: Any = None,
            wait_for_ready: bool | None = None,
            **options: Any,
        ) -> Any:
            shown = self._secret.shown
            try:
                return wrapper(
                    call(
                        request,
                        timeout=default_timeout_s if timeout is None else timeout,
                        metadata=self.metadata(metadata),
                        wait_for_ready=wait_for_ready,
                        **options,
                    ),
                    partial(self._judged, shown),
                )
            except aio.UsageError as error:
                raise errors.Unavailable(f"the call was not made: {error}") from error

        return invoke

    def _judged(self, shown: str, error: errors.SextonError) -> errors.SextonError:
        """Tells a secret that is not known from one that was replaced while a call showed it."""
        refused = isinstance(error, errors.Unauthenticated)
        if refused and next(iter(self._secret.look()), "") != shown:
            return errors.Unavailable("the secret was replaced; the call did not happen")
        return error


class _Call(Generic[Answer]):
    """A call in flight whose failures are ours; everything else is the wrapped call's own."""

    def __init__(self, call: Any, judge: Judge) -> None:
        self._call = call
        self._judge = judge

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    def __del__(self) -> None:
        call = self.__dict__.get("_call")
        if call is not None and not call.done():
            call.cancel()

    async def _failure(self, error: BaseException) -> BaseException:
        """Gives what to raise instead of an error of the wrapped call."""
        if isinstance(error, aio.AioRpcError):
            return self._judge(from_rpc_error(error))
        if isinstance(error, asyncio.InvalidStateError):  # written to after it had ended
            return await self._end()
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and not (task and task.cancelling()):
            # Nobody cancels the waiting task: the call was, by its channel's closing or by hand.
            return errors.Cancelled("the call was cancelled on this side; its outcome is unknown")
        return error

    async def _end(self) -> BaseException:
        code = await self._call.code()
        if code is grpc.StatusCode.OK:
            return errors.Unavailable("the other side has ended the stream")
        error = aio.AioRpcError(
            code,
            await self._call.initial_metadata(),
            await self._call.trailing_metadata(),
            await self._call.details(),
        )
        return self._judge(from_rpc_error(error))


class _Awaited(_Call[Answer]):
    def __await__(self) -> Generator[Any, None, Answer]:
        return self._answer().__await__()

    async def _answer(self) -> Answer:
        try:
            return cast("Answer", await self._call)
        except (aio.AioRpcError, asyncio.CancelledError) as error:
            raise await self._failure(error) from None


class _Written(_Call[Answer]):
    async def write(self, request: object) -> None:
        try:
            await self._call.write(request)
        except (aio.AioRpcError, asyncio.InvalidStateError, asyncio.CancelledError) as error:
            raise await self._failure(error) from None


class _UnaryCall(_Awaited[Answer]):
    """A call with one request and one answer."""


class _StreamUnaryCall(_Written[Answer], _Awaited[Answer]):
    """A call with a stream of requests and one answer."""


class _StreamCall(_Written[Answer]):
    """A call with a stream of answers. Iterate it or `read` it, not both."""

    def __aiter__(self) -> AsyncIterator[Answer]:
        return self._answers()

    async def read(self) -> Answer | Any:
        try:
            return await self._call.read()
        except (aio.AioRpcError, asyncio.CancelledError) as error:
            raise await self._failure(error) from None

    async def _answers(self) -> AsyncIterator[Answer]:
        try:
            async for answer in self._call:
                yield answer
        except (aio.AioRpcError, asyncio.CancelledError) as error:
            raise await self._failure(error) from None
        finally:
            self._call.cancel()

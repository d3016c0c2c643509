"""How calls travel: over grpc.aio, or over blocking gRPC.

The clients are written once, as coroutines over a `Wire`. The asynchronous client awaits them; the
blocking one has a wire whose coroutines never suspend, so that `drive` runs them to their end in
the caller's thread: no loop, no thread of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from contextlib import closing
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import grpc
from grpc import aio

from sexton import errors
from sexton._error_table import from_rpc_error
from sexton.tls import Channels, TlsFiles

Answer = TypeVar("Answer")
Result = TypeVar("Result")

MAX_MESSAGE_BYTES = 8 * 1024 * 1024
"""Where gRPC itself cuts; twice what a server takes, so that its own refusal answers."""

_OPTIONS = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    # Whether a call may be repeated is known to its caller only.
    ("grpc.enable_retries", 0),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
)

_BLOCKING_OPTIONS = (
    *_OPTIONS,
    # A stream is begun and read in its caller's thread. Otherwise gRPC makes the call first, and
    # then the thread that moves it: a Ctrl-C between the two leaves a call that nothing ends, and
    # closing the channel waits for it for ever.
    ("SingleThreadedUnaryStream", 1),
)

Metadata = tuple[tuple[str, str], ...]


class Call(NamedTuple):
    """What is to be called, with what."""

    stub: Callable[[Any], Any]
    """Makes a generated stub of a channel."""
    method: str
    request: Any
    metadata: Metadata = ()


class _Methods:
    """The methods of channels, made once: a stub makes all that its service has."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[Any, dict[tuple[Any, str], Any]]] = {}

    def begin(self, address: str, channel: Any, call: Call, timeout_s: float | None) -> Any:
        """Makes a call on the channel to an address."""
        known = self._of.get(address)
        if known is None or known[0] is not channel:  # nothing of one that was replaced is kept
            known = self._of[address] = channel, {}
        methods, name = known[1], (call.stub, call.method)
        method = methods.get(name)
        if method is None:
            method = methods[name] = getattr(call.stub(channel), call.method)
        return method(call.request, metadata=call.metadata, timeout=timeout_s)

    def forget(self) -> None:
        """Lets go of all channels."""
        self._of.clear()


class Wire(Protocol):
    """What the clients need of the world. Errors of calls are those of `sexton.errors`."""

    def monotonic_s(self) -> float:
        """Tells the time, from any origin."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Waits."""
        ...

    async def unary(self, address: str, call: Call, timeout_s: float) -> Any:
        """Makes a call with one answer."""
        ...

    def stream(
        self, address: str, call: Call, timeout_s: float | None
    ) -> AsyncGenerator[Any, None]:
        """Makes a call with a stream of answers, cancelled when the iterator is closed."""
        ...

    async def close(self) -> None:
        """Closes all connections. Idempotent."""
        ...


class AioWire:
    """Over grpc.aio, or over whatever else opens channels like its own."""

    def __init__(
        self,
        open_channel: Callable[[str], aio.Channel] | None = None,
        *,
        tls: TlsFiles | None = None,
    ) -> None:
        given = open_channel
        self._channels = Channels(_open_aio if given is None else lambda at, _: given(at), tls)
        self._methods = _Methods()

    def monotonic_s(self) -> float:
        """Tells the loop's time."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        """Waits."""
        await asyncio.sleep(seconds)

    async def unary(self, address: str, call: Call, timeout_s: float) -> Any:
        """Makes a call with one answer."""
        try:
            channel = self._channels.get(address)
            return await self._methods.begin(address, channel, call, timeout_s)
        except aio.AioRpcError as error:
            raise from_rpc_error(error) from None
        except aio.UsageError as error:
            raise errors.Unavailable(f"the call was not made: {error}") from error

    async def stream(
        self, address: str, call: Call, timeout_s: float | None
    ) -> AsyncGenerator[Any, None]:
        """Makes a call with a stream of answers."""
        channel = self._channels.get(address)
        answers = self._methods.begin(address, channel, call, timeout_s)
        try:
            async for answer in answers:
                yield answer
        except aio.AioRpcError as error:
            raise from_rpc_error(error) from None
        finally:
            answers.cancel()

    async def close(self) -> None:
        """Closes all connections."""
        self._methods.forget()
        for channel in self._channels.take_all():
            await channel.close()


class BlockingWire:
    """Over blocking gRPC. Its coroutines never suspend; see `drive`."""

    def __init__(self, *, tls: TlsFiles | None = None) -> None:
        self._channels = Channels(_open_blocking, tls)
        self._methods = _Methods()

    def monotonic_s(self) -> float:
        """Tells the time."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Blocks."""
        time.sleep(seconds)  # noqa: ASYNC251 - there is no loop that it could hold up

    async def unary(self, address: str, call: Call, timeout_s: float) -> Any:
        """Makes a call with one answer."""
        try:
            return self._methods.begin(address, self._channels.get(address), call, timeout_s)
        except grpc.RpcError as error:
            raise from_rpc_error(cast("grpc.Call", error)) from None

    async def stream(
        self, address: str, call: Call, timeout_s: float | None
    ) -> AsyncGenerator[Any, None]:
        """Makes a call with a stream of answers."""
        channel = self._channels.get(address)
        answers = self._methods.begin(address, channel, call, timeout_s)
        try:
            for answer in answers:
                yield answer
        except grpc.RpcError as error:
            raise from_rpc_error(cast("grpc.Call", error)) from None
        finally:
            answers.cancel()

    async def close(self) -> None:
        """Closes all connections."""
        self._methods.forget()
        for channel in self._channels.take_all():
            channel.close()


def _open_aio(address: str, tls: TlsFiles | None) -> aio.Channel:
    if tls is None:
        return aio.insecure_channel(address, _OPTIONS)
    options = _OPTIONS + tls.channel_options()
    return aio.secure_channel(address, tls.channel_credentials(), options)


def _open_blocking(address: str, tls: TlsFiles | None) -> grpc.Channel:
    if tls is None:
        return grpc.insecure_channel(address, _BLOCKING_OPTIONS)
    options = _BLOCKING_OPTIONS + tls.channel_options()
    return grpc.secure_channel(address, tls.channel_credentials(), options)


def drive(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Runs a coroutine over a `BlockingWire` to its end, in this thread."""
    with closing(coroutine):
        try:
            coroutine.send(None)
        except StopIteration as done:
            result: Result = done.value
            return result
    raise AssertionError("a coroutine over a blocking wire never suspends")


def drive_all(answers: AsyncIterator[Answer]) -> Iterator[Answer]:
    """Gives what an asynchronous generator over a `BlockingWire` yields; closes it at the end."""
    try:
        while True:
            try:
                answer = drive(_next(answers))
            except StopAsyncIteration:
                return
            yield answer
    finally:
        close: Any = getattr(answers, "aclose", None)
        if close is not None:
            drive(close())


async def _next(answers: AsyncIterator[Answer]) -> Answer:
    return await anext(answers)

"""Calls over HTTP, in a thread and loop of their own.

A call has no proxy, cookies or credentials but those that its job names: nothing is taken from the
environment, and nothing passes from one attempt to the next, not even a connection. Redirects are
followed within one origin; one that leads elsewhere would take headers and body with it.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import threading
import time
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

import httpx

from sexton_core.instants import SECOND, Duration
from sexton_worker.contract import (
    KIB,
    MAX_RESULT_BYTES,
    MAX_TAIL_BYTES,
    Ended,
    HttpWork,
    Listener,
    Order,
    head,
    tail,
)
from sexton_worker.executors.http_request import HttpRequest
from sexton_worker.output import Tail
from sexton_worker.strikeout import Strikeout

_CONNECT_TIMEOUT_S: Final = 30.0
"""For one connection; everything after it has the attempt's own time."""
_MAX_BODY_BYTES: Final = 16 * 1024 * KIB
"""Of a response, what is read; what comes after that is nobody's."""
_MAX_REDIRECTS: Final = 5
_CANT_BE_SENT: Final = (
    httpx.InvalidURL,
    httpx.UnsupportedProtocol,
    httpx.LocalProtocolError,
    UnicodeError,  # a host that is no domain name, as IDNA reads it
)
_READABLE: Final = ("json", "xml", "javascript", "yaml", "x-www-form-urlencoded")
"""Ends of types that are text, besides `text/`."""
_SHOWN_CHARACTERS: Final = 300
_WORTH_REPEATING: Final = frozenset({408, 421, 425, 429})
"""Of the 4xx: those that speak of the moment, not of the request."""


class _Body:
    """A response's body: its beginning as a result, its end as output, and nothing between."""

    def __init__(self) -> None:
        self.size = 0
        self.cut = False
        self.begin = bytearray()
        self.end = bytearray()

    def take(self, chunk: bytes) -> bool:
        """Takes a part; tells whether to read on."""
        self.size += len(chunk)
        self.begin += chunk[: max(0, MAX_RESULT_BYTES - len(self.begin))]
        self.end += chunk
        if len(self.end) > 4 * MAX_TAIL_BYTES:
            del self.end[: -2 * MAX_TAIL_BYTES]
        self.cut = self.size > _MAX_BODY_BYTES
        return not self.cut


class HttpExecutor:
    """Makes calls; says what became of them to a listener in the control part's loop."""

    def __init__(self, listener: Listener, control: asyncio.AbstractEventLoop) -> None:
        self._listener = listener
        self._control = control
        self._calls: dict[int, asyncio.Task[Ended] | None] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._tls: ssl.SSLContext | None = None
        self._none_left = asyncio.Event()

    # Called by the control part

    def __len__(self) -> int:
        """Tells how many calls are under way."""
        return len(self._calls)

    def __contains__(self, token: int) -> bool:
        return token in self._calls

    def begin(
        self,
        order: Order,
        work: HttpWork,
        request: HttpRequest,
        follow: Callable[[bytes], object] | None = None,
    ) -> None:
        """Begins an attempt. `follow` is given the answer as it comes, as far as it is text."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._loop.run_forever, name="sexton-http", daemon=True
            )
            self._thread.start()
        self._calls[order.ref.token] = None
        self._loop.call_soon_threadsafe(self._start, order.ref.token, work, request, follow)

    def cancel(self, token: int) -> None:
        """Closes an attempt's connection, wherever the call stands."""
        assert self._loop is not None, "what is cancelled has begun"
        self._loop.call_soon_threadsafe(self._cancel, token)

    async def stop(self) -> None:
        """Cancels every call, waits until each connection is closed, and ends the thread."""
        for token in list(self._calls):
            self.cancel(token)
        while self._calls:
            self._none_left.clear()
            await self._none_left.wait()
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            await asyncio.to_thread(self._thread.join)
            self._loop.close()
            self._loop = None

    # In the loop for calls

    def _start(
        self,
        token: int,
        work: HttpWork,
        request: HttpRequest,
        follow: Callable[[bytes], object] | None,
    ) -> None:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        assert self._loop is not None
        task = self._loop.create_task(call(request, work.expect, self._tls, follow))
        self._calls[token] = task
        task.add_done_callback(lambda done: self._say(token, done))

    def _cancel(self, token: int) -> None:
        task = self._calls.get(token)
        if task is not None:
            task.cancel()

    def _say(self, token: int, done: asyncio.Task[Ended]) -> None:
        if done.cancelled():
            ended = Ended.failure("cancelled", "the connection was closed")
        elif (error := done.exception()) is not None:
            ended = Ended.failure(type(error).__name__, str(error))
        else:
            ended = done.result()
        try:
            self._control.call_soon_threadsafe(self._deliver, token, ended)
        except RuntimeError:
            return  # the control part has ended, and this process with it

    def _deliver(self, token: int, ended: Ended) -> None:
        del self._calls[token]
        self._none_left.set()
        self._listener.ended(token, ended)


async def call(
    request: HttpRequest,
    expect: Collection[int],
    tls: ssl.SSLContext,
    follow: Callable[[bytes], object] | None = None,
) -> Ended:
    """Makes one call and gives what became of it. Closes its connection also when cancelled."""
    followed = Tail(1, follow=follow, secrets=request.secrets)
    timeout = httpx.Timeout(None, connect=_CONNECT_TIMEOUT_S)
    begun = time.monotonic()
    try:
        async with httpx.AsyncClient(verify=tls, trust_env=False, timeout=timeout) as client:
            response = await _answer(client, request, expect)
            body = _Body()
            followed.write(f"{_shown(response)}\n".encode())
            reads = follow is not None and _is_text(response)
            async for chunk in response.aiter_raw():
                if reads:
                    followed.write(chunk)
                if not body.take(chunk):
                    break
    except _CANT_BE_SENT as error:
        return Ended.failure("request", f"it can't be sent: {error}", for_good=True)
    except httpx.ConnectTimeout:
        return Ended.failure("connection", f"no connection within {_CONNECT_TIMEOUT_S:g} s")
    except httpx.ConnectError as error:
        return Ended.failure("connection", f"no connection: {_reason(error)}")
    except httpx.HTTPError as error:
        said = f"the connection broke ({_reason(error)}): whether it had its effect is unknown"
        return Ended.failure("connection", said)
    finally:
        followed.text()  # what is left of the last line is followed too
    return _judge(response, body, request, expect, time.monotonic() - begun)


async def _answer(
    client: httpx.AsyncClient, request: HttpRequest, expect: Collection[int]
) -> httpx.Response:
    headers = [(name.encode(), value.encode()) for name, value in request.headers.items()]
    sent = client.build_request(
        request.method, request.url, headers=headers, content=request.body or None
    )
    for _ in range(_MAX_REDIRECTS):
        response = await client.send(sent, stream=True)
        further = response.next_request
        if response.status_code in expect or further is None or not _same_origin(sent, further):
            return response
        await response.aclose()
        sent = further
    return await client.send(sent, stream=True)


def _same_origin(one: httpx.Request, other: httpx.Request) -> bool:
    return (one.url.scheme, one.url.host, one.url.port) == (
        other.url.scheme,
        other.url.host,
        other.url.port,
    )


def _judge(
    response: httpx.Response,
    body: _Body,
    request: HttpRequest,
    expect: Collection[int],
    took_s: float,
) -> Ended:
    status = response.status_code
    shown = _shown(response)
    kind = response.headers.get("content-type", "")
    text = _text(bytes(body.end), request.secrets)
    size = f"more than {_MAX_BODY_BYTES:,}" if body.cut else f"{body.size:,}"
    first = f"{shown}, {size} bytes{f' of {kind}' if kind else ''} after {took_s * 1_000:.0f} ms\n"
    output = first + tail(text, MAX_TAIL_BYTES - len(first.encode()))
    if status in expect if expect else response.is_success:
        return Ended(
            succeeded=True, result_json=_result(body, kind, request.secrets), output_tail=output
        )
    place = response.headers.get("location")
    said = f"{shown}: it redirects to {place}" if place and 300 <= status < 400 else shown
    lines = text.strip().splitlines()
    if lines and not place:
        said += f": {lines[0][:_SHOWN_CHARACTERS]}"
    return Ended.failure(
        f"http {status}",
        said,
        "",
        output,
        for_good=status < 500 and status not in _WORTH_REPEATING,
        retry_after=_retry_after(response),
    )


def _result(body: _Body, kind: str, secrets: Collection[bytes]) -> str:
    """Gives a body of JSON that is small enough, as it came; else nothing."""
    if body.size > MAX_RESULT_BYTES or "json" not in kind.partition(";")[0].lower():
        return ""
    text = _text(bytes(body.begin), secrets).strip()
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return ""
    return head(text, MAX_RESULT_BYTES)


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _text(data: bytes, secrets: Collection[bytes]) -> str:
    data = Strikeout(secrets).whole(data)
    return data.decode("utf-8", "replace").replace("\0", "\ufffd")


def _shown(response: httpx.Response) -> str:
    return f"{response.status_code} {_phrase(response)}".strip()


def _is_text(response: httpx.Response) -> bool:
    """Tells whether a person could read the body, by what its sender says of it."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    plain = not response.headers.get("content-encoding")
    return plain and (not kind or kind.startswith("text/") or kind.endswith(_READABLE))


def _phrase(response: httpx.Response) -> str:
    try:
        return HTTPStatus(response.status_code).phrase
    except ValueError:
        return response.reason_phrase


def _retry_after(response: httpx.Response) -> Duration:
    """Reads Retry-After, seconds or a date; 0 where it says nothing that can be read."""
    text = response.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit() and len(text) < 10:
        return int(text) * SECOND
    try:
        wait = parsedate_to_datetime(text) - datetime.now(UTC)
    except (ValueError, TypeError):
        return 0
    return max(0, round(wait.total_seconds() * SECOND))


def _reason(error: httpx.HTTPError) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate can't be verified: {cause.verify_message}"
        if isinstance(cause, OSError) and cause.errno:  # asyncio words it without the reason
            return os.strerror(cause.errno) if cause.errno > 0 else str(cause.strerror)
        cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__

"""Live updates: a page is rendered again while it is looked at, and sent where it has changed.

One stream of server-sent events per open page. What is sent is the page's own main part, made by
the same code as the page, so that there is one truth; the browser takes over what differs.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from typing import Any, Final
from urllib.parse import urlsplit

import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from sexton.errors import SextonError
from sexton_console.web.render import PARTIAL
from sexton_console.web.urls import local_path

MAX_STREAMS: Final = 50
"""Open pages; further ones are shown, but stand still."""
EVERY_S: Final = 1.0
"""Between two looks."""
_QUIET_S: Final = 15.0
"""Something is sent at least this often, so that both sides notice when the other is gone."""
_LONGEST_S: Final = 600.0
"""Then the browser asks anew, with whatever session it has by then."""

_AWAY: Final = b"away"
"""Stands for what was sent last where that was no page."""

_log = structlog.get_logger(__name__)


class Live:
    """Streams pages; `site` renders them."""

    def __init__(self, site: Starlette) -> None:
        self.site = site
        self.stopping = asyncio.Event()
        self.open = 0
        """Streams."""

    async def stream(self, request: Request) -> Response:
        """Serves `/live?at=PATH`."""
        at = local_path(request.query_params.get("at", "/"))
        if self.open >= MAX_STREAMS:
            return PlainTextResponse("Too many pages are open; reload this one.\n", 503)
        return _Stream(self, self._events(request, at))

    async def _events(self, request: Request, at: str) -> AsyncGenerator[str, None]:
        loop = asyncio.get_running_loop()
        began = said = loop.time()
        before = b""
        yield "retry: 2000\n\n"
        while not self.stopping.is_set() and loop.time() - began < _LONGEST_S:
            body = await self._render(request.scope, at)
            if body is None and before != _AWAY:
                before, said = _AWAY, loop.time()
                yield _event("away", "stands still")
            elif body is not None:
                digest = hashlib.blake2b(body, digest_size=16).digest()
                if digest != before:
                    before, said = digest, loop.time()
                    yield _event("main", body.decode())
            if loop.time() - said > _QUIET_S:
                said = loop.time()
                yield ": still here\n\n"
            try:
                async with asyncio.timeout(EVERY_S):
                    await self.stopping.wait()
            except TimeoutError:
                continue

    async def _render(self, asked: Scope, at: str) -> bytes | None:
        """Renders the main part of a page; None where it can't be rendered now."""
        parts = urlsplit(at)
        scope: dict[str, Any] = {
            **asked,
            "path": parts.path,
            "raw_path": parts.path.encode(),
            "query_string": parts.query.encode(),
            "method": "GET",
            "headers": [*asked["headers"], (b"accept", b"text/plain")],
            PARTIAL: True,
        }
        for name in ("endpoint", "path_params", "app", "router", "state"):
            scope.pop(name, None)
        status, body = 0, bytearray()

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                body.extend(message.get("body", b""))

        try:
            await self.site(scope, receive, send)
        except SextonError:
            return None
        except Exception:  # noqa: BLE001 - the stream goes on; the page may be well again
            _log.exception("A page could not be made again.", action="live", page=parts.path)
            return None
        return bytes(body) if status == 200 else None


class _Stream(StreamingResponse):
    """Counts as open until it ends, and ends for a reader that takes nothing, too."""

    def __init__(self, live: Live, events: AsyncGenerator[str, None]) -> None:
        # A proxy must not keep events back until there are many of them.
        headers = {"x-accel-buffering": "no"}
        super().__init__(events, headers=headers, media_type="text/event-stream")
        self._live = live
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._live.open += 1
        try:
            async with asyncio.timeout(_LONGEST_S + _QUIET_S):
                await super().__call__(scope, receive, send)
        except TimeoutError:
            _log.info("A page took nothing of what it was sent.", action="live")
        finally:
            self._live.open -= 1
            await self._events.aclose()


def _event(name: str, text: str) -> str:
    lines = "".join(f"data: {line}\n" for line in text.split("\n"))
    return f"event: {name}\n{lines}\n"

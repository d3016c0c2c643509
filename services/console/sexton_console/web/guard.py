"""What every request passes before a page sees it: host, session, origin, size; and the headers.

An ASGI middleware, so that it holds for pages, streams, actions and files alike.
"""

from __future__ import annotations

import time
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sexton_console.web.sessions import COOKIE, Session, Sessions
from sexton_console.web.urls import with_query

MAX_BODY_BYTES: Final = 64 * 1024
"""Of a form; there are no uploads."""
_MAX_URL_BYTES: Final = 8 * 1024
_OPEN: Final = ("/static/", "/login", "/health")
"""What is shown to whoever asks."""
_SAFE: Final = frozenset({"GET", "HEAD"})

_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


class Guard:
    """Lets requests in, with `scope["session"]` set; answers all others itself."""

    def __init__(self, app: ASGIApp, *, sessions: Sessions, hosts: frozenset[str]) -> None:
        """`hosts`: what `Host` may say, with the port where it is not the usual one."""
        self._app = app
        self._sessions = sessions
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves a request."""
        if scope["type"] != "http":
            return
        began = time.perf_counter()
        answer = self._refusal(scope)

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message["headers"])
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
                took_ms = (time.perf_counter() - began) * 1_000
                headers["server-timing"] = f"total;dur={took_ms:.1f}"
            await send(message)

        await (answer or self._app)(scope, receive, send_safely)

    def _refusal(self, scope: Scope) -> Response | None:
        connection = HTTPConnection(scope)
        headers = connection.headers
        if headers.get("host", "").lower() not in self._hosts:
            # A name of somebody else's that leads here (DNS rebinding) would make their pages ours.
            return _refuse(
                421, "This console is not served under that name; start it with --hosts NAME."
            )
        if len(scope["raw_path"]) + len(scope["query_string"]) > _MAX_URL_BYTES:
            return _refuse(414, "The address is too long.")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
            return _refuse(413, f"A request has at most {MAX_BODY_BYTES} bytes.")
        session = self._session(connection, headers)
        scope["session"] = session
        if scope["method"] not in _SAFE and not _same_site(headers):
            return _refuse(403, "The request comes from a page of another site.")
        if session is None and not scope["path"].startswith(_OPEN):
            wants_page = "text/html" in headers.get("accept", "")
            if scope["method"] in _SAFE and wants_page:
                target = scope["path"]
                if scope["query_string"]:
                    target += "?" + scope["query_string"].decode("latin-1")
                return RedirectResponse(with_query("/login", next=target), status_code=303)
            return _refuse(401, "Log in, or send `authorization: Bearer <client secret>`.")
        return None

    def _session(self, connection: HTTPConnection, headers: Headers) -> Session | None:
        if self._sessions.open:
            return self._sessions.everybody()
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self._sessions.of_secret(secret.strip())
        return self._sessions.read(connection.cookies.get(COOKIE, ""), time.time())


def allowed_hosts(host: str, port: int, names: tuple[str, ...]) -> frozenset[str]:
    """Gives what `Host` may say for a server that listens there."""
    shown = f"[{host}]" if ":" in host else host
    own = {shown, "127.0.0.1", "localhost", "[::1]"} - {"0.0.0.0", "[::]"}  # noqa: S104
    with_port = {name.lower() for name in names if ":" in name.rpartition("]")[2]}
    plain = {name.lower() for name in names} - with_port
    found = {f"{name}:{port}" for name in own | plain} | with_port
    return frozenset(found | plain | (own if port == 80 else set()))


def _same_site(headers: Headers) -> bool:
    """Tells whether a browser says that a page of ours makes the request; programs say nothing."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc == headers.get("host")


def _refuse(status: int, text: str) -> Response:
    return PlainTextResponse(f"{text}\n", status_code=status)

"""The site: which page is where, what is said where something fails, and who is let in."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from sexton import errors
from sexton_console.web import actions, data
from sexton_console.web.desk import Desk, desk_of
from sexton_console.web.forms import form_of
from sexton_console.web.guard import MAX_BODY_BYTES, Guard
from sexton_console.web.live import Live
from sexton_console.web.pages import (
    agenda,
    backfills,
    dead,
    job,
    jobs,
    mesh,
    now,
    queues,
    run,
    runs,
    trace,
    why,
)
from sexton_console.web.render import STATIC, render
from sexton_console.web.sessions import COOKIE, SESSION_S, Access
from sexton_console.web.urls import local_path, with_query
from sexton_core.errors import FieldError

Page = Callable[[Request], Awaitable[Response]]

_PAGES: Final[tuple[tuple[str, Page], ...]] = (
    ("/", now.show),
    ("/agenda", agenda.show),
    ("/jobs", jobs.show),
    ("/jobs/{namespace}/{job}", job.show),
    ("/jobs/{namespace}/{job}/backfills", backfills.show),
    ("/runs", runs.show),
    ("/runs/{namespace}/{job}/{run}", run.show),
    ("/why", why.show),
    ("/queues", queues.show),
    ("/dead-letters", dead.show),
    ("/mesh", mesh.show),
    ("/traces/{trace}", trace.show),
)
_STATUS: Final[tuple[tuple[type[errors.SextonError], int], ...]] = (
    (errors.NotFound, 404),
    (errors.InvalidArgument, 400),
    (errors.TooLarge, 400),
    (errors.Unauthenticated, 502),
    (errors.PermissionDenied, 502),
    (errors.Refused, 409),
    (errors.Conflict, 409),
    (errors.AlreadyExists, 409),
    (errors.Unimplemented, 501),
    (errors.Unavailable, 503),
    (errors.DeadlineExceeded, 504),
    (errors.SextonError, 502),
)
"""The HTTP status of each error, the most special first."""


def build_site(desk: Desk, *, hosts: frozenset[str]) -> Starlette:
    """Makes the application."""
    pages = [
        Route(path, _watched(page), methods=["GET"]) for path, page in (*_PAGES, ("/help", _help))
    ]
    live = Live(Starlette(routes=pages))
    site = Starlette(
        routes=[
            *pages,
            *actions.routes(),
            *data.routes(),
            Route("/live", live.stream, methods=["GET"]),
            Route("/login", _login, methods=["GET", "POST"]),
            Route("/logout", _logout, methods=["POST"]),
            Route("/health", _health, methods=["GET"]),
            Mount("/static", _Static(directory=STATIC)),
        ],
        middleware=[Middleware(Guard, sessions=desk.sessions, hosts=hosts)],
        exception_handlers={
            errors.SextonError: _failed,
            FieldError: _unfit,
            404: _no_page,
            405: _no_page,
            413: _no_page,
        },
        max_body_size=MAX_BODY_BYTES,
    )
    site.state.desk = desk
    live.site.state.desk = desk
    site.state.live = live
    return site


class _Static(StaticFiles):
    """Our files; their addresses change with their content, so that browsers may keep them."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        answer = await super().get_response(path, scope)
        if b"v=" in scope.get("query_string", b""):
            answer.headers["cache-control"] = "public, max-age=31536000, immutable"
        return answer


def _watched(page: Page) -> Page:
    """Has the follower know that somebody looks."""

    async def show(request: Request) -> Response:
        desk_of(request).follower.somebody_watches()
        return await page(request)

    return show


async def _failed(request: Request, error: Exception) -> Response:
    status = next(status for kind, status in _STATUS if isinstance(error, kind))
    return _say(request, status, str(error))


async def _unfit(request: Request, error: Exception) -> Response:
    return _say(request, 400, str(error))


async def _no_page(request: Request, error: Exception) -> Response:
    status = int(getattr(error, "status_code", 404))
    return _say(request, status, "There is no page at this address.")


def _say(request: Request, status: int, text: str) -> Response:
    if "text/html" in request.headers.get("accept", ""):
        return render(request, "error.html", status=status, title="Not possible", text=text)
    return PlainTextResponse(f"{text}\n", status_code=status)


async def _help(request: Request) -> Response:
    return render(request, "help.html", title="Help", section="help")


async def _health(request: Request) -> Response:
    """Says whether the mesh could be read lately; open, so it says no more."""
    good = not desk_of(request).follower.problem
    return PlainTextResponse("ok\n" if good else "the mesh does not answer\n", 200 if good else 503)


async def _login(request: Request) -> Response:
    desk = desk_of(request)
    given = request.query_params
    target = local_path(given.get("next", "/"))
    access: Access | None = None
    if request.method == "POST":
        form = await form_of(request)
        target = local_path(form.get("next", "/"))
        access = desk.sessions.access_of(form.get("secret", "").strip())
    elif given.get("ticket"):
        access = desk.sessions.use_ticket(given["ticket"], time.time())
    known = request.method != "POST" and request.scope["session"] is not None
    if desk.sessions.open or (access is None and known):
        return RedirectResponse(target, status_code=303)
    if access is None:
        wrong = request.method == "POST" or bool(given.get("ticket"))
        context: dict[str, Any] = {"wrong": wrong, "used": bool(given.get("ticket"))}
        return render(
            request,
            "login.html",
            status=403 if wrong else 200,
            title="Log in",
            next=target,
            hint=desk.hint,
            **context,
        )
    answer = RedirectResponse(target, status_code=303)
    answer.set_cookie(
        COOKIE,
        desk.sessions.begin(access, time.time()),
        max_age=SESSION_S,
        httponly=True,
        samesite="strict",
        secure=_over_tls(request),
    )
    return answer


def _over_tls(request: Request) -> bool:
    """Tells whether a browser came by TLS; whoever lies here only loses their own login."""
    told = request.headers.get("x-forwarded-proto", request.url.scheme)
    return told.partition(",")[0].strip().lower() == "https"


async def _logout(_: Request) -> Response:
    answer = RedirectResponse(with_query("/login"), status_code=303)
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer

"""How an action is asked for and done: a page that asks, and a form that does."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from sexton_console.web.desk import Desk, desk_of
from sexton_console.web.forms import form_of
from sexton_console.web.render import render
from sexton_console.web.urls import with_query

REASON: Final = "from the console"
MAX_REASON: Final = 200
"""Characters, as the API takes them."""

Done: TypeAlias = tuple[str, str]
"""What became of it in a sentence, and where to look now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One action on one thing."""

    title: str
    question: str
    button: str
    back: str
    """Where whoever changes their mind goes."""
    do: Callable[[Desk, Mapping[str, str]], Awaitable[Done]]
    cli: str
    sdk: str
    fields: Mapping[str, str] = field(default_factory=dict)
    """Of the form, with their values; `reason` and `mode` are shown to be changed."""
    choices: Mapping[str, str] = field(default_factory=dict)
    """What `mode` may be, each with what it means."""
    lines: Sequence[str] = ()
    """What it is about, one by one."""
    danger: bool = False


def endpoint(find: Callable[[Request], Awaitable[Action]]) -> Callable[[Request], Any]:
    """Makes what serves an action: GET asks, POST does.

    A browser's form carries a token of its login, so that no other page can send it. A program that
    sends the secret itself was not lured here by another page.
    """

    async def serve(request: Request) -> Response:
        session = request.scope["session"]
        if not session.may_act:
            return PlainTextResponse("This login may look and not act.\n", 403)
        desk = desk_of(request)
        action = await find(request)
        if request.method != "POST":  # HEAD is a GET whose answer nobody reads
            curl = _curl(request, action)
            return render(request, "action.html", title=action.title, action=action, curl=curl)
        form = await form_of(request)
        if session.nonce and not desk.sessions.form_is_ours(session, form.get("token", "")):
            return PlainTextResponse("The form is not one of this login; load it again.\n", 403)
        said, where = await action.do(desk, form)
        desk.forget()
        if "text/html" not in request.headers.get("accept", ""):
            return JSONResponse({"done": said, "see": where})
        return RedirectResponse(with_query(where, done=said), status_code=303)

    return serve


def reason_of(form: Mapping[str, str]) -> str:
    """Gives why it is done, as whoever does it has said."""
    return form.get("reason", REASON)[:MAX_REASON]


def _curl(request: Request, action: Action) -> str:
    """Gives the same action for a shell without Sexton."""
    lines = [
        shlex.join(["curl", "-X", "POST", str(request.url)]),
        '-H "Authorization: Bearer $(cat "$SEXTON_CLIENT_SECRET_FILE")"',
    ]
    for name, value in action.fields.items():
        lines.append(f"--data-urlencode {shlex.quote(f'{name}={value}')}")
    return " \\\n  ".join(lines)

"""Pages from templates: everything that is put into one is escaped, unless we made it ourselves."""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse

from sexton_console import words
from sexton_console.web import times, urls
from sexton_console.web.desk import desk_of

STATIC: Final = Path(__file__).with_name("static")
PARTIAL: Final = "sexton.partial"
"""In a request's scope: only what changes is rendered, for a live update."""

_ESCAPE_SEQUENCE: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,1000}(?:\x07|\x1b\\)|[@-Z\\^_])"
)
"""Of terminals: colours and movements (CSI), titles and links (OSC), and short ones."""
_THIN_SPACE: Final = "\u202f"
_HARMLESS: Final = f"\n\t{_THIN_SPACE}"
_MARKED: Final = {
    "failed", "timed_out", "lost", "expired", "succeeded", "running", "waiting", "retrying",
    "cancelling", "terminating", "cancelled", "terminated", "assigned", "started", "returned",
    "fired", "skipped", "missed", "dropped", "excluded", "buffered", "due", "forecast", "paused",
    "active", "connected", "draining", "leading", "standby", "starting", "done",
}  # fmt: skip


def render(request: Request, template: str, *, status: int = 200, **context: Any) -> HTMLResponse:
    """Gives a page. `live`: whether it is kept up to date; `title` and `section` name it."""
    desk = desk_of(request)
    session = request.scope.get("session")
    shown = {
        "partial": bool(request.scope.get(PARTIAL)),
        "request": request,
        "session": session,
        "token": desk.sessions.form_token(session) if session else "",
        "address": request.url.path + (f"?{request.url.query}" if request.url.query else ""),
        "problem": desk.follower.problem,
        "now": desk.clock.wall_ns(),
        "live": False,
        "section": "",
    } | context
    text = environment().get_template(template).render(shown)
    return HTMLResponse(text, status_code=status)


@cache
def environment() -> Environment:
    """Makes the environment of all templates, once."""
    made = Environment(
        loader=PackageLoader("sexton_console", "web/templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_plain,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(
        when=times.when,
        iso=times.iso,
        span=words.span,
        with_query=urls.with_query,
        job_url=urls.job_url,
        run_url=urls.run_url,
        run_url_of=urls.run_url_of,
        trace_url=urls.trace_url,
        static=static_url,
        mark=mark,
        zip=zip,
        round=round,
        min=min,
        max=max,
    )
    made.filters.update(number=number, bytes=byte_count, pretty=pretty_json)
    return made


@cache
def static_url(name: str) -> str:
    """Gives the address of a file of ours, which changes with its content."""
    digest = hashlib.blake2b((STATIC / name).read_bytes(), digest_size=6).hexdigest()
    return f"/static/{name}?v={digest}"


def mark(state: str, *, alone: bool = False) -> Markup:
    """Gives a state: its shape in its colour, and its word. Never by colour alone."""
    shape = state if state in _MARKED else "unknown"
    word = state.replace("_", " ")
    svg = Markup(
        '<svg class="mark s-{0}" viewBox="0 0 16 16" aria-hidden="true"><use href="#m-{0}"/></svg>'
    ).format(shape)
    if alone:
        return Markup(
            '<span class="state" title="{0}">{1}<span class="unseen">{0}</span></span>'
        ).format(word, svg)
    return Markup('<span class="state s-{}">{}{}</span>').format(shape, svg, word)


def number(value: float) -> str:
    """Gives a number with groups of three, whole where it is large."""
    if isinstance(value, int) or value >= 100 or value == int(value):
        return f"{round(value):,}".replace(",", _THIN_SPACE)
    return f"{value:.1f}"


def byte_count(value: float) -> str:
    """Gives a number of bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def output_text(text: str) -> str:
    """Gives what a task wrote, as text: colours and cursor movements go, other controls show."""
    if text.isprintable():
        return text
    plain = _ESCAPE_SEQUENCE.sub("", text).replace("\r\n", "\n")
    return "".join(_visible(c) for c in plain)


def pretty_json(text: str) -> str:
    """Gives JSON indented; as it is where it is none."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def _plain(value: object) -> object:
    """Makes harmless whatever a template shows: anything may come from a task, or from a user."""
    return output_text(value) if type(value) is str else value


def _visible(character: str) -> str:
    if character in _HARMLESS or character.isprintable():
        return character
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)  # the pictures of control characters
    return "\u2421" if code == 0x7F else f"\\u{code:04x}"

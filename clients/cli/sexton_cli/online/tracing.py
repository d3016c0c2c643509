"""The work of `sexton runs trace` and `sexton runs logs`: a run's way and its output, as text."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from datetime import UTC, datetime
from typing import Any, Final

from sexton import errors
from sexton._settings import Settings
from sexton._values import run_name
from sexton.v1 import run_pb2
from sexton_cli.online.console import Console
from sexton_cli.online.session import Target, explained, settings_of
from sexton_cli.output import Format, print_data, print_line
from sexton_console.mesh.api import MeshApi
from sexton_console.traces.model import Span
from sexton_console.traces.rail import Rail, rail_of
from sexton_console.traces.waterfall import Bar, Waterfall, attempts_of, pushed_at, waterfall
from sexton_console.web.render import output_text
from sexton_console.words import run_parts, span
from sexton_runtime import otlp

_NAME: Final = 30
_TOOK: Final = 9
_NARROWEST: Final = 20
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"


def read_run(target: Target, run: str) -> run_pb2.Run:
    """Reads a run as the mesh has it.

    Raises:
        CliError: there is none, or the mesh does not answer.
    """
    found = settings_of(target)
    try:
        return asyncio.run(_read_run(found, run_name(run, found.namespace)))
    except errors.SextonError as error:
        raise explained(error, found.addresses) from None


def show_trace(run: run_pb2.Run, console: Console | None, output: Format) -> None:
    """Prints a run's waterfall: from its record, and from the spans that the console has of it."""
    path = api_path(run)
    told = console.get(f"{path}/trace") if console is not None else None
    spans = [_span(each) for each in told["spans"]] if told is not None else []
    if print_data(_data(run, told), output):
        return
    rail = rail_of(run, time.time_ns(), pushed_at(spans))
    falls = waterfall(rail, spans, (), attempts_of(otlp.trace_of(run.traceparent), rail))
    print_line(f"{'/'.join(run_parts(run.name))}: {rail.state}, {span(falls.whole_s)} in all")
    print_line(f"from {_clock(rail.start)} UTC on; trace {run.traceparent[3:35] or 'none'}")
    print_line()
    for line in drawn(falls, shutil.get_terminal_size((100, 24)).columns):
        print_line(line)
    if rail.left_out > 0:
        print_line(f"{rail.left_out} attempts in between are not kept")
    if console is None:
        print_line("from the run's record alone; a console knows the spans of its task too")
    elif told is None:
        print_line(f"the console at {console.url} does not answer; from the run's record alone")


def show_logs(
    run: run_pb2.Run, console: Console | None, *, follow: bool, attempt: int | None, times: bool
) -> None:
    """Prints what a run wrote: all of it where there is a console, else the last of each attempt.

    Raises:
        Unavailable: the console breaks off.
    """
    if console is None:
        _show_tails(run, attempt)
        return
    query = "?follow=1" if follow else ""
    seen = False
    for line in console.lines(f"{api_path(run)}/logs{query}"):
        if attempt is None or line["attributes"].get("sexton.attempt") == attempt:
            seen = True
            before = f"{_clock(line['time_ns'])}  " if times else ""
            print_line(before + output_text(line["body"]))
            sys.stdout.flush()
    if not seen:
        _show_tails(run, attempt)


def drawn(falls: Waterfall, columns: int) -> list[str]:
    """Draws a waterfall in so many columns."""
    width = max(_NARROWEST, columns - _NAME - _TOOK - 4)
    lines = []
    for bar in falls.bars:
        ended = f" {bar.state.replace('_', ' ')}" if bar.kind == "attempt" else ""
        name = f"{'  ' * min(bar.depth, 8)}{bar.name}{ended}"
        shown = name if len(name) <= _NAME else name[: _NAME - 1] + "…"
        took = span(bar.took_s) + ("…" if bar.open else "")
        lines.append(f"{shown:{_NAME}}  {_bar(bar, width)}  {took:>{_TOOK}}".rstrip())
        if bar.kind == "gap" and bar.took_s >= falls.whole_s / 20:
            lines.append(f"{'':{_NAME}}  {'  ' * min(bar.depth, 8)}{bar.detail}")
        if bar.failed and bar.detail:
            lines.append(f"{'':{_NAME}}  failed: {bar.detail}")
    return lines


def api_path(run: run_pb2.Run) -> str:
    """Gives where the console answers for a run."""
    return "/api/runs/" + "/".join(run_parts(run.name))


async def _read_run(found: Settings, name: str) -> run_pb2.Run:
    api = MeshApi(found)
    try:
        return await api.run(name)
    finally:
        await api.close()


def _bar(bar: Bar, width: int) -> str:
    """Draws a bar in characters; its end is exact to an eighth of one."""
    start = min(width - 1, int(bar.left * width))
    eighths = max(1, round(bar.width * width * 8))
    full, rest = divmod(eighths, 8)
    body = "█" * min(full, width - start) + (_EIGHTHS[rest].strip() if full < width - start else "")
    return f"{' ' * start}{body}".ljust(width)


def _show_tails(run: run_pb2.Run, attempt: int | None) -> None:
    for each in run.attempts:
        if each.output_tail and attempt in (None, each.number):
            for line in output_text(each.output_tail).splitlines():
                print_line(line)


def _data(run: run_pb2.Run, told: Any) -> dict[str, Any]:
    rail: Rail = rail_of(run, time.time_ns())
    return {
        "run": "/".join(run_parts(run.name)),
        "state": rail.state,
        "traceparent": run.traceparent or None,
        "moments": [
            {"name": each.name, "time_ns": each.at, "attempt": each.attempt}
            for each in rail.moments
        ],
        "gaps": [
            {"name": each.name, "cause": each.cause, "start_ns": each.start, "end_ns": each.end,
             "attempt": each.attempt, "open": each.open}
            for each in rail.gaps
        ],
        "spans": told["spans"] if told is not None else None,
    }  # fmt: skip


def _span(told: dict[str, Any]) -> Span:
    return Span(
        span_id=told["span_id"],
        parent_id=told["parent_id"],
        name=told["name"],
        kind=told["kind"],
        start=told["start_ns"],
        end=told["end_ns"],
        service=told["service"],
        failed=told["failed"],
        message=told["message"],
        attributes=told["attributes"],
    )


def _clock(time_ns: int) -> str:
    moment = datetime.fromtimestamp(time_ns / 1e9, UTC)
    return f"{moment:%H:%M:%S}.{time_ns // 1_000_000 % 1_000:03d}"

"""What can be done to a run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import NamedTuple

from starlette.requests import Request

from sexton_console.web.actions.asking import REASON, Action, Done, reason_of
from sexton_console.web.actions.of_jobs import new_id
from sexton_console.web.desk import Desk
from sexton_console.web.urls import run_url, run_url_of
from sexton_console.words import run_name


class _Run(NamedTuple):
    name: str
    full: str
    url: str


async def cancel(request: Request) -> Action:
    """Asks a run to end."""
    return _end(
        _run(request),
        "cancel",
        "A waiting run ends at once, a running one when its task has ended itself.",
        "Cancel the run",
    )


async def terminate(request: Request) -> Action:
    """Has a run killed."""
    return _end(
        _run(request),
        "terminate",
        "It is killed at once; what it was doing stays half done.",
        "Terminate the run",
    )


async def retry(request: Request) -> Action:
    """Runs an ended run again."""
    run = _run(request)

    async def do(desk: Desk, form: Mapping[str, str]) -> Done:
        answer = await desk.api.retry(run.name, form.get("request_id") or new_id())
        if answer.HasField("run"):
            return "A new run was started.", run_url_of(answer.run.name)
        return f"No run was started: {answer.decision}, {answer.reason}.", run.url

    return Action(
        title="Run this again?",
        question="A new run of the job as it is defined now, which names this one.",
        button="Run again",
        back=run.url,
        do=do,
        fields={"request_id": new_id()},
        cli=shlex.join(["sexton", "runs", "retry", run.full]),
        sdk=f"client.runs.retry({run.full!r})",
    )


def _end(run: _Run, word: str, question: str, button: str) -> Action:
    terminates = word == "terminate"

    async def do(desk: Desk, form: Mapping[str, str]) -> Done:
        await desk.api.end_run(run.name, reason_of(form), terminate=terminates)
        return "Its end was asked for.", run.url

    return Action(
        title=f"{word.capitalize()} this run?",
        question=question,
        button=button,
        back=run.url,
        do=do,
        fields={"reason": REASON},
        danger=terminates,
        cli=shlex.join(["sexton", "runs", word, run.full, "--reason", REASON]),
        sdk=f"client.runs.{word}({run.full!r}, reason={REASON!r})",
    )


def _run(request: Request) -> _Run:
    parts = [request.path_params[name] for name in ("namespace", "job", "run")]
    return _Run(run_name(*parts), "/".join(parts), run_url(*parts))

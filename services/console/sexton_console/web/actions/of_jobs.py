"""What can be done to a job."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Mapping
from typing import Final, NamedTuple

from starlette.requests import Request

from sexton.v1 import scheduler_pb2 as api
from sexton_console.web.actions.asking import REASON, Action, Done, reason_of
from sexton_console.web.desk import Desk, desk_of
from sexton_console.web.urls import job_url, run_url_of
from sexton_console.words import job_name

_MODES: Final = {
    "next": ("Wait for the next time", api.RESUME_MODE_NEXT),
    "now": ("Start the newest missed time at once", api.RESUME_MODE_NOW),
    "catch_up": ("Catch up, as after an outage", api.RESUME_MODE_CATCH_UP),
}


class JobHere(NamedTuple):
    """The job that an address names."""

    name: str
    full: str
    url: str


async def pause(request: Request) -> Action:
    """Stops new starts."""
    job = job_of(request)

    async def do(desk: Desk, form: Mapping[str, str]) -> Done:
        await desk.api.pause(job.name, reason_of(form))
        return f"{job.full} is paused.", job.url

    return Action(
        title=f"Pause {job.full}?",
        question="No further run of it starts until it is resumed. Live runs go on.",
        button="Pause",
        back=job.url,
        do=do,
        fields={"reason": REASON},
        cli=shlex.join(["sexton", "jobs", "pause", job.full, "--reason", REASON]),
        sdk=f"client.jobs.pause({job.full!r}, reason={REASON!r})",
    )


async def resume(request: Request) -> Action:
    """Lets a job start again."""
    job = job_of(request)

    async def do(desk: Desk, form: Mapping[str, str]) -> Done:
        _, mode = _MODES.get(form.get("mode", ""), _MODES["next"])
        await desk.api.resume(job.name, mode)
        return f"{job.full} is active again.", job.url

    return Action(
        title=f"Resume {job.full}?",
        question="What becomes of the times that the pause passed over?",
        button="Resume",
        back=job.url,
        do=do,
        fields={"mode": "next"},
        choices={mode: text for mode, (text, _) in _MODES.items()},
        cli=shlex.join(["sexton", "jobs", "resume", job.full, "--mode", "next"]),
        sdk=f"client.jobs.resume({job.full!r}, mode=sexton.ResumeMode.NEXT)",
    )


async def trigger(request: Request) -> Action:
    """Starts a run."""
    job = job_of(request)

    async def do(desk: Desk, form: Mapping[str, str]) -> Done:
        answer = await desk.api.trigger(job.name, form.get("request_id") or new_id())
        if answer.HasField("run"):
            return "A run was started.", run_url_of(answer.run.name)
        return f"No run was started: {answer.decision}, {answer.reason}.", job.url

    return Action(
        title=f"Run {job.full} now?",
        question="It goes through the same gate as every start: a live run may hold it up.",
        button="Run now",
        back=job.url,
        do=do,
        fields={"request_id": new_id()},
        cli=shlex.join(["sexton", "jobs", "trigger", job.full]),
        sdk=f"client.jobs.trigger({job.full!r})",
    )


async def delete(request: Request) -> Action:
    """Deletes a job, this incarnation of it."""
    job = job_of(request)
    found = await desk_of(request).api.job(job.name)

    async def do(desk: Desk, form: Mapping[str, str]) -> Done:
        await desk.api.delete(job.name, form.get("uid") or found.uid)
        return f"{job.full} is deleted.", "/jobs"

    return Action(
        title=f"Delete {job.full}?",
        question=f"Its definition and its ledger go; its {len(found.live_runs)} live runs are "
        "cancelled. Runs that have ended are listed for as long as they are kept.",
        button="Delete",
        back=job.url,
        do=do,
        fields={"uid": found.uid},
        danger=True,
        cli=shlex.join(["sexton", "jobs", "delete", job.full]),
        sdk=f"client.jobs.delete(client.jobs.get({job.full!r}))",
    )


def new_id() -> str:
    """Makes the id of a request: sent twice, it has one effect."""
    return secrets.token_hex(16)


def job_of(request: Request) -> JobHere:
    """Gives the job of an address."""
    namespace, short = request.path_params["namespace"], request.path_params["job"]
    return JobHere(job_name(namespace, short), f"{namespace}/{short}", job_url(namespace, short))

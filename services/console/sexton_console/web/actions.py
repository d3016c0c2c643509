"""What can be done to a mesh: each action asks first, and shows how a program would do the same."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from sexton.errors import NotFound
from sexton.v1 import scheduler_pb2 as api
from sexton_console.web.desk import Desk, desk_of
from sexton_console.web.forms import form_of
from sexton_console.web.pages.dead import filter_of
from sexton_console.web.render import render
from sexton_console.web.urls import job_url, run_url, run_url_of, with_query
from sexton_console.words import job_name, run_name

REASON: Final = "from the console"
RESUME_MODES: Final = {
    "next": ("Wait for the next time", api.RESUME_MODE_NEXT),
    "now": ("Start the newest missed time at once", api.RESUME_MODE_NOW),
    "catch_up": ("Catch up, as after an outage", api.RESUME_MODE_CATCH_UP),
}

Done = tuple[str, str]
"""What became of it in a sentence, and where to look now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One action on one thing, as it is asked and done."""

    title: str
    question: str
    button: str
    back: str
    do: Callable[[Desk, Mapping[str, str]], Awaitable[Done]]
    cli: str
    sdk: str
    fields: Mapping[str, str] = field(default_factory=dict)
    """Of the form, with their values; `reason` and `mode` are shown to be changed."""
    danger: bool = False


def routes() -> list[Route]:
    """Gives the routes of all actions."""
    return [
        Route(path, _endpoint(find), methods=["GET", "POST"])
        for path, find in (
            ("/jobs/{namespace}/{job}/{action}", _job_action),
            ("/runs/{namespace}/{job}/{run}/{action}", _run_action),
            ("/queues/{queue}/{action}", _queue_action),
            ("/workers/{session}/{action}", _worker_action),
            ("/dead-letters/{action}", _dead_action),
        )
    ]


def _endpoint(find: Callable[[Request], Awaitable[Action]]) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        session = request.scope["session"]
        if not session.may_act:
            return PlainTextResponse("This login may look and not act.\n", 403)
        desk = desk_of(request)
        action = await find(request)
        if request.method == "GET":
            return render(
                request,
                "action.html",
                title=action.title,
                action=action,
                modes={name: text for name, (text, _) in RESUME_MODES.items()},
                curl=_curl(request, action),
            )
        form = await form_of(request)
        # A program that sends the secret itself was not lured here by another page.
        if session.nonce and not desk.sessions.form_is_ours(session, form.get("token", "")):
            return PlainTextResponse("The form is not one of this login; load it again.\n", 403)
        said, where = await action.do(desk, form)
        desk.memo.clear()
        if "text/html" not in request.headers.get("accept", ""):
            return JSONResponse({"done": said, "see": where})
        return RedirectResponse(with_query(where, done=said), status_code=303)

    return endpoint


async def _job_action(request: Request) -> Action:
    namespace, short = request.path_params["namespace"], request.path_params["job"]
    name, back = job_name(namespace, short), job_url(namespace, short)
    full = f"{namespace}/{short}"
    match request.path_params["action"]:
        case "pause":

            async def pause(desk: Desk, form: Mapping[str, str]) -> Done:
                await desk.api.pause(name, form.get("reason", REASON)[:200])
                return f"{full} is paused.", back

            return Action(
                title=f"Pause {full}?",
                question="No further run of it starts until it is resumed. Live runs go on.",
                button="Pause",
                back=back,
                do=pause,
                fields={"reason": REASON},
                cli=f"sexton jobs pause {full} --reason {shlex.quote(REASON)}",
                sdk=f"client.jobs.pause({full!r}, reason={REASON!r})",
            )
        case "resume":

            async def resume(desk: Desk, form: Mapping[str, str]) -> Done:
                mode = RESUME_MODES.get(form.get("mode", "next"), RESUME_MODES["next"])
                await desk.api.resume(name, mode[1])
                return f"{full} is active again.", back

            return Action(
                title=f"Resume {full}?",
                question="What becomes of the times that the pause passed over?",
                button="Resume",
                back=back,
                do=resume,
                fields={"mode": "next"},
                cli=f"sexton jobs resume {full} --mode next",
                sdk=f"client.jobs.resume({full!r}, mode=sexton.ResumeMode.NEXT)",
            )
        case "trigger":

            async def trigger(desk: Desk, form: Mapping[str, str]) -> Done:
                request_id = form.get("request_id") or secrets.token_hex(16)
                answer = await desk.api.trigger(name, request_id)
                if answer.HasField("run"):
                    return "A run was started.", run_url_of(answer.run.name)
                return f"No run was started: {answer.decision}, {answer.reason}.", back

            return Action(
                title=f"Run {full} now?",
                question="It goes through the same gate as every start: a live run may hold it up.",
                button="Run now",
                back=back,
                do=trigger,
                fields={"request_id": secrets.token_hex(16)},
                cli=f"sexton jobs trigger {full}",
                sdk=f"client.jobs.trigger({full!r})",
            )
        case "delete":
            job = await desk_of(request).api.job(name)

            async def delete(desk: Desk, form: Mapping[str, str]) -> Done:
                await desk.api.delete(name, form.get("uid", job.uid))
                return f"{full} is deleted.", "/jobs"

            live = len(job.live_runs)
            return Action(
                title=f"Delete {full}?",
                question=f"Its definition and its ledger go; {live} live runs are cancelled. "
                "Runs that have ended are still listed for as long as they are kept.",
                button="Delete",
                back=back,
                do=delete,
                fields={"uid": job.uid},
                danger=True,
                cli=f"sexton jobs delete {full}",
                sdk=f"client.jobs.delete({full!r}, uid={job.uid!r})",
            )
    raise NotFound("action", request.path_params["action"])


async def _run_action(request: Request) -> Action:
    parts = [request.path_params[name] for name in ("namespace", "job", "run")]
    name, back, full = run_name(*parts), run_url(*parts), "/".join(parts)
    match request.path_params["action"]:
        case "cancel" | "terminate" as word:
            terminate = word == "terminate"

            async def end(desk: Desk, form: Mapping[str, str]) -> Done:
                await desk.api.end_run(name, form.get("reason", REASON)[:200], terminate=terminate)
                return "Its end was asked for.", back

            return Action(
                title=f"{word.capitalize()} this run?",
                question="It is killed at once; what it was doing stays half done."
                if terminate
                else "A waiting run ends at once, a running one when its task has ended itself.",
                button="Terminate" if terminate else "Cancel the run",
                back=back,
                do=end,
                fields={"reason": REASON},
                danger=terminate,
                cli=f"sexton runs {word} {full} --reason {shlex.quote(REASON)}",
                sdk=f"client.runs.{word}({full!r}, reason={REASON!r})",
            )
        case "retry":

            async def retry(desk: Desk, form: Mapping[str, str]) -> Done:
                request_id = form.get("request_id") or secrets.token_hex(16)
                answer = await desk.api.retry(name, request_id)
                if answer.HasField("run"):
                    return "A new run was started.", run_url_of(answer.run.name)
                return f"No run was started: {answer.decision}, {answer.reason}.", back

            return Action(
                title="Run this again?",
                question="A new run of the job as it is defined now, which names this one.",
                button="Run again",
                back=back,
                do=retry,
                fields={"request_id": secrets.token_hex(16)},
                cli=f"sexton runs retry {full}",
                sdk=f"client.runs.retry({full!r})",
            )
    raise NotFound("action", request.path_params["action"])


async def _queue_action(request: Request) -> Action:
    queue, word = request.path_params["queue"], request.path_params["action"]
    if word not in ("pause", "resume"):
        raise NotFound("action", word)
    paused = word == "pause"

    async def change(desk: Desk, form: Mapping[str, str]) -> Done:
        await desk.api.pause_queue(queue, form.get("reason", ""), paused=paused)
        return f"Queue {queue} is {'paused' if paused else 'handing out again'}.", "/queues"

    return Action(
        title=f"{word.capitalize()} queue {queue}?",
        question="Nothing of it is assigned any more; live runs go on, and its line grows."
        if paused
        else "What stands in its line is assigned again.",
        button=word.capitalize(),
        back="/queues",
        do=change,
        fields={"reason": REASON} if paused else {},
        cli=f"sexton queues {word} {queue}",
        sdk=f"client.queues.{word}({queue!r})",
    )


async def _worker_action(request: Request) -> Action:
    session = request.path_params["session"]
    if request.path_params["action"] != "drain":
        raise NotFound("action", request.path_params["action"])

    async def drain(desk: Desk, _: Mapping[str, str]) -> Done:
        await desk.api.drain_worker(session)
        return "The worker drains, and ends when it is done.", "/queues"

    return Action(
        title="Drain this worker?",
        question="It gives back what it has not begun, takes nothing further, and ends when its "
        "runs have ended. Whatever keeps it running may start it again.",
        button="Drain",
        back="/queues",
        do=drain,
        danger=True,
        cli=f"sexton workers drain {session}",
        sdk=f"client.workers.drain({session!r})",
    )


async def _dead_action(request: Request) -> Action:
    if request.path_params["action"] != "requeue":
        raise NotFound("action", request.path_params["action"])
    job = request.query_params.get("job", "")
    fingerprint = request.query_params.get("fingerprint", "")
    back = with_query("/dead-letters", job=job)
    chosen = filter_of(job, fingerprint)
    counted = await desk_of(request).api.requeue(chosen, dry_run=True)
    many = f"{len(counted.requeued)}{' or more' if counted.more else ''}"

    async def requeue(desk: Desk, _: Mapping[str, str]) -> Done:
        answer = await desk.api.requeue(chosen, dry_run=False)
        started = sum(bool(each.new_run) for each in answer.requeued)
        stayed = len(answer.requeued) - started
        rest = f" {stayed} stay: {answer.requeued[-1].reason}." if stayed else ""
        more = " There are more; repeat it." if answer.more else ""
        return f"{started} runs were started again.{rest}{more}", back

    return Action(
        title=f"Run {many} dead letters again?",
        question="Each becomes a new run of its job as it is defined now, and leaves the list.",
        button=f"Requeue {many}",
        back=back,
        do=requeue,
        cli=f"sexton dead requeue --fingerprint {shlex.quote(fingerprint)}",
        sdk=f"client.dead_letters.requeue(fingerprint={fingerprint!r})",
    )


def _curl(request: Request, action: Action) -> str:
    """Gives the same action for a shell without Sexton."""
    url = str(request.url)
    words = ["curl", "-X", "POST", url]
    lines = [shlex.join(words), '-H "Authorization: Bearer $(cat "$SEXTON_CLIENT_SECRET_FILE")"']
    for name, value in action.fields.items():
        lines.append("--data-urlencode " + shlex.quote(f"{name}={value}"))
    return " \\\n  ".join(lines)

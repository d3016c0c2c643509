"""What can be done to queues, workers and dead letters."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from starlette.requests import Request

from sexton_console.web.actions.asking import REASON, Action, Done, reason_of
from sexton_console.web.desk import Desk, desk_of
from sexton_console.web.pages.dead import filter_of
from sexton_console.web.urls import with_query


async def pause_queue(request: Request) -> Action:
    """Stops the assignments of a queue."""
    queue = request.path_params["queue"]

    async def do(desk: Desk, form: Mapping[str, str]) -> Done:
        await desk.api.pause_queue(queue, reason_of(form), paused=True)
        return f"Queue {queue} is paused.", "/queues"

    return Action(
        title=f"Pause queue {queue}?",
        question="Nothing of it is assigned any more; live runs go on, and its line grows.",
        button="Pause",
        back="/queues",
        do=do,
        fields={"reason": REASON},
        cli=shlex.join(["sexton", "queues", "pause", queue, "--reason", REASON]),
        sdk=f"client.mesh.pause_queue({queue!r}, reason={REASON!r})",
    )


async def resume_queue(request: Request) -> Action:
    """Lets the assignments of a queue go on."""
    queue = request.path_params["queue"]

    async def do(desk: Desk, _: Mapping[str, str]) -> Done:
        await desk.api.pause_queue(queue, "", paused=False)
        return f"Queue {queue} hands out again.", "/queues"

    return Action(
        title=f"Resume queue {queue}?",
        question="What stands in its line is assigned again.",
        button="Resume",
        back="/queues",
        do=do,
        cli=shlex.join(["sexton", "queues", "resume", queue]),
        sdk=f"client.mesh.resume_queue({queue!r})",
    )


async def drain_worker(request: Request) -> Action:
    """Has a worker end when it is done."""
    session = request.path_params["session"]

    async def do(desk: Desk, _: Mapping[str, str]) -> Done:
        await desk.api.drain_worker(session)
        return "The worker drains, and ends when it is done.", "/queues"

    return Action(
        title="Drain this worker?",
        question="It gives back what it has not begun, takes nothing further, and ends when its "
        "runs have ended. Whatever keeps it running may start it again.",
        button="Drain",
        back="/queues",
        do=do,
        danger=True,
        cli=shlex.join(["sexton", "workers", "drain", session]),
        sdk=f"client.mesh.drain({session!r})",
    )


async def requeue(request: Request) -> Action:
    """Runs dead letters again."""
    job = request.query_params.get("job", "")
    fingerprint = request.query_params.get("fingerprint", "")
    back = with_query("/dead-letters", job=job)
    chosen = filter_of(job, fingerprint)
    counted = await desk_of(request).api.requeue(chosen, dry_run=True)
    many = f"{len(counted.requeued)}{' or more' if counted.more else ''}"

    async def do(desk: Desk, _: Mapping[str, str]) -> Done:
        answer = await desk.api.requeue(chosen, dry_run=False)
        started = sum(bool(each.new_run) for each in answer.requeued)
        stay = [each.reason for each in answer.requeued if not each.new_run]
        rest = f" {len(stay)} stay: {stay[0]}." if stay else ""
        more = " There are more; repeat it." if answer.more else ""
        return f"{started} runs were started.{rest}{more}", back

    return Action(
        title=f"Run {many} dead letters again?",
        question="Each becomes a new run of its job as it is defined now, and leaves the list.",
        button=f"Requeue {many}",
        back=back,
        do=do,
        cli=shlex.join(["sexton", "dead", "requeue", "--job", job, "--fingerprint", fingerprint]),
        sdk=f"client.dead.requeue(job={job!r}, fingerprint={fingerprint!r})",
    )

"""`sexton runs`: follow runs, and end them; and `sexton members`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from sexton_cli.commands import trace
from sexton_cli.commands._mesh_options import (
    Api,
    Everywhere,
    Namespace,
    OfJob,
    OneJob,
    Output,
    RunName,
    StartOverlap,
    StartRequest,
    Watch,
    job_of,
    some_runs,
    target_of,
)
from sexton_cli.errors import Unavailable, UsageError
from sexton_cli.output import ListFormat

Reason = Annotated[str, typer.Option(help="For people; it is recorded with the run.")]

_FAILED = 1
"""Exit code of `wait` for a run that ended otherwise than SUCCEEDED."""


class State(StrEnum):
    """Where a run stands."""

    WAITING = "waiting"
    RETRYING = "retrying"
    RUNNING = "running"
    CANCELLING = "cancelling"
    TERMINATING = "terminating"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    TERMINATED = "terminated"
    EXPIRED = "expired"
    LOST = "lost"


def register(app: typer.Typer) -> None:
    """Registers the group and `members`."""
    runs = typer.Typer(
        help="Follow runs, and end them.", no_args_is_help=True, rich_markup_mode=None
    )
    runs.command("list")(list_)
    runs.command("show")(show)
    runs.command("cancel")(cancel)
    runs.command("terminate")(terminate)
    runs.command("retry")(retry)
    runs.command("wait")(wait)
    runs.command("watch")(watch)
    trace.register(runs)
    app.add_typer(runs, name="runs")
    app.command("members")(members)


def list_(  # noqa: PLR0917 - each is an option
    argument: OneJob = None,
    job: OfJob = None,
    state: Annotated[
        list[State] | None, typer.Option(help="Only runs in this state. Repeatable.")
    ] = None,
    after: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only what ended, or is due, from here.")
    ] = None,
    before: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only what ended, or is due, before.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Runs at most.")] = 50,
    everywhere: Everywhere = False,
    watch: Watch = False,
    api: Api = None,
    namespace: Namespace = None,
    output: Output = ListFormat.TABLE,
) -> None:
    """List runs: live ones first, then ended ones, the newest first."""
    from sexton.runs import RunState  # noqa: PLC0415 - heavy
    from sexton_cli.online import runs, session, times, watching  # noqa: PLC0415

    wanted = job_of(argument, job)
    begin, end = times.read_range(after, before, options=("--after", "--before"))
    with session.connected(target_of(api, namespace)) as client:

        def work() -> None:
            found = client.runs.list(
                wanted,
                all_namespaces=everywhere,
                states=[RunState(each.value) for each in state or ()],
                after=begin,
                before=end,
                full=output in {ListFormat.JSON, ListFormat.YAML},
            )
            runs.show_list(found, output, limit)

        watching.show(work, watch=watch)


def show(
    run: RunName, api: Api = None, namespace: Namespace = None, output: Output = ListFormat.TABLE
) -> None:
    """Show a run: its attempts, why they failed, and the last of what they wrote."""
    from sexton_cli.online import runs, session  # noqa: PLC0415 - heavy

    with session.connected(target_of(api, namespace)) as client:
        found = client.runs.get(run)
        runs.show(found, output)
        if output is ListFormat.TABLE:
            runs.show_obstacles(client, found)


def cancel(  # noqa: PLR0917 - each is an option
    run: RunName,
    reason: Reason = "",
    waiting: Annotated[
        bool, typer.Option("--waiting", help="RUN names a job: end all of its runs that wait.")
    ] = False,
    api: Api = None,
    namespace: Namespace = None,
    output: Output = ListFormat.TABLE,
) -> None:
    """Ask a run to end: a waiting one ends at once, a running one when its task has."""
    from sexton_cli.online import runs, session  # noqa: PLC0415 - heavy

    with session.connected(target_of(api, namespace)) as client:
        if waiting:
            for done in runs.cancel_waiting(client, run, reason):
                runs.show_change(done, output)
        else:
            runs.show_end(client.runs.cancel(run, reason=reason), output)


def terminate(
    run: RunName,
    reason: Reason = "",
    api: Api = None,
    namespace: Namespace = None,
    output: Output = ListFormat.TABLE,
) -> None:
    """Have a run killed."""
    from sexton_cli.online import runs, session  # noqa: PLC0415 - heavy

    with session.connected(target_of(api, namespace)) as client:
        runs.show_end(client.runs.terminate(run, reason=reason), output)


def retry(  # noqa: PLR0917 - each is an option
    run: RunName,
    overlap: StartOverlap = None,
    request_id: StartRequest = None,
    api: Api = None,
    namespace: Namespace = None,
    output: Output = ListFormat.TABLE,
) -> None:
    """Run an ended run again: a new run, with the job's definition of now, through the gate."""
    from sexton import jobs as words  # noqa: PLC0415 - heavy
    from sexton_cli.online import jobs, runs, session  # noqa: PLC0415

    chosen = None if overlap is None else words.Overlap(overlap.value)
    with session.connected(target_of(api, namespace)) as client:
        done = client.runs.retry(run, overlap=chosen, request_id=request_id)
        jobs.show_triggered(done, run, output)
        if output is ListFormat.TABLE and done.run is not None:
            runs.show_obstacles(client, done.run)


def wait(
    run: RunName,
    timeout: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="Give up after this; default: never."),
    ] = None,
    api: Api = None,
    namespace: Namespace = None,
    output: Output = ListFormat.TABLE,
) -> None:
    """Wait until a run has ended. Ends with 0 where it succeeded and with 1 where it did not."""
    from sexton.errors import DeadlineExceeded  # noqa: PLC0415 - heavy
    from sexton.runs import RunState  # noqa: PLC0415
    from sexton_cli.online import runs, session  # noqa: PLC0415

    with session.connected(target_of(api, namespace)) as client:
        try:
            ended = client.runs.wait(run, timeout_s=timeout)
        except DeadlineExceeded as error:
            raise Unavailable(str(error)) from None
        runs.show_change(ended, output)
    if ended.state is not RunState.SUCCEEDED:
        raise typer.Exit(_FAILED)


def watch(  # noqa: PLR0917 - each is an option
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB|RUN", help="Those of this job, or this run.", autocompletion=some_runs
        ),
    ] = None,
    job: OfJob = None,
    timeout: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Stop after this.")
    ] = None,
    api: Api = None,
    namespace: Namespace = None,
    output: Output = ListFormat.TABLE,
) -> None:
    """Print each change of a run, or of all runs of a job or of the namespace."""
    from sexton_cli.online import runs, session  # noqa: PLC0415 - heavy

    run = name if name is not None and runs.is_run(name) else None
    job = job_of(name, job) if run is None else job
    if run is not None and job is not None:
        raise UsageError(f"--job {job} and {run}: name one of them")
    with session.connected(target_of(api, namespace)) as client:
        for change in client.runs.watch(run, job=job, timeout_s=timeout):
            runs.show_change(change, output)


def members(api: Api = None, watch: Watch = False, output: Output = ListFormat.TABLE) -> None:
    """Show who leads, who stands by, who works, and how far their clocks are off."""
    from sexton_cli.online import runs, session, watching  # noqa: PLC0415 - heavy

    with session.connected(target_of(api, None)) as client:
        watching.show(lambda: runs.show_members(client.members(), output), watch=watch)

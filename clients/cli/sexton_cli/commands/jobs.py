"""`sexton jobs`: look at jobs, stop, start and delete them; and `sexton why`."""

from __future__ import annotations

from enum import StrEnum
from itertools import islice
from typing import Annotated

import typer

from sexton_cli.commands import job_questions
from sexton_cli.commands._mesh_options import (
    Api,
    Everywhere,
    JobName,
    Namespace,
    Output,
    SomeJobs,
    StartOverlap,
    StartRequest,
    Watch,
    calling,
    target_of,
)
from sexton_cli.output import ListFormat, print_line


class Order(StrEnum):
    """The order of a list of jobs."""

    NAME = "name"
    NEXT_TIME = "next_time"


class Resume(StrEnum):
    """What becomes of the times that a pause passed over."""

    NEXT = "next"
    NOW = "now"
    CATCH_UP = "catch_up"


def register(app: typer.Typer) -> None:
    """Registers the group and `why`."""
    jobs = typer.Typer(
        help="Look at jobs and what became of them; stop, start and delete them.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    jobs.command("list")(list_)
    jobs.command("show")(show)
    jobs.command("pause")(pause)
    jobs.command("resume")(resume)
    jobs.command("trigger")(trigger)
    jobs.command("delete")(delete)
    job_questions.add_to(jobs)
    app.add_typer(jobs, name="jobs")
    app.command("why")(why)


def list_(  # noqa: PLR0917 - each is an option
    names: SomeJobs = None,
    api: Api = None,
    namespace: Namespace = None,
    everywhere: Everywhere = False,
    prefix: Annotated[str, typer.Option(help="Only jobs whose name starts with this.")] = "",
    search: Annotated[
        str,
        typer.Option(
            metavar="WORDS",
            help="Only jobs with each of these words in their name, queue or description.",
        ),
    ] = "",
    paused: Annotated[
        bool | None, typer.Option("--paused/--active", help="Only paused, or only active jobs.")
    ] = None,
    order: Annotated[
        Order, typer.Option(help="next_time: what is due next; only jobs that have a next time.")
    ] = Order.NAME,
    limit: Annotated[int | None, typer.Option(min=1, help="Jobs at most; default: all.")] = None,
    watch: Watch = False,
    output: Output = ListFormat.TABLE,
) -> None:
    """List jobs: when each runs next, in its own zone and in UTC."""
    from sexton.jobs import JobOrder  # noqa: PLC0415 - heavy
    from sexton_cli.online import jobs, progress, session, watching  # noqa: PLC0415

    with session.connected(target_of(api, namespace)) as client:

        def work() -> None:
            with progress.line() as tell:
                found = client.jobs.list(
                    all_namespaces=everywhere,
                    prefix=prefix,
                    words=search,
                    paused=paused,
                    order=JobOrder(order.value),
                    names=names or None,
                    full=output is not ListFormat.NAME,
                    on_progress=lambda looked_at: tell(f"{looked_at:,} jobs looked at"),
                )
                read = list(found if limit is None else islice(found, limit + 1))
            jobs.show_list(read, output, limit)

        watching.show(work, watch=watch)


def show(
    job: JobName, api: Api = None, namespace: Namespace = None, output: Output = ListFormat.TABLE
) -> None:
    """Show a job. With -o yaml: as a job file, which `sexton apply` takes again."""
    from sexton_cli.online import jobs  # noqa: PLC0415 - heavy

    with calling(job, api, namespace) as client:
        jobs.show(client.jobs.get(job), output)


def pause(
    job: JobName,
    reason: Annotated[str, typer.Option(help="For people; it is shown with the job.")] = "",
    api: Api = None,
    namespace: Namespace = None,
) -> None:
    """Stop new starts of a job. Runs that are live go on."""
    with calling(job, api, namespace) as client:
        paused = client.jobs.pause(job, reason=reason)
        print_line(f"{paused.full_name}: paused")


def resume(
    job: JobName,
    mode: Annotated[
        Resume,
        typer.Option(help="What passed meanwhile: skip it, start the newest, or catch up."),
    ] = Resume.NEXT,
    api: Api = None,
    namespace: Namespace = None,
) -> None:
    """Let a paused job start again."""
    from sexton.jobs import ResumeMode  # noqa: PLC0415 - heavy
    from sexton_cli.online import times  # noqa: PLC0415

    with calling(job, api, namespace) as client:
        resumed = client.jobs.resume(job, mode=ResumeMode(mode.value))
        print_line(f"{resumed.full_name}: active; next {times.utc(resumed.next_time)}")


def trigger(  # noqa: PLR0917 - each is an option
    job: JobName,
    overlap: StartOverlap = None,
    request_id: StartRequest = None,
    api: Api = None,
    namespace: Namespace = None,
    output: Output = ListFormat.TABLE,
) -> None:
    """Start a run now, through the same gate as every start."""
    from sexton import jobs as words  # noqa: PLC0415 - heavy
    from sexton_cli.online import jobs, runs  # noqa: PLC0415

    chosen = None if overlap is None else words.Overlap(overlap.value)
    with calling(job, api, namespace) as client:
        done = client.jobs.trigger(job, overlap=chosen, request_id=request_id)
        jobs.show_triggered(done, job, output)
        if output is ListFormat.TABLE and done.run is not None:
            runs.show_obstacles(client, done.run)


def delete(job: JobName, api: Api = None, namespace: Namespace = None) -> None:
    """Delete a job: waiting runs end at once, running ones are asked to."""
    with calling(job, api, namespace) as client:
        found = client.jobs.get(job)
        client.jobs.delete(found)
        print_line(f"{found.full_name}: deleted")


def why(
    job: JobName,
    at: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="Past or future: 2026-11-30T03:00:00Z; without an offset it is a wall time of "
            "the job's zone.",
        ),
    ],
    api: Api = None,
    namespace: Namespace = None,
    output: Output = ListFormat.TABLE,
) -> None:
    """Explain what became, or will become, of a job at a time: every gate, with its values."""
    from sexton_cli.online import jobs, times  # noqa: PLC0415 - heavy

    with calling(job, api, namespace) as client:
        zone = times.zone_of_job(client, job)
        explained = client.jobs.explain(job, times.read(at, zone, "--at"))
        full_name = job if "/" in job else f"{client.namespace}/{job}"
        jobs.show_explanation(full_name, explained, zone, output)

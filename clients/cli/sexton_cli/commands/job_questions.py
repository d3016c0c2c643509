"""`sexton jobs`, second part: what schedules ask for, what became of it, and running it again."""

from __future__ import annotations

from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from sexton_cli.commands._job_file import FileOption, the_one
from sexton_cli.commands._mesh_options import (
    Api,
    Everywhere,
    JobName,
    Namespace,
    Output,
    Overlap,
    Watch,
    calling,
    target_of,
)
from sexton_cli.errors import NotFound, UsageError
from sexton_cli.output import ListFormat, print_line

if TYPE_CHECKING:
    from sexton.jobs import Job, JobSpec

_DIFFERENT = 1
"""Exit code of `diff` where there is a difference, as diff(1) has it."""

_FARTHEST_NS = 31 * 86_400 * 1_000_000_000
"""How far ahead a mesh forecasts its load."""

_LONG_S = 60.0
"""For what looks at every job."""

From = Annotated[
    str | None,
    typer.Option("--from", metavar="TIME", help="From here; a wall time is one of the job's zone."),
]
To = Annotated[str | None, typer.Option("--to", metavar="TIME", help="Up to here, likewise.")]


class Order(StrEnum):
    """The order in which a backfill starts its runs."""

    OLDEST_FIRST = "oldest_first"
    NEWEST_FIRST = "newest_first"


def add_to(jobs: typer.Typer) -> None:
    """Adds the commands to the group `jobs`."""
    jobs.command("preview")(preview)
    jobs.command("ledger")(ledger)
    jobs.command("versions")(versions)
    jobs.command("diff")(diff)
    jobs.command("load")(load)
    jobs.command("backfill")(backfill)
    jobs.command("backfills")(backfills)


def preview(  # noqa: PLR0917 - each is an option
    job: JobName,
    argument: Annotated[
        str | None, typer.Argument(metavar="FILE", help="Look at the job as this file has it.")
    ] = None,
    file: FileOption = None,
    begin: From = None,
    end: To = None,
    count: Annotated[int, typer.Option(min=1, max=1_000, help="Times at most.")] = 10,
    api: Api = None,
    namespace: Namespace = None,
    output: Output = ListFormat.TABLE,
) -> None:
    """Show the next times of a job, by the code that fires. `sexton preview` needs no mesh."""
    from sexton_cli.online import questions, times  # noqa: PLC0415 - heavy

    path = None if argument is None and file is None else the_one(argument, file)
    with calling(job, api, namespace, {"after_time": "--from"}) as client:
        spec = None if path is None else _definition(path, job)
        zone = times.zone_of(spec if spec is not None else client.jobs.get(job).spec)
        after, until = times.read_range(begin, end, zone)
        found = client.jobs.preview(
            job if spec is None else spec, after=after, until=until, count=count
        )
        questions.show_preview(found, zone, output)


def ledger(  # noqa: PLR0917 - each is an option
    job: JobName,
    begin: From = None,
    end: To = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Times at most.")] = 30,
    api: Api = None,
    namespace: Namespace = None,
    output: Output = ListFormat.TABLE,
) -> None:
    """Show what became, or will become, of each nominal time: the newest, or from --from on."""
    from sexton_cli.online import questions, times  # noqa: PLC0415 - heavy

    with calling(job, api, namespace) as client:
        zone = times.zone_of_job(client, job)
        first, last = times.read_range(begin, end, zone, one_instant=True)
        found = client.jobs.decisions(job, start=first, end=last, descending=begin is None)
        entries = list(islice(found, limit))
        if begin is None:
            entries.sort(key=lambda entry: entry.nominal_time)
        questions.show_ledger(entries, zone, output)


def versions(
    job: JobName, api: Api = None, namespace: Namespace = None, output: Output = ListFormat.TABLE
) -> None:
    """List the definitions that a job has had, and which times each ruled."""
    from sexton_cli.online import questions  # noqa: PLC0415 - heavy

    with calling(job, api, namespace) as client:
        questions.show_versions(list(client.jobs.versions(job)), output)


def diff(  # noqa: PLR0917 - each is an option
    job: JobName,
    old: Annotated[
        str | None,
        typer.Argument(
            metavar="OLD|FILE",
            help="A version, default: the one before; or what stands there against this file.",
        ),
    ] = None,
    new: Annotated[
        int | None, typer.Argument(metavar="NEW", help="A version; default: the current one.")
    ] = None,
    file: FileOption = None,
    api: Api = None,
    namespace: Namespace = None,
) -> None:
    """Show how two versions of a job differ. Ends with 1 where they do."""
    from sexton_cli.online import questions  # noqa: PLC0415 - heavy

    version, path = _version_or_file(old, file)
    if path is not None and (version, new) != (None, None):
        raise UsageError(f"{path}, and a version: give one file, or two versions")
    with calling(job, api, namespace) as client:
        current = client.jobs.get(job)
        if path is not None:
            names = (f"{current.full_name}, version {current.version}", path)
            different = questions.show_diff(_spec(current), _definition(path, job), names)
        else:
            known = {each.version: each.spec for each in client.jobs.versions(current)}
            pair = (version or max(1, (new or current.version) - 1), new or current.version)
            for number in pair:
                if number not in known:
                    kept = ", ".join(map(str, sorted(known)))
                    raise NotFound(f"{current.full_name}: version {number} is not kept: {kept} are")
            if version is None and pair[0] == pair[1]:
                print_line(f"{current.full_name}: version 1 is the first: no other before it")
            before, after = (f"{current.full_name}, version {number}" for number in pair)
            different = questions.show_diff(known[pair[0]], known[pair[1]], (before, after))
    if different:
        raise typer.Exit(_DIFFERENT)


def load(  # noqa: PLR0917 - each is an option
    next_: Annotated[
        str, typer.Option("--next", metavar="DURATION", help="How far ahead, up to 31d.")
    ] = "24h",
    interval: Annotated[str, typer.Option(metavar="DURATION", help="Counted by this.")] = "1m",
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Intervals shown.")] = 10,
    everywhere: Everywhere = False,
    api: Api = None,
    namespace: Namespace = None,
    output: Output = ListFormat.TABLE,
) -> None:
    """Forecast the load: how many nominal times lie ahead, and in which minutes most."""
    from datetime import UTC, datetime, timedelta  # noqa: PLC0415

    from sexton_cli.offline.values import read_duration  # noqa: PLC0415 - heavy
    from sexton_cli.online import questions, session, times  # noqa: PLC0415
    from sexton_core.instants import SECOND  # noqa: PLC0415

    ahead_ns = read_duration(next_, "--next")
    if not 0 < ahead_ns <= _FARTHEST_NS:
        raise UsageError(f"--next: {next_!r} can't be used; expected more than 0 and at most 31d")
    ahead = timedelta(microseconds=ahead_ns // 1_000)
    step_ns = read_duration(interval, "--interval")
    if step_ns < SECOND or step_ns % SECOND:
        raise UsageError(f"--interval: {interval!r} can't be used; expected whole seconds, from 1s")
    step = timedelta(seconds=step_ns // SECOND)
    flags = {"end_time": "--next"}
    with session.connected(target_of(api, namespace, _LONG_S), flags) as client:
        now = client.members().mesh_time or datetime.now(UTC)
        found = client.jobs.load(
            all_namespaces=everywhere, start=now, end=now + ahead, interval=step
        )
        questions.show_load(found, limit, output, times.span(step))


def backfill(  # noqa: PLR0917 - each is an option
    job: JobName,
    begin: Annotated[
        str,
        typer.Option("--from", metavar="TIME", help="First nominal time; of the job's zone."),
    ],
    end: Annotated[str, typer.Option("--to", metavar="TIME", help="Last nominal time, likewise.")],
    order: Annotated[Order, typer.Option(help="Of the starts.")] = Order.OLDEST_FIRST,
    overlap: Annotated[
        Overlap | None,
        typer.Option(help="Of the starts; default: one run after another."),
    ] = None,
    skip_succeeded: Annotated[
        bool,
        typer.Option(
            "--skip-succeeded", help="Leave out times whose run of the schedule succeeded."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tell exactly what would run, and start nothing.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all have been started.")] = False,
    request_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The same id starts one backfill, however often."),
    ] = None,
    api: Api = None,
    namespace: Namespace = None,
    output: Output = ListFormat.TABLE,
) -> None:
    """Run the nominal times of a range, whatever was decided about them before."""
    from sexton import jobs as words  # noqa: PLC0415 - heavy
    from sexton.backfills import BackfillOrder  # noqa: PLC0415
    from sexton_cli.online import backfilling, progress, times  # noqa: PLC0415

    with calling(job, api, namespace) as client:
        zone = times.zone_of(client.jobs.get(job).spec)
        first, last = times.read_range(begin, end, zone, one_instant=True)
        assert first is not None
        assert last is not None
        chosen = None if overlap is None else words.Overlap(overlap.value)
        if dry_run:
            plan = client.jobs.plan_backfill(
                job, first, last, order=BackfillOrder(order.value), overlap=chosen,
                skip_succeeded=skip_succeeded,
            )  # fmt: skip
            backfilling.show_plan(plan, zone, output)
            return
        made = client.jobs.backfill(
            job, first, last, order=BackfillOrder(order.value), overlap=chosen,
            skip_succeeded=skip_succeeded, request_id=request_id,
        )  # fmt: skip
        if wait:
            with progress.line() as tell:
                while not made.ended:
                    tell(f"{made.started + made.skipped} of {made.total} started")
                    made = client.backfills.get(made)
                    if not made.ended:
                        progress.pause()
        backfilling.show_change(made, output)


def backfills(  # noqa: PLR0917 - each is an option
    job: JobName,
    cancel: Annotated[
        str | None,
        typer.Option(metavar="BACKFILL", help="Start no further run of this one; its id."),
    ] = None,
    watch: Watch = False,
    api: Api = None,
    namespace: Namespace = None,
    output: Output = ListFormat.TABLE,
) -> None:
    """List the backfills of a job that go on, or ended in the last 30 days; or cancel one."""
    from sexton_cli.online import backfilling, watching  # noqa: PLC0415 - heavy

    with calling(job, api, namespace) as client:
        if cancel is not None:
            backfilling.show_change(
                client.backfills.cancel(f"{job}/{cancel.rpartition('/')[2]}"), output
            )
        else:
            watching.show(
                lambda: backfilling.show_list(client.backfills.list(job), output), watch=watch
            )


def _version_or_file(old: str | None, file: str | None) -> tuple[int | None, str | None]:
    if old is None or old.isdecimal():
        return None if old is None else int(old), file
    return None, the_one(old, file)


def _definition(file: str, job: str) -> JobSpec:
    """Gives a job's definition as a file has it."""
    from sexton._spec_messages import spec_of  # noqa: PLC0415 - heavy
    from sexton_cli.jobfile.wire import spec_message  # noqa: PLC0415
    from sexton_cli.offline.values import job_of, read_job_file  # noqa: PLC0415

    return spec_of(spec_message(job_of(read_job_file(file), job)))


def _spec(job: Job) -> JobSpec:
    assert job.spec is not None, "a job that is read alone is whole"
    return job.spec

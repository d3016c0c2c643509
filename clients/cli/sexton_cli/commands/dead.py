"""`sexton dead`: runs that ended without success and wait for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sexton_cli.commands._mesh_options import (
    Api,
    Everywhere,
    Namespace,
    OfJob,
    OneJob,
    Output,
    Watch,
    job_of,
    some_runs,
    target_of,
)
from sexton_cli.errors import NotFound, Refused, UsageError
from sexton_cli.output import ListFormat, print_line

if TYPE_CHECKING:
    from sexton._operating_api import Which

Runs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="RUN...", help="JOB/RUN or NAMESPACE/JOB/RUN.", autocompletion=some_runs
    ),
]
Fingerprint = Annotated[
    str, typer.Option(metavar="TEXT", help="Those that look alike, as `list` shows it.")
]
After = Annotated[
    str | None, typer.Option(metavar="TIME", help="Those that ended at or after this.")
]
Before = Annotated[str | None, typer.Option(metavar="TIME", help="Those that ended before.")]
All = Annotated[bool, typer.Option("--all", help="All of the namespace.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Tell which, and change nothing.")]


def register(app: typer.Typer) -> None:
    """Registers the group."""
    dead = typer.Typer(
        help="Work off runs that ended without success.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    dead.command("list")(list_)
    dead.command("requeue")(requeue)
    dead.command("purge")(purge)
    app.add_typer(dead, name="dead")


def list_(  # noqa: PLR0917 - each is an option
    argument: OneJob = None,
    job: OfJob = None,
    fingerprint: Fingerprint = "",
    after: After = None,
    before: Before = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Runs at most.")] = 50,
    everywhere: Everywhere = False,
    watch: Watch = False,
    api: Api = None,
    namespace: Namespace = None,
    output: Output = ListFormat.TABLE,
) -> None:
    """List dead letters, newest first."""
    from sexton_cli.online import operating, session, watching  # noqa: PLC0415 - heavy

    which = _which((), job_of(argument, job), fingerprint, after, before)
    if everywhere:
        which["all_namespaces"] = True
    with session.connected(target_of(api, namespace)) as client:
        watching.show(
            lambda: operating.show_dead(client.dead.list(**which), output, limit), watch=watch
        )


def requeue(  # noqa: PLR0917 - each is an option
    runs: Runs = None,
    job: OfJob = None,
    fingerprint: Fingerprint = "",
    after: After = None,
    before: Before = None,
    everything: All = False,
    dry_run: DryRun = False,
    api: Api = None,
    namespace: Namespace = None,
    output: Output = ListFormat.TABLE,
) -> None:
    """Run dead letters again, each as a new run, and take them off the list.

    Of a deleted job nothing can be run again: its letters stay. Ends with 4 where one stays.
    """
    from sexton_cli.online import operating, session  # noqa: PLC0415 - heavy

    which = _chosen(runs, job, fingerprint, after, before, everything=everything)
    with session.connected(target_of(api, namespace)) as client:
        if everything:
            which["namespace"] = client.namespace
        done = client.dead.requeue(dry_run=dry_run, **which)
        operating.show_requeued(done, output, dry_run=dry_run)
    if not dry_run and not all(each.new_run for each in done):
        raise typer.Exit(Refused.exit_code)


def purge(  # noqa: PLR0917 - each is an option
    runs: Runs = None,
    job: OfJob = None,
    fingerprint: Fingerprint = "",
    after: After = None,
    before: Before = None,
    everything: All = False,
    dry_run: DryRun = False,
    api: Api = None,
    namespace: Namespace = None,
) -> None:
    """Take dead letters off the list; the runs stay in the history.

    Ends with 3 where a run that is named is not on the list.
    """
    from sexton_cli.online import session  # noqa: PLC0415 - heavy

    which = _chosen(runs, job, fingerprint, after, before, everything=everything)
    with session.connected(target_of(api, namespace)) as client:
        if everything:
            which["namespace"] = client.namespace
        named = {run if run.count("/") > 1 else f"{client.namespace}/{run}" for run in runs or ()}
        purged = client.dead.purge(dry_run=dry_run, **which)
    print_line(f"{purged} {'to be taken' if dry_run else 'taken'} off the list")
    # Other words may leave out some of the runs on purpose.
    if purged < len(named) and set(which) == {"runs"}:
        absent = f"{len(named) - purged} of the {len(named)} runs are"
        those = "the run is" if len(named) == 1 else absent
        raise NotFound(f"{those} not on the list: not there, not a dead letter, or off it before")


def _chosen(
    runs: list[str] | None,
    job: str | None,
    fingerprint: str,
    after: str | None,
    before: str | None,
    *,
    everything: bool,
) -> Which:
    which = _which(tuple(runs or ()), job, fingerprint, after, before)
    for run in which.get("runs", ()):
        if isinstance(run, str) and "/" not in run:
            raise UsageError(
                f"RUN: {run!r} can't be used; expected JOB/RUN or NAMESPACE/JOB/RUN; "
                f"all of a job: --job {run}"
            )
    if not which and not everything:
        raise UsageError("name runs, --job, --fingerprint, --after or --before; or say --all")
    return which


def _which(
    runs: tuple[str, ...],
    job: str | None,
    fingerprint: str,
    after: str | None,
    before: str | None,
) -> Which:
    from sexton_cli.online import times  # noqa: PLC0415 - heavy

    which: Which = {}
    begin, end = times.read_range(after, before, options=("--after", "--before"))
    if runs:
        which["runs"] = runs
    if job is not None:
        which["job"] = job
    if fingerprint:
        which["fingerprint"] = fingerprint
    if begin is not None:
        which["after"] = begin
    if end is not None:
        which["before"] = end
    return which

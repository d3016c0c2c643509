"""`sexton bench`: measurements on this machine."""

import asyncio
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from sexton_cli.errors import UsageError
from sexton_cli.output import print_json, print_line, print_table

Folder: TypeAlias = Annotated[
    Path | None,
    typer.Option("--dir", help="Where to put the data, to choose a disk.", exists=True),
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Repeat: TypeAlias = Annotated[
    int, typer.Option(min=1, max=20, help="How often it is measured; medians are shown.")
]


def register(app: typer.Typer) -> None:
    """Registers the group and its commands."""
    bench = typer.Typer(help="Measure this machine.", no_args_is_help=True, rich_markup_mode=None)
    bench.callback()(_root)
    for command in (
        store, time, throughput, lateness, latency, jobs, takeover, scaling, tracing, console,
    ):  # fmt: skip
        bench.command(command.__name__)(command)
    app.add_typer(bench, name="bench")


def _root() -> None:
    """Measure this machine.

    Every command starts what it measures by itself, on a temporary folder, and leaves nothing.
    """


def store(
    seconds: Annotated[
        float, typer.Option(min=0.1, max=60, help="Time of each of some twenty steps.")
    ] = 2.0,
    folder: Folder = None,
    json: Json = False,
) -> None:
    """Measure a store of its own: commits, compare-and-set, leases; against raw LMDB."""
    from sexton_cli.bench.machine import here  # noqa: PLC0415 - heavy
    from sexton_cli.bench.store import measure  # noqa: PLC0415

    measured = asyncio.run(measure(seconds, folder))
    if json:
        print_json({"on": here()} | measured)
        return
    print_line(f"{here()}\n")
    rows = measured["commits"]
    print_table([name.upper() for name in rows[0]], [list(row.values()) for row in rows])
    for title, row in (
        ("COMPARE AND SET", measured["compare_and_set"]),
        ("LEASES", measured["leases"]),
    ):
        print_line()
        print_table((title, "VALUE"), list(row.items()))


def time(
    jobs: Annotated[int, typer.Option(min=1, max=10_000_000, help="Jobs.")] = 1_000_000,
    schedules: Annotated[
        int, typer.Option(min=1, max=100_000, help="Distinct schedules that they share.")
    ] = 1_000,
    json: Json = False,
) -> None:
    """Measure the next times of many jobs, and a catch-up over ten years of seconds."""
    from sexton_cli.bench.time import measure  # noqa: PLC0415 - heavy

    _show(dict(measure(jobs, schedules)), json=json)


def throughput(
    *,
    jobs: Annotated[
        int, typer.Option(min=1, max=20_000, help="Jobs: so many runs are asked for per second.")
    ] = 5_000,
    seconds: Annotated[int, typer.Option(min=1, max=300, help="For so many seconds.")] = 5,
    minutes: Annotated[
        int,
        typer.Option(
            min=0, max=600, help="Instead: for so many minutes, with the history purged meanwhile."
        ),
    ] = 0,
    repeat: Repeat = 1,
    folder: Folder = None,
    console: Annotated[
        bool, typer.Option("--console", help="With a console beside it, and every run traced.")
    ] = False,
    json: Json = False,
) -> None:
    """Measure a mesh of its own: durable runs per second, from due to settled, and their cost.

    With --minutes: whether memory, file and lateness stay as they are.
    """
    from sexton_cli.bench import soak  # noqa: PLC0415 - heavy
    from sexton_cli.bench import throughput as bench  # noqa: PLC0415
    from sexton_cli.bench.figures import repeated  # noqa: PLC0415
    from sexton_cli.bench.mesh import Shape  # noqa: PLC0415

    shape = Shape(console=console)
    if minutes:
        _show(asyncio.run(soak.measure(jobs, minutes * 60, folder, shape)), json=json)
        return
    measured = repeated(repeat, lambda: bench.measure(jobs, seconds, folder, shape))
    _show(asyncio.run(measured), json=json)


def lateness(
    *,
    jobs: Annotated[int, typer.Option(min=1, max=100_000, help="Jobs.")] = 1_000,
    seconds: Annotated[
        int,
        typer.Option(min=1, max=300, help="Each is due once a second, for so many. 1: just once."),
    ] = 10,
    spread: Annotated[
        bool, typer.Option("--spread", help="Spread over each second, instead of all at once.")
    ] = False,
    repeat: Repeat = 1,
    folder: Folder = None,
    json: Json = False,
) -> None:
    """Measure how late runs start, from their due time to the first instruction of their task."""
    from sexton_cli.bench import lateness as bench  # noqa: PLC0415 - heavy
    from sexton_cli.bench.figures import repeated  # noqa: PLC0415

    measured = repeated(repeat, lambda: bench.measure(jobs, seconds, folder, spread=spread))
    _show(asyncio.run(measured), json=json)


def latency(
    triggers: Annotated[int, typer.Option(min=1, max=100_000, help="Triggers.")] = 300,
    repeat: Repeat = 1,
    folder: Folder = None,
    json: Json = False,
) -> None:
    """Measure one trigger on an idle mesh, until the client has seen the result."""
    from sexton_cli.bench import latency as bench  # noqa: PLC0415 - heavy
    from sexton_cli.bench.figures import repeated  # noqa: PLC0415

    _show(asyncio.run(repeated(repeat, lambda: bench.measure(triggers, folder))), json=json)


def jobs(
    number: Annotated[int, typer.Option("--jobs", min=1, max=10_000_000, help="Jobs.")] = 1_000_000,
    repeat: Repeat = 1,
    folder: Folder = None,
    json: Json = False,
) -> None:
    """Measure many idle jobs beside a thousand: to apply, read, keep, start with and take over."""
    from sexton_cli.bench import jobs as bench  # noqa: PLC0415 - heavy
    from sexton_cli.bench.figures import repeated  # noqa: PLC0415

    _show(asyncio.run(repeated(repeat, lambda: bench.measure(number, folder))), json=json)


def takeover(
    jobs: Annotated[
        int, typer.Option(min=1, max=20_000, help="Jobs: so many runs are started per second.")
    ] = 1_000,
    seconds: Annotated[
        int, typer.Option(min=5, max=300, help="For so many seconds, three times.")
    ] = 15,
    repeat: Repeat = 1,
    folder: Folder = None,
    json: Json = False,
) -> None:
    """Measure what is late when a leader or a worker dies under load; the checker judges it."""
    from sexton_cli.bench import takeover as bench  # noqa: PLC0415 - heavy
    from sexton_cli.bench.figures import repeated  # noqa: PLC0415

    _show(asyncio.run(repeated(repeat, lambda: bench.measure(jobs, seconds, folder))), json=json)


def scaling(
    *,
    jobs: Annotated[
        str, typer.Option(help="Numbers of jobs, by commas.")
    ] = "100,1000,10000,100000",
    rate: Annotated[int, typer.Option(min=1, max=20_000, help="Runs per second.")] = 100,
    seconds: Annotated[int, typer.Option(min=1, max=300, help="For so many seconds.")] = 20,
    repeat: Repeat = 1,
    folder: Folder = None,
    json: Json = False,
) -> None:
    """Measure what a run costs each service with few jobs and with many, at the same rate."""
    from sexton_cli.bench import scaling as bench  # noqa: PLC0415 - heavy
    from sexton_cli.bench.figures import repeated  # noqa: PLC0415

    try:
        numbers = [int(text) for text in jobs.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < rate or max(numbers) > 1_000_000:
        raise UsageError(
            f"--jobs {jobs}: numbers by commas, from the rate ({rate}) to 1,000,000 are wanted"
        )
    measured = repeated(repeat, lambda: bench.measure(numbers, rate, seconds, folder))
    _show(asyncio.run(measured), json=json)


def tracing(
    jobs: Annotated[
        int, typer.Option(min=1, max=20_000, help="Jobs: so many runs are asked for per second.")
    ] = 5_000,
    seconds: Annotated[int, typer.Option(min=1, max=300, help="For so many seconds.")] = 3,
    repeat: Repeat = 3,
    folder: Folder = None,
    json: Json = False,
) -> None:
    """Measure what tracing costs: all runs traced, none, and no telemetry at all, in turns."""
    from sexton_cli.bench import tracing as bench  # noqa: PLC0415 - heavy

    _show(asyncio.run(bench.measure(jobs, seconds, folder, repeat)), json=json)


def console(
    *,
    jobs: Annotated[int, typer.Option(min=1_000, max=1_000_000, help="Jobs.")] = 100_000,
    runs: Annotated[
        int, typer.Option(min=10_000, max=10_000_000, help="Runs that have ended.")
    ] = 1_000_000,
    folder: Folder = None,
    json: Json = False,
) -> None:
    """Measure how long the console takes to make each view of a mesh with a long past."""
    from sexton_cli.bench import console as bench  # noqa: PLC0415 - heavy

    _show(asyncio.run(bench.measure(jobs, runs, folder)), json=json)


def _show(measured: dict[str, Any], *, json: bool) -> None:
    """Prints numbers as one table, figures by service as another, and each list of rows as one."""
    from sexton_cli.bench.machine import here  # noqa: PLC0415 - with the figures alone

    if json:
        print_json({"on": here()} | measured)
        return
    print_line(f"{here()}\n")
    named = {name: value for name, value in measured.items() if isinstance(value, dict)}
    rows = {name: value for name, value in measured.items() if isinstance(value, list)}
    plain = [item for item in measured.items() if item[0] not in {*named, *rows}]
    print_table(("MEASURED", "VALUE"), plain)
    if named:
        print_line()
        _show_named(named)
    for each in rows.values():
        print_line()
        print_table([name.upper() for name in each[0]], [list(row.values()) for row in each])


def _show_named(named: dict[str, dict[str, Any]]) -> None:
    names = list(dict.fromkeys(name for figures in named.values() for name in figures))
    print_table(
        ("", *(name.upper() for name in named)),
        [(name, *(figures.get(name, "") for figures in named.values())) for name in names],
    )

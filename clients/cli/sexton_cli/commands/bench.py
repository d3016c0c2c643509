"""`sexton bench`: measurements on this machine."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from sexton_cli.output import print_json, print_line, print_table


def register(app: typer.Typer) -> None:
    """Registers the group and its commands."""
    bench = typer.Typer(help="Measure this machine.", no_args_is_help=True, rich_markup_mode=None)
    bench.callback()(_root)
    bench.command("store")(store)
    bench.command("time")(time)
    bench.command("throughput")(throughput)
    app.add_typer(bench, name="bench")


def _root() -> None:
    """Measure this machine."""


def store(
    seconds: Annotated[
        float, typer.Option(min=0.1, max=60, help="Time of each of some twenty steps.")
    ] = 2.0,
    folder: Annotated[
        Path | None,
        typer.Option("--dir", help="Where to put the data, to choose a disk.", exists=True),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure a store of its own: commits, compare-and-set, leases; against raw LMDB."""
    from sexton_cli.bench.store import measure  # noqa: PLC0415 - heavy

    measured = asyncio.run(measure(seconds, folder))
    if json:
        print_json(measured)
        return
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
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure the next times of many jobs, and a catch-up over ten years of seconds."""
    from sexton_cli.bench.time import measure  # noqa: PLC0415 - heavy

    measured = measure(jobs, schedules)
    if json:
        print_json(measured)
    else:
        print_table(("MEASURED", "VALUE"), list(measured.items()))


def throughput(
    jobs: Annotated[
        int, typer.Option(min=1, max=20_000, help="Jobs: so many runs are asked for per second.")
    ] = 5_000,
    seconds: Annotated[int, typer.Option(min=1, max=300, help="For so many seconds.")] = 5,
    folder: Annotated[
        Path | None,
        typer.Option("--dir", help="Where to put the data, to choose a disk.", exists=True),
    ] = None,
    console: Annotated[
        bool, typer.Option("--console", help="With a console beside it, and every run traced.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure a mesh of its own: durable runs per second, from due to settled, and their cost."""
    from sexton_cli.bench.throughput import measure  # noqa: PLC0415 - heavy

    measured = asyncio.run(measure(jobs, seconds, folder, console=console))
    if json:
        print_json(measured)
        return
    by_role = {"cpu_us_per_run", "cores_busy"}
    print_table(("MEASURED", "VALUE"), [row for row in measured.items() if row[0] not in by_role])
    print_line()
    print_table(
        ("SERVICE", "CPU_US_PER_RUN", "CORES_BUSY"),
        [
            (role, measured["cpu_us_per_run"][role], measured["cores_busy"][role])
            for role in measured["cpu_us_per_run"]
        ],
    )

"""`sexton verify`: whether a mesh kept its promises, from what it wrote while it ran."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sexton_cli.errors import NotFound, UsageError
from sexton_cli.output import Format, Output, judgement, print_data, print_line, print_table

if TYPE_CHECKING:
    from sexton_sim.check.verdict import Verdict

VIOLATED = 1
"""Exit code where a promise was broken."""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("verify")(verify)


def verify(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Files and folders of one history: the store's, clients', jobs', tests'; or what "
            "`sexton history export` made of them.",
        ),
    ],
    output: Output = Format.TABLE,
    json: Annotated[bool, typer.Option("--json", help="The same as -o json.")] = False,
) -> None:
    """Hold the history of a mesh against what it promises.

    Ends with 0 where all that can be judged holds, with 1 where something does not, and with 2
    where a file is no history. What the history can't tell is listed as inconclusive. Where all
    holds, but the reader goes away before the end, it ends with 141.
    """
    from sexton_sim.sources import Sources, UnreadableError  # noqa: PLC0415 - heavy
    from sexton_sim.verify import judge  # noqa: PLC0415

    for file in files:
        if not file.exists():
            raise NotFound(f"{file}: no such file or folder")
    began = time.monotonic()
    try:
        sources = Sources(files)
        verdict = judge(sources)
    except UnreadableError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}") from None
    took_s = time.monotonic() - began
    result = {**verdict.to_dict(), "commits": sources.commits, "took_s": round(took_s, 3)}
    with judgement(0 if verdict.ok else VIOLATED):
        if not print_data(result, Format.JSON if json else output):
            _print(verdict, sources.commits, took_s)


def _print(verdict: Verdict, commits: int, took_s: float) -> None:
    for violation in verdict.shown():
        for line in str(violation).splitlines():
            print_line(line)
        print_line()
    print_table(
        ("RULE", "VERDICT", "LOOKED AT", "WHAT IT SAYS"),
        [(it.rule, it.result, f"{it.checked:,}", it.title) for it in verdict.by_rule()],
    )
    for why in verdict.inconclusive:
        print_line(f"inconclusive: {why}")
    for line in verdict.measured():
        print_line(line)
    speed = f", {commits / took_s:,.0f} a second" if took_s > 0.1 else ""
    print_line(f"{commits:,} commits in {took_s:.1f} s{speed}")
    print_line(verdict.conclusion())

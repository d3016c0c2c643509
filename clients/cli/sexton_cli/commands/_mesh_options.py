"""The options that all commands to a running mesh share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sexton_cli.output import ListFormat

if TYPE_CHECKING:
    from sexton_cli.online.session import Target

Api = Annotated[
    str | None,
    typer.Option(
        "--api",
        metavar="HOST:PORT",
        help="The mesh, several addresses separated by commas; default: SEXTON_API, or the mesh "
        "of this machine.",
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "-n", "--namespace", metavar="NAME", help="Of names without one; default: default."
    ),
]
Output = Annotated[ListFormat, typer.Option("-o", "--output", help="How to print.")]
JobName = Annotated[str, typer.Argument(metavar="JOB", help="JOB or NAMESPACE/JOB.")]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="JOB/RUN or NAMESPACE/JOB/RUN.")]
Timeout = Annotated[
    float, typer.Option(min=0.1, max=3_600, metavar="SECONDS", help="Longest time of each call.")
]
TIMEOUT_S = 10.0


def target_of(api: str | None, namespace: str | None, timeout: float = TIMEOUT_S) -> Target:
    """Gives which mesh is meant."""
    from sexton_cli.online.session import Target  # noqa: PLC0415 - heavy

    return Target(api=api or None, namespace=namespace, timeout_s=timeout)

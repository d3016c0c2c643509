"""The options that commands to a running mesh share, and how they call it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from sexton_cli.errors import UsageError
from sexton_cli.output import ListFormat

if TYPE_CHECKING:
    from sexton.client import Client
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
Everywhere = Annotated[
    bool, typer.Option("-A", "--all-namespaces", help="Those of every namespace.")
]
Watch = Annotated[
    bool, typer.Option("-w", "--watch", help="Show it anew every two seconds, until Ctrl-C.")
]


def _jobs(incomplete: str) -> list[str]:
    from sexton_cli.online.completing import jobs  # noqa: PLC0415 - heavy

    return jobs(incomplete)


def some_runs(incomplete: str) -> list[str]:
    """Gives what the shell offers where a run is named."""
    from sexton_cli.online.completing import runs  # noqa: PLC0415 - heavy

    return runs(incomplete)


JobName = Annotated[
    str, typer.Argument(metavar="JOB", help="JOB or NAMESPACE/JOB.", autocompletion=_jobs)
]
SomeJobs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="JOB...", help="Only these, in this order; none: all.", autocompletion=_jobs
    ),
]
OneJob = Annotated[
    str | None,
    typer.Argument(metavar="JOB", help="Those of this job.", autocompletion=_jobs),
]
OfJob = Annotated[
    str | None,
    typer.Option("--job", metavar="JOB", help="Those of this job.", autocompletion=_jobs),
]
RunName = Annotated[
    str,
    typer.Argument(metavar="RUN", help="JOB/RUN or NAMESPACE/JOB/RUN.", autocompletion=some_runs),
]
Timeout = Annotated[
    float, typer.Option(min=0.1, max=3_600, metavar="SECONDS", help="Longest time of each call.")
]
TIMEOUT_S = 10.0


class Overlap(StrEnum):
    """What a start does while another run of the job is live."""

    SKIP = "skip"
    BUFFER_ONE = "buffer_one"
    BUFFER_ALL = "buffer_all"
    CANCEL_OTHER = "cancel_other"
    TERMINATE_OTHER = "terminate_other"
    ALLOW_ALL = "allow_all"


StartOverlap = Annotated[
    Overlap | None, typer.Option(help="Instead of the job's own policy, for this start.")
]
StartRequest = Annotated[
    str | None,
    typer.Option(metavar="ID", help="The same id starts one run, however often it is sent."),
]


def job_of(argument: str | None, option: str | None) -> str | None:
    """Gives the job that was named as the argument or with --job; None: neither.

    Raises:
        UsageError: both.
    """
    if argument is not None and option is not None:
        raise UsageError(f"--job {option} and {argument}: name one of them")
    return argument if option is None else option


def target_of(api: str | None, namespace: str | None, timeout: float = TIMEOUT_S) -> Target:
    """Gives which mesh is meant."""
    from sexton_cli.online.session import Target  # noqa: PLC0415 - heavy

    return Target(api=api or None, namespace=namespace, timeout_s=timeout)


@contextmanager
def calling(
    job: str, api: str | None, namespace: str | None, flags: Mapping[str, str] | None = None
) -> Iterator[Client]:
    """Gives a client; a job that is not there is looked for elsewhere. `flags`: as `connected`."""
    from sexton import errors  # noqa: PLC0415 - heavy
    from sexton_cli.online import jobs, session  # noqa: PLC0415

    with session.connected(target_of(api, namespace), flags) as client:
        try:
            yield client
        except errors.NotFound as error:
            raise jobs.look_around(client, job, error) from None

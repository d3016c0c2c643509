"""The environment of commands and of tasks in processes of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from sexton_core.instants import format_instant
from sexton_worker.contract import FromWorker, Order, ShellWork
from sexton_worker.mark import MARK

_SECRETS: Final = "SEXTON_SECRETS"
_OWN: Final = "SEXTON_"
_INHERITED: Final = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL"),
    *("LANG", "LANGUAGE", "TZ", "TMPDIR"),
)
_DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class EnvironmentProblem(Exception):  # noqa: N818 - a fault of a job's definition
    """A variable can't be set as the job asks."""


def run_variables(order: Order) -> dict[str, str]:
    """Gives what every run is told. Times are RFC 3339; the run id is safe in file names."""
    variables = {
        "SEXTON_NAMESPACE": order.namespace,
        "SEXTON_JOB": order.job,
        "SEXTON_RUN_ID": order.run_id,
        "SEXTON_NOMINAL_TIME": format_instant(order.nominal_time),
        "SEXTON_ATTEMPT": str(order.number),
        "SEXTON_TOKEN": str(order.ref.token),
        "SEXTON_IDEMPOTENCY_KEY": f"{order.namespace}/{order.job}/{order.run_id}",
    }
    if order.traceparent:
        variables["TRACEPARENT"] = order.traceparent
    return variables


def shell_variables(order: Order, work: ShellWork, own: Mapping[str, str]) -> dict[str, str]:
    """Gives the whole environment of a command: little of the worker's own, nothing unasked.

    Raises:
        EnvironmentProblem: a variable can't be set as the job asks.
    """
    variables = {"PATH": _DEFAULT_PATH}
    variables |= {
        name: value for name, value in own.items() if name in _INHERITED or name.startswith("LC_")
    }
    variables |= dict(_asked(work, own))
    return variables | run_variables(order)


def values_of_the_worker(work: ShellWork, own: Mapping[str, str]) -> list[str]:
    """Gives those values of a command's environment that are the worker's and not the job's."""
    sources = (source for source in work.env.values() if isinstance(source, FromWorker))
    return [own[source.name] for source in sources]


def process_variables(order: Order, own: Mapping[str, str]) -> dict[str, str]:
    """Gives the environment of a task in a process: the worker's, without the mesh's secrets."""
    kept = {name: value for name, value in own.items() if not name.startswith(_SECRETS)}
    kept.pop(MARK, None)  # its guard kills it
    kept.setdefault("PYTHONUNBUFFERED", "1")  # what it printed is kept also when it is killed
    return kept | run_variables(order)


def _asked(work: ShellWork, own: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, source in work.env.items():
        if _NAME.fullmatch(name) is None:
            raise EnvironmentProblem(
                f"env: {name!r} is no variable's name; use letters, digits and _"
            )
        if name.startswith(_OWN):
            raise EnvironmentProblem(f"env: {name} is set by Sexton; use another name")
        value = taken(f"env: {name}", source, own)
        if "\0" in value:
            raise EnvironmentProblem(f"env: the value of {name} holds a NUL character")
        yield name, value


def taken(field: str, source: str | FromWorker, own: Mapping[str, str]) -> str:
    """Gives a value as it stands in the definition, or from the worker's own environment.

    Raises:
        EnvironmentProblem: the worker has no such variable, or keeps it to itself.
    """
    if isinstance(source, str):
        return source
    if source.name.startswith(_OWN):
        raise EnvironmentProblem(f"{field} can't be taken from the worker's {source.name}")
    try:
        return own[source.name]
    except KeyError:
        raise EnvironmentProblem(
            f"{field} is to be taken from the worker's variable {source.name}, which is not "
            "set there; set it where the worker is started"
        ) from None

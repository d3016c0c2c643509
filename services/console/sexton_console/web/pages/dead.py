"""Dead letters: runs that ended without success and wait for a person, grouped by likeness."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from sexton.v1 import dead_letter_pb2
from sexton_console.mesh.api import MeshApi
from sexton_console.web import query
from sexton_console.web.desk import desk_of
from sexton_console.web.pages.job import RunRow, run_row
from sexton_console.web.render import render
from sexton_console.words import job_name

LOOKED_AT: Final = 2_000
SHOWN: Final = 100
"""Groups; whoever has more of them looks at one job."""
_PAGE: Final = 500
_KEPT_S: Final = 2.0
_RUNS: Final = 5


@dataclass(slots=True)
class Group:
    """Dead letters that look alike."""

    fingerprint: str
    job: str
    kind: str
    message: str
    count: int = 0
    newest: int = 0
    oldest: int = 0
    runs: list[RunRow] = field(default_factory=list)


async def show(request: Request) -> Response:
    """Shows the groups."""
    desk = desk_of(request)
    job = query.text(request, "job")
    found = await desk.errands.answer(f"dead {job}", _KEPT_S, lambda: _read(desk.api, job))
    letters, complete = found.value or ([], True)
    groups = _grouped(letters)
    return render(
        request,
        "dead.html",
        title="Dead letters",
        section="dead",
        live=True,
        job=job,
        absent=found.absent,
        read=found.complete,
        groups=groups[:SHOWN],
        left_out=len(groups) - SHOWN,
        complete=complete,
        total=len(letters),
    )


def filter_of(job: str, fingerprint: str = "") -> dead_letter_pb2.DeadLetterFilter:
    """Gives what says which dead letters are meant."""
    namespace, slash, short = job.rpartition("/")
    parent = job_name(namespace if slash else "default", short) if short else ""
    return dead_letter_pb2.DeadLetterFilter(parent=parent, fingerprint=fingerprint)


async def _read(
    api: MeshApi, job: str
) -> AsyncIterator[tuple[list[dead_letter_pb2.DeadLetter], bool]]:
    """Reads the newest letters; tells whether these are all."""
    letters: list[dead_letter_pb2.DeadLetter] = []
    token = ""
    while len(letters) < LOOKED_AT:
        answer = await api.dead_letters(filter_of(job), size=_PAGE, token=token)
        letters += answer.dead_letters
        token = answer.next_page_token
        yield letters, not token
        if not token:
            break


def _grouped(letters: Iterable[dead_letter_pb2.DeadLetter]) -> list[Group]:
    groups: dict[str, Group] = {}
    for letter in letters:
        row = run_row(letter.run)
        group = groups.get(letter.fingerprint)
        if group is None:
            error = letter.run.error
            group = groups[letter.fingerprint] = Group(
                letter.fingerprint, f"{row.namespace}/{row.job}", error.kind, error.message
            )
        group.count += 1
        group.newest = max(group.newest, row.ended)
        group.oldest = min(group.oldest or row.ended, row.ended)
        if len(group.runs) < _RUNS:
            group.runs.append(row)
    return sorted(groups.values(), key=lambda group: (-group.count, -group.newest))

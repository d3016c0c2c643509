"""The control plane: members and their clocks, leases with tokens, store, and telemetry."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from sexton.v1 import scheduler_pb2 as api
from sexton_console.mesh.api import part
from sexton_console.otlp.metrics import Key
from sexton_console.web import charts, query
from sexton_console.web.desk import desk_of
from sexton_console.web.pages.now import members_of
from sexton_console.web.render import byte_count, render
from sexton_console.web.shared import shared
from sexton_console.web.urls import with_query
from sexton_console.words import enum_word
from sexton_runtime import semconv

LINES: Final = 60
"""Of what services log, at once."""
TERMS: Final = 20
"""Of who led, in words; the strip shows all."""
LEVELS: Final = {"debug": 0, "info": 9, "warning": 13, "error": 17}
"""Least severities, by their words."""


class MemberRow(NamedTuple):
    """One process."""

    role: str
    id: str
    address: str
    shard: int
    leading: bool
    token: int
    skew_ms: int
    version: str
    details: str
    """In few words."""
    all_details: str


class Number(NamedTuple):
    """A number that a service says about itself."""

    kind: str
    value: float


async def show(request: Request) -> Response:
    """Shows the control plane."""
    desk = desk_of(request)
    service = query.text(request, "service")
    level = query.choice(request, "level", LEVELS, "info")
    before = query.number(request, "before", 2**62)
    members, store, usage, said, services = await asyncio.gather(
        members_of(desk),
        part(shared(desk, "store", 1.0, desk.api.store)),
        desk.traces.usage(),
        desk.logs.newest(service=service, severity=LEVELS[level], before=before, limit=LINES),
        desk.logs.services(),
    )
    terms = desk.watch.takeovers()
    strip, strip_start = charts.strip(terms, desk.now_s)
    here = {"service": service, "level": level if level != "info" else ""}
    return render(
        request,
        "mesh.html",
        title="Control plane",
        section="mesh",
        live=not before,
        said=said,
        services=services,
        service=service,
        level=level,
        levels=LEVELS,
        older=with_query("/mesh", **here, before=said[-1].cursor) if len(said) == LINES else "",
        newest=with_query("/mesh", **here) if before else "",
        logs=desk.logs,
        mesh_time=members.mesh_time,
        members=[_row(member) for member in members.members],
        store=store,
        takeovers=terms[:TERMS],
        strip=strip,
        strip_start=strip_start,
        usage=usage,
        received=desk.receiver.received,
        counters=desk.traces.counters,
        forwarder=desk.receiver.forwarder,
        looked_s=desk.follower.looked_s,
        numbers={
            "coordinators": _numbers(desk.receiver.metrics.find(semconv.COORDINATOR_EVENTS.name)),
            "queues": _numbers(desk.receiver.metrics.find(semconv.QUEUE_EVENTS.name)),
            "workers": _numbers(desk.receiver.metrics.find(semconv.WORKER_EVENTS.name)),
            "telemetry that was dropped": _numbers(
                desk.receiver.metrics.find(semconv.SPANS_DROPPED.name)
            ),
        },
    )


def _row(member: api.Member) -> MemberRow:
    return MemberRow(
        role=enum_word(api.Member.Role, member.role, "ROLE_"),
        id=member.id,
        address=member.address or member.details.get("worker", ""),
        shard=member.shard,
        leading=member.leading,
        token=member.token,
        skew_ms=member.skew_ms,
        version=member.software_version,
        details=_details(member),
        all_details=", ".join(f"{name} {value}" for name, value in sorted(member.details.items())),
    )


def _details(member: api.Member) -> str:
    """Says in few words what a member tells of itself."""
    told = dict(member.details)
    if member.role == api.Member.ROLE_WORKER:
        state = told.get("state", "")
        said = [f"{told.get('running', '?')} of {told.get('slots', '?')} slots"]
        said.append(f"queues {told.get('queues', '?')}")
        return ", ".join([*said, *([state] if state != "connected" else [])])
    used = told.pop("used_bytes", "")
    said = [byte_count(int(used))] if used.isdecimal() else []
    return ", ".join([*said, *(f"{name} {value}" for name, value in sorted(told.items()))])


def _numbers(found: Iterable[tuple[Key, int, float]]) -> list[Number]:
    sums: dict[str, float] = {}
    for key, _, value in found:
        kind = dict(key.attributes).get(semconv.KIND, "").replace("_", " ")
        sums[kind] = sums.get(kind, 0.0) + value
    return [Number(kind, value) for kind, value in sorted(sums.items()) if value]

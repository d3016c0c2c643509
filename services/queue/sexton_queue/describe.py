"""How a shard's queues are, for people: from memory, at one moment."""

from __future__ import annotations

from collections.abc import Collection, Iterable, MutableSequence
from itertools import islice
from typing import Final

from sexton.internal.v1 import queue_pb2
from sexton_core.instants import MILLISECOND
from sexton_queue.entries import Now
from sexton_queue.machine import Machine
from sexton_queue.sessions import Session

MAX_RUNS_NAMED: Final = 100
"""Runs of a session that are named."""
_LISTS_BYTES: Final = 1024 * 1024
"""Of an answer of at most 4 MiB for each of the lists in it: what queues offer, and what sessions
know and hold. Beyond it the later ones are told without."""


def describe(
    machine: Machine, owner_token: int, now: Now, *, queues_only: bool = False
) -> queue_pb2.DescribeQueuesResponse:
    """Returns every queue that has been seen, and every session unless `queues_only`."""
    sessions = sorted(machine.sessions.by_id.values(), key=lambda session: session.id)
    names = {*machine.table.line.queues(), *machine.table.line.paused}
    live = [session for session in sessions if not session.ended]
    for session in live:
        names.update(session.queues)
    response = queue_pb2.DescribeQueuesResponse(owner_token=owner_token)
    room = _LISTS_BYTES
    for name in sorted(names):
        info = describe_queue(machine, name, live, now)
        offers = len(info.offers)
        room = _within(room, info.offers)
        info.offers_left_out = len(info.offers) < offers
        response.queues.append(info)
    room = _LISTS_BYTES
    for session in () if queues_only else sessions:
        shown = _session(machine, session, now)
        room = _within(_within(room, shown.runs), shown.tasks)
        response.sessions.append(shown)
    return response


def describe_queue(
    machine: Machine, name: str, sessions: Collection[Session], now: Now
) -> queue_pb2.QueueInfo:
    """Returns one queue as these live sessions serve it."""
    line = machine.table.line
    lanes = line.lanes_of(name)
    oldest = min(
        (entry.ready_since for lane in lanes for entry in lane.ready.values()), default=now.mesh
    )
    return queue_pb2.QueueInfo(
        queue=name,
        ready=sum(len(lane.ready) + lane.passed.total() for lane in lanes),
        delayed=sum(len(lane.delayed) for lane in lanes),
        running=line.running[name],
        oldest_ready_ms=max(now.mesh - oldest, 0) // MILLISECOND,
        slots=sum(session.slots for session in sessions if name in session.queues),
        max_running=line.max_running.get(name, 0),
        offers=line.offers_of(name),
        paused=name in line.paused,
        pause_reason=line.paused.get(name, ""),
    )


def describe_progress(machine: Machine, handles: Iterable[bytes]) -> list[queue_pb2.RunReport]:
    """Returns what the tasks of runs last said, empty where they say nothing."""
    reports = []
    for handle in handles:
        report = queue_pb2.RunReport()
        entry = machine.table.by_key.get(handle)
        if entry is not None and entry.progress is not None and entry.session is not None:
            report.progress.fraction, report.progress.message = entry.progress
        reports.append(report)
    return reports


def _session(machine: Machine, session: Session, now: Now) -> queue_pb2.SessionInfo:
    record = session.record
    return queue_pb2.SessionInfo(
        session=session.id,
        worker=record.worker,
        queues=record.queues,
        tasks=record.tasks,
        kinds=record.kinds,
        slots=record.slots,
        running=len(session.runs),
        silent_ms=machine.sessions.silence(session, now.boot) // MILLISECOND,
        connected=session.stream is not None,
        draining=session.draining,
        software_version=record.software_version,
        runs=[
            entry.record.origin.run_name for entry in islice(session.runs.values(), MAX_RUNS_NAMED)
        ],
    )


def _within(room: int, texts: MutableSequence[str]) -> int:
    """Empties a list for which no room is left; gives what is left."""
    size = sum(len(text) + 3 for text in texts)  # ids and names: plain ASCII
    if size > room:
        del texts[:]
        return room
    return room - size

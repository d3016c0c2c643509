"""How a shard's queues are, for people: from memory, at one moment."""

from __future__ import annotations

from sexton.internal.v1 import queue_pb2
from sexton_core.instants import MILLISECOND
from sexton_queue.entries import Now
from sexton_queue.machine import Machine
from sexton_queue.sessions import Session


def describe(machine: Machine, owner_token: int, now: Now) -> queue_pb2.DescribeQueuesResponse:
    """Returns every queue that has been seen, and every session."""
    sessions = sorted(machine.sessions.by_id.values(), key=lambda session: session.id)
    names = set(machine.table.line.queues())
    live = [session for session in sessions if not session.ended]
    for session in live:
        names.update(session.queues)
    return queue_pb2.DescribeQueuesResponse(
        owner_token=owner_token,
        queues=[_queue(machine, name, live, now) for name in sorted(names)],
        sessions=[_session(machine, session, now) for session in sessions],
    )


def _queue(machine: Machine, name: str, sessions: list[Session], now: Now) -> queue_pb2.QueueInfo:
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
    )


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
    )

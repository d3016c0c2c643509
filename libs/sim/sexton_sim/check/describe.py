"""Commits and notes in words, so that a verdict can be read without knowing the store's keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import backfill_pb2, run_pb2
from sexton_core.instants import MILLISECOND, format_instant
from sexton_records import keys
from sexton_records.runs import STATE_OF
from sexton_runtime.kv.types import Compare
from sexton_sim.history import Call, Durable, Note, text
from sexton_store.history import Change, Commit

_LONGEST = 160
"""Characters of an answer."""
_LONGEST_VALUE = 40
"""Bytes of a value."""
_MOST = 6
"""Changes of a commit that are told; further ones are counted."""


def instant(ns: int) -> str:
    """Writes an instant as people read it; what is none, as a number."""
    return format_instant(ns) if ns > 0 else str(ns)


def moment(ns: int) -> str:
    """Writes when something happened, to the millisecond."""
    return instant(ns - ns % MILLISECOND)


def describe_changes(changes: Mapping[bytes, Sequence[Any]]) -> Iterator[str]:
    """Says what a commit did, the most telling first."""
    told = [
        sentence
        for kind, describe in _DESCRIBED.items()
        for changed in changes.get(kind, ())
        if (sentence := describe(changed))
    ]
    yield from told[:_MOST]
    if len(told) > _MOST:
        yield f"and {len(told) - _MOST} changes more"


def told(event: object) -> str:
    """Writes any event of a history as people read it."""
    if isinstance(event, Durable):
        event = event.commit
    if isinstance(event, Call):
        return describe_call(event)
    if isinstance(event, Note):
        return describe_note(event)
    if isinstance(event, Commit):
        changes = [_told_change(change) for change in event.changes[:_MOST]]
        more = len(event.changes) - len(changes)
        rest = f"; and {more} changes more" if more else ""
        at = moment(event.mesh_time_ns)
        return f"revision {event.revision} at {at}: {'; '.join(changes)}{rest}"
    if isinstance(event, Compare):
        operand = _told_value(event.operand) if isinstance(event.operand, bytes) else event.operand
        return f"compared: {event.target.name} of {text(event.key)} is {operand}"
    return str(event)


def _told_change(change: Change) -> str:
    key, before, after = text(change.key), change.before, change.after
    if after is None:
        return f"{key} deleted"
    if before is None:
        return f"{key} created: {_told_value(after.value)}"
    return f"{key} from {_told_value(before.value)} to {_told_value(after.value)}"


def _told_value(value: bytes) -> str:
    if value.isascii() and value.decode().isprintable() and len(value) <= _LONGEST_VALUE:
        return repr(value.decode())
    return f"{len(value)} bytes"


def describe_note(note: Note) -> str:
    """Says what a job noted, or what was done to somebody."""
    at = f"at {note.at_ns / 1e9:.3f} s"
    facts = note.facts
    if note.kind == "exec" and "token" in facts:
        run = facts.get("run") or _run_of(facts)
        how = f", {facts['how']}" if "how" in facts else ""
        number = f"attempt {facts['number']}, " if "number" in facts else ""
        return f"{at} {note.target} {note.what} {run} ({number}token {facts['token']}){how}"
    told = ", ".join(f"{name} {value}" for name, value in facts.items())
    return f"{at} {note.kind} {note.what} {note.target}{': ' if told else ''}{told}"


def describe_call(call: Call) -> str:
    """Says what somebody asked for, and was told."""
    asked = " ".join(
        f"{name}={value}" for name, value in call.args.items() if name not in {"txn", "unique"}
    )
    if "txn" in call.args:
        txn = call.args["txn"]
        writes = [f"{key} = {value!r}" for key, value in txn["then"]]
        asked += f" {', '.join(writes[:_MOST])} if {txn['compares'][:_MOST]}"
    ended = "no answer" if call.ended_ns is None else f"{call.outcome} {_short(call.result)}"
    until = "" if call.ended_ns is None else f" to {call.ended_ns / 1e9:.3f} s"
    return f"at {call.invoked_ns / 1e9:.3f} s{until} {call.process} {call.name} {asked}: {ended}"


def _short(result: Mapping[str, Any]) -> str:
    told = ", ".join(f"{name} {value}" for name, value in result.items())
    return told if len(told) <= _LONGEST else f"{told[:_LONGEST]}..."


def run_name(record: Any) -> str:
    """Gives a run's name with its job: `default/backup/t20261129T030000Z-1a2b3c4d`."""
    template = record.template
    return f"{template.namespace}/{template.job}/{record.run_id}"


def _run_of(facts: Mapping[str, Any]) -> str:
    handle = facts.get("handle")
    if handle is None:
        return "its lease" if "lease" in facts else "something"
    return str(handle).rpartition("/")[2]


def _job(changed: Any) -> str:
    namespace, job = keys.parse_job_key(changed.key)
    if changed.after is None:
        return f"job {namespace}/{job} deleted"
    record = changed.after
    what = "created" if changed.before is None else "rewritten"
    paused = ", paused" if record.paused else ""
    since = instant(record.effective_time_ns)
    return f"job {namespace}/{job} {what}: version {record.version} since {since}{paused}"


def _state(changed: Any) -> str:
    record: pb.StateRecord = changed.after if changed.after is not None else changed.before
    job = f"{record.namespace}/{record.job}"
    if changed.after is None:
        return f"state of {job} removed, cursor {instant(record.cursor_ns)}"
    if changed.before is None:
        return f"state of {job} begun, cursor {instant(record.cursor_ns)}"
    before = changed.before.cursor_ns
    if before == record.cursor_ns:
        return f"state of {job} written, cursor {instant(before)}"
    return f"cursor of {job} from {instant(before)} to {instant(record.cursor_ns)}"


def _active(changed: Any) -> str:
    record: pb.RunRecord = changed.after if changed.after is not None else changed.before
    name = run_name(record)
    if changed.before is None:
        return f"run {name} made for {instant(record.nominal_ns)} ({record.reason or 'asked for'})"
    if changed.after is None:
        return ""  # `runs/` tells the end
    was, became = STATE_OF[changed.before.state], STATE_OF[record.state]
    worker = _worker(record)
    asked = ", its end asked for" if record.HasField("cancel") else ""
    step = f"{was}" if was is became else f"{was} to {became}"
    return f"run {name} {step}{worker}{asked}"


def _worker(record: pb.RunRecord) -> str:
    if not record.session or not record.attempts:
        return ""
    attempt = record.attempts[-1]
    return f" (attempt {attempt.number} with {attempt.worker or attempt.session})"


def _ended(changed: Any) -> str:
    if changed.after is None:
        return ""
    record: pb.RunRecord = changed.after
    token = f", token {record.token}" if record.token else ""
    return f"run {run_name(record)} ended as {STATE_OF[record.state]}{token}"


def _decision(changed: Any) -> str:
    record: pb.DecisionRecord | None = changed.after
    if record is None:
        return ""
    kind = pb.DecisionKind.Name(record.kind).removeprefix("DECISION_KIND_").lower()
    span = instant(record.first_ns)
    if record.last_ns != record.first_ns:
        span += f" to {instant(record.last_ns)}"
    return f"{span} {kind} ({record.reason})"


def _buffered(changed: Any) -> str:
    record: pb.BufferedRecord = changed.after if changed.after is not None else changed.before
    what = "waits in the buffer" if changed.after is not None else "leaves the buffer"
    return f"start {record.run_id} {what}"


def _dead(changed: Any) -> str:
    run_id = changed.key.decode().rpartition("/")[2]
    return f"{run_id} {'is off' if changed.after is None else 'is on'} the list of dead letters"


def _backfill(changed: Any) -> str:
    backfill = keys.parse_backfill_key(changed.key)[1]
    if changed.after is None:
        return f"backfill {backfill} removed"
    record: pb.BackfillRecord = changed.after
    state = backfill_pb2.BackfillState.Name(record.state).removeprefix("BACKFILL_STATE_").lower()
    at = f" at {instant(record.position_ns)}" if record.HasField("position_ns") else ""
    counts = f"{record.started} started, {record.skipped} left out of {record.total}"
    return f"backfill {backfill} {state}{at}: {counts}"


def _session(changed: Any) -> str:
    name = changed.key.decode().split("/")[2]
    if changed.before is not None and changed.after is not None:
        return f"session {name} written"
    return f"session {name} {'opened' if changed.before is None else 'ended'}"


def _deleted(changed: Any) -> str:
    record = changed.after if changed.after is not None else changed.before
    return f"what is left of {record.namespace}/{record.job}: {len(record.live)} runs"


_DESCRIBED: Final[dict[bytes, Callable[[Any], str]]] = {
    keys.JOBS: _job,
    keys.ACTIVE: _active,
    keys.RUNS: _ended,
    keys.DECISIONS: _decision,
    keys.BUFFERED: _buffered,
    keys.BACKFILLS: _backfill,
    keys.STATE: _state,
    keys.DEAD: _dead,
    keys.SESSIONS: _session,
    keys.DELETED: _deleted,
}

ATTEMPT_ENDS: Final = {
    run_pb2.ATTEMPT_STATE_SUCCEEDED: "succeeded",
    run_pb2.ATTEMPT_STATE_FAILED: "failed",
}
"""What a task comes to by itself, and says so. What stops it has the last word about the others."""

"""The records of requests, which make each of them have one effect: a part of S12.

A start or job that somebody asked for under an id is made in the commit of the request's record,
which says what came of it: so neither can be there without the other, whoever crashes when.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import job_pb2, run_pb2, scheduler_pb2
from sexton_records import keys
from sexton_sim.check.describe import describe_call, instant
from sexton_sim.check.jobs import Decided, Start
from sexton_sim.check.records import Changed, MeshCommit
from sexton_sim.check.verdict import Verdict
from sexton_sim.history import Call, History

_KEPT_NS: Final = 600_000_000_000
"""So long, in mesh time, a request is remembered."""
_RECORDED: Final = frozenset({"CreateJob", "TriggerJob", "RetryRun"})
"""Calls that leave a record, where they have a request id."""
_MADE: Final = frozenset({"", "buffered"})
"""Decisions about a start that was made."""


class _Asked(NamedTuple):
    """A start that somebody asked for."""

    uid: str
    start: Start


class ProofRules:
    """Holds every record of a request against its commit, and answered calls against records."""

    def __init__(self, history: History, verdict: Verdict, *, ahead_ns: int) -> None:
        """`ahead_ns`: so far a replica's idea of mesh time may be ahead."""
        self._verdict = verdict
        self._ahead_ns = ahead_ns
        self._calls = _by_digest(history.calls)
        self._written: dict[bytes, int] = {}
        """When each request of a known call was recorded first."""

    def take(self, commit: MeshCommit, decided: Mapping[str, Decided]) -> None:
        """Looks at a commit."""
        asked = [*_asked_for(commit, decided)] if decided else []
        for changed in commit.of(keys.REQUESTS):
            self._verdict.checked["S12"] += 1
            record = changed.after
            if record is None:
                self._check_forgotten(changed.before, commit)
                continue
            digest = changed.key.rpartition(b"/")[2]
            if digest in self._calls:
                self._written.setdefault(digest, commit.begun_ns)
            said = _wrong_effect(record, asked, commit)
            if said:
                self._verdict.violate("S12", f"a request's record {said}", [commit])
        for _, start in asked:
            self._verdict.violate(
                "S12",
                f"{start.run_id} was made for a request, and nothing in its commit says so",
                [commit],
            )

    def finish(self, reaches: Callable[[Call], bool]) -> None:
        """Looks at calls that were answered, as far as the log reaches."""
        for digest, calls in self._calls.items():
            written_ns = self._written.get(digest)
            for call in filter(reaches, calls):
                self._verdict.checked["S12"] += 1
                if written_ns is None or written_ns > (call.ended_ns or 0):
                    self._verdict.violate(
                        "S12",
                        f"{call.process}'s {call.name} was answered, and by then nothing said that "
                        f"request {call.args['request_id']} had had its effect",
                        [describe_call(call)],
                    )

    def _check_forgotten(self, record: pb.RequestRecord, commit: MeshCommit) -> None:
        age_ns = commit.mesh_ns - record.create_time_ns
        if age_ns < _KEPT_NS - self._ahead_ns:
            self._verdict.violate(
                "S12",
                f"the request of {instant(record.create_time_ns)} was forgotten after "
                f"{age_ns / 1e9:.3f} s",
                [commit],
            )


def _wrong_effect(record: pb.RequestRecord, asked: list[_Asked], commit: MeshCommit) -> str:
    """Says what is wrong with a record beside what its commit does; takes its start out."""
    created = next((it for it in commit.of(keys.JOBS) if _is_new(it)), None)
    if created is not None:
        job = job_pb2.Job.FromString(record.answer)
        namespace, name = keys.parse_job_key(created.key)
        told = (job.name, job.uid)
        if told != (f"namespaces/{namespace}/jobs/{name}", created.after.uid):
            return f"tells of {job.name}, and {namespace}/{name} was created"
        return ""
    answer = scheduler_pb2.TriggerJobResponse.FromString(record.answer)
    run_id = (answer.run_name or answer.run.name).rpartition("/")[2]
    made = next((it for it in asked if it.start.run_id == run_id), None)
    if answer.decision not in _MADE:
        return f"says {answer.decision}, and names {run_id}" if run_id else ""
    if made is None:
        return f"tells of {run_id or 'no start'}, which its commit does not make"
    asked.remove(made)
    return ""


def _asked_for(commit: MeshCommit, decided: Mapping[str, Decided]) -> list[_Asked]:
    """Gives the starts that were asked for under a request's id: no dead letter proves them."""
    letters = {
        keys.parse_ended_key(changed.key)[1:]
        for changed in commit.of(keys.DEAD)
        if changed.after is None
    }
    asked = []
    for uid, one in decided.items():
        starts: list[Start] = [*one.runs, *one.buffered]
        asked += [
            _Asked(uid, start)
            for start in starts
            if start.origin == run_pb2.RUN_ORIGIN_MANUAL
            and start.run_id not in one.unbuffered
            and (uid, start.retry_of) not in letters
        ]
    return asked


def _is_new(changed: Changed) -> bool:
    before, after = changed.before, changed.after
    return after is not None and (before is None or before.uid != after.uid)


def _by_digest(calls: list[Call]) -> dict[bytes, list[Call]]:
    """Gives the answered calls that must have left a record, by its key's last part."""
    found: dict[bytes, list[Call]] = {}
    for call in calls:
        request_id = call.args.get("request_id")
        dry = call.args.get("validate_only")
        if call.name in _RECORDED and request_id and call.outcome == "ok" and not dry:
            namespace = str(call.args.get("name", "")).split("/")[1]
            key = keys.request_key(0, namespace, call.name, request_id)
            found.setdefault(key.rpartition(b"/")[2], []).append(call)
    return found

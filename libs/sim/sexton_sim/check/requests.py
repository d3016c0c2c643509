"""What people asked for and were told: S12 and S13, and that nothing fails as our own fault (S22).

What was acknowledged must be in the log by then, and a request that is repeated gets the same
answer and has one effect.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

from sexton_core.words import RunState
from sexton_records import keys
from sexton_sim.check.records import MeshLog
from sexton_sim.check.settling import Run, RunKey
from sexton_sim.check.verdict import Verdict
from sexton_sim.history import Call, History

_OUR_FAULT = ("Internal", "Unimplemented")
_WINDOW_NS = 600_000_000_000
"""So long, in mesh time, a request is remembered."""
_KINDS = frozenset(
    {
        "CreateJob",
        "UpdateJob",
        "ApplyJobs",
        "PauseJob",
        "ResumeJob",
        "DeleteJob",
        "TriggerJob",
        "CancelRun",
        "TerminateRun",
        "GetJob",
        "ListJobs",
        "ListRuns",
    }
)


def check_requests(
    history: History, log: MeshLog, runs: dict[RunKey, Run], verdict: Verdict
) -> None:
    """Holds every call of the API against the log."""
    calls = [call for call in history.calls if call.name in _KINDS]
    _check_repeats(calls, log, verdict)
    _check_effects(runs, verdict)
    truth = _Truth(log, runs)
    for call in calls:
        verdict.checked["S22"] += 1
        if str(call.result.get("error", "")).startswith(_OUR_FAULT):
            verdict.violate("S22", f"{call.process}'s {call.name} met a fault of ours", [call])
        if call.outcome == "ok":
            verdict.checked["S13"] += 1
            lost = truth.lost(call)
            if lost:
                verdict.violate("S13", f"{call.process}'s {call.name}: {lost}", [call])


def _check_repeats(calls: Iterable[Call], log: MeshLog, verdict: Verdict) -> None:
    first: dict[tuple[str, str], Call] = {}
    for call in calls:
        request_id = call.args.get("request_id")
        if not request_id or call.outcome != "ok":
            continue
        before = first.setdefault((call.name, request_id), call)
        if (
            before is call
            or _mesh_ns(log, call.ended_ns) - _mesh_ns(log, before.invoked_ns) > _WINDOW_NS
        ):
            continue
        verdict.checked["S12"] += 1
        if before.args["body"] != call.args["body"]:
            verdict.violate(
                "S12", f"request {request_id} was answered for two bodies", [before, call]
            )
        elif before.result != call.result:
            verdict.violate("S12", f"request {request_id} was answered in two ways", [before, call])


def _check_effects(runs: dict[RunKey, Run], verdict: Verdict) -> None:
    """The hash of the request stands in a manual run's id, after the time."""
    asked: dict[tuple[str, str], Run] = {}
    for (uid, run_id), run in runs.items():
        if not run_id.startswith("m"):
            continue
        verdict.checked["S12"] += 1
        before = asked.setdefault((uid, run_id.partition("-")[2]), run)
        if before is not run and run.made.mesh_ns - before.made.mesh_ns < _WINDOW_NS:
            verdict.violate("S12", "one request has made two runs", [before.made, run.made])


def _mesh_ns(log: MeshLog, at_ns: int | None) -> int:
    """Gives mesh time at a time on the recorder's clock, as the next commit says it."""
    index = bisect_left(log.commits, at_ns or 0, key=lambda commit: commit.begun_ns)
    return log.commits[min(index, len(log.commits) - 1)].mesh_ns


class _Truth:
    """What the log says of jobs and runs by time."""

    def __init__(self, log: MeshLog, runs: dict[RunKey, Run]) -> None:
        self._runs = {
            f"namespaces/{run.record.template.namespace}/jobs/{run.record.template.job}/runs/"
            f"{run_id}": run
            for (_, run_id), run in runs.items()
        }
        self._jobs: dict[str, list[tuple[int, int, Any]]] = {}
        for commit in log.commits:
            for changed in commit.of(keys.JOBS):
                namespace, job = keys.parse_job_key(changed.key)
                name = f"namespaces/{namespace}/jobs/{job}"
                told = (commit.begun_ns, commit.durable_ns, changed.after)
                self._jobs.setdefault(name, []).append(told)

    def lost(self, call: Call) -> str:
        """Says what of an acknowledged call is not in the log; empty: nothing."""
        result, end_ns = call.result, call.ended_ns or 0
        if call.name in {"CreateJob", "UpdateJob"}:
            return self._version(result, end_ns)
        if call.name == "ApplyJobs":
            for name, uid, _ in result["jobs"]:
                if not self._was(name, end_ns, uid):
                    return f"{name} ({uid}) was never there"
        if call.name in {"PauseJob", "ResumeJob"}:
            paused = call.name == "PauseJob"
            records = self._between(result["name"], call.invoked_ns, end_ns)
            if not any(record is not None and record.paused == paused for record in records):
                return "it was not so at any time until the answer"
        if call.name == "DeleteJob":
            records = self._between(call.args["name"], call.invoked_ns, end_ns)
            if not any(record is None for record in records):
                return "the job was there all the time"
        if call.name == "TriggerJob" and result["run"]:
            return self._made(result["run"], end_ns)
        if call.name in {"CancelRun", "TerminateRun"}:
            return self._asked_to_end(result, end_ns)
        return ""

    def _version(self, result: dict[str, Any], end_ns: int) -> str:
        for begun_ns, _, record in self._jobs.get(result["name"], ()):
            if record is None or begun_ns > end_ns:
                continue
            if (record.uid, record.version) == (result["uid"], result["version"]):
                return ""
        return f"version {result['version']} of {result['name']} was never there"

    def _was(self, name: str, end_ns: int, uid: str) -> bool:
        return any(
            begun_ns <= end_ns and record is not None and record.uid == uid
            for begun_ns, _, record in self._jobs.get(name, ())
        )

    def _between(self, name: str, since_ns: int, until_ns: int) -> list[Any]:
        """Gives all that a job was in a time, beginning with what it was before."""
        records: list[Any] = [None]
        for begun_ns, durable_ns, record in self._jobs.get(name, ()):
            if begun_ns > until_ns:
                break
            records = [record] if durable_ns < since_ns else [*records, record]
        return records

    def _made(self, name: str, end_ns: int) -> str:
        run = self._runs.get(name)
        if run is None or run.made.begun_ns > end_ns:
            return f"{name} was never made"
        return ""

    def _asked_to_end(self, result: dict[str, Any], end_ns: int) -> str:
        run = self._runs.get(result["run"])
        if run is None:
            return "there is no such run"
        asked = run.record.HasField("cancel") or run.ended is not None
        late = run.ended is not None and run.ended.begun_ns > end_ns
        if not asked or (late and not run.record.HasField("cancel") and run.state in _BY_REQUEST):
            return f"{result['run']} was neither asked to end nor had ended"
        return ""


_BY_REQUEST = frozenset({RunState.CANCELLED, RunState.TERMINATED})

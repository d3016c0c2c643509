"""What people asked for and were told: S12 and S13, and that nothing fails as our own fault (S22).

What was acknowledged must be in the log by then, and a request that is repeated gets the same
answer and has one effect; under another body it is refused.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sexton.v1 import backfill_pb2, scheduler_pb2
from sexton_core.words import RunState
from sexton_records import keys
from sexton_sim.check.describe import describe_call, moment
from sexton_sim.check.faults import Faults
from sexton_sim.check.healing import STORE_CALLS
from sexton_sim.check.records import MeshCommit
from sexton_sim.check.settling import Attempt, Moment, Run, RunListener
from sexton_sim.check.verdict import Verdict
from sexton_sim.history import Call, History

_OUR_FAULT = ("Internal", "Unimplemented")
_WINDOW_NS = 600_000_000_000
"""So long, in mesh time, a request is remembered."""
_STARTS = frozenset({"TriggerJob", "RetryRun"})
_FILLS = frozenset({"CreateBackfill", "CancelBackfill"})
_MOVES_ON = frozenset({"state"})
"""What of an answer may be another when the same is asked again."""
_BY_REQUEST = frozenset({RunState.CANCELLED, RunState.TERMINATED})
_NEVER_NS = 1 << 62


class _Written(NamedTuple):
    """What a job was from one commit on; `uid` empty: it was not there."""

    begun_ns: int
    durable_ns: int
    uid: str
    version: int
    paused: bool
    revision: int
    mesh_ns: int

    def __str__(self) -> str:
        what = f"version {self.version}, paused {self.paused}" if self.uid else "it was deleted"
        return f"revision {self.revision} at {moment(self.mesh_ns)}: {what}"


_ABSENT = _Written(0, 0, "", 0, False, 0, 0)


def _written(commit: MeshCommit, uid: str, version: int, *, paused: bool) -> _Written:
    durable_ns = commit.durable_ns or _NEVER_NS
    at = (commit.revision, commit.mesh_ns)
    return _Written(commit.begun_ns, durable_ns, uid, version, paused, *at)


class RequestRules:
    """Holds every call of the API against the log."""

    def __init__(self, history: History, faults: Faults, verdict: Verdict) -> None:
        self.whole = True
        """Whether nothing can lie beyond the log."""
        self.late = False
        """Whether the log left something out, or began later than the mesh."""
        self._verdict = verdict
        self._faults = faults
        self._calls = [call for call in history.calls if call.name not in STORE_CALLS]
        self._named = {name for call in self._calls for name in _names(call)}
        self._jobs: dict[str, list[_Written]] = {}
        self._runs: dict[str, Run] = {}
        self._waiting: dict[str, int] = {}
        """Since when starts wait, or did, that were named."""
        self._backfills: dict[str, list[tuple[int, int]]] = {}
        """When each that was named was written, and as what state."""
        self._asked: dict[tuple[str, str], Moment] = {}
        self._times, self._mesh = array("q"), array("q")
        self._back: dict[str, _Written] | None = None
        """What jobs are after a restore, until the next commit tells when that was."""

    # What the log says

    def take(self, commit: MeshCommit) -> None:
        """Looks at a commit."""
        if not self._calls:
            return
        if self._back is not None:
            self._note_restored(self._back, commit.begun_ns)
            self._back = None
        self._times.append(commit.begun_ns)
        self._mesh.append(commit.mesh_ns)
        self._take_jobs(commit, self._jobs)
        self._take_repairs(commit)

    def go_back(self) -> RunListener:
        """A restore: gives who is to hear of the runs that it has brought back."""
        self._back = {}
        self._asked.clear()
        return _Restored(self._know)

    def take_again(self, commit: MeshCommit) -> None:
        """Looks at a commit that a restore has brought back."""
        again: dict[str, list[_Written]] = {}
        self._take_jobs(commit, again)
        if self._back is not None:
            self._back.update((name, written[-1]) for name, written in again.items())

    def _note_restored(self, back: dict[str, _Written], before_ns: int) -> None:
        """Writes down what every job was from the last restore on."""
        restores = [note.at_ns for note in self._faults.notes if note.what == "restore"]
        at_ns = max((it for it in restores if it <= before_ns), default=before_ns)
        for name in {**self._jobs, **back}:
            # Until somebody has written again, whoever acts may not have heard of the restore.
            it = back.get(name, _ABSENT)._replace(begun_ns=at_ns, durable_ns=before_ns)
            self._jobs.setdefault(name, []).append(it)

    def _take_jobs(self, commit: MeshCommit, jobs: dict[str, list[_Written]]) -> None:
        for changed in commit.of(keys.JOBS):
            namespace, job = keys.parse_job_key(changed.key)
            name = f"namespaces/{namespace}/jobs/{job}"
            if name not in self._named:
                continue
            record = changed.after
            written = _written(commit, "", 0, paused=False)
            if record is not None:
                written = _written(commit, record.uid, record.version, paused=record.paused)
            if changed.before is not None and name not in jobs:
                was = changed.before
                jobs[name] = [_ABSENT._replace(uid=was.uid, version=was.version,
                                               paused=was.paused)]  # fmt: skip
            jobs.setdefault(name, []).append(written)

        for changed in commit.of(keys.QUEUES):
            name = "queues/" + changed.key.decode().split("/")[2]
            if name in self._named:
                written = _written(commit, "queue", 0, paused=changed.after is not None)
                jobs.setdefault(name, []).append(written)

    def _take_repairs(self, commit: MeshCommit) -> None:
        """Takes note of backfills, and of starts that wait."""
        for changed in commit.of(keys.BACKFILLS):
            record = changed.after
            if record is not None:
                backfill = keys.parse_backfill_key(changed.key)[1]
                name = f"namespaces/{record.namespace}/jobs/{record.job}/backfills/{backfill}"
                if name in self._named:
                    written = self._backfills.setdefault(name, [])
                    written.append((commit.begun_ns, record.state))
        waiting = [changed for changed in commit.of(keys.BUFFERED) if changed.after is not None]
        states = {it.uid: it.after for it in commit.of(keys.STATE)} if waiting else {}
        for changed in waiting:
            state = states.get(changed.uid)
            if state is not None:
                job = f"namespaces/{state.namespace}/jobs/{state.job}"
                self._waiting.setdefault(f"{job}/runs/{changed.after.run_id}", commit.begun_ns)

    def made(self, run: Run, commit: MeshCommit) -> None:
        """The hash of the request stands in a manual run's id, after the time."""
        del commit
        uid, run_id = run.key
        if run_id.startswith("m"):
            self._verdict.checked["S12"] += 1
            before = self._asked.get((uid, run_id.partition("-")[2]))
            if before is not None and run.made.mesh_ns - before.mesh_ns < _WINDOW_NS:
                self._verdict.violate(
                    "S12",
                    f"one request has made two runs, {run.name} the second",
                    [before, run.made],
                )
        self._know(run)

    def _know(self, run: Run) -> None:
        uid, run_id = run.key
        if run_id.startswith("m"):
            self._asked[uid, run_id.partition("-")[2]] = run.made
        template = run.record.template
        name = f"namespaces/{template.namespace}/jobs/{template.job}/runs/{run_id}"
        if name in self._named:
            self._runs[name] = run

    def assigned(self, run: Run, attempt: Attempt) -> None:
        """Has nothing to say about that."""

    def given_up(self, run: Run, attempt: Attempt) -> None:
        """Has nothing to say about that."""

    def ended(self, run: Run) -> None:
        """Has nothing to say about that."""

    # What people were told

    def finish(self) -> None:
        """Looks at the calls."""
        if not self._calls:
            self._verdict.unknown(
                "whether what was acknowledged is there: no client's calls are in it (S12, S13)"
            )
            return
        self._check_repeats()
        timed, beyond = any(self._times), 0
        if not timed:
            self._verdict.unknown("what calls met: the log has no times (S13)")
        for call in self._calls:
            self._verdict.checked["S22"] += 1
            if str(call.result.get("error", "")).startswith(_OUR_FAULT):
                self._verdict.violate(
                    "S22",
                    f"{call.process}'s {call.name} met a fault of ours: {call.result['error']}",
                    [describe_call(call)],
                )
            if call.outcome == "ok" and timed and not call.args.get("validate_only"):
                self._verdict.checked["S13"] += 1
                lost, events = self._lost(call)
                if lost and not self.reaches(call):
                    beyond += 1
                elif lost:
                    said = f"{call.process}'s {call.name} was acknowledged, and {lost}"
                    self._verdict.violate("S13", said, [describe_call(call), *events])

        if beyond:
            self._verdict.unknown(
                f"what came of {beyond} calls: the log does not reach them, or what they name (S13)"
            )

    def reaches(self, call: Call) -> bool:
        """Tells whether what the call did must be in the log: neither before it nor at its end."""
        ended_ns = call.ended_ns or 0
        return self.whole or (not self.late and self._times[0] <= ended_ns <= self._times[-1])

    def _check_repeats(self) -> None:
        first: dict[tuple[str, str, str], Call] = {}
        for call in self._calls:
            request_id = call.args.get("request_id")
            if not request_id or call.outcome != "ok":
                continue
            key = (call.name, _scope(call), request_id)
            before = first.setdefault(key, call)
            if before is call or self._between(before, call) > _WINDOW_NS:
                continue
            if self._restored(before, call):
                continue
            self._verdict.checked["S12"] += 1
            shown = [describe_call(before), describe_call(call)]
            if before.args["body"] != call.args["body"]:
                self._verdict.violate(
                    "S12",
                    f"request {request_id} ({call.name} {call.args.get('name', '')}) was answered "
                    f"for two bodies; the second one should have been refused",
                    shown,
                )
            elif _lasting(before.result) != _lasting(call.result):
                self._verdict.violate(
                    "S12", f"request {request_id} ({call.name}) was answered in two ways", shown
                )

    def _between(self, before: Call, after: Call) -> int:
        return self._mesh_ns(after.ended_ns) - self._mesh_ns(before.invoked_ns)

    def _restored(self, before: Call, after: Call) -> bool:
        """Tells whether a restore lies between: it may have taken back what was remembered."""
        return any(
            note.what == "restore" and before.invoked_ns <= note.at_ns <= (after.ended_ns or 0)
            for note in self._faults.notes
        )

    def _mesh_ns(self, at_ns: int | None) -> int:
        """Gives mesh time at a time on the recorder's clock, as the next commit says it."""
        if not self._mesh:
            return 0
        index = bisect_left(self._times, at_ns or 0)
        return self._mesh[min(index, len(self._mesh) - 1)]

    def _lost(self, call: Call) -> tuple[str, Iterable[object]]:
        """Says what of an acknowledged call is not in the log; empty: nothing."""
        result, args, end_ns = call.result, call.args, call.ended_ns or 0
        name = str(result.get("name") or args.get("name", ""))
        written = self._jobs.get(name, [])
        if call.name in {"CreateJob", "UpdateJob"}:
            wanted = (result["uid"], result["version"])
            there = [it for it in written if it.begun_ns <= end_ns]
            if not any((it.uid, it.version) == wanted for it in there):
                return f"version {result['version']} of {name} was not there by then", written[-4:]
        if call.name == "ApplyJobs":
            for one, uid, change in result["jobs"]:
                told = self._jobs.get(one, [])
                if change == scheduler_pb2.AppliedJob.CHANGE_PRUNED:
                    told = self._during(one, call.invoked_ns, end_ns)
                    if all(it.uid == uid for it in told):
                        return f"{one} ({uid}) was there all the time", told
                    continue
                if not any(it.begun_ns <= end_ns and it.uid == uid for it in told):
                    return f"{one} ({uid}) was not there by then", told[-4:]
        if call.name in {"PauseJob", "ResumeJob"}:
            paused = call.name == "PauseJob"
            found = self._during(name, call.invoked_ns, end_ns)
            if not any(it.uid and it.paused == paused for it in found):
                return f"{name} was not so at any time until the answer", found
        if call.name == "DeleteJob":
            found = self._during(name, call.invoked_ns, end_ns)
            if all(it.uid for it in found):
                return f"{name} was there all the time", found
        if call.name == "PauseQueue" and "queue" in args:
            found = self._during(_queue(args), call.invoked_ns, end_ns)
            if not any(it.paused == bool(args.get("paused")) for it in found):
                return "its queue was not so at any time until the answer", found
        if call.name in _STARTS and result["run"]:
            return self._unmade([result["run"]], end_ns), ()
        if call.name == "RequeueDeadLetters":
            return self._unmade([it[1] for it in result.get("requeued", ()) if it[1]], end_ns), ()
        if call.name in _FILLS and "backfill" in result:
            return self._unfilled(call, end_ns), ()
        if call.name in {"CancelRun", "TerminateRun"}:
            return self._asked_to_end(call)
        return "", ()

    def _unmade(self, names: Sequence[str], end_ns: int) -> str:
        """Says which of some starts was neither made nor waited by then; empty: none."""
        for name in names:
            run = self._runs.get(name)
            made_ns = _NEVER_NS if run is None else run.made.begun_ns
            if min(made_ns, self._waiting.get(name, _NEVER_NS)) > end_ns:
                return f"{name} was not made by then"
        return ""

    def _unfilled(self, call: Call, end_ns: int) -> str:
        """Says what is wrong with a backfill that is told to be there, or to have ended."""
        name = call.result["backfill"]
        states = [state for at_ns, state in self._backfills.get(name, ()) if at_ns <= end_ns]
        if not states:
            return f"{name} was not there by then"
        ended = any(state != backfill_pb2.BACKFILL_STATE_STARTING for state in states)
        return "" if call.name == "CreateBackfill" or ended else f"{name} went on"

    def _during(self, name: str, since_ns: int, until_ns: int) -> list[_Written]:
        """Gives all that a job was in a time, beginning with what it was before."""
        found = [_ABSENT]
        for it in self._jobs.get(name, ()):
            if it.begun_ns > until_ns:
                break
            found = [it] if it.durable_ns < since_ns else [*found, it]
        return found

    def _asked_to_end(self, call: Call) -> tuple[str, Iterable[object]]:
        name, end_ns = str(call.result["run"]), call.ended_ns or 0
        run = self._runs.get(name)
        restores = [note.at_ns for note in self._faults.notes if note.what == "restore"]
        if any(at_ns >= call.invoked_ns for at_ns in restores):
            return "", ()  # it may have brought the run back from before it was asked to end
        if run is None:
            return f"there is no run {name}", ()
        asked = run.record.HasField("cancel")
        late = run.ended is not None and run.ended.begun_ns > end_ns
        if not (asked or run.ended) or (late and not asked and run.state in _BY_REQUEST):
            return f"{run.name} was neither asked to end nor had ended by then", [
                run.made,
                run.ended,
            ]
        return "", ()


class _Restored:
    """Hears of what a restore has brought back, about which nothing is to be said again."""

    def __init__(self, know: Callable[[Run], None]) -> None:
        self._know = know

    def made(self, run: Run, commit: MeshCommit) -> None:
        """It is there again."""
        del commit
        self._know(run)

    def assigned(self, run: Run, attempt: Attempt) -> None:
        """Is as it was."""

    def given_up(self, run: Run, attempt: Attempt) -> None:
        """Is as it was."""

    def ended(self, run: Run) -> None:
        """Is as it was."""


def _names(call: Call) -> Iterable[str]:
    """Gives the jobs and runs that a call names."""
    result = call.result
    yield from (str(it) for it in (call.args.get("name"), result.get("name")) if it)
    yield from (result[it] for it in ("run", "backfill") if isinstance(result.get(it), str))
    yield from (one[1] for one in result.get("requeued", ()))
    if call.name == "PauseQueue":
        yield _queue(call.args)
    if call.name == "ApplyJobs":
        yield from (one[0] for one in result.get("jobs", ()))


def _scope(call: Call) -> str:
    """Gives within what a request's id is unique: for backfills a job's incarnation."""
    if "backfill" in call.result:
        return str(call.result.get("uid", ""))
    return str(call.args.get("name", "")).partition("/jobs/")[0]


def _lasting(result: Mapping[str, Any]) -> dict[str, Any]:
    return {name: told for name, told in result.items() if name not in _MOVES_ON}


def _queue(args: Mapping[str, Any]) -> str:
    return f"queues/{args.get('queue', '')}"

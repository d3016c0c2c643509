"""Backfills, from their beginning to their end: S25, and L3 for those with nothing in their way.

What a backfill's record says that it has come over is computed anew from the version that it runs:
each nominal time between two of its positions is started in that commit, or left out for a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import backfill_pb2, job_pb2, run_pb2
from sexton_core.ids import backfill_run_id, parse_run_id
from sexton_core.policy.backfill import MAX_BACKFILL_RUNS
from sexton_core.schedule import Schedule, between, between_backwards
from sexton_records import keys
from sexton_sim.check.describe import instant
from sexton_sim.check.jobs import JobLog
from sexton_sim.check.records import Changed, MeshCommit
from sexton_sim.check.scheduling import LOOKOUT_NS
from sexton_sim.check.verdict import Verdict

_KEPT: Final = (
    "namespace",
    "job",
    "first_ns",
    "last_ns",
    "version",
    "overlap",
    "order",
    "skip_succeeded",
    "total",
    "create_time_ns",
    "body_hash",
)
"""What its record says from its beginning to its end."""
_STARTING: Final = backfill_pb2.BACKFILL_STATE_STARTING
_DONE: Final = backfill_pb2.BACKFILL_STATE_DONE
_NEWEST_FIRST: Final = backfill_pb2.BACKFILL_ORDER_NEWEST_FIRST
_TOGETHER: Final = job_pb2.OVERLAP_POLICY_ALLOW_ALL
_SKIP: Final = job_pb2.OVERLAP_POLICY_SKIP
_READ_NS: Final = 10_000_000_000
"""What has succeeded is read before a step is decided; by then it is known."""
_SUCCEEDED: Final = 10_000
"""Nominal times of a job that are remembered as succeeded."""

_Key = tuple[str, str]


@dataclass(slots=True)
class _Backfill:
    """One that goes on."""

    record: pb.BackfillRecord
    idle_since_ns: int = 0
    """Since when nothing is in its way; 0: something is."""


class BackfillRules:
    """Follows every backfill through the log."""

    def __init__(
        self,
        verdict: Verdict,
        jobs: Mapping[str, JobLog],
        *,
        quiet: tuple[int, int],
        late: bool = False,
    ) -> None:
        """`jobs` as they were before each commit; `late`: not all that succeeded is known."""
        self._verdict = verdict
        self._jobs = jobs
        self._quiet = quiet
        self._late = late
        self._going: dict[str, dict[str, _Backfill]] = {}
        self._succeeded: dict[str, dict[int, int]] = {}
        """Nominal times with a run that succeeded, and when, by job."""

    def speak(self, verdict: Verdict) -> None:
        """Says from now on what it finds."""
        self._verdict = verdict

    def take(self, commit: MeshCommit) -> None:
        """Looks at a commit, before anybody takes note of what it does to jobs."""
        runs: dict[_Key, dict[int, pb.RunRecord]] = {}
        for changed in commit.of(keys.ACTIVE):
            record = changed.after
            if changed.before is None and record.origin == run_pb2.RUN_ORIGIN_BACKFILL:
                key = (record.template.job_uid, parse_run_id(record.run_id).source)
                runs.setdefault(key, {})[record.nominal_ns] = record
        for changed in commit.of(keys.BACKFILLS):
            key = keys.parse_backfill_key(changed.key)
            self._take_one(key, changed, runs.pop(key, {}), commit)
        for (_, backfill), of_it in runs.items():
            self._violate(
                backfill,
                f"has {len(of_it)} runs made, and does not say that it came so far",
                commit,
            )
        self._note_succeeded(commit)

    def note_idle(self, commit: MeshCommit) -> None:
        """Looks at the same commit, when what it does to jobs is known: L3."""
        if not self._going:
            return
        touched = {changed.uid for changed in (*commit.of(keys.STATE), *commit.of(keys.BUFFERED))}
        touched |= {keys.parse_handle_key(changed.key).uid for changed in commit.of(keys.ACTIVE)}
        moved = {keys.parse_backfill_key(changed.key) for changed in commit.of(keys.BACKFILLS)}
        touched |= {uid for uid, _ in moved}
        for uid in touched & self._going.keys():
            job = self._jobs.get(uid)
            free = job is not None and not (job.live or job.buffered or job.paused)
            for backfill_id, backfill in self._going[uid].items():
                if (not free or (uid, backfill_id) in moved) and backfill.idle_since_ns:
                    self._check_idle(backfill_id, backfill, commit.begun_ns, commit)
                if free:
                    backfill.idle_since_ns = backfill.idle_since_ns or commit.begun_ns

    def finish(self) -> None:
        """Looks at what goes on when the history ends."""
        for going in self._going.values():
            for backfill_id, backfill in going.items():
                if backfill.idle_since_ns:
                    self._check_idle(backfill_id, backfill, self._quiet[1], "the history ends")

    def _take_one(
        self, key: _Key, changed: Changed, runs: dict[int, pb.RunRecord], commit: MeshCommit
    ) -> None:
        (uid, backfill_id), before, after = key, changed.before, changed.after
        self._verdict.checked["S25"] += 1
        if after is None:
            if before.state == _STARTING:
                self._violate(backfill_id, "is gone, and had not ended", commit)
            return
        job = self._jobs.get(uid)
        if before is None:
            self._check_begun(backfill_id, after, job, commit)
        elif before.state != _STARTING:
            self._violate(backfill_id, "had ended, and was written again", commit)
        else:
            for name in _KEPT:
                if getattr(before, name) != getattr(after, name):
                    self._violate(backfill_id, f"was changed: its {name}", commit)
        if before is not None or runs or after.HasField("position_ns"):
            self._check_step(key, before, after, runs, commit)
        if (after.state != _STARTING) != bool(after.end_time_ns):
            self._violate(backfill_id, "has an end, and goes on, or the other way round", commit)
        going = self._going.setdefault(uid, {})
        if after.state == _STARTING:
            known = going.setdefault(backfill_id, _Backfill(after))
            known.record = after
            return
        ended = going.pop(backfill_id, None)
        if ended is not None and ended.idle_since_ns:
            self._check_idle(backfill_id, ended, commit.begun_ns, commit)
        if not going:
            del self._going[uid]
        if after.state == _DONE and after.started + after.skipped != after.total:
            said = (
                f"is done, has started {after.started} and left out {after.skipped}, of "
                f"{after.total}"
            )
            self._violate(backfill_id, said, commit)

    def _check_begun(
        self, backfill_id: str, record: pb.BackfillRecord, job: JobLog | None, commit: MeshCommit
    ) -> None:
        if record.started or record.skipped or record.state != _STARTING:
            self._violate(backfill_id, "begins with something done", commit)
        if record.last_ns > commit.mesh_ns or record.first_ns > record.last_ns:
            said = f"is of {instant(record.first_ns)} to {instant(record.last_ns)}"
            self._violate(backfill_id, said, commit)
        schedule = _schedule(job, record.version)
        if job is None or schedule is None or job.adopted:
            return
        if record.version != max(job.versions):
            said = f"runs version {record.version}, and {max(job.versions)} was the newest"
            self._violate(backfill_id, said, commit)
        most = MAX_BACKFILL_RUNS + 1
        total = sum(1 for _ in between(schedule, record.first_ns - 1, record.last_ns, most))
        if record.total != total:
            self._violate(backfill_id, f"says {record.total} times, its range has {total}", commit)

    def _check_step(
        self,
        key: _Key,
        before: pb.BackfillRecord | None,
        after: pb.BackfillRecord,
        runs: dict[int, pb.RunRecord],
        commit: MeshCommit,
    ) -> None:
        """Each time that it came over is a run of this commit, or left out, and is counted."""
        backfill_id, job = key[1], self._jobs.get(key[0])
        schedule = _schedule(job, after.version)
        if job is None or schedule is None:
            return
        times = _times(schedule, before, after)
        self._verdict.checked["S25"] += len(times)
        if after.HasField("position_ns") and not times and _position(before) != after.position_ns:
            self._violate(
                backfill_id, f"went to {instant(after.position_ns)}, out of order", commit
            )
        left_out = [nominal for nominal in times if nominal not in runs]
        strangers = runs.keys() - set(times)
        if strangers:
            said = f"has a run of {instant(min(strangers))}, over which it did not come"
            self._violate(backfill_id, said, commit)
        started = after.started - (before.started if before else 0)
        skipped = after.skipped - (before.skipped if before else 0)
        if (started, skipped) != (len(runs), len(left_out)):
            said = (
                f"counts {started} runs and {skipped} left out, and there are {len(runs)} runs for "
                f"{len(times)} times"
            )
            self._violate(backfill_id, said, commit)
        for nominal in left_out:
            self._check_left_out(key, after, job, nominal, commit)
        for run in runs.values():
            self._check_run(key, after, run, commit)
        if runs and after.overlap != _TOGETHER and not job.adopted:
            self._verdict.checked["S14"] += 1
            if len(runs) > 1 or job.live:
                said = f"started {len(runs)} runs, {len(job.live)} of its job were live"
                self._violate(backfill_id, said, commit)
        if after.state == _DONE and (rest := _rest(schedule, after)) is not None:
            self._violate(backfill_id, f"is done, and {instant(rest)} is to come", commit)

    def _check_left_out(
        self, key: _Key, record: pb.BackfillRecord, job: JobLog, nominal: int, commit: MeshCommit
    ) -> None:
        if record.skip_succeeded and (self._late or nominal in self._succeeded.get(key[0], ())):
            return
        made = any(changed.before is None for changed in commit.of(keys.ACTIVE))
        if record.overlap == _SKIP and (job.live or made or job.adopted):
            return
        said = f"left out {instant(nominal)}: its run had not succeeded, and none was in the way"
        self._violate(key[1], said, commit)

    def _check_run(
        self, key: _Key, record: pb.BackfillRecord, run: pb.RunRecord, commit: MeshCommit
    ) -> None:
        uid, backfill_id = key
        if run.run_id != backfill_run_id(backfill_id, run.nominal_ns):
            said = f"has a run {run.run_id} for {instant(run.nominal_ns)}"
            self._violate(backfill_id, said, commit)
        if run.template.version != record.version:
            said = f"runs version {record.version}, {run.run_id} is of {run.template.version}"
            self._violate(backfill_id, said, commit)
        since_ns = self._succeeded.get(uid, {}).get(run.nominal_ns)
        long_ago = since_ns is not None and commit.begun_ns - since_ns > _READ_NS
        if record.skip_succeeded and long_ago:
            said = f"ran {instant(run.nominal_ns)} again, which had succeeded long before"
            self._violate(backfill_id, said, commit)

    def _note_succeeded(self, commit: MeshCommit) -> None:
        for changed in commit.of(keys.RUNS):
            run = changed.after
            if run is None or run.origin != run_pb2.RUN_ORIGIN_SCHEDULE:
                continue
            if run.state == run_pb2.RUN_STATE_SUCCEEDED:
                succeeded = self._succeeded.setdefault(run.template.job_uid, {})
                succeeded[run.nominal_ns] = commit.begun_ns
                if len(succeeded) > _SUCCEEDED:
                    del succeeded[next(iter(succeeded))]

    def _check_idle(
        self, backfill_id: str, backfill: _Backfill, until_ns: int, event: object
    ) -> None:
        since_ns = max(backfill.idle_since_ns, self._quiet[0])
        backfill.idle_since_ns = 0
        waited_ns = min(until_ns, self._quiet[1]) - since_ns
        self._verdict.checked["L3"] += 1
        if waited_ns > LOOKOUT_NS:
            self._verdict.violate(
                "L3",
                f"backfill {backfill_id} stood for {waited_ns / 1e9:.3f} s, and nothing was in its "
                f"way",
                [f"nothing of its job was in flight from {since_ns / 1e9:.3f} s on", event],
            )

    def _violate(self, backfill_id: str, what: str, commit: MeshCommit) -> None:
        self._verdict.violate("S25", f"backfill {backfill_id} {what}", [commit])


def _schedule(job: JobLog | None, version: int) -> Schedule | None:
    definition = None if job is None else job.versions.get(version)
    return None if definition is None else definition.schedule


def _position(record: pb.BackfillRecord | None) -> int | None:
    if record is None or not record.HasField("position_ns"):
        return None
    return int(record.position_ns)


def _times(
    schedule: Schedule, before: pb.BackfillRecord | None, after: pb.BackfillRecord
) -> list[int]:
    """Gives the nominal times between two positions of a backfill, in its order."""
    since, until = _position(before), _position(after)
    if until is None:
        return []
    if after.order == _NEWEST_FIRST:
        end = after.last_ns + 1 if since is None else since
        return [*between_backwards(schedule, max(until, after.first_ns), end, MAX_BACKFILL_RUNS)]
    start = after.first_ns - 1 if since is None else since
    return [*between(schedule, start, min(until, after.last_ns), MAX_BACKFILL_RUNS)]


def _rest(schedule: Schedule, record: pb.BackfillRecord) -> int | None:
    """Gives the nominal time that comes next; None: none does."""
    position = _position(record)
    if record.order == _NEWEST_FIRST:
        end = record.last_ns + 1 if position is None else position
        return next(between_backwards(schedule, record.first_ns, end, 1), None)
    start = record.first_ns - 1 if position is None else position
    return next(between(schedule, start, record.last_ns, 1), None)

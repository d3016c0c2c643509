"""Indexes and records stand for each other, one to one: S21, after every commit; a part of S15.

docs/keys.md: a job and its state, a state and its timer, a run in flight and its name in its job's
state, an ended run and its entry by time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sexton_records import keys
from sexton_sim.check.describe import instant
from sexton_sim.check.records import MeshCommit
from sexton_sim.check.verdict import Verdict


@dataclass(slots=True)
class _Job:
    """What stands of one incarnation."""

    name: str = ""
    defined: bool = False
    """Whether `jobs/` has it."""
    stated: bool = False
    timer_ns: int | None = None
    """As its state says."""
    waits: bool = False
    """Whether it is not paused, and a nominal time of it is undecided."""
    timers: set[int] = field(default_factory=set)
    named: set[str] = field(default_factory=set)
    """Runs that its state, or what is left of it, names."""
    live: set[str] = field(default_factory=set)
    left: bool = False
    """Whether `deleted/` has it."""


class IndexRules:
    """Compares what stands, after every commit that touched it. `late`: not from the beginning."""

    def __init__(self, verdict: Verdict, *, late: bool = False) -> None:
        self._verdict = verdict
        self._late = late
        self._jobs: dict[str, _Job] = {}
        self._ended: set[tuple[str, str]] = set()
        self._listed: set[tuple[str, str]] = set()

    def speak(self, verdict: Verdict) -> None:
        """Says from now on what it finds."""
        self._verdict = verdict

    def take(self, commit: MeshCommit) -> None:
        """Looks at a commit."""
        touched = self._take_jobs(commit)
        self._check_ended(commit)
        for uid in touched:
            job = self._jobs.get(uid)
            if job is not None and not self._late:
                self._check_job(uid, job, commit)
                if not (job.defined or job.stated or job.left or job.timers or job.live):
                    del self._jobs[uid]

    def _take_jobs(self, commit: MeshCommit) -> set[str]:
        touched: set[str] = set()

        def job_of(uid: str) -> _Job:
            touched.add(uid)
            return self._jobs.setdefault(uid, _Job())

        for changed in commit.of(keys.JOBS):
            for record, there in ((changed.before, False), (changed.after, True)):
                if record is not None:
                    job = job_of(record.uid)
                    job.name, job.defined = "/".join(keys.parse_job_key(changed.key)), there
        for changed in commit.of(keys.STATE):
            job, record = job_of(changed.uid), changed.after
            job.stated = record is not None
            job.timer_ns = record.timer_ns if record and record.HasField("timer_ns") else None
            job.waits = bool(
                record and record.HasField("armed_ns") and not record.HasField("paused_at_ns")
            )
            if record is not None:
                job.named = {handle.run_id for handle in record.live}
        for changed in commit.of(keys.DELETED):
            job, record = job_of(changed.uid), changed.after
            job.left = record is not None
            job.named = {handle.run_id for handle in record.live} if record else set()
        for changed in commit.of(keys.TIMERS):
            timer = keys.parse_timer_key(changed.key)
            timers = job_of(timer.uid).timers
            (timers.discard if changed.after is None else timers.add)(timer.due)
        for changed in commit.of(keys.ACTIVE):
            handle = keys.parse_handle_key(changed.key)
            if changed.before is None or changed.after is None:
                live = job_of(handle.uid).live
                (live.discard if changed.after is None else live.add)(handle.run_id)
        return touched

    def _check_job(self, uid: str, job: _Job, commit: MeshCommit) -> None:
        self._verdict.checked["S21"] += 1
        name = f"{job.name or 'a job'} ({uid[:8]})"
        wanted = set() if job.timer_ns is None else {job.timer_ns}
        if job.waits and job.timer_ns is None:
            self._verdict.violate(
                "S15",
                f"{name} is active and has undecided times, and no timer will wake it",
                [commit],
            )
        if job.defined != job.stated:
            self._say(f"{name} has a {'definition' if job.defined else 'state'} alone", commit)
        if job.timers != wanted:
            stand = ", ".join(map(instant, sorted(job.timers))) or "none"
            asked = ", ".join(map(instant, wanted)) or "none"
            self._say(f"timers of {name}: {stand} stand, {asked} is in its state", commit)
        strangers = job.live - job.named
        if strangers:
            self._say(
                f"{name} has runs in flight that nothing names: {', '.join(sorted(strangers)[:3])}",
                commit,
            )

    def _check_ended(self, commit: MeshCommit) -> None:
        """An ended run and its entry by time come and go in one commit."""
        touched = set()
        for changed in commit.of(keys.RUNS):
            record = changed.after if changed.after is not None else changed.before
            run = (record.template.job_uid, record.run_id)
            touched.add(run)
            (self._ended.discard if changed.after is None else self._ended.add)(run)
        for changed in commit.of(keys.ENDED):
            _, uid, run_id = keys.parse_ended_key(changed.key)
            touched.add((uid, run_id))
            listed = self._listed
            (listed.discard if changed.after is None else listed.add)((uid, run_id))
        for run in touched:
            self._verdict.checked["S21"] += 1
            if (run in self._ended) != (run in self._listed):
                where = "runs/ alone" if run in self._ended else "ended/ alone"
                self._say(f"ended run {run[1]} stands below {where}", commit)

    def _say(self, what: str, commit: MeshCommit) -> None:
        self._verdict.violate("S21", what, [commit])

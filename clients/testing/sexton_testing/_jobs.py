"""A rehearsed job: its definition and state, decided about as the mesh does."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

from sexton import runs as sdk
from sexton.v1 import job_pb2
from sexton_core.ids import UID_ENTROPY_BYTES, make_uid, manual_run_id
from sexton_core.instants import Instant
from sexton_core.policy import (
    Admission,
    DecisionRange,
    Job,
    JobState,
    NewRun,
    Verdict,
    create,
    decide,
    delete,
    edit,
    pause,
    resume,
    trigger,
)
from sexton_core.schedules import JobIdentity, ScheduleCache
from sexton_core.words import Ask, Overlap, ResumeMode
from sexton_records.spec import canonical, decode_definition
from sexton_testing._clock import Turn
from sexton_testing._runs import LiveRun, Stage

_MODES = {Ask.CANCEL: sdk.CancelMode.CANCEL, Ask.TERMINATE: sdk.CancelMode.TERMINATE}


class RehearsedJob:
    """One job. `keep` is told of every run that starts."""

    def __init__(
        self,
        stage: Stage,
        namespace: str,
        name: str,
        spec: job_pb2.JobSpec,
        *,
        cache: ScheduleCache,
        keep: Callable[[LiveRun], object],
    ) -> None:
        """Creates it now.

        Raises:
            FieldError: a field can't be used, or the schedule never fires.
        """
        self.passed: list[DecisionRange] = []
        self.deleted = False
        self._stage = stage
        self._cache = cache
        self._keep = keep
        self._live: dict[str, LiveRun] = {}
        self._triggers = 0
        now = stage.clock.now
        entropy = blake2b(f"{namespace}/{name}".encode(), digest_size=UID_ENTROPY_BYTES).digest()
        self._identity = JobIdentity(
            namespace=namespace, name=name, uid=make_uid(entropy), since=now
        )
        definition = decode_definition(spec, 1, self._identity, cache)
        self._specs = {1: canonical(spec, definition)}
        self._job = Job(
            namespace=namespace,
            name=name,
            uid=self._identity.uid,
            created_at=now,
            definitions=(definition,),
        )
        change = create(self._job, now)
        self._state = change.state
        self._due: Instant | None = None
        self._arm(change.next_due)

    @property
    def next_time(self) -> Instant | None:
        """Gives the next nominal time; None: never again, or paused."""
        return None if self._state.paused_at is not None else self._state.armed

    def edit(self, spec: job_pb2.JobSpec) -> None:
        """Puts another definition in force, from now on; the same one changes nothing."""
        version = self._job.current.version + 1
        since = JobIdentity(
            namespace=self._job.namespace,
            name=self._job.name,
            uid=self._job.uid,
            since=self._stage.clock.now,
        )
        definition = decode_definition(spec, version, since, self._cache)
        written = canonical(spec, definition)
        if written == self._specs[version - 1]:
            return
        self._specs[version] = written
        self._job, change = edit(self._job, self._state, definition, self._stage.clock.now)
        self._change(change.state, change.ranges, change.next_due)

    def pause(self) -> None:
        """Stops new starts."""
        change = pause(self._job, self._state, self._stage.clock.now)
        self._change(change.state, change.ranges, change.next_due)

    def resume(self, mode: ResumeMode) -> None:
        """Lets it start again."""
        change = resume(self._job, self._state, self._stage.clock.now, mode)
        self._change(change.state, change.ranges, change.next_due)
        self._decide()

    def delete(self) -> None:
        """Ends it: what waits is dropped, what runs is cancelled."""
        self.deleted = True
        self.passed += delete(self._state, self._stage.clock.now).ranges
        self._state = self._state._replace(buffered=(), armed=None)
        self._arm(None)
        for run in list(self._live.values()):
            run.end(sdk.CancelMode.CANCEL, "the job was deleted")

    def trigger(self, overlap: Overlap | None) -> tuple[Admission, LiveRun | None]:
        """Starts a run now, through the gate."""
        self._triggers += 1
        now = self._stage.clock.now
        run_id = manual_run_id(self._job.uid, now, str(self._triggers))
        verdict, admission = trigger(
            self._job, self._state, now, run_id, overlap=overlap, ended=self._ended()
        )
        self._take(verdict)
        return admission, self._live.get(run_id)

    # Inside

    def _arm(self, due: Instant | None) -> None:
        self._due = due
        if due is not None:
            self._stage.clock.at(due, Turn.DUE, lambda: self._wake(due))

    def _wake(self, due: Instant) -> None:
        if due == self._due and not self.deleted:
            self._decide()

    def _decide(self) -> None:
        now = self._stage.clock.now
        if self.deleted or now < self._stage.clock.away_until:
            return
        self._take(decide(self._job, self._state, now, self._ended()))

    def _ended(self) -> frozenset[str]:
        return frozenset(
            handle.run_id for handle in self._state.live if handle.run_id not in self._live
        )

    def _take(self, verdict: Verdict) -> None:
        self._change(verdict.state, verdict.ranges, verdict.next_due)
        for new in verdict.runs:
            self._start(new)
        for handle, ask in verdict.asks:
            run = self._live.get(handle.run_id)
            if ask is not Ask.NOTHING and run is not None:
                run.end(_MODES[ask], "another run of the job is to start")

    def _start(self, new: NewRun) -> None:
        definition = self._job.definition(new.version)
        names = (self._job.namespace, self._job.name, self._job.uid)

        def ended() -> None:
            del self._live[new.run_id]
            if self._state.buffered:
                self._stage.clock.at(self._stage.clock.now, Turn.DUE, self._decide)

        run = LiveRun(
            self._stage,
            names,
            new,
            policy=definition.run,
            task=self._specs[new.version].task,
            on_end=ended,
        )
        self._live[new.run_id] = run
        self._keep(run)

    def _change(
        self, state: JobState, ranges: tuple[DecisionRange, ...], due: Instant | None
    ) -> None:
        self._state = state
        self.passed += ranges
        self._arm(due)

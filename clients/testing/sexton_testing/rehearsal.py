"""The mesh of a test: jobs, tasks and a clock that passes when it is told to."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sexton import jobs as sdk_jobs
from sexton import runs as sdk
from sexton._spec_messages import spec_message
from sexton.errors import InvalidArgument, NotFound
from sexton.task import TaskRegistry, registry
from sexton.v1 import job_pb2
from sexton_core.errors import FieldError
from sexton_core.instants import Duration, from_datetime, parse_instant, to_datetime
from sexton_core.schedules import ScheduleCache
from sexton_core.words import Overlap, ResumeMode
from sexton_testing._clock import Clock, duration_of
from sexton_testing._jobs import RehearsedJob
from sexton_testing._runs import LiveRun, Stage, Stub

DEFAULT_START: Final = datetime(2030, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """Nominal times that did not run, and why."""

    decision: str
    """`skipped`, `missed`, `dropped` or `excluded`."""
    reason: str
    """A word of the vocabulary: `overlap`, `paused`, `window`, ..."""
    first: datetime
    last: datetime
    times: int


class Rehearsal:
    """Runs jobs and tasks on a pretend clock, with the functions by which the mesh decides.

    Schedules, calendars, catch-up, overlap, retries and time-outs are the real ones. Python tasks
    are called for real, when their attempt starts; commands and HTTP calls are not made and
    succeed at once, unless `stub` says otherwise. Attempts take no time, unless `stub` says so;
    workers are never short. Code that asks the machine for the time gets the machine's.
    """

    def __init__(
        self,
        start: datetime | str = DEFAULT_START,
        *,
        tasks: TaskRegistry = registry,
        namespace: str = "default",
    ) -> None:
        """Begins at an instant: an aware datetime, or RFC 3339.

        Args:
            start: the time that it is at first.
            tasks: the functions that jobs may name; else those of `@sexton.task`.
            namespace: of names without one.

        Raises:
            InvalidArgument: the time has no zone, or can't be read; the tasks are no registry.
        """
        if not isinstance(tasks, TaskRegistry):
            raise InvalidArgument("tasks", tasks, "a TaskRegistry (from sexton.task)")
        self._stage = Stage(Clock(_instant("start", start)), tasks)
        self._cache = ScheduleCache()
        self._namespace = namespace
        self._jobs: dict[str, RehearsedJob] = {}
        self._runs: list[LiveRun] = []

    # Time

    @property
    def now(self) -> datetime:
        """Tells the time, in UTC."""
        return to_datetime(self._stage.clock.now)

    def advance(self, **duration: float) -> None:
        """Lets time pass: `advance(hours=2)`, with the words of `timedelta`.

        Raises:
            InvalidArgument: time does not go back.
        """
        self._stage.clock.run(self._stage.clock.now + _span(duration))

    def until(self, moment: datetime | str) -> None:
        """Lets time pass up to an instant; one that has passed changes nothing."""
        self._stage.clock.run(_instant("moment", moment))

    def outage(self, **duration: float) -> None:
        """Lets time pass in which no coordinator is there: what falls due is decided after it.

        Raises:
            InvalidArgument: time does not go back.
        """
        clock = self._stage.clock
        clock.away_until = clock.now + _span(duration)
        clock.run(clock.away_until)

    # Jobs

    def apply(self, jobs: Mapping[str, sdk_jobs.JobSpec] | str | os.PathLike[str]) -> None:
        """Creates jobs, and edits those that are there: definitions by name, or a job file.

        Raises:
            InvalidArgument: a definition can't be used.
            JobFileError: the file can't be used; the message names each line.
        """
        for name, spec in self._specs(jobs).items():
            namespace, job = self._full(name).split("/")
            known = self._jobs.get(self._full(name))
            try:
                if known is not None and not known.deleted:
                    known.edit(spec)
                    continue
                self._jobs[self._full(name)] = RehearsedJob(
                    self._stage,
                    namespace,
                    job,
                    spec,
                    cache=self._cache,
                    keep=self._runs.append,
                )
            except FieldError as error:
                raise InvalidArgument(error.field, error.value, error.expected) from None
        self._settle()

    def stub(self, job: str, function: Any = None, *, takes: timedelta = timedelta(0)) -> None:
        """Says what happens instead of a job's task, and how long each attempt takes.

        Args:
            job: its name.
            function: is called with the attempt's `Context`; what it returns is the result, what it
                raises fails the attempt. None: the task's own code, or nothing for commands.
            takes: pretended time from start to end; beyond the job's timeout it times out.

        Raises:
            InvalidArgument: it would take less than no time.
        """
        if takes < timedelta(0):
            raise InvalidArgument("takes", takes, "0 or more")
        self._stage.stubs[self._full(job)] = Stub(function, duration_of(takes))

    def trigger(self, job: str, *, overlap: sdk_jobs.Overlap | None = None) -> sdk_jobs.Triggered:
        """Starts a run now, through the gate."""
        word = None if overlap is None else Overlap(overlap.value)
        admission, run = self._job(job).trigger(word)
        self._settle()
        if run is not None:
            return sdk_jobs.Triggered(run=run.value(), decision="", reason="")
        return sdk_jobs.Triggered(
            run=None, decision=admission.decision.value, reason=admission.reason.value
        )

    def pause(self, job: str) -> None:
        """Stops new starts."""
        self._job(job).pause()

    def resume(self, job: str, mode: sdk_jobs.ResumeMode = sdk_jobs.ResumeMode.NEXT) -> None:
        """Lets a paused job start again."""
        self._job(job).resume(ResumeMode(mode.value))
        self._settle()

    def delete(self, job: str) -> None:
        """Deletes a job; its runs stay to be looked at."""
        self._job(job).delete()
        self._settle()

    # What came of it

    def next_time(self, job: str) -> datetime | None:
        """Gives the next nominal time; None: never again, or not while it is paused."""
        found = self._job(job).next_time
        return None if found is None else to_datetime(found)

    def runs(
        self, job: str | None = None, *, states: Collection[sdk.RunState] = ()
    ) -> list[sdk.Run]:
        """Lists runs in the order of their creation.

        Raises:
            NotFound: there never was such a job: a misspelt name would look like one without runs.
        """
        if job is not None:
            self._job(job)
        prefix = "" if job is None else f"{self._full(job)}/"
        found = [run.value() for run in self._runs if run.key.startswith(prefix)]
        return [run for run in found if not states or run.state in states]

    def not_run(self, job: str) -> list[Passed]:
        """Lists what did not run, and why."""
        return [
            Passed(
                decision=each.decision.value,
                reason=each.reason.value,
                first=to_datetime(each.first),
                last=to_datetime(each.last),
                times=each.times,
            )
            for each in self._job(job).passed
        ]

    def cancel(self, run: sdk.Run | str) -> None:
        """Asks a run to end, which it does."""
        self._run(run).end(sdk.CancelMode.CANCEL, "by hand")
        self._settle()

    def redeliver(self, run: sdk.Run | str) -> Any:
        """Calls a run's task once more, as after a worker that died before its report.

        As the next attempt, with a higher token and the same idempotency key: an effect that is to
        happen once can be seen to. Changes nothing about the run.

        Returns:
            What the task returned.

        Raises:
            AssertionError: it failed; the message says how.
        """
        live = self._run(run)
        ended = live.execute(live.state.attempts + 1, next(self._stage.tokens))
        assert ended.succeeded, f"{ended.kind}: {ended.message}\n{ended.detail}"
        return json.loads(ended.result_json) if ended.result_json else None

    # Inside

    def _settle(self) -> None:
        """Lets happen what happens at once."""
        self._stage.clock.run(self._stage.clock.now)

    def _specs(
        self, jobs: Mapping[str, sdk_jobs.JobSpec] | str | os.PathLike[str]
    ) -> dict[str, job_pb2.JobSpec]:
        if isinstance(jobs, Mapping):
            return {name: spec_message(spec) for name, spec in jobs.items()}
        from sexton_cli.jobfile import load_file  # noqa: PLC0415 - heavy
        from sexton_cli.jobfile.wire import messages_of  # noqa: PLC0415

        return messages_of(load_file(os.fspath(jobs)))

    def _full(self, job: str) -> str:
        return job if "/" in job else f"{self._namespace}/{job}"

    def _job(self, job: str) -> RehearsedJob:
        found = self._jobs.get(self._full(job))
        if found is None:
            raise NotFound("job", self._full(job))
        return found

    def _run(self, run: sdk.Run | str) -> LiveRun:
        name = run.full_name if isinstance(run, sdk.Run) else run
        full = name if name.count("/") > 1 else f"{self._namespace}/{name}"
        found = next((each for each in self._runs if each.key == full), None)
        if found is None:
            raise NotFound("run", full)
        return found


def _span(duration: Mapping[str, float]) -> Duration:
    try:
        span = duration_of(timedelta(**duration))
    except (ValueError, OverflowError) as error:  # NaN, infinity, a million years
        raise InvalidArgument("duration", dict(duration), f"a length of time ({error})") from None
    if span < 0:
        raise InvalidArgument("duration", dict(duration), "0 or more: time does not go back")
    return span


def _instant(field: str, given: datetime | str) -> int:
    if isinstance(given, str):
        try:
            return parse_instant(given)
        except FieldError as error:
            raise InvalidArgument(field, given, error.expected) from None
    if given.tzinfo is None:
        raise InvalidArgument(field, given.isoformat(), "an aware datetime")
    return from_datetime(given)

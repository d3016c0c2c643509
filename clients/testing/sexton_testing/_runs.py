"""The life of a rehearsed run: the core's state machine, and the task's own code inside it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any, Final

from sexton import runs as sdk
from sexton.context import Context
from sexton.task import Isolation, Task, TaskRegistry
from sexton.v1 import job_pb2
from sexton_core.instants import Duration, Instant, to_datetime
from sexton_core.policy import NewRun
from sexton_core.runs import Run, RunPolicy, apply, assign, assigned, complete, overdue
from sexton_core.words import RunEvent, RunState
from sexton_testing._clock import Clock, Turn
from sexton_worker.contract import Ended
from sexton_worker.executors.calls import call, call_async, read_arguments
from sexton_worker.output import AttemptLogger, Tail

WORKER: Final = "rehearsal"


@dataclass(frozen=True, slots=True)
class Stub:
    """What happens instead of a job's task, and how long it takes."""

    function: Callable[[Context], Any] | None = None
    takes: Duration = 0


@dataclass(slots=True)
class Stage:
    """What all runs of a rehearsal share."""

    clock: Clock
    tasks: TaskRegistry
    stubs: dict[str, Stub] = field(default_factory=dict)
    tokens: count[int] = field(default_factory=lambda: count(1))


class LiveRun:
    """One run, from its start to its end, and after it."""

    def __init__(
        self,
        stage: Stage,
        names: tuple[str, str, str],
        new: NewRun,
        *,
        policy: RunPolicy,
        task: job_pb2.Task,
        on_end: Callable[[], object],
    ) -> None:
        self._stage = stage
        self._namespace, self._job, self._uid = names
        self._new = new
        self._task = task
        self._on_end = on_end
        self._attempts: list[sdk.Attempt] = []
        self._ended = Ended(succeeded=False)
        self._cancel: sdk.CancelRequest | None = None
        clock = stage.clock
        self.state = Run(
            run_id=new.run_id,
            policy=policy,
            created_at=clock.now,
            due=new.due,
            not_before=max(new.handle.not_before, clock.now),
        )
        clock.at(self.state.not_before, Turn.START, self._start)
        for timer in (self.state.deadline_at, self.state.expires_at):
            if timer is not None:
                clock.at(timer, Turn.DEADLINE, self._time_up)

    @property
    def key(self) -> str:
        """Gives `NAMESPACE/JOB/RUN`."""
        return f"{self._namespace}/{self._job}/{self.state.run_id}"

    def end(self, mode: sdk.CancelMode, reason: str) -> None:
        """Ends the run: at once, for its task takes only pretended time."""
        if self.state.ended:
            return
        now = self._stage.clock.now
        self._cancel = sdk.CancelRequest(mode=mode, reason=reason, request_time=to_datetime(now))
        kind = "cancelled" if mode is sdk.CancelMode.CANCEL else "terminated"
        event = RunEvent.CANCEL if mode is sdk.CancelMode.CANCEL else RunEvent.TERMINATE
        self.state = apply(self.state, event, now)
        if self.state.ended:
            self._ended = Ended.failure(kind, reason)
            self._on_end()
        else:
            self._complete(RunEvent.STOP, sdk.AttemptState(kind), Ended.failure(kind, reason))

    def execute(self, number: int, token: int) -> Ended:
        """Has the task's code run once, now."""
        kept = Tail()
        context = self._context(number, token, kept)
        stub = self._stage.stubs.get(f"{self._namespace}/{self._job}", Stub())
        if stub.function is not None:
            stand_in = Task(
                name=self._job,
                function=partial(stub.function, context),
                isolation=Isolation.THREAD,
                context_parameter=None,
            )
            return copy_context().run(call, stand_in, {}, lambda: context, kept)
        if self._task.WhichOneof("kind") != "python":
            return Ended(succeeded=True)
        task = self._stage.tasks.get(self._task.python.task)
        if task is None:
            known = ", ".join(each.name for each in self._stage.tasks) or "none"
            message = f"no task {self._task.python.task!r} is registered; there are: {known}"
            return Ended.failure("not started", message)
        if asyncio.iscoroutinefunction(task.function):
            return _awaited(task, self._task.python.args_json, context, kept)
        arguments = read_arguments(self._task.python.args_json)
        return copy_context().run(call, task, arguments, lambda: context, kept)

    def value(self) -> sdk.Run:
        """Gives the run as the SDK shows it."""
        run, new = self.state, self._new
        failed = run.ended and run.state is not RunState.SUCCEEDED
        return sdk.Run(
            namespace=self._namespace,
            job=self._job,
            id=run.run_id,
            job_uid=self._uid,
            state=sdk.RunState(run.state.value),
            origin=sdk.Origin(new.origin.value),
            nominal_time=to_datetime(new.nominal),
            due_time=to_datetime(new.due),
            create_time=to_datetime(run.created_at),
            end_time=None if run.ended_at is None else to_datetime(run.ended_at),
            job_version=new.version,
            queue=run.policy.queue,
            priority=run.policy.priority,
            failures=run.failures,
            attempts=tuple(self._attempts),
            error=sdk.RunError(kind=self._ended.kind, message=self._ended.message)
            if failed
            else None,
            cancel_request=self._cancel,
            not_before_time=to_datetime(run.not_before),
            retry_of=new.retry_of,
            traceparent="",
            result_json=self._ended.result_json if run.ended else "",
        )

    # Inside

    def _start(self) -> None:
        now, run = self._stage.clock.now, self.state
        if run.ended or run.state not in (RunState.WAITING, RunState.RETRYING):
            return
        token = next(self._stage.tokens)
        self.state = apply(assigned(assign(run, WORKER, now), token), RunEvent.START, now)
        number = self.state.attempts
        self._attempts.append(_attempt(number, token, now))
        stub = self._stage.stubs.get(f"{self._namespace}/{self._job}", Stub())
        ended = self.execute(number, token)
        timeout = run.policy.timeout_ns

        def finish() -> None:
            if self.state.token != token or self.state.ended:
                return
            if stub.takes > timeout:
                limit = timedelta(microseconds=timeout // 1_000)
                late = Ended.failure("timeout", f"it took longer than {limit}")
                self._complete(RunEvent.TIME_OUT, sdk.AttemptState.TIMED_OUT, late)
            elif ended.succeeded:
                self._complete(RunEvent.SUCCEED, sdk.AttemptState.SUCCEEDED, ended)
            else:
                event = RunEvent.FAIL_FOR_GOOD if ended.for_good else RunEvent.FAIL
                self._complete(event, sdk.AttemptState.FAILED, ended)

        self._stage.clock.at(now + min(stub.takes, timeout), Turn.END, finish)

    def _complete(self, event: RunEvent, state: sdk.AttemptState, ended: Ended) -> None:
        now = self._stage.clock.now
        self._attempts[-1] = _attempt_ended(self._attempts[-1], state, ended, now)
        self.state = complete(
            self.state, self.state.token, event, now, retry_after=ended.retry_after
        ).run
        self._ended = ended
        if self.state.ended:
            self._on_end()
        else:
            self._stage.clock.at(self.state.not_before, Turn.START, self._start)

    def _time_up(self) -> None:
        event = overdue(self.state, self._stage.clock.now)
        if event is None:
            return
        self.state = apply(self.state, event, self._stage.clock.now)
        over = Ended.failure(event.value, "the run's time is over")
        if self.state.ended:
            self._ended = over
            self._on_end()
        else:
            self._complete(RunEvent.STOP, sdk.AttemptState.TERMINATED, over)

    def _context(self, number: int, token: int, kept: Tail) -> Context:
        timeout_s = self.state.policy.timeout_ns / 1e9
        return Context(
            namespace=self._namespace,
            job=self._job,
            run_id=self.state.run_id,
            nominal_time=to_datetime(self._new.nominal),
            attempt=number,
            token=token,
            traceparent="",
            logger=AttemptLogger(kept),
            _remaining_s=lambda: timeout_s,
            _cancelled=threading.Event(),
            _report=lambda _fraction, _message: None,
        )


def _awaited(task: Task, args_json: str, context: Context, kept: Tail) -> Ended:
    """Runs a coroutine to its end, in a thread: the test may have a loop of its own."""
    with ThreadPoolExecutor(1) as pool:
        work = call_async(task, read_arguments(args_json), lambda: context, kept)
        return pool.submit(asyncio.run, work).result()


def _attempt(number: int, token: int, now: Instant) -> sdk.Attempt:
    return sdk.Attempt(
        number=number,
        token=token,
        session=WORKER,
        worker=WORKER,
        state=sdk.AttemptState.STARTED,
        assign_time=to_datetime(now),
        start_time=to_datetime(now),
        end_time=None,
        execution=None,
        error=None,
        output_tail="",
    )


def _attempt_ended(
    attempt: sdk.Attempt, state: sdk.AttemptState, ended: Ended, now: Instant
) -> sdk.Attempt:
    assert attempt.start_time is not None
    execution: timedelta = to_datetime(now) - attempt.start_time
    return sdk.Attempt(
        number=attempt.number,
        token=attempt.token,
        session=WORKER,
        worker=WORKER,
        state=state,
        assign_time=attempt.assign_time,
        start_time=attempt.start_time,
        end_time=to_datetime(now),
        execution=execution,
        error=None
        if ended.succeeded
        else sdk.RunError(kind=ended.kind, message=ended.message, detail=ended.detail),
        output_tail=ended.output_tail,
    )

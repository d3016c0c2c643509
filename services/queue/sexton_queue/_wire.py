"""Between the workers' and leaders' messages and the machine: every bound of the protocol is here.

A message that breaks one ends its stream with what was wrong; nothing of it takes effect.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from sexton.errors import InvalidArgument, TooLarge
from sexton.internal.v1 import queue_pb2
from sexton.v1 import run_pb2, worker_pb2
from sexton_core.errors import IdError
from sexton_core.ids import check_name
from sexton_core.instants import MILLISECOND, Duration, Instant
from sexton_core.words import RunEvent
from sexton_queue.records import AttemptEnd, SessionRecord
from sexton_queue.sessions import SessionTimes
from sexton_queue.streams import Assigned, Greeting, LeaderStream, Ref, WorkerStream
from sexton_records.runs import STATES

MAX_SLOTS: Final = 100_000
MAX_QUEUES: Final = 1_000
MAX_TASKS: Final = 10_000
MAX_NAME_CHARACTERS: Final = 200
MAX_RESULT_BYTES: Final = 64 * 1024
MAX_KIND_CHARACTERS: Final = 200
MAX_TEXT_BYTES: Final = 4 * 1024
MAX_DETAIL_BYTES: Final = 16 * 1024
MAX_OUTPUT_BYTES: Final = 16 * 1024
MAX_ENDS: Final = 1_000
MAX_REASON_CHARACTERS: Final = 200
KINDS: Final = ("shell", "http")

MAX_RESPONSE_BYTES: Final = 2 * 1024 * 1024
"""A message to a worker is closed beyond this; one run more and it stays below 4 MiB."""
MAX_RESPONSE_ITEMS: Final = 10_000
_OWN_BYTES: Final = 512
"""About what an assignment takes, at most twice as much, beside what it shares with others."""

_MAX_MILLISECONDS: Final = 10 * 366 * 86_400_000
_SHORT_MS: Final = 1_000
"""Of the execution of an attempt whose end is shared with others of the same."""
_SUCCEEDED: Final = run_pb2.ATTEMPT_STATE_SUCCEEDED
_SUCCEED: Final = RunEvent.SUCCEED
_EVENTS: Final = {
    run_pb2.ATTEMPT_STATE_SUCCEEDED: RunEvent.SUCCEED,
    run_pb2.ATTEMPT_STATE_FAILED: RunEvent.FAIL,
    run_pb2.ATTEMPT_STATE_TIMED_OUT: RunEvent.TIME_OUT,
    run_pb2.ATTEMPT_STATE_CANCELLED: RunEvent.STOP,
    run_pb2.ATTEMPT_STATE_TERMINATED: RunEvent.STOP,
}


_make = tuple.__new__
"""Makes a named tuple of all its parts; its own constructor costs twice as much."""

Completion: TypeAlias = tuple[Ref, RunEvent, AttemptEnd, Duration]
"""Of which attempt, how it ended in the words of the rules and of its record, and for how long it
asks to be left alone."""


class Hello(NamedTuple):
    """A worker's hello, checked."""

    session: str
    record: SessionRecord
    held: tuple[Ref, ...]
    owner_token: int


def hello_from(request: worker_pb2.PullRequest) -> Hello:
    """Reads the first message of a worker's stream."""
    fields = [field.name for field, _ in request.ListFields()]
    if fields != ["hello"]:
        raise InvalidArgument("hello", fields, "hello in the first message, and nothing else")
    hello = request.hello
    _check_text("hello.worker", hello.worker, MAX_NAME_CHARACTERS)
    _check_text("hello.session", hello.session, MAX_NAME_CHARACTERS)
    _check_text("hello.software_version", hello.software_version, MAX_NAME_CHARACTERS)
    if not 1 <= len(hello.queues) <= MAX_QUEUES:
        raise InvalidArgument("hello.queues", len(hello.queues), f"1 to {MAX_QUEUES} queues")
    if len(hello.tasks) > MAX_TASKS:
        raise TooLarge("hello.tasks", len(hello.tasks), MAX_TASKS, "tasks")
    for field, names in (("hello.queues", hello.queues), ("hello.tasks", hello.tasks)):
        for name in names:
            try:
                check_name(field, name)
            except IdError as error:
                raise InvalidArgument(field, name, error.expected) from None
    for kind in hello.kinds:
        if kind not in KINDS:
            raise InvalidArgument("hello.kinds", kind, " or ".join(KINDS))
    if not 1 <= hello.slots <= MAX_SLOTS:
        raise InvalidArgument("hello.slots", hello.slots, f"1 to {MAX_SLOTS:,}")
    if len(hello.held) > MAX_SLOTS:
        raise TooLarge("hello.held", len(hello.held), MAX_SLOTS, "attempts")
    record = SessionRecord(
        worker=hello.worker,
        keeps=hello.keeps,
        queues=hello.queues,
        tasks=hello.tasks,
        kinds=dict.fromkeys(hello.kinds),
        slots=hello.slots,
        software_version=hello.software_version,
    )
    held = tuple(_ref(ref, "hello.held") for ref in hello.held)
    return Hello(hello.session, record, held, hello.owner_token)


def check_pull(request: worker_pb2.PullRequest) -> list[Completion]:
    """Checks a further message of a worker's stream, and reads its completions."""
    if request.HasField("hello"):
        raise InvalidArgument("hello", "a second one", "hello in the first message only")
    if request.credits < 0:
        raise InvalidArgument("credits", request.credits, "0 or more: they are added")
    if request.heartbeat < 0:
        raise InvalidArgument("heartbeat", request.heartbeat, "numbers that rise from 1")
    for ref in request.started:
        _ref(ref, "started")
    for ref in request.returned:
        _ref(ref, "returned")
    for progress in request.progress:
        _ref(progress.attempt, "progress.attempt")
        if not math.isfinite(progress.fraction) or progress.fraction > 1:
            raise InvalidArgument("progress.fraction", progress.fraction, "0 to 1, or below 0")
        _check_text("progress.message", progress.message, MAX_NAME_CHARACTERS)
    return [_completion(completion) for completion in request.completions]


def ref_from(ref: worker_pb2.AttemptRef) -> Ref:
    """Reads an attempt's name that has been checked."""
    return Ref(ref.handle, ref.token)


def check_ends(ends: Sequence[queue_pb2.EndRequest]) -> None:
    """Checks requests to end runs."""
    for index, end in enumerate(ends):
        if end.mode not in run_pb2.CancelMode.values():
            raise InvalidArgument(f"ends[{index}].mode", end.mode, "a CancelMode")
        _check_text(f"ends[{index}].reason", end.reason, MAX_REASON_CHARACTERS)


def check_pause(request: queue_pb2.SetQueuePauseRequest) -> None:
    """Checks a request to stop a queue's assignments, or to let them go on."""
    try:
        check_name("queue", request.queue)
    except IdError as error:
        raise InvalidArgument("queue", request.queue, error.expected) from None
    _check_text("reason", request.reason, MAX_REASON_CHARACTERS)


def pull_responses(
    stream: WorkerStream, owner_token: int, times: SessionTimes, now: Instant
) -> Iterator[worker_pb2.PullResponse]:
    """Takes what waits for a worker, as messages below the transport's limit.

    `now` is mesh time, surely not later than the real one.
    """
    if stream.welcome is not None:
        yield _welcome(stream.welcome, owner_token, times)
        stream.welcome = None
    while stream.waiting:
        response = worker_pb2.PullResponse(heartbeat=stream.heartbeat)
        stream.heartbeat = 0
        size = taken = 0
        add, session = response.assignments.add, stream.session
        for assigned in stream.assignments:
            message = add()
            size += _assign(message, assigned, session) + _OWN_BYTES
            if assigned.not_before > now:
                message.start_in_ns = _with_drift(assigned.not_before - now)
            taken += 1
            if size > MAX_RESPONSE_BYTES:
                break
        del stream.assignments[:taken]
        answers = stream.answers[:MAX_RESPONSE_ITEMS]
        del stream.answers[:MAX_RESPONSE_ITEMS]
        add_result = response.results.add
        for ref, accepted, state in answers:
            result = add_result(accepted=accepted)
            attempt = result.attempt
            attempt.handle, attempt.token = ref
            if state is not None:
                result.state = STATES[state]
        if not stream.assignments:  # an attempt is not stopped before it is sent
            stops = stream.stops[:MAX_RESPONSE_ITEMS]
            del stream.stops[:MAX_RESPONSE_ITEMS]
            for ref, terminate, reason in stops:
                stop = response.cancellations.add(
                    mode=run_pb2.CANCEL_MODE_TERMINATE if terminate else run_pb2.CANCEL_MODE_CANCEL,
                    reason=reason,
                )
                stop.attempt.handle, stop.attempt.token = ref
        response.drain, stream.drain = stream.drain, False
        if stream.reconnect and not stream.assignments:
            response.reconnect = True
            stream.reconnect = False
        yield response


def push_responses(stream: LeaderStream) -> Iterator[queue_pb2.PushResponse]:
    """Takes what waits for a leader."""
    while stream.settled:
        response, size = queue_pb2.PushResponse(), 0
        for _ in range(min(len(stream.settled), MAX_RESPONSE_ITEMS)):
            handle, uid, state, record, revision = stream.settled.popleft()
            response.settled.add(
                handle=handle, job_uid=uid, state=STATES[state], record=record, revision=revision
            )
            size += len(record)
            if size > MAX_RESPONSE_BYTES:
                break
        yield response


def _welcome(greeting: Greeting, owner_token: int, times: SessionTimes) -> worker_pb2.PullResponse:
    """Answers a hello, in a message of its own."""
    return worker_pb2.PullResponse(
        welcome=worker_pb2.Welcome(
            session=greeting.session,
            owner_token=owner_token,
            session_timeout_ms=times.session // MILLISECOND,
            heartbeat_interval_ms=times.heartbeat // MILLISECOND,
            revoked=[
                worker_pb2.AttemptRef(handle=ref.handle, token=ref.token)
                for ref in greeting.revoked
            ],
        )
    )


def _assign(message: worker_pb2.Assignment, assigned: Assigned, session: str) -> int:
    """Writes an assignment, and tells how many bytes of it are shared with others.

    They are there already, serialised: those of all runs of its version, and of its worker.
    """
    ref, number, origin, timeout, start_timeout, _ = assigned
    template = origin.template
    shared = template.assignment + _shared(session, number, timeout, start_timeout)
    message.MergeFromString(shared)
    message.run = template.run_names + origin.run_id
    message.nominal_time_ns = origin.nominal_ns
    message.traceparent = origin.traceparent
    attempt = message.attempt
    attempt.handle, attempt.token = ref
    return len(shared)


@lru_cache(maxsize=1_024)
def _shared(session: str, number: int, timeout: Duration, start_timeout: Duration) -> bytes:
    """Writes what many assignments to a worker have in common, of whatever job they are."""
    return worker_pb2.Assignment(
        session=session,
        number=number,
        timeout_ms=max(timeout // MILLISECOND, 1),
        start_timeout_ms=-(-start_timeout // MILLISECOND),
    ).SerializeToString()


def _with_drift(duration: Duration) -> Duration:
    """Returns what a clock that is fast by a thousandth takes for as long as a duration."""
    return duration + duration // 1_000


def _completion(said: worker_pb2.Completion) -> Completion:
    """Checks and reads a completion, each field once: this is done for every run."""
    ref = _ref(said.attempt, "completions.attempt")
    state, for_good, retry_after_ms = said.state, said.for_good, said.retry_after_ms
    result_json, output_tail = said.result_json, said.output_tail
    wait_ms, execution_ms = said.wait_ms, said.execution_ms
    nothing_else = not (for_good or retry_after_ms or result_json or output_tail or wait_ms)
    nothing_else = nothing_else and not said.HasField("error")
    if state == _SUCCEEDED and nothing_else and 0 <= execution_ms < _SHORT_MS:
        return ref, _SUCCEED, _plain_end(execution_ms), 0
    event = _EVENTS.get(state)
    if event is None:
        raise InvalidArgument("completions.state", state, "how an attempt ended")
    succeeded = state == run_pb2.ATTEMPT_STATE_SUCCEEDED
    if result_json and not succeeded:
        raise InvalidArgument("completions.result_json", "a result", "one with SUCCEEDED only")
    if (for_good or retry_after_ms) and state != run_pb2.ATTEMPT_STATE_FAILED:
        raise InvalidArgument("completions.state", state, "FAILED with what may follow")
    error = None
    if said.HasField("error") or not succeeded:
        given = said.error
        error = run_pb2.RunError(kind=given.kind, message=given.message, detail=given.detail)
        _check_text("completions.error.kind", error.kind, MAX_KIND_CHARACTERS)
        _check_size("completions.error.message", error.message, MAX_TEXT_BYTES)
        _check_size("completions.error.detail", error.detail, MAX_DETAIL_BYTES)
    if result_json:
        _check_size("completions.result_json", result_json, MAX_RESULT_BYTES)
    if output_tail:
        _check_size("completions.output_tail", output_tail, MAX_OUTPUT_BYTES)
    _check_milliseconds("completions.wait_ms", wait_ms)
    _check_milliseconds("completions.execution_ms", execution_ms)
    _check_milliseconds("completions.retry_after_ms", retry_after_ms)
    if for_good:
        event = RunEvent.FAIL_FOR_GOOD
    if succeeded:
        error = None
    end = AttemptEnd(state, error, result_json, output_tail, wait_ms, execution_ms)
    return ref, event, end, retry_after_ms * MILLISECOND


@lru_cache(maxsize=_SHORT_MS)
def _plain_end(execution_ms: int) -> AttemptEnd:
    """Gives the end of an attempt that succeeded and has nothing more to say, as most have."""
    return AttemptEnd(_SUCCEEDED, execution_ms=execution_ms)


def _check_milliseconds(field: str, value: int) -> None:
    if not 0 <= value <= _MAX_MILLISECONDS:
        raise InvalidArgument(field, value, "milliseconds, 0 to ten years")


def _check_size(field: str, text: str, limit: int) -> None:
    if len(text) > limit // 4 and len(text.encode()) > limit:
        raise TooLarge(field, len(text.encode()), limit)


def _ref(ref: worker_pb2.AttemptRef, field: str) -> Ref:
    handle, token = ref.handle, ref.token
    if not handle or token < 1:
        raise InvalidArgument(field, (handle, token), "a handle and a token as assigned")
    return _make(Ref, (handle, token))


def _check_text(field: str, text: str, limit: int) -> None:
    if len(text) > limit:
        raise TooLarge(field, len(text), limit, "characters")
    if "\0" in text:
        raise InvalidArgument(field, text, "a text without NUL")

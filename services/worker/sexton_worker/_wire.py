"""The worker protocol's messages to and from what the machine knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sexton.v1 import job_pb2, run_pb2
from sexton.v1 import worker_pb2 as pb
from sexton_core.instants import MILLISECOND
from sexton_runtime.otlp import process_traceparent
from sexton_worker.contract import (
    FromWorker,
    HttpWork,
    Order,
    OtherWork,
    PythonWork,
    Ref,
    ShellWork,
    Work,
)
from sexton_worker.messages import Completion, EndState, Outgoing, Stop, Welcome

_STATES: Final = {
    EndState.SUCCEEDED: run_pb2.ATTEMPT_STATE_SUCCEEDED,
    EndState.FAILED: run_pb2.ATTEMPT_STATE_FAILED,
    EndState.TIMED_OUT: run_pb2.ATTEMPT_STATE_TIMED_OUT,
    EndState.CANCELLED: run_pb2.ATTEMPT_STATE_CANCELLED,
    EndState.TERMINATED: run_pb2.ATTEMPT_STATE_TERMINATED,
}
_SUCCEEDED: Final = EndState.SUCCEEDED
_AS_SUCCEEDED: Final = run_pb2.ATTEMPT_STATE_SUCCEEDED
_make = tuple.__new__
"""Makes a named tuple of all its parts; its own constructor costs twice as much."""
_NAME_PARTS: Final = 6
"""Of `namespaces/{namespace}/jobs/{job}/runs/{run}`."""


def ref_from_wire(ref: pb.AttemptRef) -> Ref:
    """Reads which attempt is meant."""
    return _make(Ref, (ref.handle, ref.token))


def refs_to_wire(refs: Sequence[Ref]) -> list[pb.AttemptRef]:
    """Writes which attempts are meant."""
    return [pb.AttemptRef(handle=ref.handle, token=ref.token) for ref in refs]


def welcome_from_wire(welcome: pb.Welcome) -> Welcome:
    """Reads the answer to a hello."""
    return Welcome(
        session=welcome.session,
        owner_token=welcome.owner_token,
        session_time=welcome.session_timeout_ms * MILLISECOND,
        heartbeat=welcome.heartbeat_interval_ms * MILLISECOND,
        revoked=[ref_from_wire(ref) for ref in welcome.revoked],
    )


def order_from_wire(assignment: pb.Assignment) -> Order:
    """Reads an assignment."""
    run, attempt, number = assignment.run, assignment.attempt, assignment.number
    parts = run.split("/")
    namespace, job, run_id = parts[1::2] if len(parts) == _NAME_PARTS else ("", "", run)
    order = (
        _make(Ref, (attempt.handle, attempt.token)),
        assignment.session,
        number,
        namespace,
        job,
        run_id,
        assignment.nominal_time_ns,
        assignment.timeout_ms * MILLISECOND,
        process_traceparent(assignment.traceparent, number),
        _work(assignment.task),
        assignment.start_in_ns,
        None,
    )
    return _make(Order, order)


def stop_from_wire(cancellation: pb.Cancellation) -> Stop:
    """Reads a request to end an attempt."""
    return Stop(
        ref_from_wire(cancellation.attempt),
        terminate=cancellation.mode == run_pb2.CANCEL_MODE_TERMINATE,
        reason=cancellation.reason,
    )


def request_to_wire(message: Outgoing) -> pb.PullRequest:
    """Writes one message."""
    request = pb.PullRequest(
        credits=message.credits,
        heartbeat=message.heartbeat,
        draining=message.draining,
        closing=message.closing,
    )
    for handle, token in message.started:
        request.started.add(handle=handle, token=token)
    for handle, token in message.returned:
        request.returned.add(handle=handle, token=token)
    for (handle, token), fraction, text in message.progress:
        progress = request.progress.add(fraction=fraction, message=text)
        progress.attempt.handle, progress.attempt.token = handle, token
    add = request.completions.add
    for completion in message.completions:
        if completion.state is _SUCCEEDED:
            _write_success(add(state=_AS_SUCCEEDED), completion)
        else:
            _write_end(add(state=_STATES[completion.state]), completion)
    return request


def _write_success(written: pb.Completion, completion: Completion) -> None:
    """Writes the end of most runs: what has its default is not even mentioned."""
    (handle, token), _, ended, execution = completion
    attempt = written.attempt
    attempt.handle, attempt.token = handle, token
    if execution >= MILLISECOND:
        written.execution_ms = execution // MILLISECOND
    if ended.result_json:
        written.result_json = ended.result_json
    if ended.output_tail:
        written.output_tail = ended.output_tail


def _write_end(written: pb.Completion, completion: Completion) -> None:
    ended = completion.ended
    written.attempt.handle, written.attempt.token = completion.ref
    written.output_tail = ended.output_tail
    written.execution_ms = completion.execution // MILLISECOND
    written.for_good = ended.for_good
    written.retry_after_ms = ended.retry_after // MILLISECOND
    error = written.error
    error.kind, error.message, error.detail = ended.kind, ended.message, ended.detail


def _work(task: job_pb2.Task) -> Work:
    kind = task.WhichOneof("kind")
    if kind == "python":
        python = task.python
        return _make(PythonWork, (python.task, python.args_json))
    if kind == "shell":
        return ShellWork(task.shell.command, _values(task.shell.env), task.shell.cwd)
    if kind == "http":
        http = task.http
        return HttpWork(
            http.method or "POST", http.url, _values(http.headers), http.body, tuple(http.expect)
        )
    return OtherWork(kind or "none")


def _values(values: Mapping[str, job_pb2.EnvValue]) -> dict[str, str | FromWorker]:
    return {
        name: FromWorker(value.from_worker)
        if value.WhichOneof("source") == "from_worker"
        else value.value
        for name, value in values.items()
    }

"""What a worker tells of its attempts: a span for each, and every line that it wrote.

Wraps the executor, so that nothing else of the worker knows. Only attempts of runs that are sampled
are told of; adding costs an append, and what can't be sent in time is dropped and counted there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from sexton_core.instants import Instant
from sexton_runtime import otlp, semconv
from sexton_runtime.exporting import Exporter, Sink
from sexton_worker.contract import Ended, Executor, Listener, Order, PythonWork

MAX_OUTPUT_BYTES: Final = 1024 * 1024
"""Of one attempt's output that is sent; its last part goes with its completion in any case."""
_LONGEST_LINE_BYTES: Final = 16 * 1024
"""What is longer is sent in parts."""
_ERROR_CHARACTERS: Final = 500
_CUT: Final = b"... further output is not sent: it was more than 1 MiB"


class _Done(NamedTuple):
    order: Order
    start: Instant
    end: Instant
    ended: Ended


class _Line(NamedTuple):
    order: Order
    at: Instant
    text: bytes


class Tracing:
    """Makes spans of attempts and lines of their output."""

    def __init__(self, exporter: Exporter, worker: str, wall_ns: Callable[[], int]) -> None:
        """`worker`: its name for people; `wall_ns`: tells Unix nanoseconds."""
        self.wall_ns = wall_ns
        self._shared = b"".join(
            (
                otlp.text(semconv.WORKER, worker),
                otlp.text(semconv.MESSAGING_SYSTEM, "sexton"),
                otlp.text(semconv.MESSAGING_OPERATION, "process"),
            )
        )
        self.done: Sink[_Done] = exporter.sink("spans", self._span, semconv.SCOPE_RUN)
        self.lines: Sink[_Line] = exporter.sink("lines", _line)

    def follow(self, order: Order) -> Callable[[bytes], None] | None:
        """Gives what takes an attempt's output as it is written; None: nobody wants it."""
        return _Output(order, self) if order.traceparent.endswith("1") else None

    def _span(self, done: _Done) -> Sequence[bytes]:
        order, ended = done.order, done.ended
        trace = otlp.trace_of(order.traceparent)
        if trace is None:
            return ()
        attributes = b"".join(
            (
                self._shared,
                _of_job(order.namespace, order.job),
                otlp.text(semconv.RUN, order.run_id),
                otlp.whole(semconv.ATTEMPT, order.number),
                otlp.whole(semconv.TOKEN, order.ref.token),
            )
        )
        error = None
        if not ended.succeeded:
            error = f"{ended.kind}: {ended.message}"[:_ERROR_CHARACTERS]
            attributes += otlp.text(semconv.ERROR_TYPE, ended.kind)
        task = order.work.task if isinstance(order.work, PythonWork) else order.job
        span = otlp.span(
            trace.trace_id, trace.span_id, otlp.process_span(trace.span_id),
            f"{semconv.SPAN_PROCESS} {task}".encode(), otlp.CONSUMER, done.start, done.end,
            attributes, error,
        )  # fmt: skip
        return (span,)


class TracedExecutor:
    """An executor whose attempts are told of. See `sexton_worker.contract.Executor`."""

    def __init__(self, executor: Executor, tracing: Tracing) -> None:
        self._executor = executor
        self._tracing = tracing
        self._begun: dict[int, tuple[Order, Instant]] = {}
        self._listener: Listener | None = None

    @property
    def tasks(self) -> Sequence[str]:
        """Names of the Python tasks that it knows."""
        return self._executor.tasks

    @property
    def kinds(self) -> Sequence[str]:
        """Kinds that it allows besides Python."""
        return self._executor.kinds

    async def start(self, listener: Listener) -> None:
        """Begins to work."""
        self._listener = listener
        await self._executor.start(self)

    async def stop(self) -> None:
        """Kills what can be killed and ends."""
        await self._executor.stop()

    def prepare(self, order: Order) -> object:
        """Gives what can be made ready for an order that is kept for a moment."""
        return self._executor.prepare(order)

    def begin(self, order: Order) -> None:
        """Begins an attempt."""
        if order.traceparent.endswith("1"):
            self._begun[order.ref.token] = (order, self._tracing.wall_ns())
        self._executor.begin(order)

    def cancel(self, token: int) -> None:
        """Asks an attempt to end."""
        self._executor.cancel(token)

    def kill(self, token: int) -> None:
        """Ends an attempt by force."""
        self._executor.kill(token)

    def extend(self, end_at: Instant, dead_at: Instant) -> None:
        """Tells of an answered heartbeat."""
        self._executor.extend(end_at, dead_at)

    # The listener of the executor

    def ended(self, token: int, ended: Ended) -> None:
        """Passes on that an attempt has ended."""
        begun = self._begun.pop(token, None)
        if begun is not None:
            self._tracing.done.add(_Done(*begun, self._tracing.wall_ns(), ended))
        assert self._listener is not None, "it has been started"
        self._listener.ended(token, ended)

    def progressed(self, token: int, fraction: float, message: str) -> None:
        """Passes on how far an attempt is."""
        assert self._listener is not None, "it has been started"
        self._listener.progressed(token, fraction, message)


class _Output:
    """The output of one attempt, line by line. Its caller sees to it that calls don't overlap."""

    def __init__(self, order: Order, tracing: Tracing) -> None:
        self._order = order
        self._tracing = tracing
        self._rest = b""
        self._left = MAX_OUTPUT_BYTES

    def __call__(self, data: bytes) -> None:
        """Takes some output; nothing stands for its end."""
        if self._left <= 0:
            return
        *lines, self._rest = (self._rest + data[: self._left]).split(b"\n")
        self._left -= len(data)
        if self._rest and (not data or len(self._rest) >= _LONGEST_LINE_BYTES):
            lines.append(self._rest)
            self._rest = b""
        if self._left <= 0:
            lines += [self._rest, _CUT] if self._rest else [_CUT]
        now = self._tracing.wall_ns()
        for line in lines:
            for begin in range(0, max(len(line), 1), _LONGEST_LINE_BYTES):
                part = line[begin : begin + _LONGEST_LINE_BYTES]
                self._tracing.lines.add(_Line(self._order, now, part))


@lru_cache(1_000)
def _of_job(namespace: str, job: str) -> bytes:
    return otlp.text(semconv.NAMESPACE, namespace) + otlp.text(semconv.JOB, job)


def _line(line: _Line) -> Sequence[bytes]:
    trace = otlp.trace_of(line.order.traceparent)
    if trace is None:
        return ()
    # What is not UTF-8 would make the whole request unreadable.
    body = line.text.rstrip(b"\r").decode("utf-8", "replace").encode()
    attributes = (
        otlp.text(semconv.RUN, line.order.run_id),
        otlp.whole(semconv.ATTEMPT, line.order.number),
    )
    return (otlp.line(trace.trace_id, trace.span_id, line.at, body, attributes),)

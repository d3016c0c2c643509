"""What a worker tells of its attempts, as it is sent."""

from __future__ import annotations

from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ScopeLogs
from opentelemetry.proto.trace.v1.trace_pb2 import ScopeSpans, Span

from sexton_runtime import otlp
from sexton_runtime.exporting import Exporter
from sexton_worker.contract import Ended, Order, Ref, ShellWork
from sexton_worker.output import Tail
from sexton_worker.tracing import MAX_OUTPUT_BYTES, TracedExecutor, Tracing

RUN_TRACE = f"00-{'ab' * 16}-{'cd' * 8}-01"
NOW = 1_800_000_000_000_000_000


class Executes:
    """Begins nothing; ends what it is told to."""

    tasks = kinds = ()

    async def start(self, listener) -> None:
        self.listener = listener

    def prepare(self, _order: Order) -> object:
        return None

    def begin(self, order: Order) -> None:
        self.begun = order


def order(*, sampled: bool = True, number: int = 2) -> Order:
    given = RUN_TRACE if sampled else RUN_TRACE[:-1] + "0"
    return Order(
        ref=Ref(b"h", 44), session="s1", number=number, namespace="team", job="report",
        run_id="t1", nominal_time=NOW, timeout=10**9,
        traceparent=otlp.process_traceparent(given, number), work=ShellWork("true", {}, ""),
    )  # fmt: skip


def tracing(times=(NOW,)) -> Tracing:
    clock = iter(times)
    last = times[-1]
    return Tracing(Exporter("http://127.0.0.1:1", {}), "anna", lambda: next(clock, last))


def lines_of(told: Tracing) -> list[str]:
    return [record.body.string_value for record in records_of(told)]


def records_of(told: Tracing) -> list[LogRecord]:
    groups = told.lines.take(10_000)
    return [record for group in groups for record in ScopeLogs.FromString(group).log_records]


async def executed(told: Tracing, given: Order, ended: Ended) -> list[Span]:
    inner = Executes()
    executor = TracedExecutor(inner, told)

    said: list[tuple[int, Ended]] = []

    class Listens:
        def ended(self, token: int, how: Ended) -> None:
            said.append((token, how))

    listener = Listens()
    await executor.start(listener)
    executor.begin(given)
    executor.ended(given.ref.token, ended)
    assert said.pop() == (given.ref.token, ended)
    return [span for data in told.done.take(10) for span in ScopeSpans.FromString(data).spans]


async def test_an_attempt_is_a_span_below_the_one_that_the_queue_writes_of_it():
    (span,) = await executed(tracing((NOW, NOW + 5)), order(), Ended(succeeded=True))
    trace = otlp.trace_of(RUN_TRACE)
    assert trace is not None
    assert span.parent_span_id == otlp.attempt_span(trace, 2)
    assert (span.name, span.kind) == ("process report", Span.SPAN_KIND_CONSUMER)
    assert (span.start_time_unix_nano, span.end_time_unix_nano) == (NOW, NOW + 5)
    told = {pair.key: pair.value for pair in span.attributes}
    assert told["sexton.attempt"].int_value == 2
    assert told["sexton.token"].int_value == 44
    assert told["sexton.worker"].string_value == "anna"
    assert told["messaging.operation.type"].string_value == "process"


async def test_a_failure_says_why():
    (span,) = await executed(tracing(), order(), Ended.failure("exit 3", "no answer"))
    assert span.status.message == "exit 3: no answer"


async def test_a_run_that_is_not_sampled_is_not_told_of():
    told = tracing()
    assert await executed(told, order(sampled=False), Ended(succeeded=True)) == []
    assert told.follow(order(sampled=False)) is None


def test_output_is_told_line_by_line_with_its_place_in_the_trace():
    told = tracing()
    kept = Tail(follow=told.follow(order()))
    for part in (b"one\ntw", b"o\r\n\n", b"thr\xff", b"ee"):
        kept.write(part)
    assert kept.text() == "one\ntwo\r\n\nthr\ufffdee"
    records = records_of(told)
    assert [record.body.string_value for record in records] == ["one", "two", "", "thr\ufffdee"]
    process = otlp.trace_of(order().traceparent)
    assert process is not None
    assert {record.span_id for record in records} == {process.span_id}
    assert {record.time_unix_nano for record in records} == {NOW}


def test_a_line_that_does_not_end_is_told_in_parts_and_what_is_too_much_is_cut_loudly():
    told = tracing()
    kept = Tail(follow=told.follow(order()))
    for _ in range(200):
        kept.write(b"x" * 10_000)
    kept.text()
    lines = lines_of(told)
    assert lines[-1] == "... further output is not sent: it was more than 1 MiB"
    assert sum(map(len, lines[:-1])) == MAX_OUTPUT_BYTES
    assert max(map(len, lines)) == 16 * 1024

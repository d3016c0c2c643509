"""The spans of a run's way, as they are written from its record."""

from __future__ import annotations

from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from unit.queue.lines import waiting
from unit.queue.test_machine import at_work, shop_with

from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import job_pb2, run_pb2
from sexton_core.words import RunState
from sexton_queue.spans import spans_of, spans_to
from sexton_runtime import otlp
from sexton_runtime.exporting import Exporter

S = 1_000_000_000
T0 = 1_800_000_000 * S
TRACEPARENT = f"00-{'ab' * 16}-{'cd' * 8}-01"


def record(**changes) -> pb.RunRecord:
    template = pb.RunTemplate(
        namespace="team", job="report", version=3, queue="mails", job_uid="u" * 16,
        task=job_pb2.Task(shell=job_pb2.ShellTask(command="true")),
    )  # fmt: skip
    given = {
        "template": template, "run_id": "t20270115T080000Z-uuuuuuuu", "nominal_ns": T0,
        "due_ns": T0, "create_time_ns": T0 + S, "reason": "on_time", "traceparent": TRACEPARENT,
        "state": run_pb2.RUN_STATE_SUCCEEDED, "end_time_ns": T0 + 9 * S,
    } | changes  # fmt: skip
    return pb.RunRecord(**given)


def attempt(number: int, start: int, end: int, state=run_pb2.ATTEMPT_STATE_SUCCEEDED, **fields):
    return pb.AttemptRecord(
        number=number, token=40 + number, worker="anna", session="s1", state=state,
        assign_time_ns=T0 + start * S, end_time_ns=T0 + end * S, **fields,
    )  # fmt: skip


def read(given: pb.RunRecord, arrived_at: int = 0) -> dict[str, Span]:
    spans = [Span.FromString(data) for data in spans_of(given, arrived_at)]
    assert len({span.span_id for span in spans}) == len(spans)
    assert {span.trace_id for span in spans} == {b"\xab" * 16}
    return {span.name: span for span in spans}


def seconds(span: Span) -> tuple[int, int]:
    return (span.start_time_unix_nano - T0) // S, (span.end_time_unix_nano - T0) // S


def test_a_run_of_one_attempt_is_its_whole_way():
    spans = read(record(attempts=[attempt(1, 3, 9)]), arrived_at=T0 + 2 * S)
    assert {name: seconds(span) for name, span in spans.items()} == {
        "run report": (0, 9),
        "sexton.fire": (0, 1),
        "sexton.push": (1, 2),
        "sexton.line": (2, 3),
        "attempt 1": (3, 9),
    }
    root = spans.pop("run report")
    assert (root.span_id, root.parent_span_id) == (b"\xcd" * 8, b"")
    assert {span.parent_span_id for span in spans.values()} == {root.span_id}
    told = {pair.key: pair.value.string_value for pair in root.attributes}
    assert told["sexton.run.state"] == "succeeded"
    assert told["messaging.destination.name"] == "mails"
    assert told["sexton.run.nominal_time"] == "2027-01-15T08:00:00Z"


def test_of_a_run_that_was_written_and_handed_out_ahead_nothing_is_before_its_time_but_that():
    given = record(create_time_ns=T0 - 3 * S, attempts=[attempt(1, -1, 9)])
    spans = read(given, arrived_at=T0 - 2 * S)
    assert {name: seconds(span) for name, span in spans.items()} == {
        "run report": (-3, 9),
        "sexton.fire": (-3, -3),
        "sexton.push": (-3, -2),
        "sexton.line": (0, 0),
        "attempt 1": (0, 9),
    }


def test_every_attempt_stands_where_its_worker_looks_for_it_and_says_why_it_failed():
    failed = run_pb2.ATTEMPT_STATE_FAILED
    error = run_pb2.RunError(kind="exit 3", message="no answer")
    given = record(
        attempts=[attempt(1, 2, 4, failed, error=error), attempt(2, 6, 9)],
    )
    spans = [Span.FromString(data) for data in spans_of(given)]
    attempts = [span for span in spans if span.name.startswith("attempt")]
    trace = otlp.trace_of(TRACEPARENT)
    assert trace is not None
    assert [span.span_id for span in attempts] == [
        otlp.attempt_span(trace, 1),
        otlp.attempt_span(trace, 2),
    ]
    assert attempts[0].status == Status(code=Status.STATUS_CODE_ERROR, message="exit 3: no answer")
    assert not attempts[1].HasField("status")
    lines = [span for span in spans if span.name == "sexton.line"]
    assert [seconds(span) for span in lines] == [(1, 2), (4, 6)]


def test_a_run_that_never_started_has_no_attempt_and_is_a_fault_where_it_is_a_dead_letter():
    lost = record(state=run_pb2.RUN_STATE_LOST, error=run_pb2.RunError(kind="session lost"))
    spans = read(lost)
    assert set(spans) == {"run report", "sexton.fire"}
    assert spans["run report"].status.message == "session lost: "
    assert not read(record(state=run_pb2.RUN_STATE_CANCELLED))["run report"].HasField("status")


def test_a_run_without_a_trace_context_writes_nothing():
    assert spans_of(record(traceparent="")) == []


def test_the_record_of_a_run_is_told_once_its_end_is_durable_and_not_before():
    told = []
    shop = shop_with(waiting())
    shop.machine._ended = lambda *ended: told.append(ended[2:])
    hand = at_work(shop)
    hand.begin()
    hand.finish()
    found = shop.machine.decide(shop.now)
    assert told == []
    shop.machine.settle(found, None, shop.now)  # what became of the commit is not known
    assert told == []
    shop.pump()
    hand.read()
    shop.pump()
    assert told == [(RunState.SUCCEEDED, 0)]


def test_of_runs_that_are_not_sampled_only_dead_letters_are_written():
    exporter = Exporter("http://127.0.0.1:1", {})
    ended = spans_to(exporter)
    unsampled = TRACEPARENT[:-1] + "0"
    ended(b"", unsampled, RunState.SUCCEEDED, 0)
    assert len(exporter.sinks[0]) == 0
    ended(b"", unsampled, RunState.FAILED, 0)
    ended(b"", TRACEPARENT, RunState.SUCCEEDED, 0)
    assert len(exporter.sinks[0]) == 2

"""The state rail of a run, and its trace under it."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from sexton.v1 import run_pb2
from sexton_console.traces.model import LogLine, Span
from sexton_console.traces.rail import Rail, rail_of
from sexton_console.traces.waterfall import MAX_ROWS, attempts_of, waterfall
from sexton_runtime import otlp

T0 = 1_800_000_000
S = 10**9
TRACE = otlp.Trace(b"\xab" * 16, b"\xcd" * 8, sampled=True)


def at(seconds: float) -> Timestamp:
    stamp = Timestamp()
    stamp.FromNanoseconds(now(seconds))
    return stamp


def attempt(number: int, assigned: float, started=None, took=None, ended=None, **fields):
    return run_pb2.Attempt(
        number=number, worker=fields.pop("worker", "anna"),
        state=fields.pop("state", run_pb2.ATTEMPT_STATE_SUCCEEDED), assign_time=at(assigned),
        start_time=None if started is None else at(started),
        end_time=None if ended is None else at(ended),
        execution_duration=None if took is None else Duration(seconds=took), **fields,
    )  # fmt: skip


def run(*attempts: run_pb2.Attempt, state=run_pb2.RUN_STATE_SUCCEEDED, **fields) -> run_pb2.Run:
    given = {
        "name": "namespaces/default/jobs/report/runs/t1", "due_time": at(0),
        "create_time": at(0.5), "queue": "mails", "not_before_time": at(0),
        "origin": run_pb2.RUN_ORIGIN_SCHEDULE,
    } | fields  # fmt: skip
    return run_pb2.Run(state=state, attempts=attempts, **given)


def moments(rail: Rail) -> list[tuple[str, float]]:
    return [(moment.name, (moment.at - T0 * S) / S) for moment in rail.moments]


def gaps(rail: Rail) -> list[tuple[str, float, float, int]]:
    return [
        (gap.name, (gap.start - T0 * S) / S, (gap.end - T0 * S) / S, gap.attempt)
        for gap in rail.gaps
    ]


def now(seconds: float) -> int:
    return T0 * S + round(seconds * S)


def test_a_run_of_one_attempt_has_seven_moments_and_no_time_without_a_name():
    rail = rail_of(run(attempt(1, 2, 3, 4, 8), end_time=at(8)), now(99), pushed=now(1))
    assert moments(rail) == [
        ("due", 0), ("committed", 0.5), ("pushed", 1), ("assigned", 2), ("started", 3),
        ("finished", 7), ("settled", 8),
    ]  # fmt: skip
    assert gaps(rail) == [
        ("decide", 0, 0.5, 0), ("push", 0.5, 1, 0), ("line", 1, 2, 1), ("send", 2, 3, 1),
        ("execute", 3, 7, 1), ("settle", 7, 8, 1),
    ]  # fmt: skip


def test_the_rail_of_a_run_that_was_written_ahead_begins_when_it_is_due():
    ahead = run(attempt(1, -0.25, 1, 4, 6), create_time=at(-0.5), end_time=at(6))
    rail = rail_of(ahead, now(99), pushed=now(-0.375))
    assert moments(rail) == [
        ("committed", -0.5), ("pushed", -0.375), ("assigned", -0.25), ("due", 0), ("started", 1),
        ("finished", 5), ("settled", 6),
    ]  # fmt: skip
    assert gaps(rail) == [("send", 0, 1, 1), ("execute", 1, 5, 1), ("settle", 5, 6, 1)]
    assert (rail.start, rail.end) == (now(0), now(6))
    line = rail_of(run(create_time=at(-0.5), state=run_pb2.RUN_STATE_WAITING), now(2))
    assert gaps(line) == [("line", 0, 2, 0)]
    assert rail_of(run(create_time=at(-0.5), state=1), now(-0.25)).start == now(0)


def test_what_goes_on_ends_now_and_says_so():
    running = run(
        attempt(1, 2, 3, state=run_pb2.ATTEMPT_STATE_STARTED), state=run_pb2.RUN_STATE_RUNNING
    )
    rail = rail_of(running, now(10))
    assert gaps(rail)[-1] == ("execute", 3, 10, 1)
    assert rail.gaps[-1].open
    assert moments(rail)[-1] == ("started", 3)
    waiting = rail_of(run(state=run_pb2.RUN_STATE_WAITING), now(10))
    assert gaps(waiting)[-1] == ("line", 0.5, 10, 0)
    assert waiting.gaps[-1].cause == "a free slot of queue mails"


def test_a_lost_attempt_is_followed_by_one_that_took_over():
    rail = rail_of(
        run(
            attempt(1, 1, 1, ended=30, state=run_pb2.ATTEMPT_STATE_LOST, worker="anna"),
            attempt(2, 31, 31, 4, 35.5, worker="bert"),
            end_time=at(35.5),
        ),
        now(99),
    )
    first, second = rail.deliveries
    assert (first.later_worker, second.later_worker) == (False, True)
    causes = {(gap.name, gap.attempt): gap.cause for gap in rail.gaps}
    assert causes["execute", 1] == "the task on anna, until its session was lost"
    assert causes["line", 2] == "a free slot of queue mails, once attempt 1 was over"


def test_the_pause_before_a_retry_is_named_after_the_failure():
    rail = rail_of(
        run(
            attempt(1, 1, 1, 1, 2, state=run_pb2.ATTEMPT_STATE_FAILED),
            state=run_pb2.RUN_STATE_RETRYING,
            not_before_time=at(60),
        ),
        now(10),
    )
    assert gaps(rail)[-1] == ("backoff", 2, 10, 0)
    assert rail.gaps[-1].cause == "the pause after attempt 1, then a free slot of mails"


def test_a_run_that_ended_in_line_never_had_an_attempt():
    rail = rail_of(run(state=run_pb2.RUN_STATE_EXPIRED, end_time=at(60)), now(99))
    assert moments(rail) == [("due", 0), ("committed", 0.5), ("settled", 60)]
    assert gaps(rail)[-1] == ("line", 0.5, 60, 0)


def test_attempts_that_the_record_does_not_keep_are_counted():
    rail = rail_of(
        run(attempt(1, 1, 1, 1, 2), attempt(30, 40, 40, 1, 41), end_time=at(41)), now(99)
    )
    assert rail.left_out == 28


def span(number: int, start: float, end: float, parent: str = "", **fields) -> Span:
    given = {"name": f"s{number}", "kind": "internal", "service": "shop", "failed": False}
    return Span(
        span_id=f"{number:016x}", parent_id=parent, start=now(start), end=now(end),
        **(given | fields),
    )  # fmt: skip


def one_attempt() -> Rail:
    return rail_of(run(attempt(1, 2, 3, 4, 8), end_time=at(8)), now(99))


def test_spans_stand_under_their_attempt_and_their_parents():
    process = otlp.process_span(otlp.attempt_span(TRACE, 1)).hex()
    spans = [
        span(1, 4, 6, process),
        span(2, 5, 6, f"{1:016x}"),
        span(3, 4, 5, "f" * 16),
        span(4, 0, 1, attributes={"sexton.rail": True}),
    ]
    falls = waterfall(one_attempt(), spans, attempts=attempts_of(TRACE, one_attempt()))
    rows = [(bar.name, bar.depth) for bar in falls.bars]
    assert rows == [
        ("decide", 0), ("line", 0), ("attempt 1", 0), ("send", 1), ("execute", 1), ("settle", 1),
        ("s1", 1), ("s2", 2), ("s3", 0),
    ]  # fmt: skip
    assert falls.bars[6].left == 0.5
    assert falls.bars[6].width == 0.25


def test_the_axis_reaches_as_far_as_the_last_span_and_has_round_labels():
    falls = waterfall(one_attempt(), [span(1, 4, 10)])
    assert falls.whole_s == 10
    assert [label for _, label in falls.marks] == ["0 s", "2 s", "4 s", "6 s", "8 s", "10 s"]


def test_lines_are_marked_on_the_attempt_until_its_span_is_there():
    process = otlp.process_span(otlp.attempt_span(TRACE, 1)).hex()
    line = LogLine(cursor=1, at=now(4), span_id=process, severity="", body="x", service="w")
    falls = waterfall(one_attempt(), [], [line], attempts_of(TRACE, one_attempt()))
    assert {bar.name: bar.ticks for bar in falls.bars if bar.ticks} == {"attempt 1": (0.5,)}
    there = Span(
        span_id=process, parent_id="", name="process", kind="consumer", start=now(3), end=now(7),
        service="w", failed=False, attributes={"sexton.attempt": 1},
    )  # fmt: skip
    falls = waterfall(one_attempt(), [there], [line], attempts_of(TRACE, one_attempt()))
    assert {bar.name: bar.ticks for bar in falls.bars if bar.ticks} == {"process": (0.5,)}


def test_circles_of_parents_and_too_many_spans_do_no_harm():
    circle = [span(1, 1, 2, f"{2:016x}"), span(2, 1, 2, f"{1:016x}"), span(3, 1, 2, f"{3:016x}")]
    names = [bar.name for bar in waterfall(one_attempt(), circle).bars if bar.kind == "span"]
    assert sorted(names) == ["s1", "s2", "s3"]
    many = [span(n, 1, 2, f"{n - 1:016x}") for n in range(1, MAX_ROWS + 100)]
    falls = waterfall(one_attempt(), many)
    assert len(falls.bars) == MAX_ROWS
    assert falls.left_out == 105
    assert max(bar.depth for bar in falls.bars) == 100


def test_a_span_of_another_time_does_not_make_the_rest_too_small_to_be_seen():
    rail = rail_of(run(attempt(1, 2, 3, 4, 8), end_time=at(8)), now(99))
    falls = waterfall(rail, [span(1, -T0, -T0), span(2, 3, 900_000), span(3, 3, 18)])
    assert (falls.start, falls.end) == (now(0), now(18))
    assert [(bar.left, round(bar.width, 3)) for bar in falls.bars if bar.kind == "span"] == [
        (0.0, 0.0), (3 / 18, round(15 / 18, 3)), (3 / 18, round(15 / 18, 3)),
    ]  # fmt: skip

"""Records written in pieces: what any reader sees of them, and what the next owner makes."""

from google.protobuf.duration_pb2 import Duration
from unit.queue.lines import T, waiting

from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import run_pb2
from sexton_core.instants import SECOND
from sexton_core.runs import Run, apply, assign, assigned
from sexton_core.words import RunEvent
from sexton_queue import records
from sexton_queue.pieces import Record, RecordReader
from sexton_queue.records import AttemptEnd

FAILED = AttemptEnd(
    run_pb2.ATTEMPT_STATE_FAILED,
    error=run_pb2.RunError(kind="ValueError", message="no"),
    output_tail="line",
    execution_ms=7,
)
SUCCEEDED = AttemptEnd(run_pb2.ATTEMPT_STATE_SUCCEEDED, result_json="1", execution_ms=5)


class Life:
    """A run that fails, is cancelled while it runs again, and succeeds all the same."""

    def __init__(self, *, takeovers: bool) -> None:
        self.takeovers = takeovers
        self.reader = RecordReader(1)
        self.revision = 9
        self.written: list[pb.RunRecord] = []
        self.record, self.run = self.reader.read(waiting().value, 9)

    def write(self, written: tuple[bytes, Record], run: Run) -> None:
        value, self.record = written
        self.revision += 1
        self.run = run
        self.written.append(pb.RunRecord.FromString(value))
        if self.takeovers:
            self.record, self.run = self.reader.read(value, self.revision)

    def live(self) -> list[pb.RunRecord]:
        now = T + SECOND
        self.begin(now)
        failed = apply(self.run, RunEvent.FAIL, now + SECOND)
        ended = records.end_attempt_record(self.record, failed, self.run.token, FAILED, now)
        self.write(ended, failed)
        now = self.run.not_before
        self.begin(now)
        moved = apply(self.run, RunEvent.CANCEL, now)
        cancel = records.cancel_record("enough", now, terminate=False)
        self.write(records.move_record(self.record, moved, cancel), moved)
        done = apply(self.run, RunEvent.SUCCEED, now + SECOND)
        ended = records.end_attempt_record(self.record, done, self.run.token, SUCCEEDED, now)
        self.write(ended, done)
        return self.written

    def begin(self, now: int) -> None:
        run = assign(self.run, "session", now)
        self.write(records.assign_record(self.record, run, "anna", now), run)
        if not self.takeovers:
            self.run = assigned(run, self.revision)


def test_a_record_says_what_has_happened_and_what_its_leader_wrote() -> None:
    *_, last = Life(takeovers=False).live()
    leaders = pb.RunRecord.FromString(waiting().value)
    assert (last.template, last.run_id, last.due_ns) == (
        leaders.template,
        leaders.run_id,
        leaders.due_ns,
    )
    assert (last.state, last.deliveries, last.failures) == (run_pb2.RUN_STATE_SUCCEEDED, 2, 1)
    assert (last.token, last.completed, last.result_json) == (12, True, "1")
    assert last.cancel.reason == "enough"
    assert [(one.number, one.token, one.state, one.execution_ms) for one in last.attempts] == [
        (1, 10, run_pb2.ATTEMPT_STATE_FAILED, 7),
        (2, 12, run_pb2.ATTEMPT_STATE_SUCCEEDED, 5),
    ]
    assert last.attempts[0].error.kind == "ValueError"
    assert not last.HasField("error")


def test_an_owner_that_takes_over_goes_on_with_the_very_same_records() -> None:
    assert Life(takeovers=True).live() == Life(takeovers=False).live()


def test_whatever_a_newer_leader_writes_stays_in_the_record() -> None:
    value = waiting().value + bytes((0xFA, 0x3F, 1)) + b"x"  # a field that is not known: 1,023
    record, run = RecordReader(1).read(value, 9)
    for _ in range(2):
        run = assign(run, "session", T + SECOND)
        written, _ = records.assign_record(record, run, "anna", T + SECOND)
        assert b"\xfa\x3f\x01x" in written
        record, run = RecordReader(1).read(written, 10)
        run = apply(run, RunEvent.LOSE, T + SECOND)


def test_runs_that_are_handed_out_together_are_written_alike_and_end_each_by_itself() -> None:
    reader, now, ends = RecordReader(1), T + SECOND, []
    for number, session in enumerate(("one", "one", "two")):
        record, run = reader.read(waiting(number).value, 9)
        taken = assign(run, session, now)
        value, held = records.assign_record(record, taken, "anna", now)
        written = pb.RunRecord.FromString(value)
        assert (written.session, written.deliveries, written.not_before_ns) == (
            session,
            1,
            run.not_before,
        )
        (live,) = written.attempts
        assert (live.number, live.session, live.worker) == (1, session, "anna")
        assert live.assign_time_ns == now
        running = assigned(taken, 100 + number)
        done = apply(running, RunEvent.SUCCEED, now + number)
        value, _ = records.end_attempt_record(held, done, running.token, SUCCEEDED, now + number)
        ends.append(pb.RunRecord.FromString(value))
    assert [len(end.attempts) for end in ends] == [1, 1, 1]
    assert [end.attempts[0].token for end in ends] == [100, 101, 102]
    assert [end.attempts[0].end_time_ns - now for end in ends] == [0, 1, 2]


def test_a_run_that_succeeds_at_once_is_written_with_all_that_is_known_of_it() -> None:
    now, token = T + SECOND, 123_456_789_012
    record, run = RecordReader(1).read(waiting().value, 9)
    taken = assign(run, "session", now)
    _, held = records.assign_record(record, taken, "anna", now)
    begun = apply(assigned(taken, token), RunEvent.START, now)
    done = apply(begun, RunEvent.SUCCEED, now + 5)
    end = AttemptEnd(run_pb2.ATTEMPT_STATE_SUCCEEDED, started_at=now + 3)
    value, _ = records.end_attempt_record(held, done, token, end, now + 5)
    written = pb.RunRecord.FromString(value)
    assert (written.state, written.deliveries, written.failures) == (
        run_pb2.RUN_STATE_SUCCEEDED,
        1,
        0,
    )
    assert (written.token, written.session, written.end_time_ns) == (token, "session", now + 5)
    assert (written.started, written.completed, written.deadline_passed) == (True, True, False)
    assert written.not_before_ns == run.not_before
    (attempt,) = written.attempts
    assert (attempt.number, attempt.token, attempt.session, attempt.worker) == (
        1,
        token,
        "session",
        "anna",
    )
    assert attempt.state == run_pb2.ATTEMPT_STATE_SUCCEEDED
    assert (attempt.assign_time_ns, attempt.start_time_ns, attempt.end_time_ns) == (
        now,
        now + 3,
        now + 5,
    )


def test_a_run_that_succeeds_although_its_deadline_had_passed_says_so() -> None:
    now = T + 3_600 * SECOND
    record, run = RecordReader(1).read(waiting(deadline=Duration(seconds=10)).value, 9)
    taken = assign(run, "session", now)
    _, held = records.assign_record(record, taken, "anna", now)
    overdue = apply(assigned(taken, 7), RunEvent.DEADLINE, now)
    _, held = records.move_record(held, overdue)
    done = apply(overdue, RunEvent.SUCCEED, now + 5)
    value, _ = records.end_attempt_record(held, done, 7, SUCCEEDED, now + 5)
    written = pb.RunRecord.FromString(value)
    assert (written.state, written.deadline_passed) == (run_pb2.RUN_STATE_SUCCEEDED, True)
    assert [(one.number, one.token) for one in written.attempts] == [(1, 7)]

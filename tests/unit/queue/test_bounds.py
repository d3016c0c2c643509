"""What is bounded: a record, answers to a worker that does not read, notices to a leader."""

from unit.queue.lines import T, entry_of, waiting
from unit.queue.shop import Shop

from sexton.errors import Overloaded
from sexton.v1 import job_pb2, run_pb2
from sexton_core.instants import SECOND
from sexton_core.runs import apply, assign, assigned
from sexton_core.words import RunEvent, RunState
from sexton_queue import _wire, records
from sexton_queue.records import AttemptEnd, SessionRecord
from sexton_queue.sessions import SessionTimes
from sexton_queue.streams import Assigned, LeaderStream, Ref, Settled, WorkerStream

KIB = 1024


def test_a_record_stays_below_what_a_value_takes_however_often_its_run_fails_loudly() -> None:
    retry = job_pb2.Retry(max_attempts=1_000, max_deliveries=1_000)
    command = job_pb2.ShellTask(command="x" * 32 * KIB)
    entry = entry_of(waiting(retry=retry, task=job_pb2.Task(shell=command)))
    run, record = entry.run, entry.record
    loud = AttemptEnd(
        run_pb2.ATTEMPT_STATE_FAILED,
        error=run_pb2.RunError(kind="k" * 200, message="m" * 4 * KIB, detail="d" * 16 * KIB),
        output_tail="o" * 16 * KIB,
    )
    now = T + SECOND
    for attempt in range(60):
        now += 1_000 * SECOND
        run = assign(run, "session", now)
        _, record = records.assign_record(record, run, "worker", now)
        run = assigned(run, 100 + attempt)
        failed = apply(run, RunEvent.FAIL, now)
        value, record = records.end_attempt_record(record, failed, run.token, loud, now)
        run = failed
        assert len(value) < 700 * KIB
    attempts = records.RunRecord.FromString(value).attempts
    assert [attempt.number for attempt in attempts] == [1, *range(41, 61)]
    assert attempts[-1].output_tail == loud.output_tail


def test_sessions_that_take_much_are_written_by_several_commits() -> None:
    shop = Shop()
    for number in range(3):
        record = SessionRecord(worker="w" * 700 * KIB, queues=["default"], slots=1)
        stream = WorkerStream(lambda: None)
        shop.machine.roster.hello("", record, (), stream, shop.now, new_id=f"s{number}")
    assert len(shop.machine.decide(shop.now)) == 2


def test_a_worker_that_reads_no_answers_is_cut() -> None:
    stream = WorkerStream(lambda: None)
    for number in range(20_001):
        stream.answer(Ref(b"handle", number), RunState.SUCCEEDED, accepted=True)
    assert isinstance(stream.error, Overloaded)


def test_of_too_many_notices_the_oldest_are_dropped() -> None:
    stream = LeaderStream(lambda: None, 0, 1)
    for number in range(20_005):
        stream.notify(Settled(b"%d" % number, "uid", RunState.SUCCEEDED))
    assert len(stream.settled) == 20_000
    assert stream.settled[0].handle == b"5"


def test_the_notice_of_an_end_brings_the_record_where_it_was_asked_for_and_is_small() -> None:
    for asked, size, brings in ((True, 100, True), (False, 100, False), (True, 17 * KIB, False)):
        shop, stream = Shop(), LeaderStream(lambda: None, 0, 1)
        shop.machine.table.follow(stream)
        entry = entry_of(waiting())
        entry.tells_record = asked
        shop.machine.table.forget(entry, 7, b"r" * size)
        (response,) = _wire.push_responses(stream)
        (notice,) = response.settled
        assert notice.handle == entry.key
        assert (notice.record, notice.revision) == ((b"r" * size, 7) if brings else (b"", 0))


def test_where_many_notices_wait_they_bring_no_records() -> None:
    stream = LeaderStream(lambda: None, 0, 1)
    for number in range(1_000):
        stream.notify(Settled(b"%d" % number, "uid", RunState.SUCCEEDED, b"r" * 16 * KIB, 7))
    responses = list(_wire.push_responses(stream))
    told = [notice for response in responses for notice in response.settled]
    assert [bool(notice.record) for notice in told] == [True] * 501 + [False] * 499
    assert [bool(notice.revision) for notice in told] == [True] * 501 + [False] * 499
    assert all(response.ByteSize() < 4 * KIB * KIB for response in responses)


def test_large_assignments_go_in_several_messages_and_stops_after_them() -> None:
    command = job_pb2.ShellTask(command="x" * 32 * KIB)
    entry = entry_of(waiting(task=job_pb2.Task(shell=command)))
    stream = WorkerStream(lambda: None)
    stream.session = "session"
    for number in range(1, 201):
        ref = Ref(entry.key, number)
        stream.assignments.append(Assigned(ref, 1, entry.record.origin, SECOND, 0, 0))
    stream.stop(Ref(entry.key, 200), "enough", terminate=False)
    responses = list(_wire.pull_responses(stream, 7, SessionTimes(), 0))
    assert [len(response.cancellations) for response in responses[:-1]] == [0] * (
        len(responses) - 1
    )
    assert sum(len(response.assignments) for response in responses) == 200
    assert len(responses[-1].cancellations) == 1
    assert max(response.ByteSize() for response in responses) < 2.2 * 1024 * KIB

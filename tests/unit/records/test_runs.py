"""A run means the same in its record and in the core, through every step of its life."""

from hypothesis import given
from hypothesis import strategies as st

from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import job_pb2, run_pb2
from sexton_core.instants import SECOND
from sexton_core.policy.state import Handle, NewRun
from sexton_core.runs import machine
from sexton_core.schedules import JobIdentity, ScheduleCache
from sexton_core.words import Origin, Reason, RunEvent, RunState
from sexton_records import runs, spec

UID = "abcdefghijklmnopqrstuvwx"
RUN_ID = "t20261129T030000Z-abcdefgh"
RUN_IDS = st.sampled_from([RUN_ID, "m20261129T030000Z-abcdefghijklmnop"])
INSTANTS = st.sampled_from([0, 1, 127, 128, 2**56 - 1, 2**56]) | st.integers(0, 2**63 - 1)
NOMINAL = 1_795_921_200 * SECOND


def fresh_record() -> pb.RunRecord:
    job_spec = job_pb2.JobSpec(task=job_pb2.Task(shell=job_pb2.ShellTask(command="true")))
    identity = JobIdentity(namespace="default", name="nightly", uid=UID)
    definition = spec.decode_definition(job_spec, 1, identity, ScheduleCache())
    template = spec.run_template("default", "nightly", UID, job_spec, definition)
    new = NewRun(
        Handle(RUN_ID, "default", 0, NOMINAL), Origin.SCHEDULE, NOMINAL, NOMINAL, 1, Reason.ON_TIME
    )
    shared = pb.RunRecord(template=template).SerializeToString()
    return pb.RunRecord.FromString(shared + runs.new_record(new, NOMINAL, "").SerializeToString())


def test_a_template_and_a_run_concatenated_are_one_record() -> None:
    record = fresh_record()
    assert record.template.job == "nightly"
    assert record.run_id == RUN_ID
    assert runs.handle_in(record) == Handle(RUN_ID, "default", 0, NOMINAL)
    assert runs.run_name(record) == f"namespaces/default/jobs/nightly/runs/{RUN_ID}"


@given(
    RUN_IDS,
    st.sampled_from(Origin),
    st.lists(INSTANTS, min_size=4, max_size=4),
    st.sampled_from(Reason),
    st.sampled_from(["", RUN_ID]),
    st.sampled_from(["", "00-" + "1" * 32 + "-" + "2" * 16 + "-01"]),
)
def test_a_new_run_is_written_as_its_message_would_be(
    run_id: str, origin: Origin, times: list[int], reason: Reason, retry_of: str, trace: str
) -> None:
    nominal, due, not_before, now = times
    new = NewRun(
        Handle(run_id, "default", 0, not_before), origin, nominal, due, 1, reason, retry_of
    )
    assert runs.encode_new(new, now, trace) == runs.new_record(new, now, trace).SerializeToString()


def written(record: pb.RunRecord, run: machine.Run) -> pb.RunRecord:
    """The record after its owner has written this run behind what is there."""
    part = runs.owner_part(run, record.not_before_ns)
    return pb.RunRecord.FromString(record.SerializeToString() + part.SerializeToString())


def test_the_token_of_an_assignment_is_its_revision_and_survives_a_later_write() -> None:
    leaders = fresh_record()
    run = machine.assign(runs.decode_run(leaders, 10), "session-1", NOMINAL)
    record = written(leaders, run)
    assert record.token == 0
    read = runs.decode_run(record, 11)
    assert (read.state, read.token) == (RunState.RUNNING, 11)

    record = written(leaders, machine.apply(read, RunEvent.CANCEL, NOMINAL))
    read = runs.decode_run(record, 25)
    assert (read.state, read.token) == (RunState.CANCELLING, 11)


def test_an_ended_run_keeps_the_token_that_ended_it() -> None:
    leaders = fresh_record()
    record = written(leaders, machine.assign(runs.decode_run(leaders, 10), "s", NOMINAL))
    ended = machine.apply(runs.decode_run(record, 11), RunEvent.SUCCEED, NOMINAL + SECOND)
    read = runs.decode_run(written(leaders, ended), 12)
    assert (read.state, read.token, read.ended_at) == (RunState.SUCCEEDED, 11, NOMINAL + SECOND)


def test_lists_leave_out_what_is_large() -> None:
    record = fresh_record()
    record.result_json = '{"rows": 3}'
    record.error.kind, record.error.detail = "ValueError", "a traceback"
    basic = runs.run_message(record, 10, full=False)
    full = runs.run_message(record, 10, full=True)
    assert (basic.result_json, basic.error.detail, basic.HasField("task")) == ("", "", False)
    assert (full.result_json, full.error.detail) == ('{"rows": 3}', "a traceback")
    assert full.task.shell.command == "true"
    assert basic.error.kind == "ValueError"


def test_every_state_has_its_value_on_the_wire() -> None:
    assert set(runs.STATES) == set(RunState)
    assert len(set(runs.STATES.values())) == len(RunState)
    assert run_pb2.RUN_STATE_UNSPECIFIED not in runs.STATES.values()

"""What one look at a job writes and compares."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from sexton.internal.v1 import coordinator_pb2
from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import backfill_pb2, job_pb2, run_pb2
from sexton_coordinator.jobs_store import JobRef, LoadedJob, Version
from sexton_coordinator.leader.machine import StopFill, Trigger
from sexton_coordinator.leader.steps import ROOM_OPS, OversizedError, Planner, Step
from sexton_coordinator.templates import Template
from sexton_coordinator.writes import JobName
from sexton_core.policy import AHEAD_NS, Job, create, decide
from sexton_core.schedules import JobIdentity, ScheduleCache
from sexton_records.spec import decode_definition
from sexton_runtime.kv.types import Compare, Delete, KeyValue, Limits, Put, Target
from sexton_store.contract import LIMITS

NAME = JobName("default", "job", "abcdefghijklmnopqrstuvwx", 0)
S = 1_000_000_000
T0 = 1_796_083_200 * S
TRACE = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"


def job(command: str = "true", **fields: Any) -> LoadedJob:
    """A job created at T0 that asks for every tenth second."""
    task = job_pb2.Task(shell=job_pb2.ShellTask(command=command))
    schedules = [job_pb2.Schedule(every=job_pb2.Every(period=Duration(seconds=10)))]
    given: dict[str, Any] = {"task": task, "schedules": schedules} | fields
    spec = job_pb2.JobSpec(**given)
    identity = JobIdentity(namespace="default", name="job", uid=NAME.uid, since=T0)
    definition = decode_definition(spec, 1, identity, ScheduleCache())
    version = Version(Template((1, b""), spec, definition))
    core = Job(
        namespace="default",
        name="job",
        uid=NAME.uid,
        created_at=T0,
        definitions=(version.definition,),
    )
    change = create(core, T0)
    record = pb.JobRecord(uid=NAME.uid, version=1, spec=spec)
    return LoadedJob(NAME, core, change.state, 7, change.next_due, record, 7, {1: version}, b"")


def planner(limits: Limits = LIMITS) -> Planner:
    return Planner(coordinator_shards=1, queue_shards=1, limits=limits, traceparent=lambda _: TRACE)


def plan(loaded: LoadedJob, now: int, ended: set[str] | None = None) -> Step:
    return planner().plan(loaded, now, ended or set())


def test_a_fire_is_one_transaction_of_run_state_and_timer() -> None:
    step = plan(job(), T0 + 10 * S)
    assert step.txn is not None
    handle = b"active/000/default/100/01796083210000000000/%s/t20261201T000010Z-abcdefgh"
    handle %= NAME.uid.encode()
    assert step.txn.compares == (
        Compare(NAME.state_key, Target.MOD_REVISION, 7),
        Compare(handle, Target.MOD_REVISION, 0),
    )
    assert [(type(op), op.key) for op in step.txn.then] == [
        (Put, handle),
        (Put, NAME.state_key),
        (Put, b"timers/000/01796083220000000000/" + NAME.uid.encode()),
        (Delete, b"timers/000/01796083210000000000/" + NAME.uid.encode()),
    ]
    assert step.txn.not_before_ns == T0 + 10 * S
    (created,) = step.created
    record = pb.RunRecord.FromString(created.record)
    assert record.traceparent == TRACE
    assert record.template.task.shell.command == "true"
    assert record.state == run_pb2.RUN_STATE_WAITING


def test_before_its_time_nothing_is_written() -> None:
    step = plan(job(), T0 + 9 * S)
    assert step.txn is None
    assert step.verdict.next_due == T0 + 10 * S


def test_a_start_that_is_written_ahead_is_what_is_decided_when_it_is_due() -> None:
    loaded, due = job(), T0 + 10 * S
    step, expected = planner().plan_ahead(loaded, due - AHEAD_NS, set()), plan(loaded, due)
    assert step is not None
    assert step.verdict == expected.verdict
    assert step.txn is not None
    assert expected.txn is not None
    assert step.txn.not_before_ns == due - AHEAD_NS
    assert step.txn.compares == expected.txn.compares
    assert step.txn.then[1:] == expected.txn.then[1:]
    record = pb.RunRecord.FromString(step.created[0].record)
    assert record.create_time_ns == due - AHEAD_NS
    assert record.not_before_ns == record.due_ns == due
    record.create_time_ns = due
    assert record == pb.RunRecord.FromString(expected.created[0].record)
    assert step.after(8) == expected.after(8)


@pytest.mark.parametrize("timer", [None, T0 + 5 * S, T0 + 10 * S, T0 + 12 * S])
@pytest.mark.parametrize("seconds", [15, 25])
def test_a_start_alone_is_one_step_whichever_way_it_is_made(
    timer: int | None, seconds: int
) -> None:
    ends = Timestamp(seconds=T0 // S + seconds)
    every = job_pb2.Every(period=Duration(seconds=10))
    schedule = job_pb2.Schedule(every=every, end_time=ends)
    loaded = job(schedules=[schedule])._replace(timer=timer)
    now, made = T0 + 12 * S, planner()
    verdict = decide(loaded.job, loaded.state, now)
    assert verdict.is_one_start
    assert made._start_step(loaded, verdict, now) == made._step(loaded, verdict, now)
    assert made.plan(loaded, now, set()) == made._step(loaded, verdict, now)


def test_what_is_too_large_is_not_written_ahead() -> None:
    small = planner(LIMITS._replace(max_txn_bytes=100 * LIMITS.max_key_bytes // 10))
    with pytest.raises(OversizedError):
        small.plan_ahead(job("x" * 9_000), T0 + 10 * S - AHEAD_NS, set())


def test_a_skip_rests_on_the_run_that_is_live_and_is_never_early() -> None:
    first = plan(job(), T0 + 10 * S)
    second = plan(first.after(8), T0 + 20 * S)
    assert second.txn is not None
    assert second.requires == {1: "t20261201T000010Z-abcdefgh"}
    assert second.txn.compares == (
        Compare(NAME.state_key, Target.MOD_REVISION, 8),
        Compare(first.created[0].handle, Target.EXISTS, operand=True),
    )
    assert second.created == ()
    assert second.txn.not_before_ns == T0 + 20 * S
    fired = plan(first.after(8), T0 + 20 * S, {"t20261201T000010Z-abcdefgh"})
    assert len(fired.created) == 1


def test_a_timer_that_stands_elsewhere_is_put_where_it_belongs() -> None:
    moved = plan(job()._replace(timer=T0 + 5 * S), T0 + 5 * S)
    assert moved.txn is not None
    assert moved.writes_state
    assert not moved.verdict.changed
    timers = [op for op in moved.txn.then if op.key.startswith(b"timers/")]
    assert [type(op) for op in timers] == [Put, Delete]
    forced = planner().plan(job(), T0 + 5 * S, set(), force=True)
    assert forced.txn is not None
    assert [type(op) for op in forced.txn.then] == [Put, Put]


def test_a_newer_start_asks_for_the_end_of_the_live_run() -> None:
    cancelling = job(overlap=job_pb2.OVERLAP_POLICY_CANCEL_OTHER)
    first = plan(cancelling, T0 + 10 * S)
    second = plan(first.after(8), T0 + 20 * S)
    ((shard, end),) = second.ends
    assert (shard, end.handle) == (0, first.created[0].handle)
    assert end.mode == run_pb2.CANCEL_MODE_CANCEL
    again = plan(second.after(9), T0 + 21 * S)
    assert again.txn is None
    assert again.ends == second.ends  # repeated by every look


@pytest.mark.parametrize("size", [10, 30_000])
def test_a_transaction_never_outgrows_the_store(size: int) -> None:
    catch_up = job_pb2.CatchUp(
        policy=job_pb2.CatchUp.POLICY_ALL, window=Duration(seconds=3_600), max=1_000
    )
    loaded = job("x" * size, overlap=job_pb2.OVERLAP_POLICY_ALLOW_ALL, catch_up=catch_up)
    now = T0 + 3_000 * S
    runs = 0
    for revision in range(8, 100):
        step = plan(loaded, now)
        if step.txn is None:
            break
        assert len(step.txn.compares) + len(step.txn.then) + ROOM_OPS <= LIMITS.max_ops_per_txn
        assert sum(len(op.value) for op in step.txn.then if isinstance(op, Put)) < 2**20
        runs += len(step.created)
        loaded = step.after(revision)
    assert runs == 300
    assert len(loaded.state.live) == 300


def test_what_can_not_be_written_at_all_is_said() -> None:
    with pytest.raises(OversizedError):
        planner(LIMITS._replace(max_txn_bytes=5_000)).plan(job("x" * 9_000), T0 + 10 * S, set())


def kv(key: bytes, value: bytes) -> KeyValue:
    return KeyValue(key, value, 4, 5, 1)


async def test_a_dead_letter_leaves_the_list_in_the_commit_of_the_run_that_repeats_it() -> None:
    dead = b"dead/000/01796083200000000000/%s/t20261201T000000Z-abcdefgh" % NAME.uid.encode()
    request = coordinator_pb2.TriggerRequest(
        namespace="default",
        job="job",
        uid=NAME.uid,
        retry_of="t20261201T000000Z-abcdefgh",
        nominal_ns=T0,
        dead_letter=dead,
    )
    asked = Trigger(
        ref=JobRef(NAME.uid, "default", "job"),
        request=request,
        body=b"",
        dead=kv(dead, b""),
        answer=asyncio.get_running_loop().create_future(),
    )
    step = planner().plan(job(), T0 + 5 * S, set(), asked)
    assert step.txn is not None
    assert step.txn.compares[-1] == Compare(dead, Target.MOD_REVISION, 5)
    assert step.txn.then[-1] == Delete(dead)
    record = pb.RunRecord.FromString(step.created[0].record)
    assert (record.retry_of, record.nominal_ns) == ("t20261201T000000Z-abcdefgh", T0)
    assert not any(op.key.startswith(b"requests/") for op in step.txn.then)
    again = planner().plan(job(), T0 + 7 * S, set(), asked)
    assert again.created[0].handle.rpartition(b"/")[2] == record.run_id.encode()


async def test_a_backfill_can_be_stopped_in_a_full_store() -> None:
    record = pb.BackfillRecord(state=backfill_pb2.BACKFILL_STATE_STARTING, started=3)
    key = b"backfills/000/%s/abcdefghabcdefgh" % NAME.uid.encode()
    asked = StopFill(
        ref=JobRef(NAME.uid, "default", "job"),
        backfill_id="abcdefghabcdefgh",
        standing=kv(key, record.SerializeToString()),
        answer=asyncio.get_running_loop().create_future(),
    )
    step = planner().plan(job(), T0 + 5 * S, set(), asked)
    assert step.txn is not None
    assert step.txn.use_reserve
    assert step.txn.compares == (
        Compare(NAME.state_key, Target.MOD_REVISION, 7),
        Compare(key, Target.MOD_REVISION, 5),
    )
    (put,) = step.txn.then
    assert isinstance(put, Put)
    after = pb.BackfillRecord.FromString(put.value)
    assert (after.state, after.started) == (backfill_pb2.BACKFILL_STATE_CANCELLED, 3)

"""A definition goes to the wire and back without loss."""

from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta, timezone

import pytest

from sexton import (
    At,
    Calendar,
    CalendarInterval,
    CalendarUnit,
    CatchUp,
    CatchUpPolicy,
    Cron,
    DayRule,
    Delivery,
    DstRule,
    Every,
    FromWorker,
    HttpTask,
    JobSpec,
    Overlap,
    PythonTask,
    Retention,
    Retry,
    RRule,
    ShellTask,
    ShortMonth,
)
from sexton._spec_messages import spec_message, spec_of
from sexton.errors import InvalidArgument, Unimplemented
from sexton.v1 import job_pb2

WALL = datetime(2026, 12, 24, 18)  # noqa: DTZ001 - a wall time has no zone
CLOSED = Calendar(
    name="closed",
    dates=(date(2026, 12, 24),),
    ranges=((date(2026, 12, 27), date(2027, 1, 1)),),
    weekdays=("SUN",),
    crons=("* * 1 * *",),
)
FULL = JobSpec(
    task=ShellTask("make", env={"A": "1", "PASSWORD": FromWorker("PW")}, cwd="/srv"),
    schedules=(
        Cron(
            "0 3 * * MON",
            days=DayRule.AND,
            timezone="Europe/Berlin",
            dst=DstRule.SHIFT,
            exclude=(CLOSED,),
            start=datetime(2026, 1, 1, tzinfo=UTC),
            end=datetime(2027, 1, 1, tzinfo=UTC),
            max_runs=9,
            jitter=timedelta(seconds=30),
        ),
        Every(
            timedelta(minutes=5),
            offset=timedelta(seconds=2),
            anchor=datetime(1970, 1, 1, tzinfo=UTC),
            jitter=timedelta(seconds=30),
        ),
        CalendarInterval(
            1,
            CalendarUnit.MONTHS,
            at=time(9, 30),
            anchor=date(2026, 1, 31),
            short_month=ShortMonth.LAST,
            jitter=timedelta(seconds=30),
        ),
        At(
            (WALL, datetime(2026, 12, 25, tzinfo=UTC)),
            jitter=timedelta(seconds=30),
        ),
        RRule("DTSTART:20261201T090000\nRRULE:FREQ=DAILY", jitter=timedelta(seconds=30)),
    ),
    queue="reports",
    priority=-3,
    overlap=Overlap.CANCEL_OTHER,
    max_buffered=7,
    max_live=8,
    catch_up=CatchUp(
        policy=CatchUpPolicy.ALL,
        window=timedelta(hours=2),
        max=5,
        late_after=timedelta(seconds=30),
    ),
    retry=Retry(
        max_attempts=1,
        max_deliveries=6,
        initial_backoff=timedelta(milliseconds=250),
        multiplier=1.5,
        max_backoff=timedelta(minutes=1),
        jitter=0.0,
    ),
    timeout=timedelta(minutes=30),
    deadline=timedelta(hours=6),
    start_within=timedelta(hours=1),
    delivery=Delivery.AT_MOST_ONCE,
    exclusive=True,
    retention=Retention(max_runs=10, max_age=timedelta(days=7)),
    labels={"team": "data"},
    description="all of it",
)


@pytest.mark.parametrize(
    "spec",
    [
        FULL,
        JobSpec(task=ShellTask("x")),
        JobSpec(task=PythonTask("report", {"b": [1, {"c": None}], "a": "ü"})),
        JobSpec(
            task=HttpTask(
                "http://127.0.0.1/x",
                method="PUT",
                headers={"X-Key": FromWorker("KEY"), "A": "b"},
                body="$SEXTON_RUN_ID",
                expect=(200, 404),
            )
        ),
        JobSpec(
            task=ShellTask("x"), schedules=(CalendarInterval(2, CalendarUnit.DAYS, at=time(0)),)
        ),
    ],
    ids=["full", "least", "python", "http", "interval"],
)
def test_nothing_is_lost_on_the_wire(spec):
    message = spec_message(spec)
    assert spec_of(job_pb2.JobSpec.FromString(message.SerializeToString())) == spec
    assert spec_message(spec_of(message)) == message


def test_the_full_example_sets_every_field_of_the_message():
    unset = [
        field.name
        for field in job_pb2.JobSpec.DESCRIPTOR.fields
        if field.name not in {each.name for each, _ in spec_message(FULL).ListFields()}
    ]
    assert unset == []


def test_equal_arguments_in_another_order_are_the_same_definition():
    one = spec_message(JobSpec(task=PythonTask("a", {"x": 1, "y": 2})))
    assert one == spec_message(JobSpec(task=PythonTask("a", {"y": 2, "x": 1})))


def test_an_instant_of_another_offset_is_the_same_instant():
    east = datetime(2026, 12, 24, 20, tzinfo=timezone(timedelta(hours=2)))
    message = spec_message(JobSpec(task=ShellTask("x"), schedules=(At((east,)),)))
    assert list(message.schedules[0].at.times) == ["2026-12-24T18:00:00+00:00"]


def test_what_a_newer_mesh_says_is_named_instead_of_guessed():
    message = spec_message(JobSpec(task=ShellTask("x")))
    message.overlap = 99
    with pytest.raises(Unimplemented, match="answers with 99"):
        spec_of(message)
    with pytest.raises(Unimplemented, match="task"):
        spec_of(job_pb2.JobSpec())


def test_arguments_that_nest_too_deep_are_refused() -> None:
    args: dict[str, object] = {}
    for _ in range(100_000):
        args = {"a": args}
    with pytest.raises(InvalidArgument, match=r"task\.args: 'their nesting' can't be used"):
        spec_message(JobSpec(task=PythonTask("echo", args)))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("task", "make", "spec.task: 'make' can't be used; expected Task"),
        ("schedules", Cron("0 3 * * *"), r"spec.schedules: Cron.* expected "),
        ("schedules", (Every(5),), r"spec.schedules: \(Every.* expected .*timedelta"),
        ("timeout", 30, "spec.timeout: 30 can't be used; expected timedelta"),
        ("priority", 1.5, "spec.priority: 1.5 can't be used; expected int"),
        ("priority", 2**80, "spec.priority: 1208925819614629174706176 can't be used; expected int"),
        ("labels", {"team": 1}, "spec.labels: {'team': 1} can't be used; expected "),
        ("task", HttpTask("http://a", body=object()), "spec.task: HttpTask"),
        ("overlap", "wait", "overlap_policy: 'wait' can't be used; expected one of skip, buffer"),
        ("overlap", None, "overlap_policy: None can't be used; expected one of skip, buffer_one"),
        ("overlap", "unspecified", "overlap_policy: 'unspecified' can't be used; expected one of"),
    ],
)
def test_a_value_of_another_type_is_refused_by_the_name_of_its_field(field, value, message):
    spec = replace(JobSpec(task=ShellTask("x")), **{field: value})
    with pytest.raises(InvalidArgument, match=message):
        spec_message(spec)


def test_a_definition_that_is_none_is_refused():
    with pytest.raises(InvalidArgument, match="spec: 'make' can't be used; expected a JobSpec"):
        spec_message("make")


def test_a_word_may_be_given_as_its_text():
    spec = replace(JobSpec(task=ShellTask("x")), overlap="terminate_other")
    assert spec_message(spec).overlap == job_pb2.OVERLAP_POLICY_TERMINATE_OTHER

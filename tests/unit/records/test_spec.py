"""A definition means the same on the wire, in the store and in the core."""

import pytest

from sexton.internal.v1 import records_pb2
from sexton.v1 import job_pb2 as pb
from sexton_core.errors import FieldError
from sexton_core.schedules import JobIdentity, ScheduleCache
from sexton_records import spec as codec

UID = "abcdefghijklmnopqrstuvwx"
IDENTITY = JobIdentity(namespace="default", name="nightly", uid=UID)
SHELL = pb.Task(shell=pb.ShellTask(command="true"))


def decode(spec: pb.JobSpec) -> codec.Definition:
    return codec.decode_definition(spec, 1, IDENTITY, ScheduleCache())


SPECS = {
    "nothing but a task": pb.JobSpec(task=SHELL),
    "cron": pb.JobSpec(
        task=SHELL,
        schedules=[
            pb.Schedule(
                cron="0 3 * * *",
                time_zone="Europe/Berlin",
                exclude=[
                    pb.Calendar(
                        name="closed",
                        dates=["2026-12-24"],
                        ranges=["2026-12-28..2026-12-31"],
                        weekdays=["SUN"],
                        crons=["* 12 * * *"],
                    )
                ],
            )
        ],
    ),
    "a union of every kind": pb.JobSpec(
        task=SHELL,
        schedules=[
            pb.Schedule(every=pb.Every(period={"seconds": 30})),  # type: ignore[arg-type]
            pb.Schedule(
                calendar_interval=pb.CalendarInterval(
                    count=2,
                    unit=pb.CalendarInterval.UNIT_WEEK,
                    anchor_date="2026-01-05",
                    time_of_day="09:30",
                )
            ),
            pb.Schedule(at=pb.At(times=["2030-01-01T00:00:00Z", "2030-01-02T08:00:00"])),
            pb.Schedule(rrule="DTSTART:20260101T090000\nRRULE:FREQ=DAILY;COUNT=10"),
        ],
    ),
    "every policy": pb.JobSpec(
        task=pb.Task(
            http=pb.HttpTask(
                url="http://127.0.0.1:8080/ping",
                headers={"X-Key": pb.EnvValue(from_worker="KEY")},
                expect=[200, 204],
            )
        ),
        queue="reports",
        priority=5,
        overlap=pb.OVERLAP_POLICY_BUFFER_ALL,
        max_buffered=7,
        max_live=3,
        catch_up=pb.CatchUp(policy=pb.CatchUp.POLICY_ALL, window={"seconds": 3600}, max=5),  # type: ignore[arg-type]
        retry=pb.Retry(max_attempts=5, multiplier=3, jitter=0.0),
        delivery=pb.DELIVERY_AT_LEAST_ONCE,
        exclusive=True,
        labels={"team": "sales"},
        description="what it is for",
    ),
}


@pytest.mark.parametrize("name", SPECS)
def test_writing_a_definition_out_twice_changes_nothing(name: str) -> None:
    spec = SPECS[name]
    first = codec.canonical(spec, decode(spec))
    again = codec.canonical(first, decode(first))
    assert again == first
    assert decode(first).run.retries == decode(spec).run.retries
    assert decode(first).catch_up == decode(spec).catch_up


@pytest.mark.parametrize("name", SPECS)
def test_a_run_has_the_policy_of_its_definition(name: str) -> None:
    definition = decode(SPECS[name])
    template = codec.run_template("default", "nightly", UID, SPECS[name], definition)
    read = records_pb2.RunTemplate.FromString(template.SerializeToString())
    policy = codec.template_policy(read)
    assert (policy.retries, policy.timeout_ns) == (
        definition.run.retries,
        definition.run.timeout_ns,
    )
    assert policy.exclusive == definition.run.exclusive


def test_an_absent_jitter_is_the_default_and_a_zero_is_none() -> None:
    absent = pb.JobSpec(task=SHELL, retry=pb.Retry(max_attempts=2))
    zero = pb.JobSpec(task=SHELL, retry=pb.Retry(max_attempts=2, jitter=0.0))
    assert decode(absent).run.retries.jitter == 0.1
    assert decode(zero).run.retries.jitter == 0.0


REFUSED = {
    "no task": (pb.JobSpec(), "task"),
    "empty command": (pb.JobSpec(task=pb.Task(shell=pb.ShellTask(command=" "))), "task.shell"),
    "NUL in a command": (pb.JobSpec(task=pb.Task(shell=pb.ShellTask(command="a\0b"))), "NUL"),
    "args that are a list": (
        pb.JobSpec(task=pb.Task(python=pb.PythonTask(task="report", args_json="[]"))),
        "task.args",
    ),
    "args with NaN": (
        pb.JobSpec(task=pb.Task(python=pb.PythonTask(task="report", args_json='{"a": NaN}'))),
        "NaN",
    ),
    "args with a key twice": (
        pb.JobSpec(task=pb.Task(python=pb.PythonTask(task="report", args_json='{"a":1,"a":2}'))),
        "twice",
    ),
    "args 100,000 deep": (
        pb.JobSpec(
            task=pb.Task(
                python=pb.PythonTask(task="report", args_json='{"a":' + "[" * 50_000 + "]" * 9)
            )
        ),
        "levels",
    ),
    "a reserved variable": (
        pb.JobSpec(
            task=pb.Task(
                shell=pb.ShellTask(command="x", env={"SEXTON_TOKEN": pb.EnvValue(value="1")})
            )
        ),
        "SEXTON_TOKEN",
    ),
    "a url of another scheme": (
        pb.JobSpec(task=pb.Task(http=pb.HttpTask(url="file:///etc/passwd"))),
        "http or https",
    ),
    "an unknown overlap": (pb.JobSpec(task=SHELL, overlap=77), "overlap"),  # type: ignore[arg-type]
    "a negative priority beyond": (pb.JobSpec(task=SHELL, priority=-101), "priority"),
    "an unknown zone": (
        pb.JobSpec(task=SHELL, schedules=[pb.Schedule(cron="0 3 * * *", time_zone="Mars/Base")]),
        "Mars/Base",
    ),
    "a schedule of no kind": (pb.JobSpec(task=SHELL, schedules=[pb.Schedule()]), "one of cron"),
    "a weekday that is none": (
        pb.JobSpec(
            task=SHELL,
            schedules=[pb.Schedule(cron="0 3 * * *", exclude=[pb.Calendar(weekdays=["SUNNY"])])],
        ),
        "SUNNY",
    ),
    "too many labels": (
        pb.JobSpec(task=SHELL, labels={f"k{n}": "v" for n in range(33)}),
        "at most 32",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_definition_that_cannot_be_used_is_refused_with_what_would_be_right(name: str) -> None:
    spec, said = REFUSED[name]
    with pytest.raises(FieldError, match=said):
        codec.canonical(spec, decode(spec))

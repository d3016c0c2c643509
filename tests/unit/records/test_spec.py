"""A definition means the same on the wire, in the store and in the core."""

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration as WireDuration
from google.protobuf.timestamp_pb2 import Timestamp

from sexton.internal.v1 import records_pb2
from sexton.v1 import job_pb2 as pb
from sexton_core.errors import FieldError
from sexton_core.schedules import JobIdentity, ScheduleCache
from sexton_records import spec as codec

UID = "abcdefghijklmnopqrstuvwx"
IDENTITY = JobIdentity(namespace="default", name="nightly", uid=UID)
SHELL = pb.Task(shell=pb.ShellTask(command="true"))


def with_schedule(**fields: Any) -> pb.JobSpec:
    return pb.JobSpec(task=SHELL, schedules=[pb.Schedule(**fields)])


def interval(**fields: Any) -> pb.JobSpec:
    whole = {"count": 1, "anchor_date": "2026-01-01", "time_of_day": "09:00"} | fields
    day = pb.CalendarInterval.UNIT_DAY
    return with_schedule(calendar_interval=pb.CalendarInterval(unit=day, **whole))


def excluding(**fields: Any) -> pb.JobSpec:
    return with_schedule(cron="0 3 * * *", exclude=[pb.Calendar(**fields)])


def http(**fields: Any) -> pb.JobSpec:
    return pb.JobSpec(task=pb.Task(http=pb.HttpTask(**fields)))


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


@pytest.mark.parametrize("name", SPECS)
def test_a_template_is_put_together_as_its_message_would_be(name: str) -> None:
    definition = decode(SPECS[name])
    whole = codec.run_template("default", "nightly", UID, SPECS[name], definition)
    shared = codec.shared_part(SPECS[name], definition)
    written = codec.encode_template("default", "nightly", UID, shared)
    assert written == records_pb2.RunRecord(template=whole).SerializeToString()


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
    "a reserved header": (
        pb.JobSpec(
            task=pb.Task(
                http=pb.HttpTask(
                    url="http://shop", headers={"idempotency-key": pb.EnvValue(value="1")}
                )
            )
        ),
        "idempotency-key",
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
    "a day of the week of the year": (
        with_schedule(at=pb.At(times=["2026-W01-1T10:00"])),
        "at: '2026-W01-1T10:00'",
    ),
    "half a second on the wall": (
        with_schedule(at=pb.At(times=["2026-01-01T10:00:00.5"])),
        "at: '2026-01-01T10:00:00.500000' can't be used; expected whole seconds",
    ),
    "a wall time without its colon": (interval(time_of_day="0900"), "time_of_day: '0900'"),
    "an hour alone": (interval(time_of_day="09"), "as 09:00"),
    "an anchor by its week": (interval(anchor_date="2026-W01-1"), "anchor_date: '2026-W01-1'"),
    "an excluded date without dashes": (
        excluding(name="closed", dates=["20261224"]),
        "exclude.dates: '20261224'",
    ),
    "a calendar without a name": (excluding(dates=["2026-12-24"]), "exclude.name: ''"),
    "a calendar's name on two lines": (excluding(name="x\ny"), "exclude.name"),
    "an expression of a calendar": (
        excluding(name="closed", crons=["60 * * * *"]),
        "calendar closed: minute: '60'",
    ),
    "day fields beside an interval": (
        with_schedule(every=pb.Every(period=WireDuration(seconds=60)), days=pb.DAY_RULE_AND),
        "only cron has day fields",
    ),
    "an anchor at the end of 64 bits": (
        with_schedule(
            every=pb.Every(
                period=WireDuration(seconds=60), anchor_time=Timestamp(seconds=2**63 - 1)
            )
        ),
        "anchor: .* a time between 1970-01-01 and 2261-12-31",
    ),
    "a start before the epoch": (
        with_schedule(
            every=pb.Every(period=WireDuration(seconds=60)), start_time=Timestamp(seconds=-1)
        ),
        "start: .* a time between 1970",
    ),
    "a duration finer than clients know": (
        pb.JobSpec(task=SHELL, timeout=WireDuration(seconds=1, nanos=1)),
        "timeout: '1s1ns' can't be used; expected whole microseconds",
    ),
    "a label without a key": (pb.JobSpec(task=SHELL, labels={"": "x"}), "at least one"),
    "an endless working directory": (
        pb.JobSpec(task=pb.Task(shell=pb.ShellTask(command="x", cwd="a" * 4_097))),
        "task.cwd: .* at most 4,096",
    ),
    "a port that is none": (http(url="http://a:99999/"), "http or https"),
    "a blank in a url": (http(url="http://a b/"), "without blanks"),
    "a line break in a url": (http(url="http://a/\r\nX: y"), "without blanks"),
    "a header within a header": (
        http(url="http://a/", headers={"X-A": pb.EnvValue(value="a\r\nX-B: c")}),
        "task.http.headers.X-A: .* one line",
    ),
    "args with a number beyond all": (
        pb.JobSpec(task=pb.Task(python=pb.PythonTask(task="report", args_json='{"a":1e999}'))),
        "1e999 is too large",
    ),
    "args with a number beyond 64 bits": (
        pb.JobSpec(task=pb.Task(python=pb.PythonTask(task="a", args_json=f'{{"a":{2**63}}}'))),
        "9223372036854775808 does not fit 64 bits",
    ),
    "args deeper than a file": (
        pb.JobSpec(
            task=pb.Task(python=pb.PythonTask(task="a", args_json='{"a":' * 29 + "1" + "}" * 29))
        ),
        "29 levels",
    ),
    "args with half a character": (
        pb.JobSpec(task=pb.Task(python=pb.PythonTask(task="a", args_json='{"a":"\\ud800"}'))),
        "surrogates not allowed",
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


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (
            pb.Task(python=pb.PythonTask(task="a", args_json='{ "b" : [1, 2.50],\n"a":"\u00fc"}')),
            pb.Task(python=pb.PythonTask(task="a", args_json='{"a":"\\u00fc","b":[1,2.5]}')),
        ),
        (
            pb.Task(python=pb.PythonTask(task="a", args_json="{ }")),
            pb.Task(python=pb.PythonTask(task="a")),
        ),
        (
            pb.Task(http=pb.HttpTask(url="http://a/")),
            pb.Task(http=pb.HttpTask(url="http://a/", method="POST")),
        ),
    ],
)
def test_equal_tasks_are_kept_in_one_form(sent: pb.Task, kept: pb.Task) -> None:
    spec = pb.JobSpec(task=sent)
    assert codec.canonical(spec, decode(spec)).task == kept


def test_what_starts_at_most_once_is_attempted_once_whatever_else_is_said_of_retries() -> None:
    spec = pb.JobSpec(
        task=SHELL, delivery=pb.DELIVERY_AT_MOST_ONCE, retry=pb.Retry(max_deliveries=5)
    )
    run = decode(spec).run
    assert (run.retries.max_attempts, run.max_deliveries) == (1, 5)

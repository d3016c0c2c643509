"""A rehearsal does what a mesh would do, without the waiting."""

from __future__ import annotations

import doctest
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import sexton
import sexton_testing
from sexton import (
    CatchUp,
    CatchUpPolicy,
    Context,
    Cron,
    Delivery,
    Every,
    JobSpec,
    Overlap,
    PythonTask,
    ResumeMode,
    Retry,
    RunState,
    ShellTask,
    effects,
)
from sexton.errors import InvalidArgument, NotFound
from sexton.task import TaskRegistry
from sexton_testing import Passed, Rehearsal

tasks = TaskRegistry()
START = datetime(2030, 1, 1, tzinfo=UTC)
HOURLY = (Every(timedelta(hours=1)),)


@tasks.task
def greet(name: str, context: Context) -> dict[str, str]:
    return {"said": f"hello {name}", "at": context.nominal_time.isoformat()}


@tasks.task
async def greet_later(name: str) -> str:
    return f"hello {name}, later"


@tasks.task
def fail_twice(context: Context) -> str:
    context.logger.info("trying for the %d. time", context.attempt)
    if context.attempt < 3:
        raise RuntimeError("not yet")
    return "at last"


@tasks.task
def refuse() -> None:
    raise sexton.Failure("there is no such customer", for_good=True)


def at(hour: int, minute: int = 0, second: int = 0) -> datetime:
    return START.replace(hour=hour, minute=minute, second=second)


def shell(**fields: object) -> JobSpec:
    return JobSpec(task=ShellTask("true"), schedules=HOURLY, **fields)


@pytest.fixture
def rehearsal() -> Rehearsal:
    return Rehearsal(START, tasks=tasks)


def nominal(rehearsal: Rehearsal, job: str, *states: RunState) -> list[int]:
    return [run.nominal_time.hour for run in rehearsal.runs(job, states=states)]


def test_the_page_about_tests_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[3] / "docs" / "testing.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (file,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "jobs.yaml").write_text(file)
    names: dict[str, Any] = {"__name__": "example"}
    for block in blocks:
        exec(compile(block, "docs/testing.md", "exec"), names)
    ran = [test(Rehearsal()) for name, test in names.items() if name.startswith("test_")]
    assert len(ran) == 4


def test_the_example_of_the_package_does_what_it_shows() -> None:
    assert doctest.testmod(sexton_testing).failed == 0


def test_python_tasks_are_called_with_what_a_worker_would_tell_them(rehearsal) -> None:
    task = PythonTask("greet", {"name": "ada"})
    rehearsal.apply({"greet": JobSpec(task=task, schedules=HOURLY)})
    rehearsal.advance(hours=2)
    assert [run.result for run in rehearsal.runs("greet")] == [
        {"said": "hello ada", "at": "2030-01-01T01:00:00+00:00"},
        {"said": "hello ada", "at": "2030-01-01T02:00:00+00:00"},
    ]
    assert rehearsal.now == at(2)
    assert rehearsal.next_time("greet") == at(3)
    with pytest.raises(LookupError):  # the context was the attempt's alone
        sexton.current_context()


async def test_coroutines_too_also_where_the_test_has_a_loop(rehearsal) -> None:
    rehearsal.apply({"greet": JobSpec(task=PythonTask("greet-later", {"name": "ada"}))})
    assert rehearsal.trigger("greet").run.result == "hello ada, later"


def test_a_failure_is_retried_after_its_backoff(rehearsal) -> None:
    retry = Retry(max_attempts=3, initial_backoff=timedelta(minutes=1), jitter=0.0)
    rehearsal.apply({"flaky": JobSpec(task=PythonTask("fail-twice"), retry=retry)})
    rehearsal.trigger("flaky")
    assert rehearsal.runs("flaky")[0].state is RunState.RETRYING
    rehearsal.advance(minutes=10)
    (run,) = rehearsal.runs("flaky")
    assert (run.state, run.result, run.failures) == (RunState.SUCCEEDED, "at last", 2)
    assert [attempt.start_time.minute for attempt in run.attempts] == [0, 1, 3]
    assert run.attempts[0].error.message == "not yet"
    assert run.attempts[0].output_tail == "INFO trying for the 1. time\n"
    assert [attempt.token for attempt in run.attempts] == [1, 2, 3]


def test_a_failure_for_good_is_not(rehearsal) -> None:
    rehearsal.apply({"refuse": JobSpec(task=PythonTask("refuse"))})
    rehearsal.trigger("refuse")
    (run,) = rehearsal.runs()
    assert (run.state, run.error.message) == (RunState.FAILED, "there is no such customer")
    assert len(run.attempts) == 1


def test_a_task_that_nobody_registered_says_so(rehearsal) -> None:
    rehearsal.apply({"typo": JobSpec(task=PythonTask("gret"), retry=Retry(max_attempts=1))})
    rehearsal.trigger("typo")
    assert rehearsal.runs("typo")[0].error.message.startswith("no task 'gret' is registered")


def test_a_run_that_takes_long_meets_the_next_one(rehearsal) -> None:
    long = timedelta(hours=2)
    rehearsal.apply(
        {"skips": shell(timeout=long), "waits": shell(timeout=long, overlap=Overlap.BUFFER_ONE)}
    )
    for job in ("skips", "waits"):
        rehearsal.stub(job, takes=timedelta(minutes=90))
    rehearsal.advance(hours=5)
    assert nominal(rehearsal, "skips") == [1, 3, 5]
    assert rehearsal.not_run("skips")[0] == Passed(
        decision="skipped", reason="overlap", first=at(2), last=at(2), times=1
    )
    assert [(run.nominal_time, run.create_time) for run in rehearsal.runs("waits")] == [
        (at(1), at(1)), (at(2), at(2, 30)), (at(3), at(4)),
    ]  # fmt: skip


def test_an_overlap_that_cancels_ends_the_run_before(rehearsal) -> None:
    rehearsal.apply({"fresh": shell(overlap=Overlap.CANCEL_OTHER)})
    rehearsal.stub("fresh", takes=timedelta(hours=10))
    rehearsal.advance(hours=3)
    states = [run.state for run in rehearsal.runs("fresh")]
    assert states == [RunState.CANCELLED, RunState.CANCELLED, RunState.RUNNING]
    assert rehearsal.runs("fresh")[0].end_time == at(2)


def test_what_falls_into_an_outage_is_caught_up(rehearsal) -> None:
    every = CatchUp(policy=CatchUpPolicy.ALL, window=timedelta(days=1))
    rehearsal.apply({"latest": shell(), "all": shell(catch_up=every, overlap=Overlap.ALLOW_ALL)})
    rehearsal.outage(hours=5, minutes=30)
    assert nominal(rehearsal, "latest") == [5]
    assert nominal(rehearsal, "all") == [1, 2, 3, 4, 5]
    assert [(each.decision, each.times) for each in rehearsal.not_run("latest")] == [("missed", 4)]


def test_a_run_goes_on_through_an_outage_and_its_retry_waits(rehearsal) -> None:
    rehearsal.apply({"job": JobSpec(task=ShellTask("true"), retry=Retry(max_attempts=2))})
    rehearsal.stub("job", lambda context: 1 / (context.attempt - 1), takes=timedelta(hours=1))
    rehearsal.trigger("job")
    rehearsal.outage(hours=2)
    (run,) = rehearsal.runs("job")
    assert (run.attempts[0].end_time, run.attempts[1].start_time) == (at(1), at(2))
    rehearsal.advance(hours=1)
    assert rehearsal.runs("job")[0].state is RunState.SUCCEEDED


def test_time_outs_and_deadlines(rehearsal) -> None:
    rehearsal.apply(
        {
            "slow": JobSpec(
                task=ShellTask("sleep 999"),
                timeout=timedelta(minutes=5),
                retry=Retry(max_attempts=1),
            ),
            "late": JobSpec(task=ShellTask("sleep 999"), deadline=timedelta(minutes=1)),
        }
    )
    for job in ("slow", "late"):
        rehearsal.stub(job, takes=timedelta(hours=1))
        rehearsal.trigger(job)
    rehearsal.advance(hours=1)
    slow, late = rehearsal.runs("slow")[0], rehearsal.runs("late")[0]
    assert (slow.state, slow.end_time) == (RunState.TIMED_OUT, at(0, 5))
    assert slow.error.message == "it took longer than 0:05:00"
    assert (late.state, late.end_time) == (RunState.TIMED_OUT, at(0, 1))


def test_pause_resume_edit_delete_and_create_again(rehearsal) -> None:
    rehearsal.apply({"job": shell()})
    rehearsal.pause("job")
    rehearsal.advance(hours=3)
    assert rehearsal.next_time("job") is None
    rehearsal.resume("job", ResumeMode.NOW)
    assert nominal(rehearsal, "job") == [3]
    rehearsal.apply({"job": JobSpec(task=ShellTask("true"), schedules=(Cron("30 * * * *"),))})
    assert rehearsal.next_time("job") == at(3, 30)
    rehearsal.advance(hours=1)
    assert [run.job_version for run in rehearsal.runs("job")] == [1, 2]
    rehearsal.delete("job")
    rehearsal.advance(hours=10)
    assert len(rehearsal.runs("job")) == 2
    rehearsal.apply({"job": shell()})
    rehearsal.advance(hours=1)
    assert len(rehearsal.runs("job")) == 3


def test_applying_the_same_again_changes_nothing(rehearsal) -> None:
    rehearsal.apply({"job": shell()})
    rehearsal.apply({"job": shell()})
    rehearsal.advance(hours=1)
    assert rehearsal.runs("job")[0].job_version == 1


def test_a_trigger_goes_through_the_gate(rehearsal) -> None:
    rehearsal.apply({"job": shell()})
    rehearsal.stub("job", takes=timedelta(minutes=5))
    assert rehearsal.trigger("job").run.state is RunState.RUNNING
    refused = rehearsal.trigger("job")
    assert (refused.run, refused.decision, refused.reason) == (None, "skipped", "overlap")
    assert rehearsal.trigger("job", overlap=Overlap.ALLOW_ALL).run is not None
    rehearsal.cancel(rehearsal.runs("job")[0])
    assert rehearsal.runs("job")[0].state is RunState.CANCELLED


def test_an_effect_can_be_seen_to_happen_once(rehearsal, tmp_path: Path) -> None:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(tmp_path / "shop.db")

    with closing(connect()) as shop:
        shop.execute("CREATE TABLE bookings (run TEXT)")
        effects.create_table(shop)

    def book(context: Context) -> str:
        with closing(connect()) as shop:

            def booking() -> str:
                shop.execute("INSERT INTO bookings VALUES (?)", [context.run_id])
                return "booked"

            return effects.once(shop, context, booking)

    rehearsal.apply({"book": shell()})
    rehearsal.stub("book", book)
    rehearsal.advance(hours=2)
    assert rehearsal.redeliver(rehearsal.runs("book")[0]) == "booked"
    with closing(connect()) as shop:
        assert shop.execute("SELECT count(*) FROM bookings").fetchone() == (2,)


def test_a_job_file_is_rehearsed_as_it_stands(rehearsal, tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(
        "jobs:\n"
        "  - name: dump\n"
        '    schedule: {cron: "30 2 * * *", timezone: Europe/Berlin}\n'
        "    task: {shell: ./dump}\n"
    )
    rehearsal.apply(file)
    rehearsal.until("2030-01-03T12:00:00Z")
    assert [run.nominal_time.isoformat() for run in rehearsal.runs("dump")] == [
        "2030-01-01T01:30:00+00:00",
        "2030-01-02T01:30:00+00:00",
        "2030-01-03T01:30:00+00:00",
    ]


def test_a_year_of_days_takes_no_time_to_speak_of(rehearsal) -> None:
    rehearsal.apply({"daily": JobSpec(task=ShellTask("true"), schedules=(Cron("0 3 * * *"),))})
    rehearsal.advance(days=365)
    assert len(rehearsal.runs("daily", states=[RunState.SUCCEEDED])) == 365


def test_at_most_once_is_never_retried(rehearsal) -> None:
    rehearsal.apply(
        {"once": JobSpec(task=PythonTask("fail-twice"), delivery=Delivery.AT_MOST_ONCE)}
    )
    rehearsal.trigger("once")
    assert rehearsal.runs("once")[0].state is RunState.FAILED


def test_what_can_not_be_used_is_refused_with_what_would_be_right(rehearsal) -> None:
    with pytest.raises(InvalidArgument, match="an aware datetime"):
        Rehearsal(datetime(2030, 1, 1))  # noqa: DTZ001 - that is the point
    with pytest.raises(InvalidArgument, match="expected"):
        Rehearsal("yesterday")
    with pytest.raises(InvalidArgument, match="61"):
        rehearsal.apply({"a": JobSpec(task=ShellTask("x"), schedules=(Cron("61 * * * *"),))})
    with pytest.raises(NotFound, match="default/nothing"):
        rehearsal.trigger("nothing")


@pytest.mark.parametrize("hours", [-1, float("nan"), float("inf"), 1e30])
def test_time_passes_forwards_only(rehearsal, hours: float) -> None:
    for passes in (rehearsal.advance, rehearsal.outage):
        with pytest.raises(InvalidArgument, match=r"duration: .* can't be used"):
            passes(hours=hours)
    assert rehearsal.now == START


def test_no_attempt_takes_less_than_no_time(rehearsal) -> None:
    with pytest.raises(InvalidArgument, match=r"takes: .* expected 0 or more"):
        rehearsal.stub("dump", takes=timedelta(seconds=-1))


def test_a_misspelt_job_is_not_taken_for_one_without_runs(rehearsal) -> None:
    rehearsal.apply({"dump": JobSpec(task=ShellTask("x"))})
    assert rehearsal.runs("dump") == []
    with pytest.raises(NotFound, match="default/dmup"):
        rehearsal.runs("dmup")


def test_tasks_that_are_no_registry_are_refused_at_once() -> None:
    with pytest.raises(InvalidArgument, match=r"tasks: .* expected a TaskRegistry"):
        Rehearsal(tasks=[greet])


def test_a_run_is_named_as_anywhere(rehearsal) -> None:
    rehearsal.apply({"dump": JobSpec(task=ShellTask("x"))})
    rehearsal.stub("dump", takes=timedelta(minutes=5))
    run = rehearsal.trigger("dump").run
    assert rehearsal.redeliver(f"dump/{run.id}") is None
    rehearsal.cancel(run.full_name)
    assert rehearsal.runs("dump")[0].state is RunState.CANCELLED
    with pytest.raises(NotFound, match="default/dump/nothing"):
        rehearsal.cancel("dump/nothing")

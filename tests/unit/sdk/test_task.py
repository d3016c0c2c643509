"""Functions that jobs may name, and what they are told about their run."""

import logging
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta

import pytest

import sexton
from sexton.context import set_context
from sexton.task import Isolation, TaskRegistry


@pytest.fixture(name="tasks")
def _tasks():
    return TaskRegistry()


def context(**changes):
    """Gives a context as a worker would; `changes` replace its fields."""
    cancelled = threading.Event()
    fields = {
        "namespace": "default",
        "job": "report",
        "run_id": "t20261129T020000Z-abcdefgh",
        "nominal_time": datetime(2026, 11, 29, 2, tzinfo=UTC),
        "attempt": 2,
        "token": 12,
        "traceparent": "",
        "logger": logging.getLogger("test"),
        "_remaining_s": lambda: 1.5,
        "_cancelled": cancelled,
        "_report": lambda fraction, message: None,
    }
    return sexton.Context(**(fields | changes))


def test_a_function_is_registered_under_its_name_and_stays_itself(tasks):
    @tasks.task
    def weekly_report(team):
        return team

    assert weekly_report("sales") == "sales"
    assert tasks.get("weekly-report").function is weekly_report
    assert [task.name for task in tasks] == ["weekly-report"]
    assert tasks.get("another") is None


def test_a_name_can_be_chosen(tasks):
    @tasks.task("send-reminders")
    async def send():
        pass

    assert (tasks.get("send-reminders").isolation, len(tasks)) == (Isolation.ASYNC, 1)


def test_what_is_not_asynchronous_runs_in_a_thread_unless_it_asks_for_a_process(tasks):
    tasks.task("a")(lambda: None)
    tasks.task("b", isolation="process")(lambda: None)
    assert [task.isolation for task in tasks] == [Isolation.THREAD, Isolation.PROCESS]


@pytest.mark.parametrize("name", ["", "A", "a_b", "-a", "a-", "a b", "a" * 64, "../x"])
def test_a_name_that_no_job_could_use_is_refused(tasks, name):
    with pytest.raises(ValueError, match="can't be used"):
        tasks.task(name)(lambda: None)


def test_two_functions_can_not_have_one_name_but_a_module_may_be_loaded_again(tasks):
    def one():
        pass

    def another():
        pass

    tasks.task("a")(one)
    tasks.task("a")(one)
    with pytest.raises(ValueError, match=r"'a' is registered already, by .*one"):
        tasks.task("a")(another)


def test_an_isolation_that_does_not_fit_is_refused(tasks):
    async def asynchronous():
        pass

    with pytest.raises(ValueError, match="can't be thread"):
        tasks.task("a", isolation="thread")(asynchronous)
    with pytest.raises(ValueError, match="can't be async"):
        tasks.task("a", isolation="async")(lambda: None)
    with pytest.raises(ValueError, match="fiber"):
        tasks.task("a", isolation="fiber")(lambda: None)


def test_arguments_that_do_not_fit_are_known_before_the_function_is_called(tasks):
    @tasks.task("a")
    def work(team, context: sexton.Context, *, fast=False):
        pass

    task = tasks.get("a")
    assert task.context_parameter == "context"
    task.bind({"team": "sales", "fast": True})
    with pytest.raises(TypeError, match="team"):
        task.bind({})
    with pytest.raises(TypeError, match="slow"):
        task.bind({"team": "sales", "slow": True})


def test_the_context_is_found_where_no_parameter_asks_for_it():
    with pytest.raises(LookupError, match="no Sexton attempt runs here"):
        sexton.current_context()
    found = []

    def attempt():
        given = context(token=77)
        set_context(lambda: given)
        found.append(sexton.current_context().token)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    assert found == [77]


def test_a_context_tells_what_a_side_effect_needs():
    told = []
    attempt = context(_report=lambda *progress: told.append(progress))
    assert attempt.idempotency_key == "default/report/t20261129T020000Z-abcdefgh"
    assert attempt.remaining == timedelta(seconds=1.5)
    assert context(_remaining_s=lambda: -3.0).remaining == timedelta(0)
    attempt.progress(0.5, "half")
    assert told == [(0.5, "half")]
    with pytest.raises(ValueError, match="expected 0 to 1"):
        attempt.progress(1.5)


def test_a_cancellation_cuts_a_pause_short():
    cancelled = threading.Event()
    attempt = context(_cancelled=cancelled)
    assert (attempt.cancelled, attempt.wait_cancelled(0)) == (False, False)
    cancelled.set()
    assert (attempt.cancelled, attempt.wait_cancelled()) == (True, True)


@pytest.mark.slow
def test_a_module_that_only_defines_tasks_does_not_load_grpc():
    script = "import sexton, sys; sexton.task; print('grpc' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert done.stdout == "False\n"

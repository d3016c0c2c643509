"""What the follower has counted."""

from __future__ import annotations

from sexton_console.mesh import numbers as module
from sexton_console.mesh.numbers import Numbers, Seen, alike

NOW = 1_800_000_000.0


def seen(run: str, **changes) -> Seen:
    given = {
        "job": "default/report", "run": run, "state": "succeeded", "due_s": NOW - 10,
        "started_s": NOW - 9, "ended_s": NOW - 5,
    } | changes  # fmt: skip
    return Seen(**given)


def test_a_run_is_counted_once_in_the_minute_in_which_it_was_due_and_in_which_it_ended():
    numbers = Numbers()
    late = seen("a", due_s=NOW - 100, started_s=NOW - 99, ended_s=NOW - 1)
    assert numbers.add(late)
    assert not numbers.add(late)
    numbers.add(seen("b", state="failed", due_s=NOW - 1, started_s=NOW - 1, ended_s=NOW - 1))
    minutes = numbers.minutes(NOW)
    assert len(minutes) == 60
    assert [(minute.due, minute.done, minute.failed) for minute in minutes[-3:]] == [
        (1, 0, 0),
        (1, 2, 1),
        (0, 0, 0),
    ]


def test_lateness_is_told_as_upper_bounds_a_quarter_apart():
    numbers = Numbers()
    for number in range(100):
        late_s = 0.010 if number < 90 else 4.0
        numbers.add(seen(f"r{number}", due_s=NOW - 60, started_s=NOW - 60 + late_s))
    late = numbers.lateness(NOW)
    assert late.starts == 100
    assert 0.010 <= late.p50 <= 0.0125
    assert 4.0 <= late.p95 <= 5.0
    assert Numbers().lateness(NOW).p50 is None


def test_runs_that_never_started_are_not_late_starts():
    numbers = Numbers()
    numbers.add(seen("a", started_s=0.0, state="expired"))
    assert numbers.lateness(NOW).starts == 0


def test_failures_that_differ_by_numbers_and_ids_alone_are_one_kind():
    numbers = Numbers()
    for number, text in enumerate(
        ("no answer from 10.0.0.7:80", "no answer from 10.0.0.8:81", "disk full")
    ):
        numbers.add(
            seen(f"r{number}", state="failed", kind="exit 3", message=text, ended_s=NOW + number)
        )
    first, second = numbers.failures()
    assert (first.count, first.message, list(first.runs)) == (
        2,
        "no answer from 10.0.0.7:80",
        ["r1", "r0"],
    )
    assert second.message == "disk full"
    assert [each.message for each in numbers.failures(NOW + 2)] == ["disk full"]
    assert alike("j", "k", "id 5f3c9a7e1b2d4c6f line\nmore") == alike(
        "j", "k", "id 0123456789abcdef line\nother"
    )


def test_the_newest_outcomes_of_a_job_are_kept_in_the_order_of_their_ends():
    numbers = Numbers()
    for number in (3, 1, 2):
        numbers.add(seen(f"r{number}", ended_s=NOW + number))
    assert [each.run for each in numbers.outcomes("default/report")] == ["r1", "r2", "r3"]
    assert numbers.outcomes("default/other") == ()


def test_memory_is_bounded(monkeypatch):
    for name in ("MAX_JOBS", "MAX_FAILURES", "MAX_SEEN"):
        monkeypatch.setattr(module, name, 10)
    numbers = Numbers()
    for number in range(500):
        numbers.add(
            seen(
                f"r{number}", job=f"default/j{number}", state="failed",
                message=f"{'abcdefghij'[number % 10]}{chr(107 + number // 40)}",
                due_s=NOW + 60 * number, ended_s=NOW + 60 * number,
            )
        )  # fmt: skip
    assert len(list(numbers.jobs_ended())) == 10
    assert len(numbers.failures()) == 10
    assert len(numbers._seen) == 10
    assert len(numbers._minutes) <= 2 * module.MINUTES


def test_estimates_say_that_they_are():
    numbers = Numbers()
    numbers.add(seen("a", weight=4.0, ended_s=NOW))
    assert numbers.estimated(NOW)
    assert not numbers.estimated(NOW + 3_600)
    assert numbers.minutes(NOW)[-1].done == 4.0

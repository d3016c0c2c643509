"""What is judged outside the checker is judged right: losses, doubles, repeats, growth."""

from __future__ import annotations

from typing import Any

from faults.mesh import Usage
from faults.outside import Span, doubled, executions_of, missing, redelivery_s, repeats
from faults.soak import Sample, growth_of

from sexton_sim.history import History, Note

SECOND = 1_000_000_000
ALWAYS = Span(0, 1_000 * SECOND)


def attempt(
    second: int,
    *,
    how: str = "succeeded",
    token: int = 1,
    at: float = 0.0,
    worker: str = "worker-1",
    uid: str = "aaaaaaaa",
    job: str = "steady-0",
) -> list[Note]:
    """What one attempt writes; it lasts half a second, or is killed where `how` is empty."""
    facts: dict[str, Any] = {
        "job": job, "run": f"t20261129T0300{second:02d}Z-{uid}", "number": 1, "token": token,
    }  # fmt: skip
    at_ns = int(at * SECOND)
    notes = [Note("exec", at_ns, "started", worker, facts)]
    if how:
        notes.append(Note("exec", at_ns + SECOND // 2, "ended", worker, {**facts, "how": how}))
    return notes


def written(*attempts: list[Note]) -> History:
    return History(notes=[note for notes in attempts for note in notes])


def test_a_second_without_a_run_that_succeeded_is_missing() -> None:
    history = written(attempt(1), attempt(2, how=""), attempt(4), attempt(5))
    lost = missing(executions_of(history), "steady-0", ALWAYS)
    assert {second % 60 for second in lost} == {2, 3}


def test_nothing_is_missing_outside_the_time_in_which_the_job_ran() -> None:
    history = written(attempt(1, at=1), attempt(30, at=30), attempt(31, at=31))
    assert not missing(executions_of(history), "steady-0", Span(20 * SECOND, 40 * SECOND))
    assert not missing(executions_of(history), "steady-1", ALWAYS)


def test_a_second_run_of_an_instant_and_an_attempt_begun_twice_are_doubled() -> None:
    assert doubled(executions_of(written(attempt(1), attempt(2)))) == 0
    assert doubled(executions_of(written(attempt(1), attempt(1, uid="bbbbbbbb", token=2)))) == 1
    assert doubled(executions_of(written(attempt(1), attempt(1)))) == 1
    assert doubled(executions_of(written(attempt(1, how=""), attempt(1, token=2)))) == 0


def test_only_what_had_not_failed_is_repeated() -> None:
    cut_short = written(attempt(1, how=""), attempt(1, token=2))
    unheard = written(attempt(1), attempt(1, token=2))
    failed = written(attempt(1, how="failed"), attempt(1, token=2))
    assert [len(repeats(executions_of(it))) for it in (cut_short, unheard, failed)] == [1, 1, 0]


def test_redelivery_is_counted_from_the_loss_of_the_worker_that_had_it() -> None:
    history = written(
        attempt(1, how="", at=1),
        [Note("fault", 2 * SECOND, "crash", "worker-2", {})],
        [Note("fault", 3 * SECOND, "crash", "worker-1", {})],
        attempt(1, token=2, at=5, worker="worker-2"),
    )
    assert redelivery_s(history, executions_of(history)) == 2.0


def test_what_waits_for_the_end_of_a_session_is_no_redelivery() -> None:
    history = written(
        attempt(1, how="", at=1, job="exclusive"),
        [Note("fault", 3 * SECOND, "crash", "worker-1", {})],
        attempt(1, token=2, at=9, job="exclusive"),
    )
    assert redelivery_s(history, executions_of(history)) is None


def test_growth_compares_the_last_third_with_the_one_before() -> None:
    def sample(mib: int, descriptors: int) -> Sample:
        used = Usage(resident_bytes=mib << 20, descriptors=descriptors, threads=9)
        return Sample({"store": used}, store_bytes=10 << 20)

    beginning = [sample(20, 5)] * 3
    flat = growth_of([*beginning, *[sample(60, 25)] * 3, *[sample(63, 26)] * 3])
    assert all(growth.is_flat for growth in flat)
    leaking = growth_of([*beginning, *[sample(60, 25)] * 3, *[sample(90, 60)] * 3])
    assert [growth.what for growth in leaking if not growth.is_flat] == [
        "store resident MiB",
        "store descriptors",
    ]

"""Backfill: runs of their own for a range, through the job's gate."""

from typing import Any

import pytest
from unit.core.policy.world import Every, Listed, World, job_of, seconds

from sexton_core.errors import PolicyError
from sexton_core.instants import DAY, SECOND
from sexton_core.policy import Backfill, Waiting, advance, request_backfill, upcoming
from sexton_core.words import Ask, BackfillOrder, Overlap

TENS = Listed(range(10, 2_000, 10))


def backfill(world: World, **fields: Any) -> Backfill:
    fields = {"first": 10 * SECOND, "last": 50 * SECOND} | fields
    return request_backfill(world.job, world.now, "request", **fields)


def step(world: World, filled: Backfill, *succeeded: int) -> tuple[Backfill, Waiting]:
    """Looks once and commits; the world's own checks of a commit apply."""
    found = advance(
        world.job,
        world.state,
        filled,
        world.now,
        ended=world.known_ended,
        succeeded={second * SECOND for second in succeeded},
    )
    if found.verdict.changed:
        assert world.commit(found.verdict)
    return found.backfill, found.waiting


def filled_seconds(world: World) -> list[int]:
    return seconds(run.nominal for run in world.runs if run.origin == "backfill")


def finish(world: World) -> None:
    world.live.clear()
    world.notice()


def world_at(now_s: int, **policies: Any) -> World:
    return World(job_of(TENS, **policies), now_s=now_s)


def test_by_default_its_runs_come_one_after_the_other_oldest_first() -> None:
    world = world_at(100)
    filled = backfill(world)
    for _ in range(5):
        filled, waiting = step(world, filled)
        finish(world)
    assert filled_seconds(world) == [10, 20, 30, 40, 50]
    assert (filled.started, filled.skipped, waiting) == (5, 0, Waiting.DONE)
    assert world.runs[0].run_id == f"b{filled.id}-19700101T000010Z"


def test_it_waits_for_the_live_run_and_says_for_which() -> None:
    world = world_at(100)
    filled, _ = step(world, backfill(world))
    found = advance(world.job, world.state, filled, world.now)
    assert found.waiting is Waiting.LIVE_RUN
    assert found.waits_for == world.runs[0].handle
    assert found.verdict.requires == (world.runs[0].handle,)
    assert not found.verdict.changed


def test_newest_first_goes_backwards() -> None:
    world = world_at(100)
    filled = backfill(world, order=BackfillOrder.NEWEST_FIRST, overlap=Overlap.ALLOW_ALL)
    filled, waiting = step(world, filled)
    assert filled_seconds(world) == [50, 40, 30, 20, 10]
    assert waiting is Waiting.DONE


def test_what_succeeded_already_is_left_out() -> None:
    world = world_at(100)
    filled = backfill(world, overlap=Overlap.ALLOW_ALL)
    assert seconds(upcoming(world.job, filled)) == [10, 20, 30, 40, 50]
    filled, _ = step(world, filled, 20, 40)
    assert filled_seconds(world) == [10, 30, 50]
    assert (filled.started, filled.skipped) == (3, 2)


def test_it_can_repeat_what_succeeded() -> None:
    world = world_at(100)
    filled, _ = step(
        world, backfill(world, overlap=Overlap.ALLOW_ALL, skip_succeeded=False), 20, 40
    )
    assert filled.started == 5


def test_skip_leaves_out_what_meets_a_live_run() -> None:
    world = world_at(100)
    filled, waiting = step(world, backfill(world, overlap=Overlap.SKIP))
    assert filled_seconds(world) == [10]
    assert (filled.skipped, waiting) == (4, Waiting.DONE)


@pytest.mark.parametrize(
    ("overlap", "ask"),
    [(Overlap.CANCEL_OTHER, Ask.CANCEL), (Overlap.TERMINATE_OTHER, Ask.TERMINATE)],
)
def test_it_can_end_the_live_run_first(overlap: Overlap, ask: Ask) -> None:
    world = world_at(100)
    world.tick(10)
    found = advance(world.job, world.state, backfill(world, overlap=overlap), world.now)
    assert found.verdict.asks == ((world.runs[0].handle, ask),)
    assert found.waiting is Waiting.LIVE_RUN


def test_allow_all_waits_before_max_live_so_that_the_schedule_finds_room() -> None:
    world = world_at(100, max_live=3, overlap=Overlap.ALLOW_ALL)
    filled, waiting = step(world, backfill(world, overlap=Overlap.ALLOW_ALL))
    assert filled_seconds(world) == [10, 20]
    assert waiting is Waiting.LIVE_RUN
    world.tick(10)
    assert world.runs[-1].origin == "schedule"
    finish(world)
    filled, _ = step(world, filled)
    assert filled_seconds(world) == [10, 20, 30, 40]


def test_where_one_run_may_live_it_takes_that_one() -> None:
    world = world_at(100, max_live=1)
    _, waiting = step(world, backfill(world, overlap=Overlap.ALLOW_ALL))
    assert filled_seconds(world) == [10]
    assert waiting is Waiting.LIVE_RUN


def test_a_nominal_time_waits_for_the_run_of_a_backfill_and_goes_before_its_next() -> None:
    world = world_at(100)
    filled, _ = step(world, backfill(world))
    assert world.state.cursor == 100 * SECOND
    world.tick(10)
    assert world.passed() == []
    assert [start.nominal for start in world.state.buffered] == [110 * SECOND]
    finish(world)
    filled, waiting = step(world, filled)
    assert [(run.origin, run.nominal) for run in world.runs] == [
        ("backfill", 10 * SECOND),
        ("schedule", 110 * SECOND),
    ]
    assert waiting is Waiting.LIVE_RUN
    finish(world)
    step(world, filled)
    assert filled_seconds(world) == [10, 20]
    world.check_conservation()


def test_only_one_nominal_time_waits_for_a_backfill() -> None:
    world = world_at(100)
    step(world, backfill(world))
    world.tick(20)
    assert [start.nominal for start in world.state.buffered] == [110 * SECOND]
    assert world.passed() == [("skipped", "overlap", 120, 120)]
    world.check_conservation()


def test_it_starts_nothing_beside_its_own_runs_while_a_start_waits_for_them() -> None:
    world = world_at(100)
    filled = backfill(world, last=90 * SECOND, overlap=Overlap.ALLOW_ALL)
    filled, _ = step(world, filled)
    world.tick(10)
    assert len(world.state.buffered) == 1
    more = backfill(world, first=5 * SECOND, last=20 * SECOND, overlap=Overlap.ALLOW_ALL)
    _, waiting = step(world, more)
    assert waiting is Waiting.LIVE_RUN
    assert len(world.runs) == 9


def test_buffered_starts_go_first() -> None:
    world = world_at(100, overlap=Overlap.BUFFER_ONE)
    world.tick(20)
    finish(world)
    _, waiting = step(world, backfill(world))
    assert [run.origin for run in world.runs] == ["schedule", "schedule"]
    assert waiting is Waiting.LIVE_RUN


def test_a_paused_job_holds_its_backfill() -> None:
    world = world_at(100)
    world.pause()
    assert step(world, backfill(world)) == (backfill(world), Waiting.PAUSED)
    assert world.runs == []


def test_a_large_one_is_committed_in_parts() -> None:
    world = world_at(1_000 - 5, overlap=Overlap.ALLOW_ALL)
    filled = backfill(world, first=0, last=990 * SECOND, overlap=Overlap.ALLOW_ALL)
    parts = 0
    waiting = Waiting.NOTHING
    while waiting is Waiting.NOTHING:
        filled, waiting = step(world, filled)
        parts += 1
    assert len(filled_seconds(world)) == 99
    assert parts == 5


@pytest.mark.parametrize(
    ("field", "expected", "fields"),
    [
        ("last", "at or after", {"first": 50 * SECOND, "last": 10 * SECOND}),
        ("last", "in the past", {"last": 110 * SECOND}),
        ("range", "holds no nominal time", {"first": 11 * SECOND, "last": 19 * SECOND}),
    ],
)
def test_a_range_that_makes_no_sense_is_refused(
    field: str, expected: str, fields: dict[str, int]
) -> None:
    with pytest.raises(PolicyError, match=expected) as refused:
        backfill(world_at(100), **fields)
    assert refused.value.field == field


def test_ten_years_of_every_second_are_refused_in_bounded_time() -> None:
    schedule = Every(1)
    world = World(job_of(schedule), now_s=3_650 * 86_400)
    schedule.questions = 0
    with pytest.raises(
        PolicyError,
        match=r"more than 10,000: ask in parts, the first one up to 1970-01-01T02:46:39Z",
    ):
        backfill(world, first=0, last=3_650 * DAY)
    assert schedule.questions <= 10_001


def test_a_job_without_a_schedule_has_nothing_to_fill() -> None:
    with pytest.raises(PolicyError, match="schedule"):
        backfill(World(job_of(None), now_s=100))

"""Late, missed, caught up: what an outage leaves of the nominal times that it swallowed."""

from typing import Any

import pytest
from unit.core.policy.world import Every, Listed, World, definition, job_of, with_calendar

from sexton_core.instants import DAY, HOUR, MINUTE, SECOND, parse_instant
from sexton_core.policy import CatchUp, create, decide
from sexton_core.policy.timeline import Timeline
from sexton_core.words import CatchUpPolicy, Overlap

MINUTES = Listed(range(60, 3_601, 60))
"""Every minute for an hour."""


def outage(policy: CatchUpPolicy, until_s: int, schedule: Any = MINUTES, **fields: Any) -> World:
    """Nobody decides from second 65 on; then a leader comes."""
    catch_up = CatchUp(policy=policy, **fields)
    world = World(job_of(schedule, catch_up=catch_up, overlap=Overlap.ALLOW_ALL))
    world.tick(65)
    world.sleep(until_s - 65)
    world.look()
    world.check_conservation()
    return world


@pytest.mark.parametrize("policy", CatchUpPolicy)
def test_a_takeover_within_late_after_loses_nothing_under_any_policy(policy: CatchUpPolicy) -> None:
    world = outage(policy, 120 + 15)
    assert world.fired() == [60, 120]
    assert world.runs[-1].reason == "late"
    assert world.ranges == []


@pytest.mark.parametrize(("until_s", "reason"), [(61, "on_time"), (62, "late")])
def test_a_start_within_a_second_of_its_time_is_on_time(until_s: int, reason: str) -> None:
    world = World(job_of(MINUTES))
    world.sleep(until_s)
    world.look()
    assert [run.reason for run in world.runs] == [reason]


def test_a_moment_beyond_late_after_a_time_is_missed() -> None:
    world = outage(CatchUpPolicy.NONE, 120 + 16)
    assert world.fired() == [60]
    assert world.passed() == [("missed", "no_catch_up", 120, 120)]


def test_by_default_the_newest_missed_time_starts_and_the_others_are_one_record() -> None:
    world = outage(CatchUpPolicy.LATEST, 330)
    assert world.fired() == [60, 300]
    assert world.runs[-1].reason == "caught_up"
    assert world.passed() == [("missed", "passed_over", 120, 240)]
    assert world.ranges[0].times == 3


def test_where_the_newest_is_merely_late_the_older_ones_are_passed_over() -> None:
    world = outage(CatchUpPolicy.LATEST, 310)
    assert world.fired() == [60, 300]
    assert world.runs[-1].reason == "late"
    assert world.passed() == [("missed", "passed_over", 120, 240)]


def test_earliest_starts_the_oldest_inside_the_window_and_what_is_late_as_well() -> None:
    world = outage(CatchUpPolicy.EARLIEST, 605, window_ns=5 * MINUTE)
    assert world.fired() == [60, 360, 600]
    assert world.passed() == [
        ("missed", "outside_window", 120, 300),
        ("missed", "passed_over", 420, 540),
    ]


def test_all_starts_everything_inside_the_window_in_order() -> None:
    world = outage(CatchUpPolicy.ALL, 605, window_ns=5 * MINUTE)
    assert world.fired() == [60, 360, 420, 480, 540, 600]
    assert world.passed() == [("missed", "outside_window", 120, 300)]


def test_all_starts_the_newest_max_of_them() -> None:
    world = outage(CatchUpPolicy.ALL, 630, window_ns=HOUR, max_starts=2)
    assert world.fired() == [60, 540, 600]
    assert world.passed() == [("missed", "passed_over", 120, 480)]


def test_the_default_window_is_the_time_to_the_following_time() -> None:
    """A weekly job: by its next time it is too late, and so it is after a day."""
    week = Listed(range(0, 5 * 604_800, 604_800))
    for down_s, caught in ((23 * 3_600, True), (25 * 3_600, False)):
        world = World(job_of(week), now_s=604_800 - 60)
        world.sleep(60 + down_s)
        world.look()
        assert bool(world.fired()) is caught
        world.check_conservation()


def test_catching_up_respects_the_overlap_policy() -> None:
    catch_up = CatchUp(policy=CatchUpPolicy.ALL, window_ns=HOUR)
    world = World(job_of(MINUTES, catch_up=catch_up, overlap=Overlap.SKIP))
    world.sleep(330)
    world.look()
    assert world.fired() == [60]
    assert world.passed() == [("skipped", "overlap", 120, 300)]
    assert world.ranges[0].blocked_by == world.runs[0].run_id
    world.check_conservation()


def test_jitter_delays_the_start_and_not_the_order() -> None:
    world = World(job_of(MINUTES, jitter_ns=10 * MINUTE, overlap=Overlap.ALLOW_ALL))
    world.tick(4_200)
    assert world.fired() == list(range(60, 3_601, 60))
    assert all(run.nominal <= run.due < run.nominal + MINUTE for run in world.runs[:-1])
    assert world.runs[-1].due <= world.runs[-1].nominal + 10 * MINUTE
    assert len({run.due - run.nominal for run in world.runs}) > 50


def most_delayed(world: World, until_s: int) -> tuple[int, int]:
    """The nominal time that jitter delays most, and by how much, in nanoseconds."""
    timeline = Timeline(world.job, world.state.rules)
    delay, nominal = max(
        (timeline.due(t) - t, t) for t in MINUTES.times if 600 * SECOND <= t < until_s * SECOND
    )
    return nominal, delay


def test_lateness_counts_from_when_a_start_was_due() -> None:
    world = World(job_of(MINUTES, jitter_ns=HOUR, catch_up=CatchUp(policy=CatchUpPolicy.NONE)))
    nominal, delay = most_delayed(world, 3_000)
    assert delay > 50 * SECOND
    verdict = decide(world.job, world.state, nominal + delay + 15 * SECOND)
    assert nominal in {run.nominal for run in verdict.runs}
    missed = [record for record in verdict.ranges if record.decision == "missed"]
    assert [record.last for record in missed] == [nominal - MINUTE]


def test_the_window_counts_from_when_a_start_was_due() -> None:
    catch_up = CatchUp(policy=CatchUpPolicy.EARLIEST, window_ns=5 * MINUTE)
    world = World(job_of(MINUTES, jitter_ns=HOUR, catch_up=catch_up))
    nominal, delay = most_delayed(world, 3_000)
    verdict = decide(world.job, world.state, nominal + delay + 5 * MINUTE)
    assert verdict.runs[0].nominal == nominal
    assert decide(world.job, world.state, nominal + delay + 5 * MINUTE + 1).runs[0].nominal == (
        nominal + MINUTE
    )


def test_what_a_calendar_takes_away_is_recorded_when_the_next_time_is_decided() -> None:
    world = World(job_of(**with_calendar(MINUTES, range(120, 301)), overlap=Overlap.ALLOW_ALL))
    world.tick(400)
    assert world.fired() == [60, 360]
    assert world.passed() == [("excluded", "calendar", 120, 300)]
    world.check_conservation()


@pytest.mark.parametrize("policy", CatchUpPolicy)
@pytest.mark.parametrize("overlap", Overlap)
def test_ten_years_of_a_job_of_every_second_are_a_bounded_number_of_questions(
    policy: CatchUpPolicy, overlap: Overlap
) -> None:
    schedule = Every(1)
    catch_up = CatchUp(policy=policy, window_ns=3_660 * DAY, max_starts=1_000)
    job = job_of(schedule, catch_up=catch_up, overlap=overlap)
    start = parse_instant("2026-11-29T00:00:00Z")
    state = create(job, start).state
    now = start + 3_650 * DAY
    schedule.questions = 0
    first = decide(job, state, now)
    assert schedule.questions < 6_000
    assert len(first.ranges) <= 24
    verdict, verdicts = first, 1
    while verdict.next_due is not None and verdict.next_due <= now:
        verdict = decide(job, verdict.state, now)
        verdicts += 1
    assert verdicts <= 50
    assert verdict.state.cursor == now


def test_ten_years_are_one_record() -> None:
    job = job_of(Every(1))
    start = parse_instant("2026-11-29T00:00:00Z")
    verdict = decide(job, create(job, start).state, start + 3_650 * DAY)
    missed = [record for record in verdict.ranges if record.decision == "missed"]
    assert len(missed) == 1
    assert (missed[0].first, missed[0].last) == (
        start + SECOND,
        start + 3_650 * DAY - 16 * SECOND,
    )
    assert (missed[0].times, missed[0].counted_all) == (256, False)


def test_a_start_in_1970_with_catch_up_all_begins_with_the_creation() -> None:
    catch_up = CatchUp(policy=CatchUpPolicy.ALL, window_ns=3_660 * DAY)
    job = job_of(Every(60), catch_up=catch_up)
    now = parse_instant("2026-11-29T00:00:30Z")
    state = create(job, now).state
    assert state.cursor == now
    assert not decide(job, state, now).changed


def test_all_without_a_window_is_warned_about() -> None:
    assert "window" in CatchUp(policy=CatchUpPolicy.ALL).warnings()[0]
    assert CatchUp(policy=CatchUpPolicy.ALL, window_ns=HOUR).warnings() == ()
    assert definition(MINUTES).catch_up.warnings() == ()

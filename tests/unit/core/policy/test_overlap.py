"""Overlap: what a start does while another run of its job is live."""

from typing import Any

import pytest
from unit.core.policy.world import Listed, World, job_of

from sexton_core.ids import manual_run_id, retry_run_id, scheduled_run_id
from sexton_core.instants import MINUTE, SECOND
from sexton_core.policy import CatchUp, Repeated, decide, trigger
from sexton_core.words import Ask, CatchUpPolicy, Decision, Overlap

TENS = Listed(range(10, 1_000, 10))


def world_with_a_live_run(overlap: Overlap, **policies: Any) -> World:
    """The run of second 10 is live, and stays so."""
    world = World(job_of(TENS, overlap=overlap, **policies))
    world.tick(10)
    assert world.fired() == [10]
    return world


def let_all_end(world: World) -> None:
    world.live.clear()
    world.notice()
    world.look()


def test_skip_records_what_was_in_the_way() -> None:
    world = world_with_a_live_run(Overlap.SKIP)
    world.tick(20)
    assert world.passed() == [("skipped", "overlap", 20, 20), ("skipped", "overlap", 30, 30)]
    assert {record.blocked_by for record in world.ranges} == {world.runs[0].run_id}
    let_all_end(world)
    world.tick(10)
    assert world.fired() == [10, 40]


def test_skip_rests_on_the_live_run_at_the_commit() -> None:
    """The run ended, the leader has not heard: the commit is refused and the start goes through."""
    world = world_with_a_live_run(Overlap.SKIP)
    world.end(0)
    world.tick(10)
    assert world.refused == 1
    assert world.fired() == [10, 20]
    assert world.ranges == []


def test_buffer_one_keeps_the_first_and_drops_the_others() -> None:
    world = world_with_a_live_run(Overlap.BUFFER_ONE)
    world.tick(25)
    assert [entry.nominal // SECOND for entry in world.state.buffered] == [20]
    assert world.passed() == [("dropped", "buffer_full", 30, 30)]
    let_all_end(world)
    assert world.fired() == [10, 20]
    assert world.runs[-1].reason == "waited"
    world.check_conservation()


def test_buffer_all_starts_them_one_after_the_other_up_to_its_bound() -> None:
    world = world_with_a_live_run(Overlap.BUFFER_ALL, max_buffered=2)
    world.tick(35)
    assert world.passed() == [("dropped", "buffer_full", 40, 40)]
    for fired in ([10, 20], [10, 20, 30]):
        let_all_end(world)
        assert world.fired() == fired
    assert world.state.buffered == ()
    world.check_conservation()


@pytest.mark.parametrize(
    ("overlap", "ask"),
    [(Overlap.CANCEL_OTHER, Ask.CANCEL), (Overlap.TERMINATE_OTHER, Ask.TERMINATE)],
)
def test_cancel_and_terminate_ask_until_the_live_run_has_ended(overlap: Overlap, ask: Ask) -> None:
    world = world_with_a_live_run(overlap)
    world.tick(10)
    assert world.verdicts[-1].requires == (world.runs[0].handle,)
    for _ in range(3):
        world.tick()
        assert decide(world.job, world.state, world.now).asks == ((world.runs[0].handle, ask),)
    assert world.fired() == [10]
    let_all_end(world)
    assert world.fired() == [10, 20]
    assert world.verdicts[-1].asks == ()


def test_a_newer_start_takes_the_place_of_one_that_waits_for_a_cancel() -> None:
    world = world_with_a_live_run(Overlap.CANCEL_OTHER)
    world.tick(20)
    assert [entry.nominal // SECOND for entry in world.state.buffered] == [30]
    assert world.passed() == [("dropped", "superseded", 20, 20)]
    assert world.ranges[0].blocked_by == world.state.buffered[0].run_id
    world.check_conservation()


def test_allow_all_starts_beside_live_runs_up_to_max_live() -> None:
    world = world_with_a_live_run(Overlap.ALLOW_ALL, max_live=2)
    world.tick(20)
    assert world.fired() == [10, 20]
    assert world.passed() == [("dropped", "max_live", 30, 30)]
    assert len(world.verdicts[-1].requires) == 2


def test_a_thousand_live_runs_are_the_bound_whatever_the_job_says() -> None:
    catch_up = CatchUp(policy=CatchUpPolicy.ALL, window_ns=60 * MINUTE, max_starts=1_000)
    world = World(job_of(Listed(range(1, 1_200)), overlap=Overlap.ALLOW_ALL, catch_up=catch_up))
    world.sleep(1_010)
    world.look()
    assert len(world.live) == 1_000
    assert world.passed(Decision.DROPPED) == [("dropped", "max_live", 1_001, 1_010)]
    world.check_conservation()


def test_a_buffered_start_older_than_the_declared_window_is_missed() -> None:
    world = world_with_a_live_run(Overlap.BUFFER_ONE, catch_up=CatchUp(window_ns=60 * SECOND))
    world.tick(75)
    let_all_end(world)
    assert world.passed()[-1] == ("missed", "outside_window", 20, 20)
    assert world.ranges[-1].run_id is not None
    world.check_conservation()


def test_a_buffered_start_exactly_as_old_as_the_window_still_starts() -> None:
    world = world_with_a_live_run(Overlap.BUFFER_ONE, catch_up=CatchUp(window_ns=60 * SECOND))
    world.tick(70)
    let_all_end(world)
    assert (world.now, world.fired()) == (80 * SECOND, [10, 20])


def test_without_a_declared_window_a_buffered_start_may_wait_longer_than_a_period() -> None:
    world = world_with_a_live_run(Overlap.BUFFER_ONE)
    world.tick(300)
    let_all_end(world)
    assert world.fired() == [10, 20]


def test_a_buffered_start_has_the_definition_of_its_nominal_time() -> None:
    world = world_with_a_live_run(Overlap.BUFFER_ONE)
    world.tick(10)
    world.edit(Listed(range(15, 1_000, 10)), overlap=Overlap.SKIP)
    world.tick(2)
    let_all_end(world)
    assert [(run.nominal // SECOND, run.version) for run in world.runs] == [(10, 1), (20, 1)]
    world.check_conservation()


def test_several_late_skips_behind_one_run_are_one_record() -> None:
    world = World(job_of(Listed(range(10, 100))))
    world.sleep(20)
    world.look()
    assert world.fired() == [10]
    assert world.passed() == [("skipped", "overlap", 11, 20)]
    assert world.verdicts[-1].requires == (), "the run in the way is of the same commit"


def test_a_manual_start_passes_the_same_gate() -> None:
    world = world_with_a_live_run(Overlap.SKIP)
    refused = world.trigger("one")
    assert (refused.decision, refused.reason) == ("skipped", "overlap")
    assert refused.blocked_by == world.runs[0].run_id
    assert world.ranges == [], "no nominal time was decided"
    beside = world.trigger("two", Overlap.ALLOW_ALL)
    assert (beside.decision, beside.reason) == ("fired", "manual")
    assert len(world.live) == 2


def test_a_manual_run_is_in_the_way_of_the_schedule() -> None:
    world = World(job_of(TENS))
    world.trigger("one")
    world.tick(10)
    assert world.fired() == []
    assert world.ranges[0].blocked_by == world.runs[0].run_id


def test_a_manual_start_that_waits_starts_in_its_turn() -> None:
    world = world_with_a_live_run(Overlap.BUFFER_ALL)
    world.tick(10)
    assert world.trigger("one").decision == "buffered"
    let_all_end(world)
    let_all_end(world)
    assert [run.reason for run in world.runs] == ["on_time", "waited", "waited"]
    assert world.runs[-1].origin == "manual"
    world.check_conservation()


def test_a_repeated_run_keeps_its_nominal_time_and_has_an_id_of_its_own() -> None:
    world = World(job_of(TENS))
    world.tick(25)
    world.live.clear()
    world.notice()
    first = scheduled_run_id(world.job.uid, 10 * SECOND)
    verdict, admission = trigger(
        world.job,
        world.state,
        world.now,
        retry_run_id(world.job.uid, world.now, "retry"),
        repeats=Repeated(10 * SECOND, first),
        ended=world.known_ended,
    )
    assert admission.run_id.startswith("m19700101T000025Z-")
    assert verdict.runs[0].nominal == 10 * SECOND
    assert verdict.runs[0].retry_of == first
    assert verdict.state.cursor == world.state.cursor


def test_asking_twice_in_one_second_names_one_run() -> None:
    world = World(job_of(TENS, overlap=Overlap.ALLOW_ALL))
    first = world.trigger("one")
    again = decide(world.job, world.state, world.now)
    assert not again.changed
    assert first.run_id == "m19700101T000000Z-" + first.run_id[-16:]
    assert World(job_of(TENS)).trigger("one").run_id == first.run_id


def test_a_trigger_is_due_when_it_was_asked_for() -> None:
    world = World(job_of(TENS))
    now = 25 * SECOND + 700_000_000
    verdict, _ = trigger(world.job, world.state, now, manual_run_id(world.job.uid, now, "one"))
    (run,) = verdict.runs
    assert (run.nominal, run.due, run.handle.not_before) == (25 * SECOND, now, now)

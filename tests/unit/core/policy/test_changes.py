"""Create, edit, pause, resume, delete: what people do, and what a job never does by itself."""

import pytest
from unit.core.policy.world import Listed, World, definition, job_of, with_calendar

from sexton_core.errors import IllegalChange, NeverFiresError, PolicyError
from sexton_core.instants import HOUR, MINUTE, SECOND
from sexton_core.policy import CatchUp, create, delete, edit
from sexton_core.policy.timeline import Timeline
from sexton_core.words import CatchUpPolicy, Decision, Overlap, ResumeMode

TENS = Listed(range(10, 1_000, 10))
FIVES = Listed(range(5, 1_000, 5))
MONDAYS = Listed(range(7 * 86_400, 400 * 86_400, 7 * 86_400))


def test_creating_a_job_fires_nothing() -> None:
    world = World(job_of(TENS), now_s=100)
    world.look()
    assert world.runs == []
    assert world.next_due == 110 * SECOND


def test_a_schedule_that_never_fires_again_is_refused_at_creation() -> None:
    with pytest.raises(NeverFiresError, match="never fires after 1970-01-01T00:16:40Z"):
        World(job_of(TENS), now_s=1_000)


def test_a_job_without_a_schedule_runs_by_trigger_only() -> None:
    world = World(job_of(None))
    world.tick(10)
    assert world.next_due is None
    assert world.trigger("one").decision == Decision.FIRED


def test_an_edit_takes_effect_from_now_and_fires_nothing_in_the_past() -> None:
    world = World(job_of(TENS, overlap=Overlap.ALLOW_ALL))
    world.tick(12)
    world.edit(FIVES, overlap=Overlap.ALLOW_ALL)
    world.look()
    assert world.fired() == [10]
    world.tick(9)
    assert world.fired() == [10, 15, 20]
    assert [run.version for run in world.runs] == [1, 2, 2]
    world.check_conservation()


@pytest.mark.parametrize("next_s", [31, 45, 100])
def test_an_edit_never_puts_a_start_that_jitter_still_delays_into_the_past(next_s: int) -> None:
    minutes = Listed(range(60, 3_601, 60))
    delayed = 0
    for nominal_s in range(60, 3_000, 60):
        world = World(job_of(minutes, jitter_ns=HOUR), now_s=nominal_s - 1)
        nominal = nominal_s * SECOND
        was_due = Timeline(world.job, world.state.rules).due(nominal)
        world.sleep(31)
        world.edit(Listed([nominal_s + next_s]), jitter_ns=HOUR)
        due = Timeline(world.job, world.state.rules).due(nominal)
        assert due == min(was_due, (nominal_s + next_s) * SECOND - 1)
        delayed += due > world.now
    assert delayed > 10


def test_what_was_due_before_an_edit_stays_with_the_old_definition() -> None:
    world = World(job_of(FIVES, overlap=Overlap.ALLOW_ALL))
    world.sleep(12)
    world.edit(TENS, overlap=Overlap.ALLOW_ALL)
    world.look()
    world.tick(8)
    assert [(run.nominal // SECOND, run.version) for run in world.runs] == [
        (5, 1),
        (10, 1),
        (20, 2),
    ]
    world.check_conservation()


def test_missed_times_before_an_edit_are_caught_up_by_the_old_rules_and_after_it_by_the_new() -> (
    None
):
    catch_all = CatchUp(policy=CatchUpPolicy.ALL, window_ns=HOUR)
    world = World(job_of(TENS, overlap=Overlap.ALLOW_ALL, catch_up=catch_all))
    world.sleep(35)
    world.edit(TENS, overlap=Overlap.ALLOW_ALL, catch_up=CatchUp(policy=CatchUpPolicy.NONE))
    world.sleep(50)
    world.look()
    assert world.fired() == [10, 20, 30, 70, 80]
    assert world.passed() == [("missed", "no_catch_up", 40, 60)]
    world.check_conservation()


def test_an_edit_of_the_zone_neither_repeats_nor_loses_a_day() -> None:
    """A daily job ran twice a day once a time zone was given (argo-workflows #2328)."""
    day = 86_400
    utc = Listed(range(3 * 3_600, 20 * day, day))
    berlin = Listed(range(2 * 3_600, 20 * day, day))
    world = World(job_of(utc, overlap=Overlap.ALLOW_ALL))
    world.sleep(2 * 3_600 + 1_800)
    world.edit(berlin, overlap=Overlap.ALLOW_ALL)
    for _ in range(6):
        world.sleep(12 * 3_600)
        world.look()
    assert [second // day for second in world.fired()] == [1, 2, 3]
    world.check_conservation()


def test_an_edit_never_reaches_back_over_the_cursor() -> None:
    world = World(job_of(TENS))
    world.tick(20)
    lagging = 15 * SECOND
    _, change = edit(world.job, world.state, definition(FIVES, 2), lagging)
    assert change.state.rules[-1].after == 20 * SECOND
    assert change.state.armed == 25 * SECOND


def test_editing_leaves_the_anchor_and_other_jobs_alone() -> None:
    """A weekly job in a service that was deployed daily never ran (river #791)."""
    world = World(job_of(MONDAYS, overlap=Overlap.ALLOW_ALL))
    for _ in range(30):
        world.sleep(86_400)
        world.edit(MONDAYS, overlap=Overlap.ALLOW_ALL)
        world.look()
    assert [second // 86_400 for second in world.fired()] == [7, 14, 21, 28]


def test_arming_again_is_idempotent() -> None:
    """A restart left several pending next jobs, the cadence multiplied (bullmq #2889)."""
    world = World(job_of(TENS, overlap=Overlap.ALLOW_ALL))
    for _ in range(100):
        world.tick()
        for _ in range(5):
            world.look()
    assert world.fired() == list(range(10, 101, 10))


def test_undecided_edits_are_bounded_and_the_message_says_what_to_do() -> None:
    world = World(job_of(TENS))
    world.pause()
    for _ in range(100):
        world.sleep(5)
        world.edit(TENS)
    world.sleep(5)
    with pytest.raises(IllegalChange, match="possible only when it is resumed"):
        world.edit(TENS)
    assert len(world.state.rules) <= 100


def test_an_edit_with_another_version_than_the_next_is_refused() -> None:
    world = World(job_of(TENS))
    with pytest.raises(PolicyError, match="version: 3"):
        edit(world.job, world.state, definition(TENS, 3), world.now)


def test_versions_that_nothing_needs_any_more_are_left_behind() -> None:
    world = World(job_of(TENS, overlap=Overlap.ALLOW_ALL))
    for _ in range(5):
        world.tick(7)
        world.edit(TENS, overlap=Overlap.ALLOW_ALL)
    assert [one.version for one in world.job.definitions] == [6]
    assert len(world.state.rules) == 1


def test_a_paused_job_starts_nothing_and_holds_its_buffer() -> None:
    world = World(job_of(TENS, overlap=Overlap.BUFFER_ALL))
    world.tick(20)
    world.pause()
    world.live.clear()
    world.notice()
    world.tick(100)
    assert world.fired() == [10]
    assert world.next_due is None
    assert len(world.state.buffered) == 1
    world.resume()
    world.look()
    assert world.fired() == [10, 20]


def test_enabling_never_fires_by_itself() -> None:
    """Enabling a task fired it at once (celery #2531, django-celery-beat #510)."""
    world = World(job_of(TENS))
    world.pause()
    world.tick(95)
    world.resume()
    world.look()
    assert world.fired() == []
    assert world.passed() == [("skipped", "paused", 10, 90)]
    world.tick(5)
    assert world.fired() == [100]
    world.check_conservation()


def test_resuming_with_now_starts_the_newest_of_what_was_passed_over() -> None:
    world = World(job_of(TENS))
    world.pause()
    world.tick(95)
    world.resume(ResumeMode.NOW)
    world.look()
    assert world.fired() == [90]
    assert world.runs[0].reason == "resumed"
    assert world.passed() == [("skipped", "paused", 10, 80)]
    world.check_conservation()


def test_resuming_with_now_starts_it_however_old_it_is() -> None:
    world = World(job_of(MONDAYS))
    world.sleep(86_400)
    world.pause()
    world.sleep(12 * 86_400)
    world.resume(ResumeMode.NOW)
    world.sleep(60)
    world.look()
    assert [second // 86_400 for second in world.fired()] == [7]


def test_resuming_with_now_starts_nothing_where_nothing_was_passed_over() -> None:
    world = World(job_of(TENS))
    world.tick(11)
    world.live.clear()
    world.notice()
    world.pause()
    world.tick(5)
    world.resume(ResumeMode.NOW)
    world.look()
    assert world.fired() == [10]


def test_a_second_resume_takes_back_what_the_first_had_promised_to_start() -> None:
    world = World(job_of(MONDAYS))
    world.sleep(86_400)
    world.pause()
    world.sleep(12 * 86_400)
    world.resume(ResumeMode.NOW)
    world.pause()
    world.resume(ResumeMode.CATCH_UP)
    world.look()
    assert world.fired() == []
    assert world.passed() == [("missed", "outside_window", 7 * 86_400, 7 * 86_400)]


def test_resuming_with_catch_up_is_like_the_end_of_an_outage() -> None:
    world = World(job_of(TENS))
    world.pause()
    world.tick(98)
    world.resume(ResumeMode.CATCH_UP)
    world.look()
    assert world.fired() == [90]
    assert world.passed() == [
        ("missed", "passed_over", 10, 80),
    ]
    world.check_conservation()


def test_a_pause_of_ten_years_is_skipped_as_one_record() -> None:
    world = World(job_of(Listed(range(10, 3_000, 10))))
    world.pause()
    world.sleep(2_995)
    world.resume()
    assert world.passed() == [("skipped", "paused", 10, 2_990)]
    assert (world.ranges[0].times, world.ranges[0].counted_all) == (256, False)


def test_pausing_and_resuming_twice_is_doing_it_once() -> None:
    world = World(job_of(TENS))
    world.pause()
    paused = world.state
    world.tick(3)
    world.pause()
    assert world.state == paused
    world.resume()
    resumed = world.state
    world.resume()
    assert world.state == resumed


def test_calendars_are_recorded_as_such_also_behind_a_pause() -> None:
    world = World(job_of(**with_calendar(TENS, [10, 20, 50])))
    world.pause()
    world.tick(65)
    world.resume()
    assert world.passed() == [
        ("excluded", "calendar", 10, 20),
        ("skipped", "paused", 30, 60),
    ]
    assert world.ranges[1].times == 3, "the 50th second counts as excluded"
    world.check_conservation()


def test_a_manual_start_works_on_a_paused_job() -> None:
    world = World(job_of(TENS))
    world.pause()
    assert world.trigger("one").decision == Decision.FIRED


def test_deleting_hands_over_the_live_runs_and_ends_the_buffer() -> None:
    world = World(job_of(TENS, overlap=Overlap.BUFFER_ONE))
    world.tick(20)
    deletion = delete(world.state, world.now)
    assert [handle.run_id for handle in deletion.handles] == [world.runs[0].run_id]
    assert [(one.reason, one.first // SECOND) for one in deletion.ranges] == [("deleted", 20)]


def test_a_change_is_refused_when_it_comes_late() -> None:
    change = create(job_of(TENS), 5 * SECOND)
    assert change.not_after == 6 * SECOND


def test_a_leader_that_takes_over_computes_from_the_cursor_and_not_from_now() -> None:
    """What fell due in the hand-over was gone (dkron #1210, sidekiq #6804)."""
    world = World(job_of(TENS))
    world.sleep(9)
    world.look()
    world.sleep(2)
    world.look()
    assert world.fired() == [10]


def test_a_laptop_that_slept_does_not_flood() -> None:
    """After a sleep every missed run fired although nobody had asked (jobrunr #940)."""
    world = World(job_of(Listed(range(60, 400_000, 60)), overlap=Overlap.ALLOW_ALL))
    world.tick(60)
    world.sleep(3 * 86_400)
    world.look()
    assert len(world.fired()) == 2
    assert len(world.passed(Decision.MISSED)) == 1
    assert world.next_due == world.now + MINUTE - world.now % MINUTE

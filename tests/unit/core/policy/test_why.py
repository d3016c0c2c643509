"""Why did it not run? The record answers, gate by gate; for the future the policies do."""

import pytest
from unit.core.policy.world import Listed, World, job_of, seconds, with_calendar

from sexton_core.instants import SECOND
from sexton_core.policy import CatchUp, Evidence, Explanation, RecordedRun, explain
from sexton_core.policy.why import _STOPS
from sexton_core.words import CatchUpPolicy, Decision, Overlap, Reason, RunState

TENS = Listed(range(10, 1_000, 10))


def ask(world: World, second: int) -> Explanation:
    """Finds the evidence as a store would: the run by its id, the range that contains it."""
    at = second * SECOND
    run = next((run for run in world.runs if run.nominal == at and run.origin == "schedule"), None)
    found = next((one for one in world.ranges if one.first <= at <= one.last), None)
    recorded = None if run is None else RecordedRun(run.run_id, RunState.SUCCEEDED, world.now)
    rules = tuple(rule for rule, _ in world.history)
    return explain(world.job, world.state, at, world.now, Evidence(recorded, found, rules))


def gates(answer: Explanation) -> list[tuple[str, bool]]:
    return [(gate.name, gate.passed) for gate in answer.gates]


def test_a_run_that_was_made_is_named() -> None:
    world = World(job_of(TENS))
    world.tick(10)
    answer = ask(world, 10)
    assert answer.decision is Decision.FIRED
    assert not answer.forecast
    assert gates(answer) == [
        ("exists", True),
        ("schedule", True),
        ("paused", True),
        ("catch_up", True),
        ("overlap", True),
        ("run", True),
    ]
    assert answer.summary == ("1970-01-01T00:00:10Z: run t19700101T000010Z-abcdefgh is succeeded.")


@pytest.mark.parametrize(
    ("created_ms", "said"),
    [(9_600, "decided 400ms before it was due"), (10_400, "decided 400ms after it was due")],
)
def test_a_run_says_how_long_before_or_after_its_time_it_was_decided(
    created_ms: int, said: str
) -> None:
    world = World(job_of(TENS))
    world.tick(10)
    found = Evidence(
        run=RecordedRun(world.runs[0].run_id, RunState.WAITING, created_ms * SECOND // 1_000)
    )
    answer = explain(world.job, world.state, 10 * SECOND, world.now, found)
    assert next(gate.detail for gate in answer.gates if gate.name == "catch_up") == said


def test_a_skipped_time_names_the_run_in_the_way() -> None:
    world = World(job_of(TENS))
    world.tick(20)
    answer = ask(world, 20)
    assert answer.decision is Decision.SKIPPED
    assert gates(answer)[-1] == ("overlap", False)
    assert answer.gates[-1].detail == (
        "run t19700101T000010Z-abcdefgh was live at 1970-01-01T00:00:20Z"
    )


def test_a_missed_time_says_what_the_catch_up_policy_did() -> None:
    world = World(job_of(TENS, catch_up=CatchUp(policy=CatchUpPolicy.NONE)))
    world.sleep(95)
    world.look()
    answer = ask(world, 40)
    assert answer.decision is Decision.MISSED
    assert gates(answer)[-1] == ("catch_up", False)
    assert "nothing is caught up" in answer.summary


def test_a_time_passed_over_by_a_pause_says_so() -> None:
    world = World(job_of(TENS))
    world.pause()
    world.tick(45)
    held = ask(world, 30)
    assert held.decision is None
    assert "paused since 1970-01-01T00:00:00Z" in held.summary
    world.resume()
    answer = ask(world, 30)
    assert answer.decision is Decision.SKIPPED
    assert gates(answer) == [("exists", True), ("schedule", True), ("paused", False)]


def test_an_excluded_time_names_the_calendar_also_inside_a_longer_outage() -> None:
    world = World(job_of(**with_calendar(TENS, [20, 60])))
    world.tick(30)
    world.sleep(70)
    world.look()
    for second in (20, 60):
        answer = ask(world, second)
        assert answer.decision is Decision.EXCLUDED
        assert gates(answer)[-1] == ("calendar", False)
    assert ask(world, 50).decision is Decision.MISSED


def test_a_buffered_start_says_what_it_waits_for() -> None:
    world = World(job_of(TENS, overlap=Overlap.BUFFER_ONE))
    world.tick(20)
    answer = ask(world, 20)
    assert answer.decision is Decision.BUFFERED
    assert "t19700101T000010Z-abcdefgh" in answer.summary


def test_an_instant_between_two_times_names_the_neighbours() -> None:
    world = World(job_of(TENS))
    world.tick(30)
    answer = ask(world, 25)
    assert answer.nominal is None
    assert answer.decision is None
    assert gates(answer) == [("exists", True), ("schedule", False)]
    # Not "no run": a trigger may have made one.
    assert answer.summary == "1970-01-01T00:00:25Z: no schedule asks for a run at this time."
    assert seconds([answer.previous or 0, answer.following or 0]) == [20, 30]


def test_before_its_creation_the_job_did_not_exist() -> None:
    world = World(job_of(TENS))
    answer = explain(world.job, world.state, 0, world.now)
    assert gates(answer) == [("exists", False)]


def test_the_future_is_a_forecast_under_the_same_policies() -> None:
    world = World(job_of(TENS))
    world.tick(10)
    answer = ask(world, 50)
    assert (answer.decision, answer.forecast) == (Decision.FIRED, True)
    assert "if t19700101T000010Z-abcdefgh is live then" in answer.summary


def test_a_due_time_that_nobody_has_decided_is_no_riddle() -> None:
    """The next run was in the past and there was no occurrence (jobrunr #1377)."""
    world = World(job_of(TENS))
    world.sleep(14)
    answer = ask(world, 10)
    assert answer.decision is None
    assert gates(answer)[-1] == ("leader", False)
    assert "due for 4s; no leader has decided it yet" in answer.summary


def test_where_the_definition_is_no_longer_known_the_record_alone_answers() -> None:
    world = World(job_of(TENS))
    world.tick(20)
    world.edit(TENS)
    at = 20 * SECOND
    found = Evidence(range=world.ranges[0])
    answer = explain(world.job, world.state, at, world.now, found)
    assert answer.summary == (
        "1970-01-01T00:00:20Z: if it was asked for, it was skipped (overlap)."
    )
    assert "no longer kept" in explain(world.job, world.state, at, world.now).summary
    run = Evidence(run=RecordedRun(world.runs[0].run_id, RunState.FAILED, at))
    assert explain(world.job, world.state, 10 * SECOND, world.now, run).decision == "fired"


def test_a_time_before_an_edit_is_explained_by_the_version_that_ruled_it() -> None:
    world = World(job_of(TENS))
    world.tick(15)
    world.edit(Listed(range(5, 1_000, 10)))
    old = world.job
    world.tick(10)
    kept = world.history[0][1]
    world.job = type(old)(
        namespace=old.namespace,
        name=old.name,
        uid=old.uid,
        created_at=old.created_at,
        definitions=(kept, *(one for one in old.definitions if one is not kept)),
    )
    assert ask(world, 10).gates[1].detail.startswith("version 1")
    assert ask(world, 25).gates[1].detail.startswith("version 2")


def test_of_a_deleted_job_the_past_is_explained_and_nothing_is_forecast() -> None:
    world = World(job_of(TENS))
    world.tick(15)
    world.sleep(10)

    def ask(second: int) -> Explanation:
        evidence = Evidence(rules=tuple(rule for rule, _ in world.history))
        if second == 10:
            evidence = evidence._replace(
                run=RecordedRun(world.runs[0].run_id, RunState.SUCCEEDED, world.now)
            )
        return explain(
            world.job, world.state, second * SECOND, 90 * SECOND, evidence, deleted_at=25 * SECOND
        )

    assert ask(10).decision is Decision.FIRED
    left = ask(20)
    assert (left.decision, left.forecast, left.following) == (None, False, None)
    assert gates(left)[-2:] == [("paused", True), ("leader", False)]
    assert left.summary == (
        "1970-01-01T00:00:20Z: not decided yet when the job was deleted at 1970-01-01T00:00:25Z."
    )
    for second in (30, 33):
        after = ask(second)
        assert gates(after) == [("exists", False)]
        assert (after.nominal, after.previous, after.following) == (None, 20 * SECOND, None)


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_not_to_fire_has_its_gate_and_words(reason: Reason) -> None:
    fired = {"on_time", "late", "caught_up", "resumed", "waited", "manual", "backfill"}
    assert (reason in _STOPS) is (reason not in fired | {"calendar", "waits"})

"""Starts that are decided before they are due: only what nothing can change."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.core.policy.world import Listed, World, definition, job_of

from sexton_core.instants import SECOND
from sexton_core.policy import (
    AHEAD_NS,
    CatchUp,
    ahead_until,
    decide,
    decide_ahead,
    due_next,
    edit,
)
from sexton_core.policy.state import JobState, Verdict
from sexton_core.words import CatchUpPolicy, Overlap

TENS = Listed(range(10, 1_000, 10))
DUE = 10 * SECOND


def ahead(world: World, before_ns: int = AHEAD_NS, **changes: Any) -> Verdict | None:
    state: JobState = world.state._replace(**changes)
    due = due_next(world.job, state)
    if due is None:
        return None
    return decide_ahead(world.job, state, due, due - before_ns, world.known_ended)


@pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.BUFFER_ONE, Overlap.ALLOW_ALL])
@pytest.mark.parametrize("before_ns", [1, AHEAD_NS])
def test_a_start_that_rests_on_nothing_is_decided_as_when_it_is_due(
    overlap: Overlap, before_ns: int
) -> None:
    world = World(job_of(TENS, overlap=overlap))
    verdict = ahead(world, before_ns)
    assert verdict == decide(world.job, world.state, DUE)
    (run,) = verdict.runs
    assert run.handle.not_before == run.due == DUE


@pytest.mark.parametrize("before_ns", [0, AHEAD_NS + 1])
def test_it_is_not_decided_earlier_and_when_it_is_due_like_anything(before_ns: int) -> None:
    assert ahead(World(job_of(TENS)), before_ns) is None


@pytest.mark.parametrize("overlap", [o for o in Overlap if o is not Overlap.ALLOW_ALL])
def test_what_meets_a_live_run_is_decided_when_it_is_due(overlap: Overlap) -> None:
    world = World(job_of(TENS, overlap=overlap))
    world.tick(10)
    assert ahead(world) is None
    world.end(0)
    world.notice()
    decided = ahead(world)
    assert (decided is None) is (overlap in {Overlap.CANCEL_OTHER, Overlap.TERMINATE_OTHER})


def test_of_jobs_whose_runs_go_beside_each_other_it_is_decided_up_to_their_bound() -> None:
    world = World(job_of(TENS, overlap=Overlap.ALLOW_ALL, max_live=2))
    world.tick(10)
    assert ahead(world) is not None
    world.tick(10)
    assert ahead(world) is None  # one more would be dropped, if none ends until then


def test_one_start_at_a_time_is_ahead() -> None:
    """With jitter the dues of two nominal times may be as near to each other as that."""
    world = World(job_of(TENS, overlap=Overlap.ALLOW_ALL))
    world.tick(10)
    now = 20 * SECOND - AHEAD_NS
    for not_before, possible in ((now, True), (now + 1, False)):
        (live,) = world.state.live
        state = world.state._replace(live=(live._replace(not_before=not_before),))
        assert (decide_ahead(world.job, state, 20 * SECOND, now) is not None) is possible


def test_what_comes_before_it_is_decided_first() -> None:
    world = World(job_of(TENS, catch_up=CatchUp(policy=CatchUpPolicy.ALL)))
    world.sleep(15)
    assert decide_ahead(world.job, world.state, 20 * SECOND, 20 * SECOND - AHEAD_NS) is None


def test_nothing_is_ahead_of_a_job_that_is_paused_or_has_no_time_left() -> None:
    world = World(job_of(TENS))
    assert ahead(world, paused_at=1) is None
    assert ahead(world, armed=None) is None


@given(st.lists(st.integers(0, 10**12), max_size=5), st.integers(0, 10**12))
def test_a_change_waits_for_the_last_start_that_is_ahead(dues: list[int], now: int) -> None:
    until = ahead_until(dues, now)
    latest = max(dues, default=0)
    assert until is None or until == latest > now
    if now < latest <= now + AHEAD_NS:
        assert until == latest
    if latest > now + 5 * SECOND:  # of a clock that was set back
        assert until is None


def test_the_policy_of_the_version_that_starts_is_the_one_that_counts() -> None:
    """An edit between a nominal time and its due time, which jitter puts off, leaves it its own."""
    jittered = {"jitter_ns": SECOND, "overlap": Overlap.CANCEL_OTHER}
    world = World(job_of(TENS, **jittered))
    due = due_next(world.job, world.state)
    assert due is not None
    assert due > DUE
    current = definition(TENS, 2, overlap=Overlap.ALLOW_ALL)
    job, change = edit(world.job, world.state, current, DUE + 1)
    assert due_next(job, change.state) == due
    assert len(decide(job, change.state, due).runs) == 1
    assert decide_ahead(job, change.state, due, due - 1) is None

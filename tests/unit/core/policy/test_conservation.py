"""S8: whatever happens, every nominal time ends in exactly one decision."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.core.policy.world import Listed, World, job_of, with_calendar
from unit.examples import examples

from sexton_core.instants import SECOND
from sexton_core.policy import CatchUp
from sexton_core.words import CatchUpPolicy, Overlap, ResumeMode

HORIZON_S = 400


@st.composite
def definitions(draw: st.DrawFn) -> dict[str, Any]:
    period = draw(st.integers(1, 20))
    listed = Listed(range(draw(st.integers(0, period - 1)), HORIZON_S, period))
    fields: dict[str, Any] = {"schedule": listed}
    if draw(st.booleans()):
        excluded = draw(st.sets(st.integers(0, HORIZON_S), max_size=200))
        fields = with_calendar(listed, excluded)
    late_after = draw(st.sampled_from([1, 3, 15]))
    window = draw(st.sampled_from([None, late_after, 20, 60, 1_000]))
    fields["catch_up"] = CatchUp(
        policy=draw(st.sampled_from(CatchUpPolicy)),
        window_ns=None if window is None else max(window, late_after) * SECOND,
        max_starts=draw(st.sampled_from([1, 2, 5, 100])),
        late_after_ns=late_after * SECOND,
    )
    fields["overlap"] = draw(st.sampled_from(Overlap))
    fields["max_live"] = draw(st.sampled_from([1, 2, 5, 1_000]))
    fields["max_buffered"] = draw(st.sampled_from([1, 2, 100]))
    fields["jitter_ns"] = draw(st.sampled_from([0, 0, 4 * SECOND, 60 * SECOND]))
    return fields


actions = st.one_of(
    st.tuples(st.just("tick"), st.integers(3, 15)),
    st.tuples(st.just("tick"), st.integers(3, 15)),
    st.tuples(st.just("tick"), st.integers(3, 15)),
    st.tuples(st.just("sleep"), st.integers(1, 80)),
    st.tuples(st.just("end"), st.integers(0, 3)),
    st.tuples(st.just("end"), st.integers(0, 3)),
    st.tuples(st.just("notice")),
    st.tuples(st.just("notice")),
    st.tuples(st.just("pause")),
    st.tuples(st.just("resume"), st.sampled_from(ResumeMode)),
    st.tuples(st.just("edit"), definitions()),
    st.tuples(st.just("trigger"), st.sampled_from([None, *Overlap])),
)


def play(world: World, script: list[tuple[Any, ...]]) -> None:
    for number, (action, *values) in enumerate(script):
        if action == "edit":
            world.edit(**values[0])
        elif action == "trigger":
            world.trigger(f"request-{number}", values[0])
        else:
            getattr(world, action)(*values)


@pytest.mark.slow
@settings(max_examples=examples(100), deadline=None)
@given(definitions(), st.lists(actions, min_size=12, max_size=30))
def test_every_nominal_time_ends_in_exactly_one_decision(
    first: dict[str, Any], script: list[tuple[Any, ...]]
) -> None:
    world = World(job_of(**first))
    play(world, script)
    world.check_conservation()
    # Resumed and left alone, nothing that is due stays undecided.
    world.resume(ResumeMode.CATCH_UP)
    world.notice()
    world.look()
    world.check_conservation()
    assert world.next_due is None or world.next_due > world.now

"""The short way through a decision comes to what the long one does, or says nothing."""

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from unit.core.policy.world import UID, Listed, definition, job_of, with_calendar
from unit.examples import examples

from sexton_core.ids import scheduled_run_id
from sexton_core.instants import SECOND
from sexton_core.policy import Buffered, CatchUp, Handle, Job, JobState, Rule, create, decide
from sexton_core.policy._one_start import decide_one_start
from sexton_core.policy.decide import decide_any
from sexton_core.policy.state import Counters
from sexton_core.policy.timeline import Timeline
from sexton_core.words import Ask, CatchUpPolicy, Origin, Overlap, Reason

HORIZON_S = 200
TENS = Listed(range(10, HORIZON_S, 10))


@st.composite
def definitions(draw: st.DrawFn) -> dict[str, Any]:
    period = draw(st.sampled_from([1, 2, 10]))
    listed = Listed(range(draw(st.integers(0, period - 1)), HORIZON_S, period))
    fields: dict[str, Any] = {"schedule": listed}
    rare = st.integers(0, 5).map(lambda drawn: drawn == 0)
    if draw(rare):
        fields = with_calendar(listed, draw(st.sets(st.integers(0, HORIZON_S), max_size=50)))
    if draw(rare):
        fields["schedule"] = None
    fields["jitter_ns"] = 4 * SECOND if draw(rare) else 0
    fields["overlap"] = draw(st.sampled_from(Overlap))
    fields["max_live"] = draw(st.sampled_from([1, 2, 1_000]))
    fields["catch_up"] = CatchUp(
        policy=draw(st.sampled_from(CatchUpPolicy)),
        late_after_ns=draw(st.sampled_from([1, 3, 15])) * SECOND,
    )
    return fields


@st.composite
def situations(draw: st.DrawFn) -> tuple[Job, JobState, int, set[str]]:
    first = draw(definitions())
    job = job_of(**first)
    cursor = draw(st.integers(0, HORIZON_S)) * SECOND
    rules: tuple[Rule, ...] = (Rule(draw(st.integers(0, HORIZON_S)) * SECOND, 1),)
    if draw(st.integers(0, 3)) == 0:
        second = definition(version=2, **draw(definitions()))
        job = Job(
            namespace="default",
            name="report",
            uid=UID,
            created_at=0,
            definitions=(*job.definitions, second),
        )
        rules = draw(
            st.sampled_from(
                [(Rule(cursor, 2),), (Rule(0, 1), Rule(max(cursor, 1), 2)), (Rule(cursor, 1),)]
            )
        )
    armed = Timeline(job, rules).next_after(cursor)
    live = tuple(
        Handle(scheduled_run_id(UID, number * SECOND), "default", 0, number * SECOND)
        for number in range(draw(st.integers(0, 3)))
    )
    ended = {handle.run_id for handle in live if draw(st.booleans())}
    waiting: tuple[Buffered, ...] = ()
    if draw(st.integers(0, 4)) == 0:
        run_id = scheduled_run_id(UID, 5 * SECOND)
        waiting = (
            Buffered(
                run_id, Origin.SCHEDULE, 5 * SECOND, 5 * SECOND, rules[0].version,
                Overlap.BUFFER_ALL, Ask.NOTHING, run_id, 5 * SECOND,
            ),
        )  # fmt: skip
    state = JobState(
        cursor=cursor,
        armed=armed,
        rules=rules,
        live=live,
        buffered=waiting,
        counters=Counters(draw(st.integers(0, 9)), 1, 2, 3, 4),
        paused_at=draw(st.sampled_from([None] * 5 + [cursor])),
        resumed=draw(st.sampled_from([None] * 5 + [armed])),
    )
    late_after = job.definition(rules[0].version).catch_up.late_after_ns
    offsets = [-1, 0, 1, SECOND, SECOND + 1, late_after, late_after + 1, 2 * late_after, -SECOND]
    now = (armed or cursor) + draw(st.sampled_from(offsets))
    return job, state, now, ended


@pytest.mark.slow
@settings(max_examples=examples(1_000), deadline=None)
@given(situations(), st.sampled_from([1, 2, 24]))
def test_a_decision_is_the_same_whichever_way_it_is_made(
    situation: tuple[Job, JobState, int, set[str]], limit: int
) -> None:
    job, state, now, ended = situation
    assume(now >= 0)
    expected = decide_any(job, state, now, ended, limit=limit)
    assert decide(job, state, now, ended, limit=limit) == expected
    short = decide_one_start(job, state, now, ended)
    assert short is None or expected.is_one_start


@pytest.mark.parametrize("overlap", Overlap)
@pytest.mark.parametrize(("late_ns", "reason"), [(0, Reason.ON_TIME), (2 * SECOND, Reason.LATE)])
def test_a_start_that_is_due_alone_takes_the_short_way(
    overlap: Overlap, late_ns: int, reason: Reason
) -> None:
    job = job_of(TENS, overlap=overlap)
    verdict = decide_one_start(job, create(job, 0).state, 10 * SECOND + late_ns, set())
    assert verdict is not None
    (run,) = verdict.runs
    assert (run.nominal, run.due, run.reason) == (10 * SECOND, 10 * SECOND, reason)
    assert verdict.state.cursor == verdict.not_before == 10 * SECOND
    assert verdict.state.armed == verdict.next_due == 20 * SECOND


@pytest.mark.parametrize(
    "change",
    [
        {"buffered": (None,)},
        {"paused_at": 5 * SECOND},
        {"resumed": 10 * SECOND},
        {"rules": (Rule(0, 1), Rule(5, 1))},
        {"armed": None},
        {"live": (Handle("t19700101T000001Z-abcdefgh", "default", 0, SECOND),)},
    ],
)
def test_whatever_else_there_is_to_decide_takes_the_long_way(change: dict[str, Any]) -> None:
    job = job_of(TENS)
    state = create(job, 0).state._replace(**change)
    assert decide_one_start(job, state, 10 * SECOND, set()) is None


def test_two_that_are_due_together_or_one_that_was_missed_take_the_long_way() -> None:
    job = job_of(TENS)
    state = create(job, 0).state
    for now in (9 * SECOND, 20 * SECOND, 10 * SECOND + 16 * SECOND):
        assert decide_one_start(job, state, now, set()) is None

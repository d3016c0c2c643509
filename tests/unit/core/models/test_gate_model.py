"""The gate against settlements that the leader hears of late, or never.

A job asks every second for four seconds. Its runs end at any moment; that is a commit of the
queue's owner, and the notice to the leader is a hint that may be lost. The rules are the real
`decide`: a run counts as live until the leader knows better, and what rests on it is compared at
the commit.
"""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import pytest
from unit.core.models.explore import Found, explore
from unit.core.policy.world import UID, Listed

from sexton_core.instants import HOUR, SECOND
from sexton_core.policy import CatchUp, Definition, Job, JobState, Verdict, create, decide
from sexton_core.policy.state import NO_COUNTERS
from sexton_core.words import CatchUpPolicy, Decision, Overlap

END_S = 4
TIMES = (1, 2, 3, 4)
CATCH_ALL = CatchUp(policy=CatchUpPolicy.ALL, window_ns=HOUR)


class Rules(NamedTuple):
    """The design under test.

    compares_handles: a commit compares that the runs exist on whose being live it rests.
    reads_again: the leader reads the handles of buffered starts every few seconds, instead of
        waiting for a notice.
    guesses_free: the leader takes a run that it has not heard of for a while as ended.
    """

    compares_handles: bool = True
    reads_again: bool = True
    guesses_free: bool = False


class Leader(NamedTuple):
    """One leader's memory; all of it is lost when it is replaced."""

    known_ended: frozenset[str] = frozenset()
    verdict: Verdict | None = None


class World(NamedTuple):
    job: Job
    state: JobState
    time_s: int = 0
    handles: frozenset[str] = frozenset()
    asked_to_end: frozenset[str] = frozenset()
    notices: frozenset[str] = frozenset()
    leader: Leader = Leader()
    takeovers: int = 0
    decided: frozenset[tuple[int, str]] = frozenset()
    wrong: str | None = None


@cache
def new_world(overlap: Overlap) -> World:
    job = Job(
        namespace="default",
        name="report",
        uid=UID,
        created_at=0,
        definitions=(
            Definition(version=1, schedule=Listed(TIMES), catch_up=CATCH_ALL, overlap=overlap),
        ),
    )
    return World(job, create(job, 0).state)


@cache
def look(job: Job, state: JobState, time_s: int, ended: frozenset[str]) -> Verdict:
    verdict = decide(job, state, time_s * SECOND, ended)
    return verdict._replace(state=verdict.state._replace(counters=NO_COUNTERS))


def moves(world: World, rules: Rules) -> Iterator[tuple[str, World]]:
    if world.time_s < END_S:
        yield f"time: {world.time_s + 1} s", world._replace(time_s=world.time_s + 1)
    for run_id in world.handles:
        ended = world._replace(handles=world.handles - {run_id})
        yield f"{run_id} ends", ended._replace(notices=world.notices | {run_id})
    for run_id in world.notices:
        heard = world.leader.known_ended | {run_id}
        after = world._replace(notices=world.notices - {run_id})
        yield (
            f"the leader hears that {run_id} has ended",
            after._replace(leader=world.leader._replace(known_ended=heard)),
        )
        yield f"the notice about {run_id} is lost", after
    if world.takeovers < 1:
        yield (
            "another leader takes over",
            world._replace(takeovers=world.takeovers + 1, leader=Leader()),
        )
    yield from leader_moves(world, rules)


def leader_moves(world: World, rules: Rules) -> Iterator[tuple[str, World]]:
    leader = world.leader
    named = frozenset(handle.run_id for handle in world.state.live)
    gone = named - world.handles
    if rules.reads_again and not gone <= leader.known_ended:
        read = leader._replace(known_ended=leader.known_ended | gone)
        yield "the leader reads the handles", world._replace(leader=read)
    if leader.verdict is None:
        known = leader.known_ended
        if rules.guesses_free:
            known |= named
        verdict = look(world.job, world.state, world.time_s, known)
        if verdict.changed:
            decided = leader._replace(verdict=verdict)
            yield "the leader decides", world._replace(leader=decided)
        asked = {handle.run_id for handle, _ in verdict.asks} & world.handles
        if not asked <= world.asked_to_end:
            yield (
                "the leader asks the live run to end",
                world._replace(asked_to_end=world.asked_to_end | asked),
            )
        return
    yield commit(world, leader.verdict, rules)


def commit(world: World, verdict: Verdict, rules: Rules) -> tuple[str, World]:
    again = world.leader._replace(verdict=None)
    gone = frozenset(h.run_id for h in verdict.requires) - world.handles
    stale = verdict.state.cursor < world.state.cursor
    assert not stale, "one leader decides at a time; the fence is the fire model's"
    if gone and rules.compares_handles:
        learnt = again._replace(known_ended=again.known_ended | gone)
        return "the commit is refused, the leader reads again", world._replace(leader=learnt)
    wrong = None
    if gone:
        wrong = "a start was turned away or made to wait by a run that had ended"
    made = frozenset(run.run_id for run in verdict.runs)
    if made and world.handles:
        wrong = "a run started beside a live one"
    decided = {(run.nominal // SECOND, "fired") for run in verdict.runs}
    for record in verdict.ranges:
        decided |= {
            (t // SECOND, str(record.decision))
            for t in Listed(TIMES).times
            if record.first <= t <= record.last
        }
    if {t for t, _ in decided} & {t for t, _ in world.decided}:
        wrong = "a time was decided twice"
    return (
        "the leader commits",
        world._replace(
            state=verdict.state,
            handles=world.handles | made,
            leader=again,
            decided=world.decided | decided,
            wrong=wrong,
        ),
    )


def violation(world: World, rules: Rules) -> str | None:
    if world.wrong is not None:
        return world.wrong
    if world.time_s < END_S or world.handles or any(leader_moves(world, rules)):
        return None
    # Everything has ended, every notice has been heard or lost, and nobody moves any more.
    if world.notices or world.takeovers < 1:
        return None
    if world.state.buffered:
        return "a buffered start waits for ever"
    if {t for t, _ in world.decided} != set(TIMES):
        return "a time without a decision"
    return None


def search(rules: Rules, overlap: Overlap, until: str | None = None) -> Found:
    return explore(
        new_world(overlap),
        lambda world: moves(world, rules),
        lambda world: violation(world, rules),
        until=until,
    )


@pytest.mark.parametrize(
    ("rules", "overlap", "kind"),
    [
        (
            Rules(compares_handles=False),
            Overlap.SKIP,
            "a start was turned away or made to wait by a run that had ended",
        ),
        (
            Rules(compares_handles=False),
            Overlap.CANCEL_OTHER,
            "a start was turned away or made to wait by a run that had ended",
        ),
        (Rules(reads_again=False), Overlap.BUFFER_ONE, "a buffered start waits for ever"),
        (Rules(reads_again=False), Overlap.TERMINATE_OTHER, "a buffered start waits for ever"),
        (Rules(guesses_free=True), Overlap.SKIP, "a run started beside a live one"),
        (Rules(guesses_free=True), Overlap.BUFFER_ALL, "a run started beside a live one"),
    ],
)
def test_an_unsafe_gate_is_caught(rules: Rules, overlap: Overlap, kind: str) -> None:
    found = search(rules, overlap, until=kind)
    assert kind in found.violations, str(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    "overlap", [overlap for overlap in Overlap if overlap is not Overlap.ALLOW_ALL]
)
def test_the_derived_gate_is_right_however_late_the_leader_hears(overlap: Overlap) -> None:
    found = search(Rules(), overlap)
    assert not found.violations, str(found)
    assert found.states > 1_000


@pytest.mark.slow
def test_every_decision_of_the_gate_occurs_in_the_search() -> None:
    seen: set[str] = set()
    for overlap in Overlap:
        if overlap is Overlap.ALLOW_ALL:
            continue

        def remember(world: World) -> str | None:
            seen.update(decision for _, decision in world.decided)
            return None

        explore(new_world(overlap), lambda world: moves(world, Rules()), remember)
    assert seen == {Decision.FIRED, Decision.SKIPPED, Decision.DROPPED}

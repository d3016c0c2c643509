"""Firing against edit, pause, delete and takeover: every interleaving of a job with three times.

The rules are the real ones (`decide`, `edit`, `pause`, `create`); the model adds a store that
compares, leaders that may be replaced at any moment, and messages that arrive late. Version 1 asks
at 1, 2 and 3 s, version 2 at 3 s only.

The obvious design sends the run to the queue first and moves the cursor when that is acknowledged.
Each of its variants is shown to break; one commit that compares `state/` does not.
"""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import pytest
from unit.core.models.explore import Found, explore
from unit.core.policy.world import Listed

from sexton_core.instants import HOUR, SECOND
from sexton_core.policy import (
    CatchUp,
    Change,
    Definition,
    Job,
    JobState,
    create,
    decide,
    edit,
    pause,
)
from sexton_core.policy.state import NO_COUNTERS
from sexton_core.words import CatchUpPolicy, Overlap

END_S = 3
LEADERS = 2


class Rules(NamedTuple):
    """The design under test.

    one_commit: the run, the cursor and the timer are one commit; else the run is pushed first.
    compares_state: commits compare the revision of `state/`, which every fire and every change
        rewrites; else only that of the definition.
    push_fenced: the queue refuses a push of a replaced leader.
    push_compares: the queue's commit compares the definition's revision.
    uid_in_run_id: the run's id tells incarnations of one name apart.
    """

    one_commit: bool = False
    compares_state: bool = False
    push_fenced: bool = False
    push_compares: bool = False
    uid_in_run_id: bool = True


class Stored(NamedTuple):
    """The job in the store. `asked` is for the checker: which version ruled from when on."""

    job: Job
    state: JobState
    definition_revision: int
    state_revision: int
    asked: tuple[tuple[int, Definition], ...]


class Decided(NamedTuple):
    """What of a verdict matters here, so that states that differ in nothing else are one."""

    state: JobState
    runs: tuple[tuple[str, int], ...]


class Leader(NamedTuple):
    token: int
    read: Stored | None = None
    verdict: Decided | None = None
    pushed: bool = False
    acknowledged: bool = False


class Push(NamedTuple):
    token: int
    uid: str
    run_id: str
    nominal: int
    definition_revision: int


class Draft(NamedTuple):
    """An edit that an API replica has computed and not committed."""

    read: Stored
    job: Job
    change: Change


class World(NamedTuple):
    stored: Stored | None
    time_s: int = 0
    token: int = 0
    leaders: tuple[Leader, ...] = ()
    pushes: frozenset[Push] = frozenset()
    runs: frozenset[tuple[str, str, int]] = frozenset()
    decided: tuple[tuple[str, int], ...] = ()
    draft: Draft | None = None
    edited: bool = False
    paused: bool = False
    incarnations: int = 1
    wrong: str | None = None


FAST = Listed((1, 2, 3))
SLOW = Listed((3,))
CATCH_ALL = CatchUp(policy=CatchUpPolicy.ALL, window_ns=HOUR)


def version(number: int, schedule: Listed) -> Definition:
    return Definition(
        version=number, schedule=schedule, catch_up=CATCH_ALL, overlap=Overlap.ALLOW_ALL
    )


V1, V2 = version(1, FAST), version(2, SLOW)


@cache
def new_job(incarnation: int, created_s: int) -> Stored:
    job = Job(
        namespace="default",
        name="report",
        uid="ab"[incarnation - 1] * 24,
        created_at=created_s * SECOND,
        definitions=(V1,),
    )
    state = create(job, created_s * SECOND).state
    revision = 100 * incarnation
    return Stored(job, state, revision, revision, ((created_s * SECOND, V1),))


@cache
def look(stored: Stored, time_s: int) -> Decided:
    # One time after the other keeps the model small: a leader whose clock lags sees no more.
    now = min(time_s * SECOND, stored.state.armed or END_S * SECOND)
    verdict = decide(stored.job, stored.state, now)
    runs = tuple((run.run_id, run.nominal) for run in verdict.runs)
    return Decided(verdict.state._replace(live=(), counters=NO_COUNTERS), runs)


@cache
def compute_edit(stored: Stored, time_s: int) -> Draft:
    job, change = edit(stored.job, stored.state, V2, time_s * SECOND)
    return Draft(stored, job, change)


def asks(stored: Stored, nominal: int) -> bool:
    """Reads from the history of edits whether the definition in force asks for a time."""
    ruling = None
    for after, ruled in stored.asked:
        if nominal > after:
            ruling = ruled
    return ruling is not None and nominal in ruling.schedule.times  # type: ignore[union-attr]


def make_run(world: World, uid: str, run_id: str, nominal: int, rules: Rules) -> World:
    if not rules.uid_in_run_id:
        run_id = run_id.split("-", maxsplit=1)[0]
    if any(made == run_id for made, _, _ in world.runs):
        return world
    wrong = None
    stored = world.stored
    if stored is None or stored.job.uid != uid:
        wrong = "a run of a deleted job (S13)"
    elif stored.state.paused_at is not None:
        wrong = "a run after the pause was acknowledged (S7)"
    elif not asks(stored, nominal):
        wrong = "a run that the definition in force does not ask for (S7)"
    return world._replace(runs=world.runs | {(run_id, uid, nominal)}, wrong=wrong)


def same(read: Stored, stored: Stored | None, rules: Rules) -> bool:
    """The compares of a commit that rests on what was read."""
    if stored is None or stored.job.uid != read.job.uid:
        return False
    if rules.compares_state:
        return stored.state_revision == read.state_revision
    return stored.definition_revision == read.definition_revision


def write(world: World, state: JobState, decided: tuple[int, ...]) -> World:
    stored = world.stored
    assert stored is not None
    wrong = world.wrong
    if state.cursor < stored.state.cursor:
        wrong = "the cursor goes back (S8)"
    return world._replace(
        stored=stored._replace(state=state, state_revision=stored.state_revision + 1),
        decided=tuple(sorted({*world.decided, *((stored.job.uid, t) for t in decided)})),
        wrong=wrong,
    )


def moves(world: World, rules: Rules) -> Iterator[tuple[str, World]]:
    if world.time_s < END_S:
        yield f"time: {world.time_s + 1} s", world._replace(time_s=world.time_s + 1)
    if world.token < LEADERS:
        elected = Leader(world.token + 1)
        yield (
            f"leader {elected.token} is elected",
            world._replace(token=elected.token, leaders=(*world.leaders, elected)),
        )
    for leader in world.leaders:
        yield from leader_moves(world, leader, rules)
    for push in world.pushes:
        yield push_arrives(world, push, rules)
    yield from edit_moves(world, rules)
    yield from other_changes(world)


def leader_moves(world: World, leader: Leader, rules: Rules) -> Iterator[tuple[str, World]]:
    def put(after: World, changed: Leader) -> World:
        leaders = tuple(changed if each is leader else each for each in after.leaders)
        return after._replace(leaders=leaders)

    name = f"leader {leader.token}"
    stored = world.stored
    if leader.verdict is None or leader.read is None:
        if stored is None:
            return
        verdict = look(stored, world.time_s)
        if not verdict.runs:
            return
        changed = leader._replace(read=stored, verdict=verdict)
        if rules.one_commit:
            yield f"{name} reads and decides", put(world, changed)
        else:
            pushes = {
                Push(leader.token, stored.job.uid, *run, stored.definition_revision)
                for run in verdict.runs
            }
            sent = world._replace(pushes=world.pushes | pushes)
            yield f"{name} reads, decides and pushes", put(sent, changed._replace(pushed=True))
        return
    if leader.pushed and not leader.acknowledged:
        return
    again = leader._replace(read=None, verdict=None, pushed=False, acknowledged=False)
    fenced = leader.token == world.token
    if not (fenced and same(leader.read, stored, rules)):
        yield f"{name} is refused and reads again", put(world, again)
        return
    runs = leader.verdict.runs
    after = write(world, leader.verdict.state, tuple(nominal for _, nominal in runs))
    if rules.one_commit:
        for run in runs:
            after = make_run(after, leader.read.job.uid, *run, rules)
    yield f"{name} commits", put(after, again)


def push_arrives(world: World, push: Push, rules: Rules) -> tuple[str, World]:
    after = world._replace(pushes=world.pushes - {push})
    stored = world.stored
    accepted = not rules.push_fenced or push.token == world.token
    if rules.push_compares:
        accepted = (
            accepted
            and stored is not None
            and stored.job.uid == push.uid
            and stored.definition_revision == push.definition_revision
        )
    if accepted:
        after = make_run(after, push.uid, push.run_id, push.nominal, rules)
    waiting = any(other.token == push.token for other in after.pushes)
    leaders = []
    for leader in after.leaders:
        answered = leader
        if leader.token == push.token and leader.pushed:
            if not accepted:
                answered = Leader(leader.token)
            elif not waiting:
                answered = leader._replace(acknowledged=True)
        leaders.append(answered)
    word = "accepts" if accepted else "refuses"
    label = f"the queue {word} the push of leader {push.token} for {push.nominal // SECOND} s"
    return label, after._replace(leaders=tuple(leaders))


def edit_moves(world: World, rules: Rules) -> Iterator[tuple[str, World]]:
    stored, draft = world.stored, world.draft
    if draft is None:
        if stored is not None and not world.edited and stored.job.current.version == 1:
            yield (
                f"an edit is computed at {world.time_s} s",
                world._replace(draft=compute_edit(stored, world.time_s)),
            )
        return
    if not same(draft.read, stored, rules):
        yield "the edit is refused", world._replace(draft=None)
        return
    assert stored is not None
    state = draft.change.state
    if not rules.compares_state:
        # Comparing only the definition, such a design writes the definition and not the state.
        state = stored.state._replace(rules=state.rules, armed=state.armed)
    after = write(world._replace(draft=None, edited=True), state, ())
    written = after.stored
    assert written is not None
    yield (
        "the edit is committed",
        after._replace(
            stored=written._replace(
                job=draft.job,
                definition_revision=written.definition_revision + 1,
                asked=(*written.asked, (state.rules[-1].after, V2)),
            )
        ),
    )


def other_changes(world: World) -> Iterator[tuple[str, World]]:
    stored = world.stored
    if stored is not None and not world.paused:
        change = pause(stored.job, stored.state, END_S * SECOND)
        after = write(world._replace(paused=True), change.state, ())
        assert after.stored is not None
        revised = after.stored._replace(definition_revision=stored.definition_revision + 1)
        yield "a pause is acknowledged", after._replace(stored=revised)
    if stored is not None and world.incarnations == 1:
        yield "the job is deleted", world._replace(stored=None, incarnations=2)
    if stored is None:
        # From a second back, so that both incarnations ask for the same time.
        again = new_job(2, max(0, world.time_s - 1))
        yield "it is created again under the same name", world._replace(stored=again)


def violation(world: World) -> str | None:
    if world.wrong is not None:
        return world.wrong
    stored = world.stored
    if stored is None:
        return None
    undecided = (t for t in FAST.times if t > stored.state.cursor and asks(stored, t))
    if stored.state.armed != next(undecided, None):
        return "the timer is not armed for the next time (S15)"
    if stored.state.paused_at is not None or world.time_s < END_S:
        return None
    if world.pushes or world.draft or any(leader.verdict for leader in world.leaders):
        return None
    if look(stored, world.time_s).runs:
        return None
    for nominal in FAST.times:
        if nominal <= stored.asked[0][0]:
            continue
        key = (stored.job.uid, nominal)
        made = key in {(uid, t) for _, uid, t in world.runs}
        if asks(stored, nominal) and key not in world.decided:
            return "a time without a decision (S8)"
        if key in world.decided and not made:
            return "a time decided as fired that has no run (S8)"
        if made and key not in world.decided:
            return "a run without a decision (S8)"
    return None


def search(rules: Rules, until: str | None = None) -> Found:
    start = World(new_job(1, 0))
    return explore(start, lambda world: moves(world, rules), violation, until=until)


PUSH = Rules()
PUSH_FENCED = Rules(push_fenced=True)
PUSH_COMPARES = Rules(push_fenced=True, push_compares=True)
PUSH_AND_STATE = Rules(push_fenced=True, push_compares=True, compares_state=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rules", "kind"),
    [
        (PUSH, "a run of a deleted job (S13)"),
        (PUSH, "a run after the pause was acknowledged (S7)"),
        (PUSH, "a run that the definition in force does not ask for (S7)"),
        (PUSH_FENCED, "a run after the pause was acknowledged (S7)"),
        (PUSH_COMPARES, "the timer is not armed for the next time (S15)"),
        (PUSH_AND_STATE, "a run without a decision (S8)"),
        (
            Rules(one_commit=True, compares_state=True, uid_in_run_id=False),
            "a time decided as fired that has no run (S8)",
        ),
        (Rules(one_commit=True), "the timer is not armed for the next time (S15)"),
    ],
)
def test_an_unsafe_design_is_caught(rules: Rules, kind: str) -> None:
    found = search(rules, until=kind)
    assert kind in found.violations, str(found)


@pytest.mark.slow
def test_one_commit_that_compares_the_state_loses_and_doubles_nothing() -> None:
    found = search(Rules(one_commit=True, compares_state=True))
    assert not found.violations, str(found)
    assert found.states > 5_000

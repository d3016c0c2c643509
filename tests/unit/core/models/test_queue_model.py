"""One run between two workers: takeover, broken streams, lost answers, kills, cancel requests.

The rules are those of the real state machine (`assign`, `apply`, `complete`) and of reconnecting:
an attempt that a worker does not list in its hello is sent again with the same token. The
model adds a record with a revision, owners that are replaced, and workers that may be cut off,
killed, and told too late.
"""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import pytest
from unit.core.models.explore import Found, explore

from sexton_core.runs import (
    WITH_WORKER,
    Judgement,
    Retry,
    Run,
    RunPolicy,
    apply,
    assign,
    complete,
    live_token,
)
from sexton_core.words import Delivery, RunEvent, RunState

OWNERS = 2
BREAKS = 2
KILLS = 1

TWO_ATTEMPTS = "two attempts of the run execute at once"
NEXT_RUN = "the next run of a job that skips starts while this one executes"
LIVE_REFUSED = "the completion of the live attempt is refused"
STUCK = "a run is RUNNING with a connected worker that neither has nor gets it"


class Rules(NamedTuple):
    """The design under test.

    known_when_begun: a worker knows a token from its beginning on; else from its receipt, and then
        takes it for a duplicate when it is sent again.
    session_in_assignment: a worker drops what was meant for a session that it no longer has.
    copies_token: a cancel request copies the token into its field; else the new revision is taken
        for the token.
    grace: a session whose stream broke is ended after two seconds, not after its full time, within
        which the worker ends what it executes.
    grace_when_cancelled: also where the run has a cancel request.
    delivery: of the job.
    """

    known_when_begun: bool = True
    session_in_assignment: bool = True
    copies_token: bool = True
    grace: bool = False
    grace_when_cancelled: bool = False
    delivery: Delivery = Delivery.AT_LEAST_ONCE


class Record(NamedTuple):
    """What of the run in the store matters here. A commit can't write its own revision."""

    state: RunState
    session: str
    revision: int
    token_field: int
    delivery: Delivery

    def read(self) -> Run:
        """Returns the run with the token as an owner derives it."""
        held = self.state in WITH_WORKER
        token = live_token(self.token_field, self.revision) if held else self.token_field
        return run_of(self.state, self.session, token, self.delivery)


@cache
def run_of(state: RunState, session: str, token: int, delivery: Delivery) -> Run:
    retry = Retry(max_attempts=1_000) if delivery is Delivery.AT_LEAST_ONCE else None
    return Run(
        run_id="t19700101T000001Z-abcdefgh",
        policy=RunPolicy(delivery=delivery, retry=retry, max_deliveries=1_000),
        created_at=0,
        due=0,
        not_before=0,
        state=state,
        session=session,
        token=token,
        completed=state is RunState.SUCCEEDED,
    )


class Worker(NamedTuple):
    """One worker. `refused`: the owner has ended its session, and it does not know yet."""

    session: str
    alive: bool = True
    stream: int = 1
    received: frozenset[int] = frozenset()
    executing: frozenset[int] = frozenset()
    finished: frozenset[int] = frozenset()
    known: frozenset[int] = frozenset()
    refused: bool = False

    @property
    def held(self) -> frozenset[int]:
        """Returns the tokens that hello lists."""
        return self.executing | self.finished


class Sent(NamedTuple):
    """An assignment on its way: by which owner, to which worker, with which token."""

    owner: int
    worker: int
    session: str
    token: int


class World(NamedTuple):
    record: Record
    workers: tuple[Worker, ...] = (Worker("1a"), Worker("2a"))
    owner: int = 1
    sent: frozenset[Sent] = frozenset()
    breaks_left: int = BREAKS
    kills_left: int = KILLS
    cancelled: bool = False
    next_run: bool = False
    wrong: str | None = None


def start(rules: Rules, breaks: int) -> World:
    record = Record(RunState.WAITING, "", 1, 0, rules.delivery)
    return World(record, breaks_left=breaks)


def put(world: World, index: int, worker: Worker) -> World:
    workers = list(world.workers)
    workers[index] = worker
    return world._replace(workers=tuple(workers))


def write(world: World, run: Run) -> World:
    """The owner's commit: a new revision; an ended run keeps its last token."""
    record = world.record
    field = record.token_field if run.state in WITH_WORKER else run.token
    return world._replace(
        record=Record(run.state, run.session, record.revision + 1, field, record.delivery)
    )


def moves(world: World, rules: Rules) -> Iterator[tuple[str, World]]:
    if world.owner < OWNERS:
        yield "another owner takes over", world._replace(owner=world.owner + 1)
    run = world.record.read()
    if not world.cancelled and run.state in WITH_WORKER:
        asked = write(world._replace(cancelled=True), apply(run, RunEvent.CANCEL, 0))
        if rules.copies_token:
            asked = asked._replace(record=asked.record._replace(token_field=run.token))
        yield "a cancel request is written", asked
    if run.ended and not world.next_run:
        yield "the gate is free: the next run starts", world._replace(next_run=True)
    for assignment in world.sent:
        yield delivery(world, assignment, rules)
    for index, worker in enumerate(world.workers):
        yield from worker_moves(world, index, worker, rules)
        yield from owner_moves(world, index, worker, rules)


def delivery(world: World, assignment: Sent, rules: Rules) -> tuple[str, World]:
    after = world._replace(sent=world.sent - {assignment})
    index, token = assignment.worker, assignment.token
    worker = world.workers[index]
    foreign = rules.session_in_assignment and worker.session != assignment.session
    if worker.stream != assignment.owner or foreign or token in worker.known:
        return f"token {token} is lost on its way to worker {index + 1}", after
    known = worker.known if rules.known_when_begun else worker.known | {token}
    got = worker._replace(received=worker.received | {token}, known=known)
    return f"worker {index + 1} receives token {token}", put(after, index, got)


def worker_moves(
    world: World, index: int, worker: Worker, rules: Rules
) -> Iterator[tuple[str, World]]:
    name = f"worker {index + 1}"
    if worker.alive and not worker.stream:
        yield hello(world, index, worker, rules)
    if worker.stream and world.breaks_left:
        cut = worker._replace(stream=0, received=frozenset())
        yield (
            f"{name}'s stream breaks",
            put(world._replace(breaks_left=world.breaks_left - 1), index, cut),
        )
    if worker.alive and world.kills_left:
        dead = Worker(worker.session, alive=False, stream=0, refused=worker.refused)
        yield f"{name} is killed", put(world._replace(kills_left=world.kills_left - 1), index, dead)
    for token in worker.received:
        begun = worker._replace(
            received=worker.received - {token},
            executing=worker.executing | {token},
            known=worker.known | {token},
        )
        yield f"{name} begins token {token}", put(world, index, begun)
    for token in worker.executing:
        done = worker._replace(
            executing=worker.executing - {token}, finished=worker.finished | {token}
        )
        yield f"{name} finishes token {token}", put(world, index, done)


def hello(world: World, index: int, worker: Worker, rules: Rules) -> tuple[str, World]:
    """A cut off worker connects: it ends what an ended session had, or gets what it lacks."""
    name = f"worker {index + 1}"
    if worker.refused:
        session = worker.session[0] + chr(ord(worker.session[1]) + 1)
        fresh = Worker(session, stream=world.owner, known=worker.known)
        return f"{name} is refused, kills all, opens a new session", put(world, index, fresh)
    run = world.record.read()
    again = frozenset[int]()
    if run.state in WITH_WORKER and run.session == worker.session and run.token not in worker.held:
        again = frozenset({run.token})
    taken = again - worker.known
    known = worker.known if rules.known_when_begun else worker.known | again
    connected = worker._replace(stream=world.owner, received=taken, known=known)
    return f"{name} says hello and gets {sorted(taken)}", put(world, index, connected)


def owner_moves(
    world: World, index: int, worker: Worker, rules: Rules
) -> Iterator[tuple[str, World]]:
    name = f"worker {index + 1}"
    run = world.record.read()
    connected = worker.stream == world.owner and not worker.refused
    if connected and run.state in (RunState.WAITING, RunState.RETRYING):
        given = write(world, assign(run, worker.session, 0))
        token = given.record.revision
        sent = Sent(world.owner, index, worker.session, token)
        yield (
            f"the owner commits token {token} for {name} and sends it",
            given._replace(sent=given.sent | {sent}),
        )
    if worker.stream == world.owner:
        for token in worker.finished:
            yield from completion(world, index, worker, token)
    if not worker.stream and run.state in WITH_WORKER and run.session == worker.session:
        # The full time is longer than a cut off worker goes on executing.
        quiet = not worker.alive or not worker.executing
        graceful = rules.grace and (rules.grace_when_cancelled or not world.cancelled)
        if quiet or graceful:
            lost = write(world, apply(run, RunEvent.LOSE, 0))
            how = "after its full time" if quiet else "after the grace"
            yield (
                f"{name}'s session ends {how}",
                put(lost, index, worker._replace(refused=True)),
            )


def completion(world: World, index: int, worker: Worker, token: int) -> Iterator[tuple[str, World]]:
    run = world.record.read()
    settled = complete(run, token, RunEvent.SUCCEED, 0)
    reported = worker._replace(finished=worker.finished - {token})
    if settled.judgement is Judgement.ACCEPTED:
        after = write(world, settled.run)
        yield f"the completion of token {token} counts", put(after, index, reported)
        unanswered = worker._replace(stream=0, received=frozenset())
        yield (
            f"the completion of token {token} counts, its answer is lost",
            put(after, index, unanswered),
        )
        return
    wrong = world.wrong
    live = run.state in WITH_WORKER and run.session == worker.session
    if live and settled.judgement is Judgement.REFUSED and token == max(worker.known):
        wrong = LIVE_REFUSED
    yield (
        f"the completion of token {token} is {settled.judgement}",
        put(world._replace(wrong=wrong), index, reported),
    )


def violation(world: World) -> str | None:
    if world.wrong is not None:
        return world.wrong
    executing = sum(len(worker.executing) for worker in world.workers)
    if executing > 1:
        return TWO_ATTEMPTS
    if world.next_run and executing:
        return NEXT_RUN
    run = world.record.read()
    if run.state in WITH_WORKER:
        index = int(run.session[0]) - 1
        worker = world.workers[index]
        coming = any(sent.token == run.token for sent in world.sent)
        has = run.token in worker.held | worker.received
        if worker.stream == world.owner and not (worker.refused or has or coming):
            return STUCK
    return None


def search(rules: Rules, *, until: str | None = None, breaks: int = BREAKS) -> Found:
    return explore(start(rules, breaks), lambda world: moves(world, rules), violation, until=until)


AMO = Delivery.AT_MOST_ONCE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rules", "kind"),
    [
        (Rules(known_when_begun=False), STUCK),
        (Rules(session_in_assignment=False), TWO_ATTEMPTS),
        (Rules(copies_token=False), LIVE_REFUSED),
        (Rules(grace=True), TWO_ATTEMPTS),
        (Rules(grace=True, delivery=AMO), NEXT_RUN),
        (Rules(grace=True, grace_when_cancelled=True), NEXT_RUN),
    ],
)
def test_an_unsafe_protocol_is_caught(rules: Rules, kind: str) -> None:
    found = search(rules, until=kind)
    assert kind in found.violations, str(found)


@pytest.mark.slow
@pytest.mark.parametrize("delivery", Delivery)
def test_known_when_begun_with_the_token_copied_and_no_grace_is_right(delivery: Delivery) -> None:
    found = search(Rules(delivery=delivery))
    assert not found.violations, str(found)
    assert found.states > 1_000


@pytest.mark.slow
def test_the_grace_costs_exclusion_and_nothing_else() -> None:
    found = search(Rules(grace=True), breaks=1)
    assert set(found.violations) <= {TWO_ATTEMPTS, NEXT_RUN}, str(found)

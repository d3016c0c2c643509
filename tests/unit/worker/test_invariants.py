"""Whatever happens in whatever order: what must always hold of the worker's machine."""

from __future__ import annotations

import random

import pytest

from sexton_core.instants import MILLISECOND, SECOND
from sexton_worker.contract import Ended, Order, Ref, ShellWork
from sexton_worker.machine import Machine
from sexton_worker.messages import Action, Stop, Welcome

SLOTS = 4
SESSION = 30 * SECOND
OK = Ended(succeeded=True)


class Walk:
    """A machine, an owner that keeps its books, and an executor, moved at random."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.machine = Machine(slots=SLOTS, cancel_grace=5 * SECOND)
        self.now = 1_000 * SECOND
        self.sessions = 0
        self.session = ""
        self.credits = 0
        self.tokens = 0
        self.answerable: list[tuple[int, int]] = []
        self.trusted_until = 0
        self.assigned: dict[int, str] = {}
        self.alive: dict[int, str] = {}
        self.begun: set[int] = set()
        self.done: set[int] = set()

    def step(self) -> None:
        moves = (
            self.connect, self.send, self.send, self.assign, self.assign, self.resend,
            self.end, self.end, self.acknowledge, self.stop, self.drop_stream,
            self.answer, self.wait,
        )  # fmt: skip
        self.random.choice(moves)()
        self.carry_out()
        self.check()

    # Moves

    def connect(self) -> None:
        if not self.machine.may_connect:
            return
        held = self.machine.hello(self.now)
        assert {ref.token for ref in held} == set(self.alive) | self.done
        if not self.machine.session or self.random.random() < 0.2:
            self.sessions += 1
            self.session = f"s{self.sessions}"
            self.assigned.clear()
        revoked = [ref for ref in held if self.random.random() < 0.2]
        welcome = Welcome(self.session, 1, SESSION, SECOND, revoked)
        changed = self.session != self.machine.session
        self.machine.welcome(welcome, self.now)
        self.credits = 0
        self.answerable.clear()
        if changed:
            self.done.clear()
            self.trusted_until = 0
        for token in (ref.token for ref in revoked):
            self.done.discard(token)
            self.assigned.pop(token, None)
        self.trusted_until = max(self.trusted_until, self.now + SESSION * 4 // 5)

    def send(self) -> None:
        message = self.machine.take(self.now)
        if message is None:
            return
        self.credits += message.credits
        if message.credits:
            assert all(session == self.session for session in self.alive.values())
        if message.heartbeat:
            self.answerable.append((message.heartbeat, self.now))
        assert {completion.ref.token for completion in message.completions} <= self.done

    def assign(self) -> None:
        if self.machine.welcomed and self.credits:
            self.credits -= 1
            self.tokens += 1
            self.assigned[self.tokens] = self.session
            self.deliver(self.tokens)

    def resend(self) -> None:
        if self.machine.welcomed and self.credits and self.assigned:
            self.credits -= 1
            self.deliver(self.random.choice(list(self.assigned)))

    def deliver(self, token: int) -> None:
        order = Order(
            ref=ref(token), session=self.assigned[token], number=1, namespace="n", job="j",
            run_id="r", nominal_time=0, timeout=20 * SECOND, traceparent="",
            work=ShellWork("true", {}, ""),
        )  # fmt: skip
        self.machine.assigned(order, self.now)

    def end(self) -> None:
        if self.alive:
            token = self.random.choice(list(self.alive))
            del self.alive[token]
            self.machine.ended(token, OK, self.now)
            if token in self.machine.attempts:
                self.done.add(token)

    def acknowledge(self) -> None:
        if self.done and self.machine.welcomed:
            token = self.done.pop()
            self.assigned.pop(token, None)
            self.machine.acknowledged(ref(token), accepted=self.random.random() < 0.5)

    def stop(self) -> None:
        if self.alive:
            token = self.random.choice(list(self.alive))
            self.machine.stop(Stop(ref(token), self.random.random() < 0.5, "test"), self.now)

    def drop_stream(self) -> None:
        self.machine.disconnected()
        self.credits = 0

    def answer(self) -> None:
        if self.answerable and self.machine.welcomed:
            number, sent = self.answerable.pop(0)
            self.machine.wake(self.now)
            if self.machine.answered(number, self.now):
                self.trusted_until = max(self.trusted_until, sent + SESSION * 4 // 5)

    def wait(self) -> None:
        self.now += self.random.choice((MILLISECOND, SECOND, SECOND, 3 * SECOND, 26 * SECOND))
        self.machine.wake(self.now)
        if not self.machine.session:
            self.done.clear()
            self.assigned.clear()

    def carry_out(self) -> None:
        commands, self.machine.commands = self.machine.commands, []
        for action, order in commands:
            token = order.ref.token
            if action is Action.BEGIN:
                assert token not in self.begun, "an attempt began twice"
                assert self.now < self.trusted_until, "an attempt began in a session that is over"
                assert order.session == self.session
                self.begun.add(token)
                self.alive[token] = order.session
            else:
                assert token in self.alive

    # What must hold

    def check(self) -> None:
        machine = self.machine
        assert machine.executing == len(self.alive) <= SLOTS
        if machine.welcomed:
            assert self.credits <= SLOTS - min(SLOTS, len(self.alive))
        if machine.session and self.now < machine.end_at:
            assert machine.end_at <= self.trusted_until
        if not machine.session:
            assert not any(machine.attempts[token].completion for token in machine.attempts)


def ref(token: int) -> Ref:
    return Ref(f"handle-{token}".encode(), token)


@pytest.mark.parametrize("seed", range(60))
def test_what_must_always_hold(seed: int) -> None:
    walk = Walk(seed)
    walk.connect()
    for _ in range(250):
        walk.step()
    assert walk.begun

"""The exhaustive model's moves, made at random by the real machine: what must never be seen.

Each seed is one walk; a failing one names itself.
"""

from __future__ import annotations

import random

import pytest
from unit.queue.lines import waiting
from unit.queue.shop import Hand, Shop

from sexton.v1 import job_pb2
from sexton_core.instants import SECOND
from sexton_core.words import RunState
from sexton_queue.streams import Ref

STEPS = 100
LIVE = (RunState.WAITING, RunState.RETRYING, RunState.RUNNING)


class Walk:
    def __init__(self, seed: int, **fields: object) -> None:
        self.random = random.Random(f"walk-{seed}")
        self.shop = Shop()
        run = waiting(retry=job_pb2.Retry(max_attempts=1_000, max_deliveries=1_000), **fields)
        self.handle = run.key
        self.shop.put(run.key, run.value)
        self.shop.take_over()
        self.hands = [Hand(self.shop, "one"), Hand(self.shop, "two")]
        self.cancelled = False
        self.ended: RunState | None = None
        self.trace: list[str] = []

    def go(self) -> None:
        """Walks, and comes to rest."""
        for _ in range(STEPS):
            self.trace.append(self.step())
            self.check()
        self.come_to_rest()

    def step(self) -> str:
        hand = self.random.choice(self.hands)
        moves = {
            "hello": self.hello,
            "read": Hand.read,
            "begin": Hand.begin,
            "finish": Hand.finish,
            "report again": self.report_again,
            "cut": Hand.cut,
            "kill": self.kill,
            "beat": Hand.beat,
            "take over": self.take_over,
            "pump": self.pump,
            "lose answers": self.lose_answers,
            "lose commits": self.lose_commits,
            "cancel": self.cancel,
            "a second": self.second,
            "five seconds": self.five_seconds,
        }
        weights = [3, 9, 7, 0.3, 2, 3, 0.3, 3, 0.4, 9, 1.5, 0.7, 0.3, 5, 0.7]
        (name,) = self.random.choices(list(moves), weights)
        moves[name](hand)
        return f"{hand.name}: {name}"

    def hello(self, hand: Hand) -> None:
        if hand.alive and hand.stream is None:
            hand.hello()

    def report_again(self, hand: Hand) -> None:
        for ref in sorted(hand.finished):
            hand.report(ref)

    def kill(self, hand: Hand) -> None:
        hand.kill()
        self.hands[self.hands.index(hand)] = Hand(self.shop, hand.name)

    def take_over(self, _hand: Hand) -> None:
        for hand in self.hands:
            hand.stream = None
            hand.received.clear()
        self.shop.take_over()

    def pump(self, _hand: Hand) -> None:
        self.shop.pump()

    def lose_answers(self, _hand: Hand) -> None:
        self.shop.pump(unknown=True)

    def lose_commits(self, _hand: Hand) -> None:
        self.shop.pump(unknown=True, applied=False)

    def cancel(self, _hand: Hand) -> None:
        self.shop.end(self.handle)
        self.cancelled = True

    def second(self, _hand: Hand) -> None:
        self.pass_time(1)
        for hand in self.hands:
            hand.beat()

    def five_seconds(self, _hand: Hand) -> None:
        self.pass_time(5)

    def pass_time(self, seconds: int) -> None:
        self.shop.boot += seconds * SECOND
        for hand in self.hands:
            hand.check_margin()

    def check(self) -> None:
        executing = [ref for hand in self.hands for ref in hand.executing]
        assert len(executing) <= 1, "two attempts of the run execute at once"
        state = self.shop.state(self.handle)
        if self.ended is not None:
            assert state is self.ended, "what has ended stays as it ended"
        elif state not in (*LIVE, RunState.CANCELLING):
            self.ended = state
            record = self.shop.record(self.handle)
            assert all(ref.token == record.token for ref in executing), "an attempt is left behind"
            assert not executing, "the next run could start while this one executes"

    def come_to_rest(self) -> None:
        """Whatever has happened: with one worker that works, the run ends."""
        for _ in range(80):
            for hand in self.hands:
                self.hello(hand)
                self.shop.pump()
                hand.read()
                hand.begin()
                hand.beat()
                hand.finish()
                self.report_again(hand)
                self.shop.pump()
                hand.read()
                self.check()
            self.pass_time(1)
            if self.ended is not None:
                break
        assert self.ended is not None, f"stuck: {self.shop.state(self.handle)}"
        assert not [key for key in self.shop.kvs if key.startswith(b"active/")]
        machine = self.shop.machine
        assert machine.table.by_key == {}
        assert machine.table.line.running.total() == 0


@pytest.mark.parametrize("seed", range(150))
def test_an_exclusive_run_never_executes_twice_at_once_and_always_ends(seed: int) -> None:
    walk = Walk(seed, exclusive=True)
    try:
        walk.go()
    except AssertionError as error:
        raise AssertionError(f"{error}; seed {seed}: {walk.trace}") from error


def test_an_unlisted_attempt_is_sent_again_only_when_there_is_room() -> None:
    shop = Shop()
    run = waiting()
    shop.put(run.key, run.value)
    shop.take_over()
    hand = Hand(shop, "one", slots=1)
    hand.hello()
    shop.pump()
    hand.read()
    shop.pump()
    assert shop.state(run.key) is RunState.RUNNING
    hand.cut()
    hand.hello()
    shop.pump()
    assert hand.stream is not None
    assert hand.stream.assignments == []
    hand.read()
    shop.pump()
    (again,) = hand.stream.assignments
    assert again.ref == Ref(run.key, shop.kv(run.key).mod_revision)

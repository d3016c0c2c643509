"""Starts come before ends while there is room for them, but not for long."""

from __future__ import annotations

from unit.queue.lines import waiting
from unit.queue.shop import Hand, Shop

from sexton_core.instants import MILLISECOND
from sexton_queue.changes import Kind


def arrive(shop: Shop, number: int) -> None:
    kv = waiting(number)
    shop.put(kv.key, kv.value)
    shop.machine.table.arrive(kv.key, shop.revision, kv.value, shop.now)


def with_an_end_and_a_ready_run(slots: int) -> Shop:
    shop = Shop()
    hand = Hand(shop, "one", slots=slots)
    hand.hello()
    shop.pump()
    hand.read()
    arrive(shop, 0)
    shop.pump()
    hand.read()
    hand.begin()
    hand.finish()
    arrive(shop, 1)
    return shop


def test_a_ready_run_is_handed_out_before_ends_are_written() -> None:
    shop = with_an_end_and_a_ready_run(slots=2)
    decided = shop.machine.decide(shop.now)
    assert [change.kind for change in decided] == [Kind.ASSIGN]

    shop.machine.settle(decided, [shop.commit(change) for change in decided], shop.now)
    assert [change.kind for change in shop.machine.decide(shop.now)] == [Kind.END]


def test_ends_wait_50_ms_at_most() -> None:
    shop = with_an_end_and_a_ready_run(slots=2)
    assert shop.machine.next_wake()[1] == shop.boot + 50 * MILLISECOND
    shop.boot += 50 * MILLISECOND
    decided = shop.machine.decide(shop.now)
    assert [change.kind for change in decided] == [Kind.END, Kind.ASSIGN]


def test_ends_wait_for_no_run_that_has_no_worker() -> None:
    shop = with_an_end_and_a_ready_run(slots=1)
    assert [change.kind for change in shop.machine.decide(shop.now)] == [Kind.END]

"""What waits for a step: bounds, order, fairness."""

from __future__ import annotations

from typing import Any

import pytest

from sexton.errors import Overloaded
from sexton_runtime.kv.columns import runs_of
from sexton_runtime.kv.types import Txn
from sexton_store.contract import EngineConfig
from sexton_store.lanes import Lanes
from sexton_store.requests import CommitRequest, Lane, PersistRequest, Request

CONFIG = EngineConfig(
    max_step_txns=100,
    max_step_bytes=1_000_000,
    max_waiting_requests=50,
    max_waiting_bytes=2_000_000,
    max_leases=5,
)


def waiting(txns: int, size_bytes: int = 0) -> CommitRequest:
    return CommitRequest(runs_of((Txn(),) * txns) or (), ops=0, size_bytes=size_bytes)


def gathered(lanes: Lanes) -> list[int]:
    return [request.txns for request in lanes.gather()]


async def test_requests_are_small_up_to_a_bound() -> None:
    assert waiting(16, 65_536).lane is Lane.SMALL
    assert waiting(17).lane is Lane.BULK
    assert waiting(1, 65_537).lane is Lane.BULK
    assert PersistRequest().lane is Lane.URGENT


async def test_each_lane_is_first_in_first_out_and_urgent_ones_come_first() -> None:
    lanes = Lanes(CONFIG)
    requests: list[Request[Any]] = [
        waiting(20),
        waiting(1),
        PersistRequest(),
        waiting(21),
        waiting(2),
    ]
    for request in requests:
        lanes.add(request)
    assert gathered(lanes) == [0, 1, 2, 20, 21]
    assert not lanes
    assert (lanes.requests, lanes.weight_bytes) == (0, 0)


async def test_small_ones_fill_half_a_step_while_bulk_waits_and_all_of_it_otherwise() -> None:
    lanes = Lanes(CONFIG)
    for _ in range(30):
        lanes.add(waiting(5))
    lanes.add(waiting(40))
    assert gathered(lanes) == [5] * 10 + [40, 5, 5]
    assert gathered(lanes) == [5] * 18


async def test_bulk_gets_on_however_much_is_small() -> None:
    lanes = Lanes(CONFIG)
    for _ in range(40):
        lanes.add(waiting(16))
    lanes.add(waiting(99))
    assert 99 in gathered(lanes)


async def test_a_step_is_bounded_by_bytes_but_takes_at_least_one() -> None:
    lanes = Lanes(CONFIG)
    for _ in range(2):
        lanes.add(waiting(1, 900_000))
    assert len(gathered(lanes)) == 1
    assert len(gathered(lanes)) == 1
    lanes.add(waiting(1, 1_500_000))
    assert len(gathered(lanes)) == 1


async def test_what_is_taken_out_of_the_middle_weighs_nothing() -> None:
    lanes = Lanes(CONFIG)
    requests = [waiting(number) for number in (1, 2, 3)]
    for request in requests:
        lanes.add(request)
    assert lanes.remove(requests[1])
    assert not lanes.remove(requests[1])
    assert lanes.requests == 2
    assert gathered(lanes) == [1, 3]
    assert not lanes.remove(requests[0])
    assert lanes.weight_bytes == 0


async def test_the_bounds_hold_for_all_but_the_leases_own_room() -> None:
    lanes = Lanes(CONFIG)
    for _ in range(50):
        lanes.add(waiting(1))
    with pytest.raises(Overloaded):
        lanes.add(waiting(1))
    for _ in range(5):
        lanes.add(PersistRequest())
    with pytest.raises(Overloaded):
        lanes.add(PersistRequest())
    assert len(lanes.drain()) == 55
    assert (lanes.requests, lanes.weight_bytes) == (0, 0)


@pytest.mark.parametrize("wrong", [{"tick_ms": 251}, {"tick_ms": 0}, {"max_step_txns": 0}])
def test_a_config_that_can_not_work_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        EngineConfig(**wrong)  # type: ignore[arg-type]

from __future__ import annotations

import asyncio

import pytest

from sexton.errors import Unavailable
from sexton_runtime.kv.mesh_time import MeshTime
from sexton_sim.loop import SimLoop

MS = 1_000_000
S = 1_000_000_000
NOON = 1_796_040_000 * S


class TickingClock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now_ns = 0

    def boot_ns(self) -> int:
        return self.now_ns

    def wall_ns(self) -> int:
        raise AssertionError("the wall clock decides nothing")

    def monotonic_ns(self) -> int:
        raise AssertionError("it stands still while the machine is suspended")

    def boot_id(self) -> str:
        return "boot"


def test_mesh_time_is_the_answers_as_of_the_middle_of_the_round_trip() -> None:
    clock = TickingClock()
    mesh = MeshTime(clock)
    clock.now_ns = 10 * MS
    mesh.observe(NOON, sent_ns=4 * MS, received_ns=10 * MS)
    assert mesh.now_ns() == NOON + 3 * MS
    assert mesh.error_ns == 3 * MS


@pytest.mark.parametrize("there_ms", [0, 3, 6])
def test_a_past_time_has_come_whichever_way_took_long(there_ms: int) -> None:
    clock = TickingClock()
    mesh = MeshTime(clock)
    clock.now_ns = 10 * MS
    mesh.observe(NOON, sent_ns=4 * MS, received_ns=10 * MS)
    real_ns = NOON + (6 - there_ms) * MS
    assert real_ns - 6 * MS <= mesh.past_ns() <= real_ns
    clock.now_ns += S
    assert real_ns < mesh.past_ns() <= real_ns + S


@pytest.mark.parametrize("pause_ms", [1, 10, 100, 1_000])
@pytest.mark.parametrize("speed", [0.5, 1.5])
def test_mesh_time_that_is_slewed_is_not_steady_and_is_again_afterwards(
    pause_ms: int, speed: float
) -> None:
    clock = TickingClock()
    mesh, at = MeshTime(clock), NOON

    def pass_by(for_ms: int, speed: float) -> None:
        nonlocal at
        for _ in range(for_ms // pause_ms):
            clock.now_ns += pause_ms * MS
            at += round(pause_ms * MS * speed)
            mesh.observe(at, sent_ns=clock.now_ns - MS, received_ns=clock.now_ns + MS)

    pass_by(3_000, 1.0001)
    assert mesh.steady
    pass_by(2_000, speed)
    assert not mesh.steady
    pass_by(4_000, 1)
    assert not mesh.steady
    pass_by(6_000, 1)
    assert mesh.steady


def test_before_the_first_answer_mesh_time_is_not_made_up() -> None:
    mesh = MeshTime(TickingClock())
    assert not mesh.known
    with pytest.raises(Unavailable):
        mesh.now_ns()
    with pytest.raises(Unavailable):
        _ = mesh.error_ns
    with pytest.raises(Unavailable):
        mesh.past_ns()


def test_mesh_time_goes_on_over_a_suspension() -> None:
    clock = TickingClock()
    mesh = MeshTime(clock)
    mesh.observe(NOON, sent_ns=0, received_ns=0)
    clock.now_ns = 3 * 3600 * S
    assert mesh.now_ns() == NOON + 3 * 3600 * S


def test_mesh_time_never_goes_back_when_a_better_answer_says_it_is_earlier() -> None:
    clock = TickingClock()
    mesh = MeshTime(clock)
    clock.now_ns = 100 * MS
    mesh.observe(NOON, sent_ns=0, received_ns=100 * MS)
    assert mesh.now_ns() == NOON + 50 * MS
    mesh.observe(NOON + 10 * MS, sent_ns=100 * MS, received_ns=100 * MS)
    assert mesh.now_ns() == NOON + 50 * MS
    clock.now_ns = 150 * MS
    assert mesh.now_ns() == NOON + 60 * MS


def test_a_slow_answer_does_not_spoil_a_good_estimate() -> None:
    clock = TickingClock()
    mesh = MeshTime(clock)
    mesh.observe(NOON, sent_ns=0, received_ns=0)
    clock.now_ns = 200 * MS
    mesh.observe(NOON + 10 * MS, sent_ns=0, received_ns=200 * MS)
    assert mesh.now_ns() == NOON + 200 * MS


def test_an_old_estimate_gives_way_to_a_fresh_answer() -> None:
    clock = TickingClock()
    mesh = MeshTime(clock)
    mesh.observe(NOON, sent_ns=0, received_ns=0)
    clock.now_ns = 10 * S
    assert mesh.error_ns == 100 * MS
    mesh.observe(NOON + 10 * S + 5 * MS, sent_ns=10 * S - 20 * MS, received_ns=10 * S)
    assert mesh.now_ns() == NOON + 10 * S + 15 * MS
    assert mesh.error_ns == 10 * MS


def test_an_answer_that_contradicts_the_estimate_means_that_mesh_time_was_moved() -> None:
    clock = TickingClock()
    mesh = MeshTime(clock)
    mesh.observe(NOON, sent_ns=0, received_ns=0)
    clock.now_ns = 100 * MS
    mesh.observe(NOON + 3600 * S, sent_ns=0, received_ns=100 * MS)
    assert mesh.now_ns() == NOON + 3600 * S + 50 * MS


def test_a_watchs_message_is_a_lower_bound() -> None:
    clock = TickingClock()
    mesh = MeshTime(clock)
    mesh.observe(NOON, sent_ns=0, received_ns=0)
    mesh.observe_at_least(NOON - S)
    assert mesh.now_ns() == NOON
    mesh.observe_at_least(NOON + S)
    assert mesh.now_ns() == NOON + S


def test_waiting_ends_at_the_instant_although_the_wall_clock_jumps() -> None:
    loop = SimLoop()
    process = loop.process("waiter", loop.machine("host"))

    async def wait() -> tuple[int, float]:
        mesh = MeshTime(process.clock)
        now_ns = process.clock.boot_ns()
        mesh.observe(NOON, now_ns, now_ns)
        loop.call_later(1.0, process.machine.jump_wall, -3600 * S)
        started = loop.time()
        await mesh.wait_until(NOON + 5 * S)
        return mesh.now_ns(), loop.time() - started

    async def main() -> tuple[int, float]:
        return await process.spawn(wait())

    reached, took_s = loop.run(main())
    assert NOON + 5 * S <= reached < NOON + 5 * S + MS
    assert 5.0 <= took_s < 5.001


def test_waiting_follows_mesh_time_when_it_is_set_forward() -> None:
    loop = SimLoop()
    process = loop.process("waiter", loop.machine("host"))

    async def wait() -> float:
        mesh = MeshTime(process.clock)
        mesh.observe(NOON, process.clock.boot_ns(), process.clock.boot_ns())
        started = loop.time()
        loop.call_later(0.5, mesh.observe_at_least, NOON + 60 * S)
        await mesh.wait_until(NOON + 30 * S)
        return loop.time() - started

    async def main() -> float:
        return await process.spawn(wait())

    assert loop.run(main()) == pytest.approx(0.5)


def test_waiting_for_the_past_returns_at_once() -> None:
    mesh = MeshTime(TickingClock())
    mesh.observe(NOON, 0, 0)
    asyncio.run(mesh.wait_until(NOON))


def test_an_estimate_that_went_on_while_mesh_time_stood_still_is_taken_back() -> None:
    clock = TickingClock()
    mesh = MeshTime(clock)
    mesh.observe(NOON, sent_ns=0, received_ns=0)
    clock.now_ns = 3 * 86_400 * S  # the store was away, its clock in dispute
    assert mesh.now_ns() == NOON + 3 * 86_400 * S
    mesh.observe(NOON + S, sent_ns=3 * 86_400 * S, received_ns=3 * 86_400 * S)
    assert mesh.now_ns() == NOON + S
    clock.now_ns += S
    assert mesh.now_ns() == NOON + 2 * S

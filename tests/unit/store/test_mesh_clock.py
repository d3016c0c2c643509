"""Mesh time under every fault of the clocks (S20): it never goes back."""

from __future__ import annotations

import random

import pytest

from sexton.errors import StaleRevision
from sexton_runtime.kv.status import ClockState
from sexton_store.mesh_clock import ClockRecord, MeshClock

S = 1_000_000_000
MS = S // 1_000
HOUR = 3_600 * S
DAY = 24 * HOUR
YEAR = 365 * DAY
T0 = 1_800_000_000 * S
STEADY, DISPUTED, FOLLOWING = ClockState.STEADY, ClockState.DISPUTED, ClockState.FOLLOWING


class Machine:
    """A machine's clocks, and a mesh clock on them whose every look is held to the promise."""

    def __init__(self, *, wall_ns: int = T0) -> None:
        self.boot_id = "boot-1"
        self.boot_ns = 50 * S
        self.wall_ns = wall_ns
        self.mesh = MeshClock.create(self.boot_id, self.boot_ns, self.wall_ns)
        self.last_ns = self.look()

    def look(self) -> int:
        """Looks at the clock; it must not have gone back."""
        now_ns = self.mesh.now(self.boot_ns, self.wall_ns)
        assert now_ns >= getattr(self, "last_ns", 0)
        self.last_ns = now_ns
        return now_ns

    def run(self, real_ns: int, *, wall_rate: float = 1.0, step_ns: int = 50 * MS) -> int:
        """Lets time pass, looking every 50 ms, never slower than half speed."""
        while real_ns > 0:
            before = self.last_ns
            step = min(step_ns, real_ns)
            self.boot_ns += step
            self.wall_ns += int(step * wall_rate)
            assert self.look() - before >= step // 2
            real_ns -= step
        return self.last_ns

    def off(self, real_ns: int, *, wall_jump_ns: int = 0) -> None:
        """The machine is off, or asleep, or the store is: nobody looks."""
        self.boot_ns += real_ns
        self.wall_ns += real_ns + wall_jump_ns

    def restart(self, *, reboot: bool) -> int:
        """Starts the store again from its durable record."""
        if reboot:
            self.boot_id += "'"
            self.boot_ns = 7 * S
        record = self.mesh.record()
        self.mesh = MeshClock.resume(record, self.boot_id, self.boot_ns, self.wall_ns)
        return self.look()

    @property
    def state(self) -> ClockState:
        return self.mesh.read(self.boot_ns, self.wall_ns).state

    @property
    def dispute(self) -> int:
        return self.mesh.read(self.boot_ns, self.wall_ns).dispute

    def accept(self, dispute: int) -> None:
        self.mesh.accept(dispute, self.boot_ns, self.wall_ns)


def test_it_begins_with_the_wall_clock_and_goes_with_it() -> None:
    machine = Machine()
    assert machine.look() == T0
    assert machine.run(10 * S) == T0 + 10 * S
    assert (machine.state, machine.dispute) == (STEADY, 0)


def test_a_wall_clock_a_little_ahead_is_slewed_at_most_half_as_fast_again() -> None:
    machine = Machine()
    machine.wall_ns += S
    assert machine.run(S) == T0 + 1_500 * MS
    assert machine.run(S) == T0 + 3 * S
    assert machine.state is STEADY


def test_a_wall_clock_a_little_behind_is_slewed_at_half_speed() -> None:
    machine = Machine()
    machine.wall_ns -= S
    assert machine.run(S) == T0 + 500 * MS
    assert machine.run(S) == T0 + S
    assert machine.run(S) == T0 + 2 * S
    assert machine.state is STEADY


@pytest.mark.parametrize("step_ns", [S + 1, HOUR, DAY])
def test_a_forward_step_up_to_a_day_is_followed_at_once(step_ns: int) -> None:
    machine = Machine()
    machine.wall_ns += step_ns
    assert machine.look() == T0 + step_ns
    assert machine.state is STEADY
    assert machine.mesh.changed
    assert machine.mesh.steps == 1


@pytest.mark.parametrize("step_ns", [DAY + 1, 10 * YEAR, -S - 1, -HOUR, -50 * YEAR])
def test_any_other_step_is_disputed_and_time_goes_on(step_ns: int) -> None:
    machine = Machine()
    machine.wall_ns += step_ns
    assert machine.look() == T0
    assert (machine.state, machine.dispute) == (DISPUTED, 1)
    assert machine.mesh.changed
    assert machine.run(20 * S) == T0 + 20 * S
    assert (machine.state, machine.dispute) == (DISPUTED, 1)


@pytest.mark.parametrize("back_to_ns", [-S, 0, S])
def test_a_dispute_closes_by_itself_when_the_wall_clock_comes_back(back_to_ns: int) -> None:
    machine = Machine()
    machine.wall_ns += 10 * YEAR
    machine.run(5 * S)
    machine.wall_ns -= 10 * YEAR - back_to_ns
    machine.run(5 * S)
    assert (machine.state, machine.dispute) == (STEADY, 1)
    assert machine.last_ns == T0 + 10 * S + back_to_ns


def test_coming_back_to_within_an_hour_is_not_coming_back() -> None:
    machine = Machine()
    machine.wall_ns += 10 * YEAR
    machine.run(S)
    machine.wall_ns -= 10 * YEAR - HOUR
    assert machine.run(S) == T0 + 2 * S
    assert (machine.state, machine.dispute) == (DISPUTED, 2)


def test_another_jump_in_a_dispute_is_another_dispute() -> None:
    machine = Machine()
    machine.wall_ns += 10 * YEAR
    machine.run(S)
    machine.wall_ns += 10 * YEAR
    machine.run(S)
    with pytest.raises(StaleRevision) as caught:
        machine.accept(1)
    assert caught.value.current == 2
    machine.accept(2)
    assert machine.look() == T0 + 20 * YEAR + 2 * S


def test_an_accepted_wall_clock_ahead_is_followed_at_once() -> None:
    machine = Machine()
    machine.wall_ns += 3 * DAY
    machine.run(S)
    machine.accept(1)
    assert machine.look() == T0 + 3 * DAY + S
    assert (machine.state, machine.dispute) == (STEADY, 1)


def test_an_accepted_wall_clock_behind_is_waited_for_at_half_speed() -> None:
    machine = Machine()
    machine.wall_ns -= 10 * S
    machine.run(S)
    machine.accept(1)
    assert machine.state is FOLLOWING
    assert machine.look() == T0 + S
    assert machine.run(10 * S) == T0 + 6 * S
    assert machine.state is FOLLOWING
    machine.run(10 * S)
    assert machine.state is STEADY
    assert machine.last_ns == machine.wall_ns == T0 + 11 * S


def test_accepting_again_once_settled_changes_nothing() -> None:
    machine = Machine()
    machine.wall_ns -= 10 * S
    machine.run(S)
    machine.accept(1)
    machine.accept(1)
    assert machine.state is FOLLOWING
    machine.run(30 * S)
    machine.accept(1)
    assert machine.state is STEADY


def test_only_the_dispute_that_was_seen_is_accepted() -> None:
    machine = Machine()
    for dispute in (1, 7):
        with pytest.raises(StaleRevision):
            machine.accept(dispute)
    machine.wall_ns -= HOUR
    machine.look()
    for dispute in (0, 2):
        with pytest.raises(StaleRevision):
            machine.accept(dispute)
    assert machine.state is DISPUTED


def test_jumping_back_further_while_being_waited_for_is_disputed_anew() -> None:
    machine = Machine()
    machine.wall_ns -= HOUR
    machine.look()
    machine.accept(1)
    machine.run(S)
    machine.wall_ns -= HOUR
    machine.run(S)
    assert (machine.state, machine.dispute) == (DISPUTED, 2)


def test_jumping_forward_while_being_waited_for_ends_the_wait() -> None:
    machine = Machine()
    machine.wall_ns -= HOUR
    machine.look()
    machine.accept(1)
    machine.wall_ns += 2 * HOUR
    assert machine.look() == T0 + HOUR
    assert machine.state is STEADY


def test_a_strobing_wall_clock_does_not_move_time() -> None:
    machine = Machine()
    for _ in range(20):
        machine.wall_ns += 10 * YEAR
        machine.run(S)
        machine.wall_ns -= 10 * YEAR
        machine.run(S)
    assert machine.last_ns == T0 + 40 * S
    assert machine.state is STEADY


@pytest.mark.parametrize("wall_rate", [0.5, 0.999, 1.001, 2.0])
def test_a_wall_clock_of_another_rate_is_kept_up_with(wall_rate: float) -> None:
    machine = Machine()
    machine.run(60 * S, wall_rate=wall_rate)
    assert machine.state is STEADY
    assert abs(machine.last_ns - machine.wall_ns) <= S


def test_a_wall_clock_that_stands_still_is_disputed() -> None:
    machine = Machine()
    machine.run(60 * S, wall_rate=0)
    assert machine.state is DISPUTED
    assert machine.last_ns >= T0 + 58 * S


def test_a_boot_clock_that_went_back_stops_time_at_most() -> None:
    machine = Machine()
    machine.run(S)
    machine.boot_ns -= 30 * S
    machine.look()


# Restarts


def test_the_same_boot_goes_on_as_if_there_had_been_no_stop() -> None:
    machine = Machine()
    machine.off(HOUR)
    assert machine.restart(reboot=False) == T0 + HOUR
    machine.off(HOUR, wall_jump_ns=10 * YEAR)
    assert machine.restart(reboot=False) == T0 + 2 * HOUR
    assert machine.state is DISPUTED


def test_a_machine_that_slept_for_three_days_knows() -> None:
    machine = Machine()
    machine.off(3 * DAY)
    assert machine.look() == T0 + 3 * DAY
    assert machine.state is STEADY


def test_a_machine_that_was_off_for_three_days_knows_too() -> None:
    machine = Machine()
    machine.off(3 * DAY)
    assert machine.restart(reboot=True) == T0 + 3 * DAY
    assert machine.state is STEADY


@pytest.mark.parametrize(("days", "state"), [(400, STEADY), (401, DISPUTED)])
def test_after_a_boot_the_wall_clock_is_believed_up_to_400_days(
    days: int, state: ClockState
) -> None:
    machine = Machine()
    machine.off(0, wall_jump_ns=days * DAY)
    now_ns = machine.restart(reboot=True)
    assert now_ns == (T0 + days * DAY if state is STEADY else T0)
    assert machine.state is state


def test_after_a_boot_time_does_not_go_back_to_a_wall_clock_behind() -> None:
    machine = Machine()
    machine.off(0, wall_jump_ns=-50 * YEAR)
    assert machine.restart(reboot=True) == T0
    assert (machine.state, machine.dispute) == (DISPUTED, 1)
    assert machine.run(S) == T0 + S


def test_after_a_boot_a_wall_clock_a_little_behind_is_slewed() -> None:
    machine = Machine()
    machine.off(0, wall_jump_ns=-S)
    assert machine.restart(reboot=True) == T0
    machine.run(4 * S)
    assert (machine.state, machine.dispute) == (STEADY, 0)
    assert machine.last_ns == machine.wall_ns


@pytest.mark.parametrize("reboot", [False, True])
def test_a_restart_settles_no_dispute(*, reboot: bool) -> None:
    machine = Machine()
    machine.wall_ns += 10 * YEAR
    machine.run(S)
    machine.off(S)
    now_ns = machine.restart(reboot=reboot)
    assert now_ns == T0 + (S if reboot else 2 * S)
    assert machine.state is DISPUTED
    assert machine.run(S) == now_ns + S
    assert machine.dispute == (2 if reboot else 1)


def test_a_boot_settles_no_dispute_either_by_a_wall_clock_that_could_be_followed() -> None:
    machine = Machine()
    machine.wall_ns -= HOUR
    machine.run(S)
    machine.off(0, wall_jump_ns=3 * HOUR)
    now_ns = machine.restart(reboot=True)
    assert machine.state is DISPUTED
    assert machine.run(S) == now_ns + S


def test_a_boot_clock_that_is_behind_the_record_is_another_boots() -> None:
    """A container or a restored snapshot may keep a boot's id: no time is told twice."""
    machine = Machine()
    machine.run(10 * S)
    record = machine.mesh.record()
    machine.wall_ns += HOUR
    resumed = MeshClock.resume(record, "boot-1", record.boot_ns - 5 * S, machine.wall_ns)
    assert resumed.now(record.boot_ns - 4 * S, machine.wall_ns + S) == machine.wall_ns + S


def test_a_dispute_of_an_earlier_boot_has_another_number() -> None:
    """Nobody knows where the wall clock went meanwhile: who accepts must have looked again."""
    machine = Machine()
    machine.wall_ns += 10 * YEAR
    machine.run(S)
    machine.restart(reboot=True)
    with pytest.raises(StaleRevision):
        machine.accept(1)


def test_a_dispute_that_a_boot_has_put_right_is_closed() -> None:
    machine = Machine()
    machine.wall_ns += 10 * YEAR
    machine.run(S)
    machine.wall_ns -= 10 * YEAR
    machine.restart(reboot=True)
    assert machine.state is STEADY


@pytest.mark.parametrize("reboot", [False, True])
def test_waiting_for_an_accepted_wall_clock_goes_on_after_a_restart(*, reboot: bool) -> None:
    machine = Machine()
    machine.wall_ns -= HOUR
    machine.look()
    machine.accept(1)
    machine.off(2 * S)
    assert machine.restart(reboot=reboot) == T0 + (0 if reboot else S)
    assert machine.state is FOLLOWING
    machine.off(10 * HOUR)
    machine.restart(reboot=reboot)
    assert machine.state is STEADY
    assert machine.last_ns == machine.wall_ns


def test_a_boot_further_behind_than_what_was_accepted_is_disputed() -> None:
    machine = Machine()
    machine.wall_ns -= HOUR
    machine.look()
    machine.accept(1)
    machine.wall_ns -= HOUR
    assert machine.restart(reboot=True) == T0
    assert (machine.state, machine.dispute) == (DISPUTED, 2)


def test_a_jump_while_the_store_was_down_is_seen_by_the_record() -> None:
    machine = Machine()
    machine.wall_ns += 10 * YEAR
    machine.run(S)
    machine.off(S, wall_jump_ns=YEAR)
    machine.restart(reboot=False)
    assert machine.dispute == 2


def test_the_record_says_all() -> None:
    machine = Machine()
    machine.wall_ns += 10 * YEAR
    machine.run(S)
    assert machine.mesh.record() == ClockRecord("boot-1", 51 * S, T0 + S, 10 * YEAR, DISPUTED, 1)


@pytest.mark.parametrize("seed", range(30))
def test_whatever_the_clocks_do_time_does_not_go_back(seed: int) -> None:
    chance = random.Random(seed)
    machine = Machine()
    for _ in range(200):
        match chance.randrange(7):
            case 0:
                machine.wall_ns += chance.choice([1, -1]) * chance.choice([MS, S, HOUR, YEAR])
            case 1:
                machine.off(chance.choice([S, HOUR, 3 * DAY]))
            case 2:
                machine.restart(reboot=chance.random() < 0.5)
            case 3 if machine.dispute:
                machine.accept(machine.dispute)
            case _:
                machine.run(chance.choice([1, MS, S, 5 * S]), wall_rate=chance.uniform(0, 2))
        machine.look()

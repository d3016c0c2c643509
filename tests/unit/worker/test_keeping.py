"""What comes to a worker before its time: kept in a slot, begun at it, given back, forgotten."""

from __future__ import annotations

from unit.worker.rig import Rig, ref

from sexton_core.instants import SECOND
from sexton_worker.contract import Ref
from sexton_worker.messages import Action, Stop


def test_what_comes_before_its_time_takes_a_slot_and_begins_at_it(connected: Rig) -> None:
    connected.assign(1, start_in=SECOND // 4, timeout=2 * SECOND)
    assert connected.machine.next_wake() == connected.now + SECOND // 4
    assert connected.commands() == []
    assert not connected.machine.idle
    connected.assign(2)
    connected.assign(3)
    connected.assign(4)
    message = connected.take()
    assert (message.started, message.returned) == ((ref(2), ref(3)), (ref(4),))
    connected.commands()
    connected.passes(0.249)
    assert connected.commands() == []
    connected.passes(0.001)
    assert connected.commands() == [(Action.BEGIN, 1)]
    assert connected.take().started == (ref(1),)
    connected.passes(1.999)
    assert connected.commands() == []
    connected.passes(0.001)  # the time that it has counts from its begin
    assert connected.commands() == [(Action.CANCEL, 1)]


def test_what_is_kept_begins_once_however_often_it_is_sent(connected: Rig) -> None:
    for _ in range(2):
        connected.assign(1, start_in=SECOND // 4)
    connected.passes(0.25)
    connected.assign(1)
    assert connected.commands() == [(Action.BEGIN, 1)]
    assert connected.machine.counters.repeated == 2


def test_what_is_kept_and_is_to_end_is_given_back_and_never_begins(connected: Rig) -> None:
    connected.assign(1, start_in=SECOND // 4)
    connected.machine.stop(Stop(Ref(b"another run", 1), False, ""), connected.now)
    connected.cancel(1)
    message = connected.take()
    assert (message.returned, message.completions, message.credits) == ((ref(1),), [], 1)
    connected.passes(1)
    assert connected.commands() == []


def test_what_is_kept_is_given_back_by_a_drain(connected: Rig) -> None:
    connected.assign(1, start_in=SECOND // 4)
    connected.machine.drain()
    message = connected.take()
    assert (message.returned, message.closing) == ((ref(1),), False)
    connected.passes(1)
    assert connected.commands() == []
    assert connected.machine.idle


def test_what_is_kept_is_forgotten_with_its_stream_and_comes_again(connected: Rig) -> None:
    connected.assign(1, start_in=SECOND // 4)
    assert connected.connect() == []
    assert connected.take().credits == 3
    connected.passes(0.25)
    assert connected.commands() == []
    connected.assign(1)
    assert connected.commands() == [(Action.BEGIN, 1)]


def test_what_is_kept_does_not_begin_once_its_session_may_be_lost(connected: Rig) -> None:
    connected.passes(23.9)
    connected.assign(1, start_in=SECOND // 4)
    connected.passes(0.25)
    assert connected.machine.hang_up
    assert connected.commands() == []
    assert connected.may_connect()


def test_it_wants_work_while_half_of_its_slots_are_free_and_not_granted() -> None:
    rig = Rig(slots=4)
    rig.connect()
    assert rig.machine.wants_work
    rig.take()
    for token in range(1, 5):
        rig.assign(token)
    assert not rig.machine.wants_work
    rig.end(1)
    assert not rig.machine.wants_work
    rig.end(2)
    assert rig.machine.wants_work

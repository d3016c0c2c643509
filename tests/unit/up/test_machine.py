"""The supervisor's machine: what becomes of processes that end, and how everything is stopped."""

from __future__ import annotations

import signal

import pytest

from sexton_cli.up.machine import Phase, Policy, Say, Send, Spawn, Supervision

KILL, TERM = signal.SIGKILL, signal.SIGTERM


def running(**stages: int) -> Supervision:
    machine = Supervision(stages or {"store": 1, "worker": 0}, Policy())
    machine.begin(0.0)
    return machine


def said(effects):
    return [effect.text for effect in effects if isinstance(effect, Say)]


def test_everything_is_started_in_the_order_given():
    machine = Supervision({"store": 1, "worker": 0})
    assert machine.begin(0.0) == [Spawn("store"), Spawn("worker")]
    assert machine.next_wake() is None


def test_a_killed_process_is_started_again_after_a_short_pause_and_the_end_is_told():
    machine = running()
    assert machine.exited("store", -KILL, "it served", now=60.0) == [
        Say("store ended (killed by SIGKILL); its log ends: it served; starting it again")
    ]
    assert machine.next_wake() == 60.1
    assert machine.tick(60.05) == []
    assert machine.tick(60.1) == [Spawn("store")]
    assert (machine.starts("store"), machine.starts("worker")) == (2, 1)


def test_a_process_that_was_told_to_end_by_somebody_else_is_started_again():
    machine = running()
    machine.exited("worker", 0, "", now=60.0)
    assert machine.tick(60.1) == [Spawn("worker")]


def test_pauses_double_up_to_their_longest_and_a_crash_loop_is_called_one():
    machine = running()
    now, pauses, told = 60.0, [], []
    for _ in range(9):
        told.append(said(machine.exited("store", 1, "no room", now))[-1])
        wake = machine.next_wake()
        pauses.append(round(wake - now, 3))
        assert machine.tick(wake) == [Spawn("store")]
        now = wake + 0.5
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
    assert told[3].endswith("starting it again")
    assert told[4] == "store is in a crash loop: 5 ends in a row; next try in 1.6 s"


def test_one_that_ran_steadily_meanwhile_starts_from_the_shortest_pause():
    machine = running()
    for now in (60.0, 60.5, 61.0):
        machine.exited("store", 1, "", now)
        machine.tick(now + 0.4)
    machine.exited("store", 1, "", now=80.0)
    assert machine.next_wake() == 80.1


def test_one_that_never_works_ends_everything_with_its_reason():
    machine = running()
    for now in (0.5, 1.0):
        assert said(machine.exited("worker", 1, "no such task", now)) == [
            "worker ended (exit code 1); its log ends: no such task; starting it again"
        ]
        machine.tick(now + 0.4)
    effects = machine.exited("worker", 1, "no such task", 1.5)
    assert said(effects)[-1] == "worker can't run; stopping."
    assert Send("store", TERM) in effects
    assert (machine.exit_code, machine.stopping, machine.finished) == (1, True, False)
    machine.exited("store", 0, "", 2.0)
    assert machine.finished


def test_a_wrong_configuration_is_not_tried_twice():
    machine = running()
    assert said(machine.exited("worker", 2, "--app: no module", 0.5)) == [
        "worker ended (exit code 2); its log ends: --app: no module",
        "worker can't run; stopping.",
    ]


@pytest.mark.parametrize("code", [1, 2])
def test_a_task_that_ends_its_worker_does_not_end_the_mesh(code):
    machine = running()
    now = 0.0
    for _ in range(5):
        machine.exited("worker", code, "welcomed", now + 0.5, served=True)
        assert machine.phase("worker") is Phase.PAUSED
        now = machine.next_wake()
        machine.tick(now)
    assert not machine.stopping


def test_one_that_is_killed_again_and_again_is_always_started_again():
    machine = running()
    now = 0.0
    for _ in range(20):
        machine.exited("store", -KILL, "", now)
        assert machine.phase("store") is Phase.PAUSED
        now = machine.next_wake()
        machine.tick(now)
    assert not machine.stopping


def test_one_that_asks_to_be_started_again_is():
    machine = running()
    now = 0.0
    for _ in range(5):
        machine.exited("store", 75, "outcome unknown", now)
        assert not machine.stopping
        now = machine.next_wake()
        machine.tick(now)


def test_a_stop_goes_stage_by_stage():
    machine = running(store=2, queue=1, one=0, two=0)
    assert machine.stop(10.0, limit_s=30.0) == [Send("one", TERM), Send("two", TERM)]
    assert machine.exited("one", 0, "", 11.0) == []
    assert machine.exited("two", 0, "", 12.0) == [Send("queue", TERM)]
    assert machine.exited("queue", 0, "", 13.0) == [Send("store", TERM)]
    assert not machine.finished
    assert machine.exited("store", 0, "", 14.0) == []
    assert machine.finished
    assert machine.next_wake() is None
    assert machine.exit_code == 0


def test_what_does_not_end_within_its_limit_is_killed_and_the_stop_goes_on():
    machine = running(store=1, worker=0)
    machine.stop(10.0, limit_s=30.0)
    assert machine.next_wake() == 40.0
    assert machine.tick(40.0) == [Send("worker", KILL)]
    assert machine.tick(40.1) == []
    assert machine.exited("worker", -KILL, "", 40.2) == [Send("store", TERM)]
    assert machine.next_wake() == 50.2
    assert machine.tick(50.2) == [Send("store", KILL)]


def test_a_second_stop_ends_everything_at_once():
    machine = running(store=1, worker=0)
    machine.stop(10.0, limit_s=30.0)
    assert machine.stop(11.0, limit_s=30.0) == [Send("store", KILL), Send("worker", KILL)]
    assert machine.stop(11.1, limit_s=30.0) == []
    machine.exited("store", -KILL, "", 11.2)
    assert machine.exited("worker", -KILL, "", 11.2) == []
    assert machine.finished


def test_a_stop_does_not_wait_for_what_was_going_to_be_started_again():
    machine = running(store=1, worker=0)
    machine.exited("worker", -KILL, "", 60.0)
    assert machine.stop(60.05, limit_s=30.0) == [Send("store", TERM)]
    assert machine.tick(60.2) == []


def test_a_later_stage_that_dies_early_in_a_stop_is_not_waited_for():
    machine = running(store=1, worker=0)
    machine.stop(60.0, limit_s=30.0)
    assert machine.exited("store", -KILL, "", 61.0) == []
    machine.exited("worker", 0, "", 62.0)
    assert machine.finished


def test_an_unclean_end_during_a_stop_is_told():
    machine = running(store=1, worker=0)
    machine.stop(60.0, limit_s=30.0)
    assert said(machine.exited("worker", 1, "oh", 61.0)) == [
        "worker ended with exit code 1; its log ends: oh"
    ]


def test_what_is_optional_ends_nothing_else_even_where_it_can_not_run_at_all():
    machine = Supervision({"store": 0, "console": 1}, Policy(), optional={"console"})
    machine.begin(0.0)
    now = 0.0
    for code in (2, 1, 1, 1):
        machine.exited("console", code, "the port is taken", now)
        assert not machine.stopping
        now = machine.next_wake()
        assert machine.tick(now) == [Spawn("console")]
    assert machine.exit_code == 0
    assert machine.stop(now, 0.0) == [Send("store", TERM)]

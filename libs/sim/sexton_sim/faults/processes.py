"""What is done to processes and to the machines under them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from sexton_sim.faults.injector import Deeds, Injector

if TYPE_CHECKING:
    from sexton_sim.simulation import Host

_OF_A_LEASE = (0.5, 1, 3)
_DAY_S = 86_400.0
_LONG_SLEEPS_S = (30.0, 3_600.0, 3 * _DAY_S)


def _crash(it: Injector, rng: random.Random, host: Host, kind: str) -> None:
    def strike() -> None:
        it.note(kind)
        host.crash()

    it.at_some_await(host, rng, strike)


def _crash_store(it: Injector, rng: random.Random) -> None:
    _crash(it, rng, it.world.store, "crash_store")


def _crash_member(it: Injector, rng: random.Random) -> None:
    _crash(it, rng, it.member(rng), "crash_member")


def _crash_in_commit(it: Injector, rng: random.Random) -> None:
    def strike(_who: str) -> None:
        it.note("crash_in_commit")
        it.world.store.crash()

    it.world.traps.set(rng.choice(("before commit", "after commit")), strike)


def _crash_all(it: Injector, _rng: random.Random) -> None:
    it.note("crash_all")
    for host in it.world.hosts:
        host.crash()


def _restart_storm(it: Injector, rng: random.Random) -> None:
    it.note("restart_storm")
    host = rng.choice([it.world.store, it.member(rng)])
    at_s = 0.0
    for _ in range(rng.randint(4, 10)):
        at_s += rng.uniform(0.05, 1.0)
        it.soon(at_s, host.crash)


def lose_power(it: Injector, host: Host, kind: str) -> None:
    """Turns a machine off, if anything runs there: nobody is told, boot time starts anew."""
    if host.process is None or not host.process.alive:
        return
    it.note(kind)
    it.world.network.power_off(host.name)
    host.crash()
    host.machine.reboot()
    it.world.recorder.fault("reboot", host.name)


def _power_loss(it: Injector, _rng: random.Random) -> None:
    lose_power(it, it.world.store, "power_loss")


def _power_loss_member(it: Injector, rng: random.Random) -> None:
    lose_power(it, it.member(rng), "power_loss_member")


def _power_loss_in_commit(it: Injector, rng: random.Random) -> None:
    def strike(_who: str) -> None:
        # Not in the middle of the store's own step: a machine is not turned off by its processes.
        it.soon(0.0, lambda: lose_power(it, it.world.store, "power_loss_in_commit"))

    it.world.traps.set(rng.choice(("before commit", "after commit")), strike)


def _suspend_store(it: Injector, rng: random.Random) -> None:
    _suspend(it, rng, it.world.store, "suspend_store")


def _suspend_member(it: Injector, rng: random.Random) -> None:
    _suspend(it, rng, it.member(rng), "suspend_member")


def _suspend(it: Injector, rng: random.Random, host: Host, kind: str) -> None:
    process = host.process
    if process is None or not process.alive:
        return
    for_s = rng.choice(_OF_A_LEASE) * it.world.lease_s(host)

    def suspend() -> None:
        it.note(kind)
        it.world.recorder.fault("suspend", host.name)
        process.suspend()
        it.later(for_s, resume)

    def resume() -> None:
        if process.alive:
            process.resume()
            it.world.recorder.fault("resume", host.name)

    it.at_some_await(host, rng, suspend)


def _sleep_machine(it: Injector, rng: random.Random) -> None:
    host = rng.choice(it.world.hosts)
    if host.machine.awake:
        it.note("sleep_machine")
        _sleep(it, host)
        it.later(rng.uniform(0.5, 12), lambda: _wake(it, host))


def _sleep_all(it: Injector, rng: random.Random) -> None:
    it.note("sleep_all")
    for host in it.world.hosts:
        if host.machine.rate != 1.0:
            # A clock that is off by a twentieth is so for a while, not for days.
            host.machine.set_rate(1.0)
            it.world.recorder.clock("rate", host.name, rate=1.0)
        if host.machine.awake:
            _sleep(it, host)
    for_s = rng.choice(_LONG_SLEEPS_S)
    it.lie_down(for_s)

    def wake() -> None:
        it.rise()
        for host in it.world.hosts:
            _wake(it, host)

    it.later(for_s, wake)


def _sleep(it: Injector, host: Host) -> None:
    it.world.recorder.fault("sleep", host.name)
    host.machine.suspend()


def _wake(it: Injector, host: Host) -> None:
    """Wakes a machine: nobody is awake alone while everybody is to sleep."""
    if not host.machine.awake and not it.everybody_sleeps:
        host.machine.resume()
        it.world.recorder.fault("wake", host.name)


DEEDS: Deeds = {
    "crash_store": _crash_store,
    "crash_in_commit": _crash_in_commit,
    "crash_member": _crash_member,
    "crash_all": _crash_all,
    "restart_storm": _restart_storm,
    "power_loss": _power_loss,
    "power_loss_in_commit": _power_loss_in_commit,
    "power_loss_member": _power_loss_member,
    "suspend_store": _suspend_store,
    "suspend_member": _suspend_member,
    "sleep_machine": _sleep_machine,
    "sleep_all": _sleep_all,
}

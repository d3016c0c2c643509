"""What is done to clocks."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from sexton_sim.faults.injector import Deeds, Injector
from sexton_sim.faults.processes import lose_power

if TYPE_CHECKING:
    from sexton_sim.simulation import Host

_MINUTE_NS = 60_000_000_000
_HOUR_NS = 60 * _MINUTE_NS
_TEN_YEARS_NS = 10 * 365 * 24 * _HOUR_NS
_JUMPS_NS = (_HOUR_NS, -_HOUR_NS, _TEN_YEARS_NS, 500_000_000, -500_000_000)
_MEMBER_JUMPS_NS = (5 * _MINUTE_NS, -5 * _MINUTE_NS, *_JUMPS_NS)
_DISPUTED_NS = (-_HOUR_NS, _TEN_YEARS_NS)
_NEAR = (0.95, 1.0, 1.05)
_FAR = (0.5, 2.0)


def _jump(it: Injector, host: Host, by_ns: int) -> None:
    host.machine.jump_wall(by_ns)
    it.world.recorder.clock("jump", host.name, by_ns=by_ns)


def _jump_wall(it: Injector, rng: random.Random) -> None:
    it.note("jump_wall")
    if rng.random() < 0.5:
        _jump(it, it.world.store, rng.choice(_JUMPS_NS))
    else:
        _jump(it, it.member(rng), rng.choice(_MEMBER_JUMPS_NS))


def _strobe_wall(it: Injector, rng: random.Random) -> None:
    it.note("strobe_wall")
    host = rng.choice([it.world.store, it.member(rng)])
    by_ns = rng.choice((300_000_000, 5_000_000_000, _HOUR_NS))
    at_s = 0.0
    for flip in range(2 * rng.randint(3, 15)):
        sign = 1 if flip % 2 == 0 else -1
        it.soon(at_s, lambda sign=sign: _jump(it, host, sign * by_ns))  # type: ignore[misc]
        at_s += rng.uniform(0.02, 0.3)


def _dispute_and_restart(it: Injector, rng: random.Random) -> None:
    it.note("dispute_and_restart")
    store = it.world.store
    _jump(it, store, rng.choice(_DISPUTED_NS))
    if rng.random() < 0.5:
        it.soon(rng.uniform(0.0, 3.0), store.crash)
    else:
        it.soon(rng.uniform(0.0, 3.0), lambda: lose_power(it, store, "power_loss"))


def _change_rate(it: Injector, rng: random.Random) -> None:
    it.note("change_rate")
    _set_rate(it, rng.choice(it.world.hosts), rng.choice(_NEAR))


def _extreme_rate(it: Injector, rng: random.Random) -> None:
    it.note("extreme_rate")
    host = rng.choice(it.world.hosts)
    _set_rate(it, host, rng.choice(_FAR))
    it.later(rng.uniform(1, 12), lambda: _set_rate(it, host, 1.0))


def _set_rate(it: Injector, host: Host, rate: float) -> None:
    host.machine.set_rate(rate)
    it.world.recorder.clock("rate", host.name, rate=rate)


DEEDS: Deeds = {
    "jump_wall": _jump_wall,
    "strobe_wall": _strobe_wall,
    "dispute_and_restart": _dispute_and_restart,
    "change_rate": _change_rate,
    "extreme_rate": _extreme_rate,
}

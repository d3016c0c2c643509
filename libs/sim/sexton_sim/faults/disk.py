"""What is done to the store's disk."""

from __future__ import annotations

import random

from sexton_sim.faults.injector import Deeds, Injector


def _slow_disk(it: Injector, rng: random.Random) -> None:
    it.note("slow_disk")
    disk = it.world.disk
    disk.slow_s = rng.choice((0.2, 1.0, 5.0))
    it.world.recorder.fault("slow_disk", slow_s=disk.slow_s)

    def heal() -> None:
        disk.slow_s = 0.0

    it.later(rng.uniform(1, 8), heal)


def _full_disk(it: Injector, rng: random.Random) -> None:
    it.note("full_disk")
    it.world.disk.fill(spare_bytes=rng.randrange(2_000))
    it.world.recorder.fault("full_disk")

    def heal() -> None:
        it.world.disk.empty()
        it.world.recorder.fault("emptied")

    it.later(rng.uniform(1, 8), heal)


def _jammed_disk(it: Injector, rng: random.Random) -> None:
    it.note("jammed_disk")
    disk = it.world.disk
    disk.jam()
    it.world.recorder.fault("full_disk")

    def heal() -> None:
        disk.clear()
        it.world.recorder.fault("emptied")

    it.later(rng.uniform(0.2, 5), heal)


def _failing_disk(it: Injector, rng: random.Random) -> None:
    with_effect = rng.random() < 0.5

    def strike() -> None:
        it.note("failing_disk")
        it.world.recorder.fault("failing_disk", with_effect=with_effect)

    it.world.disk.fail_next(with_effect=with_effect, strike=strike)


DEEDS: Deeds = {
    "slow_disk": _slow_disk,
    "full_disk": _full_disk,
    "jammed_disk": _jammed_disk,
    "failing_disk": _failing_disk,
}

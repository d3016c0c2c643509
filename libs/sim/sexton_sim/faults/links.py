"""What is done to the network."""

from __future__ import annotations

import random

from sexton_sim.faults.injector import Deed, Deeds, Injector
from sexton_sim.network import LinkProfile

PROFILES = {
    "rough_network": LinkProfile(
        latency_s=0.001, jitter_s=0.02, stall_p=0.02, reset_p=0.004, duplicate_p=0.03
    ),
    "slow_network": LinkProfile(latency_s=0.05, jitter_s=0.4),
    "lossy_network": LinkProfile(stall_p=0.5, stall_s=(0.2, 1.6), reset_p=0.002),
    "duplicates": LinkProfile(duplicate_p=0.5),
    "reordering": LinkProfile(latency_s=0.001, jitter_s=0.1),
}
"""How all links behave for a while. What a link loses is sent again, and so comes late."""


def _cut_one_way(it: Injector, rng: random.Random) -> None:
    ends = it.world.link(rng)
    rng.shuffle(ends)
    _cut_for_a_while(it, rng, [(ends[0], ends[1])], "cut_one_way")


def _cut_both_ways(it: Injector, rng: random.Random) -> None:
    one, other = it.world.link(rng)
    _cut_for_a_while(it, rng, [(one, other), (other, one)], "cut_both_ways")


def _cut_for_a_while(
    it: Injector, rng: random.Random, links: list[tuple[str, str]], kind: str
) -> None:
    it.note(kind)
    it.cut(links)
    rng.shuffle(links)
    it.later(rng.uniform(0.2, 20), lambda: it.mend(links))


def _swizzle(it: Injector, rng: random.Random) -> None:
    it.note("swizzle")
    links: dict[tuple[str, str], None] = {}
    for _ in range(rng.randint(3, 12)):
        one, other = it.world.link(rng)
        links[one, other] = links[other, one] = None
    at_s = 0.0
    for link in links:
        at_s += rng.expovariate(1 / 0.2)
        it.soon(at_s, lambda link=link: it.cut([link]))  # type: ignore[misc]
    order = list(links)
    rng.shuffle(order)
    at_s += rng.uniform(0.5, 6)
    for link in order:
        at_s += rng.expovariate(1 / 0.3)
        it.later(at_s, lambda link=link: it.mend([link]))  # type: ignore[misc]


def _reset(it: Injector, rng: random.Random) -> None:
    pairs = it.world.network.connected()
    if pairs:
        it.note("reset")
        client, server = rng.choice(pairs)
        it.world.network.reset(client, server)
        it.world.recorder.fault("reset", server, source=client)


def _lose_reply(it: Injector, rng: random.Random) -> None:
    client, server = it.world.link(rng)

    def strike() -> None:
        it.note("lose_reply")
        it.world.recorder.fault("reset", server, source=client)

    it.world.network.break_next(server, client, strike)


def _half_open(it: Injector, rng: random.Random) -> None:
    pairs = it.world.network.connected()
    if pairs:
        it.note("half_open")
        client, server = rng.choice(pairs)
        it.world.network.half_open(client, server)
        it.world.recorder.fault("cut", server, source=client)


def _behave(kind: str) -> Deed:
    def deed(it: Injector, rng: random.Random) -> None:
        it.note(kind)
        network, profile = it.world.network, PROFILES[kind]
        network.set_profile(profile)
        it.world.recorder.fault("rough", kind=kind)

        def heal() -> None:
            if network.profile is profile:
                network.set_profile(LinkProfile())

        it.later(rng.uniform(1, 10), heal)

    return deed


DEEDS: Deeds = {
    "cut_one_way": _cut_one_way,
    "cut_both_ways": _cut_both_ways,
    "swizzle": _swizzle,
    "reset": _reset,
    "lose_reply": _lose_reply,
    "half_open": _half_open,
    **{kind: _behave(kind) for kind in PROFILES},
}

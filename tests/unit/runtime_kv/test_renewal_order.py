"""Answers to renewals come in any order."""

from __future__ import annotations

from sexton_runtime.kv.client import StoreClient

from .world import World


def test_a_late_answer_to_an_early_renewal_shortens_nothing() -> None:
    world = World()

    async def story(client: StoreClient) -> None:
        async with world.keeper("member", client) as keeper:
            held = await keeper.acquire("demo/bell", ttl_s=10.0)
            now_ns = keeper.clock.boot_ns()
            held.extend(now_ns)
            assert round(held.remaining_s(), 3) == 8.0
            held.extend(now_ns - 3_000_000_000)
            assert round(held.remaining_s(), 3) == 8.0

    world.tell(story)

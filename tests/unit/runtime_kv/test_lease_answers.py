"""What a holder may count on when answers come late, or by a detour."""

from __future__ import annotations

import asyncio
from typing import Any

from sexton.errors import OutcomeUnknown, Unavailable
from sexton_runtime.kv.client import StoreClient
from sexton_runtime.kv.types import Acquired, Lease

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


def test_a_lease_whose_grant_was_not_answered_counts_only_what_the_store_says_is_left() -> None:
    world = World()

    async def story(client: StoreClient) -> None:
        async with world.keeper("member", client) as keeper:
            own = Lease("demo/bell", keeper.holder, 5, 10_000, b"", 4_000)
            answers: list[Any] = [OutcomeUnknown(), Acquired(False, own, 1)]

            async def acquire_lease(*_arguments: Any, **_options: Any) -> Acquired:
                answer = answers.pop(0)
                if isinstance(answer, Exception):
                    raise answer
                assert isinstance(answer, Acquired)
                return answer

            async def renew_leases(*_arguments: Any) -> None:
                raise Unavailable

            client.acquire_lease = acquire_lease  # type: ignore[method-assign]
            client.renew_leases = renew_leases  # type: ignore[method-assign, assignment]
            held = await keeper.acquire("demo/bell", ttl_s=10.0)
            assert held.token == 5
            assert round(held.remaining_s(), 3) == 3.2

    world.tell(story)


def test_a_lease_that_went_before_its_standby_could_watch_is_asked_for_at_once() -> None:
    world = World()

    async def story(client: StoreClient) -> None:
        async with world.keeper("member", client) as keeper:
            gone = Lease("demo/bell", "another", 5, 60_000, b"", 60_000)
            really = client.acquire_lease
            answers = [Acquired(False, gone, 1)]

            async def acquire_lease(*arguments: Any, **options: Any) -> Acquired:
                return answers.pop() if answers else await really(*arguments, **options)

            client.acquire_lease = acquire_lease  # type: ignore[method-assign]
            async with asyncio.timeout(2):
                held = await keeper.acquire("demo/bell", ttl_s=10.0)
            assert held.still_held()

    world.tell(story)

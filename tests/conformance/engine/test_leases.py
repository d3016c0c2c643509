"""Leases: one holder, rising tokens, never early (S3, S4), the fence (S5)."""

from __future__ import annotations

import asyncio

import pytest
from conformance.engine.steps import commit, first_change, on_every_engine, put, read, revision
from conformance.engine.worlds import Store

from sexton.errors import InvalidArgument, TooLarge
from sexton_runtime.kv.engine import Engine
from sexton_runtime.kv.types import (
    EventKind,
    LeaseRef,
    Outcome,
    Put,
    Renewal,
    Txn,
    fence,
    lease_key,
)

LONG_MS = 60_000


async def acquire(engine: Engine, holder: str, ttl_ms: int = LONG_MS) -> int:
    """Acquires the lease `leader` and gives its token."""
    acquired = await engine.acquire_lease("leader", holder, ttl_ms)
    assert acquired.granted
    return acquired.lease.token


@on_every_engine
async def test_the_token_is_the_create_revision_of_the_leases_key(store: Store) -> None:
    engine = store.engine
    acquired = await engine.acquire_lease("a/b.c-d_0", "me", LONG_MS, value=b"here")
    lease = acquired.lease
    assert acquired.granted
    assert (lease.name, lease.holder, lease.ttl_ms, lease.value) == (
        "a/b.c-d_0",
        "me",
        LONG_MS,
        b"here",
    )
    assert 0 < lease.remaining_ms <= LONG_MS
    kv = await read(engine, lease_key("a/b.c-d_0"))
    assert kv.create_revision == lease.token == await revision(engine)


@on_every_engine
async def test_a_held_lease_is_not_given_to_another(store: Store) -> None:
    engine = store.engine
    token = await acquire(engine, "first")
    before = await revision(engine)
    refused = await engine.acquire_lease("leader", "second", LONG_MS)
    assert not refused.granted
    assert (refused.lease.holder, refused.lease.token) == ("first", token)
    assert await revision(engine) == before


@on_every_engine
async def test_the_same_holder_that_asks_again_is_shown_its_own_lease(store: Store) -> None:
    engine = store.engine
    token = await acquire(engine, "me")
    again = await engine.acquire_lease("leader", "me", LONG_MS)
    assert not again.granted
    assert (again.lease.holder, again.lease.token) == ("me", token)


@on_every_engine
async def test_of_many_that_ask_at_once_one_is_granted(store: Store) -> None:
    engine = store.engine
    answers = await asyncio.gather(
        *(engine.acquire_lease("leader", f"h{n}", LONG_MS) for n in range(20))
    )
    assert [answer.granted for answer in answers].count(True) == 1
    assert len({answer.lease for answer in answers if not answer.granted}) >= 1
    assert {answer.lease.token for answer in answers} == {(await revision(engine))}


@on_every_engine
async def test_replacing_releases_and_acquires_in_two_revisions(store: Store) -> None:
    engine = store.engine
    token = await acquire(engine, "first")
    watching = engine.watch(lease_key("leader"))
    await anext(watching)
    taken = await engine.acquire_lease("leader", "second", LONG_MS, replaces=token)
    assert taken.granted
    assert taken.lease.token == token + 2
    gone = await first_change(watching, lease_key("leader"))
    assert (gone.revision, gone.events[0].kind) == (token + 1, EventKind.DELETE)
    assert await engine.renew_leases([LeaseRef("leader", token)]) == (Renewal(False, 0),)
    assert await engine.release_lease("leader", token) == 0
    await watching.aclose()


@on_every_engine
async def test_replacing_another_token_than_the_standing_one_is_refused(store: Store) -> None:
    engine = store.engine
    token = await acquire(engine, "first")
    for replaces in (token - 1, token + 1):
        if replaces:
            refused = await engine.acquire_lease("leader", "second", LONG_MS, replaces=replaces)
            assert (refused.granted, refused.lease.token) == (False, token)
    assert (await engine.renew_leases([LeaseRef("leader", token)]))[0].renewed


@on_every_engine
async def test_replacing_what_is_gone_just_acquires(store: Store) -> None:
    engine = store.engine
    token = await acquire(engine, "first")
    await engine.release_lease("leader", token)
    taken = await engine.acquire_lease("leader", "second", LONG_MS, replaces=token)
    assert (taken.granted, taken.lease.token) == (True, token + 2)


@on_every_engine
async def test_a_repeated_replacement_is_shown_its_own_lease(store: Store) -> None:
    engine = store.engine
    token = await acquire(engine, "first")
    taken = await engine.acquire_lease("leader", "second", LONG_MS, replaces=token)
    again = await engine.acquire_lease("leader", "second", LONG_MS, replaces=token)
    assert not again.granted
    assert again.lease.token == taken.lease.token


@on_every_engine
async def test_a_released_lease_is_free_and_its_token_worthless(store: Store) -> None:
    engine = store.engine
    token = await acquire(engine, "first")
    released = await engine.release_lease("leader", token)
    assert released == token + 1
    assert await engine.release_lease("leader", token) == 0
    assert await engine.renew_leases([LeaseRef("leader", token)]) == (Renewal(False, 0),)
    assert (await read(engine, lease_key("leader"))).create_revision == 0
    assert await acquire(engine, "second") == token + 2


@on_every_engine
async def test_many_leases_are_renewed_at_once_without_a_revision(store: Store) -> None:
    engine = store.engine
    tokens = [(await engine.acquire_lease(f"l{n}", "me", LONG_MS)).lease.token for n in range(5)]
    before = await revision(engine)
    refs = [LeaseRef(f"l{n}", token) for n, token in enumerate(tokens)]
    refs[3] = LeaseRef("l3", tokens[3] + 1)
    renewals = await engine.renew_leases([*refs, LeaseRef("none", 1), refs[0]])
    assert [renewal.renewed for renewal in renewals] == [
        True, True, True, False, True, False, True,
    ]  # fmt: skip
    assert {renewal.remaining_ms for renewal in renewals} == {LONG_MS, 0}
    assert await revision(engine) == before


@on_every_engine
async def test_an_unrenewed_lease_expires_as_a_commit_that_watchers_see(store: Store) -> None:
    engine = store.engine
    ttl_ms = engine.limits.min_lease_ttl_ms
    token = await acquire(engine, "first", ttl_ms)
    watching = engine.watch(b"leases/")
    gone = await first_change(watching, lease_key("leader"))
    assert gone.revision == token + 1
    assert gone.events[0].kind is EventKind.DELETE
    assert await engine.renew_leases([LeaseRef("leader", token)]) == (Renewal(False, 0),)
    assert await engine.list_leases() == ()
    assert await acquire(engine, "second") == token + 2
    await watching.aclose()


@pytest.mark.slow
@on_every_engine
async def test_a_renewed_lease_lives_on(store: Store) -> None:
    engine = store.engine
    ttl_ms = 3 * engine.limits.min_lease_ttl_ms
    token = await acquire(engine, "first", ttl_ms)
    end = asyncio.get_running_loop().time() + 1.5 * ttl_ms / 1_000
    while asyncio.get_running_loop().time() < end:
        assert (await engine.renew_leases([LeaseRef("leader", token)]))[0].renewed
        await asyncio.sleep(0.01)
    assert await revision(engine) == token


@on_every_engine
async def test_after_a_restart_leases_stand_with_their_tokens_and_full_time(
    store: Store,
) -> None:
    """S3, S4."""
    token = await acquire(store.engine, "first")
    await store.restart()
    engine = store.engine
    (lease,) = await engine.list_leases()
    assert (lease.holder, lease.token, lease.ttl_ms) == ("first", token, LONG_MS)
    refused = await engine.acquire_lease("leader", "second", LONG_MS)
    assert not refused.granted
    assert (await engine.renew_leases([LeaseRef("leader", token)]))[0].renewed
    await engine.release_lease("leader", token)
    assert await acquire(engine, "second") > token


@on_every_engine
async def test_the_fence_refuses_whoever_has_been_replaced(store: Store) -> None:
    """S5."""
    engine = store.engine
    old = await acquire(engine, "first")
    write = Put(b"k", b"by first")
    fenced = Txn(compares=(fence("leader", old),), then=(write,))
    assert (await commit(engine, fenced)).outcome is Outcome.COMMITTED
    new = (await engine.acquire_lease("leader", "second", LONG_MS, replaces=old)).lease.token
    refused = await commit(engine, fenced)
    assert (refused.outcome, refused.found_mod_revision) == (Outcome.REFUSED, new)
    fenced = Txn(compares=(fence("leader", new),), then=(Put(b"k", b"by second"),))
    assert (await commit(engine, fenced)).outcome is Outcome.COMMITTED
    await engine.release_lease("leader", new)
    assert (await commit(engine, fenced)).outcome is Outcome.REFUSED


@on_every_engine
async def test_leases_are_listed_in_order_of_name(store: Store) -> None:
    engine = store.engine
    for name in ("b/2", "a", "b/1", "c"):
        await engine.acquire_lease(name, "me", LONG_MS)
    assert [lease.name for lease in await engine.list_leases()] == ["a", "b/1", "b/2", "c"]
    assert [lease.name for lease in await engine.list_leases("b/")] == ["b/1", "b/2"]
    assert await engine.list_leases("d") == ()


@on_every_engine
async def test_only_lease_calls_write_below_leases(store: Store) -> None:
    engine = store.engine
    before = await put(engine, b"k")
    for key in (b"leases/leader", b"leases/"):
        with pytest.raises(InvalidArgument):
            await put(engine, key)
    await put(engine, b"leases")
    assert await revision(engine) == before + 1


@on_every_engine
async def test_lease_calls_refuse_what_is_out_of_bounds(store: Store) -> None:
    engine = store.engine
    limits = engine.limits
    before = await revision(engine)
    shortest, longest = limits.min_lease_ttl_ms, limits.max_lease_ttl_ms
    for name, holder, ttl_ms, value, replaces, error in [
        ("", "h", shortest, b"", 0, InvalidArgument),
        ("A", "h", shortest, b"", 0, InvalidArgument),
        ("a\n", "h", shortest, b"", 0, InvalidArgument),
        ("ä", "h", shortest, b"", 0, InvalidArgument),
        ("a\0", "h", shortest, b"", 0, InvalidArgument),
        ("a" * 201, "h", shortest, b"", 0, TooLarge),
        ("a", "", shortest, b"", 0, InvalidArgument),
        ("a", "ä" * 101, shortest, b"", 0, TooLarge),
        ("a", "h", shortest - 1, b"", 0, InvalidArgument),
        ("a", "h", longest + 1, b"", 0, InvalidArgument),
        ("a", "h", 0, b"", 0, InvalidArgument),
        ("a", "h", -1, b"", 0, InvalidArgument),
        ("a", "h", 2**63, b"", 0, InvalidArgument),
        ("a", "h", shortest, b"v" * 4_097, 0, TooLarge),
        ("a", "h", shortest, b"", -1, InvalidArgument),
    ]:
        with pytest.raises(error):
            await engine.acquire_lease(name, holder, ttl_ms, value=value, replaces=replaces)
    for refs, wrong in [
        ([], InvalidArgument),
        ([LeaseRef("a", 0)], InvalidArgument),
        ([LeaseRef("A", 1)], InvalidArgument),
        ([LeaseRef("a", 1)] * (limits.max_leases_per_renew + 1), TooLarge),
    ]:
        with pytest.raises(wrong):
            await engine.renew_leases(refs)
    with pytest.raises(InvalidArgument):
        await engine.release_lease("a", 0)
    assert await revision(engine) == before


@on_every_engine
async def test_the_shortest_and_the_longest_time_are_granted(store: Store) -> None:
    limits = store.engine.limits
    for name, ttl_ms in (("a", limits.min_lease_ttl_ms), ("b", limits.max_lease_ttl_ms)):
        assert (await store.engine.acquire_lease(name, "h", ttl_ms)).lease.ttl_ms == ttl_ms

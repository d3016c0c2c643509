"""The same through asynchronous connections: done once, and never by a replaced attempt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import aiosqlite
import asyncpg
import psycopg
import pytest
from conformance.effects.attempts import FIRST, SECOND, attempt
from conformance.effects.databases import address, of_psycopg, sqlite

from sexton import Context, async_effects, effects
from sexton.errors import Fenced, InvalidArgument


class Driver(NamedTuple):
    """How tests connect, and how the same database is reached by a blocking connection."""

    connect: Callable[..., AbstractAsyncContextManager[Any]]
    blocking: Callable[[], Any]


def of_aiosqlite(folder: Path) -> Driver:
    @asynccontextmanager
    async def connect(*, autocommit: bool = False) -> AsyncIterator[Any]:
        more: dict[str, Any] = {"isolation_level": None} if autocommit else {}
        async with aiosqlite.connect(folder / "shop.db", timeout=20, **more) as connection:
            yield connection

    return Driver(connect, sqlite(folder).connect)


def of_async_psycopg(folder: Path) -> Driver:
    @asynccontextmanager
    async def connect(*, autocommit: bool = False) -> AsyncIterator[Any]:
        connection = await psycopg.AsyncConnection.connect(address(folder), autocommit=autocommit)
        try:
            yield connection
        finally:
            await connection.close()

    return Driver(connect, of_psycopg(folder).connect)


def of_asyncpg(folder: Path) -> Driver:
    @asynccontextmanager
    async def connect(*, autocommit: bool = True) -> AsyncIterator[Any]:
        connection = await asyncpg.connect(host=str(folder), user="sexton", database="postgres")
        try:
            yield connection
        finally:
            await connection.close()

    return Driver(connect, of_psycopg(folder).connect)


@pytest.fixture(
    params=[
        of_aiosqlite,
        *(pytest.param(each, marks=pytest.mark.system) for each in (of_async_psycopg, of_asyncpg)),
    ],
    ids=lambda kind: kind.__name__,
)
async def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Driver:
    sqlite = request.param is of_aiosqlite
    made: Driver = request.param(tmp_path if sqlite else request.getfixturevalue("socket"))
    with closing(made.blocking()) as connection:
        for table in ("bookings", "sexton_effects"):
            connection.execute(f"DROP TABLE IF EXISTS {table}")
        connection.execute("CREATE TABLE bookings (attempt integer)")
        connection.commit()
    async with made.connect() as connection:
        await async_effects.create_table(connection)
    return made


async def book(connection: Any, number: int) -> dict[str, int]:
    await connection.execute(f"INSERT INTO bookings VALUES ({number})")
    return {"booked": number}


def booked(driver: Driver) -> list[int]:
    with closing(driver.blocking()) as connection:
        rows = connection.execute("SELECT attempt FROM bookings ORDER BY attempt").fetchall()
    return [number for (number,) in rows]


async def once(driver: Driver, context: Context, **more: Any) -> Any:
    async with driver.connect() as connection:
        return await async_effects.once(
            connection, context, lambda: book(connection, context.attempt), **more
        )


@asynccontextmanager
async def transaction(connection: Any) -> AsyncIterator[None]:
    """A transaction that somebody else looks after."""
    if isinstance(connection, asyncpg.Connection):
        async with connection.transaction():
            yield
        return
    try:
        yield
    except BaseException:
        await connection.rollback()
        raise
    await connection.commit()


async def test_a_later_attempt_finds_it_done_whichever_connection_it_has(driver: Driver) -> None:
    assert await once(driver, FIRST) == {"booked": 1}
    assert await once(driver, SECOND) == {"booked": 1}
    assert await once(driver, attempt(1, 12, run="t2")) == {"booked": 1}
    with closing(driver.blocking()) as connection:
        assert effects.once(connection, SECOND, lambda: None) == {"booked": 1}
    assert booked(driver) == [1, 1]


async def test_a_replaced_attempt_writes_nothing(driver: Driver) -> None:
    async with driver.connect() as connection, transaction(connection):
        await async_effects.fence(connection, SECOND)
    with pytest.raises(Fenced, match="its token is 10, one with 17 has been here"):
        await once(driver, FIRST, name="another")
    assert booked(driver) == []
    assert await once(driver, SECOND) == {"booked": 2}


async def test_what_fails_or_is_cancelled_leaves_nothing_and_can_be_done_again(
    driver: Driver,
) -> None:
    begun = asyncio.Event()

    async with driver.connect() as connection:

        async def hang() -> None:
            await book(connection, 1)
            begun.set()
            await asyncio.Event().wait()

        async def nothing_to_keep() -> object:
            await book(connection, 1)
            return object()

        with pytest.raises(InvalidArgument, match="JSON"):
            await async_effects.once(connection, FIRST, nothing_to_keep)
        hanging = asyncio.create_task(async_effects.once(connection, FIRST, hang))
        await begun.wait()
        hanging.cancel()
        await asyncio.wait([hanging])
        assert hanging.cancelled()
        assert booked(driver) == []
        assert await async_effects.once(connection, SECOND, lambda: book(connection, 2)) == {
            "booked": 2
        }
    assert booked(driver) == [2]


async def test_of_attempts_at_the_same_time_one_has_the_effect(driver: Driver) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> Any:
        async with driver.connect() as connection:

            async def effect() -> dict[str, int]:
                begun.set()
                await go_on.wait()
                return await book(connection, 1)

            return await async_effects.once(connection, FIRST, effect)

    first = asyncio.create_task(slow())
    await begun.wait()
    second = asyncio.create_task(once(driver, SECOND))
    go_on.set()
    assert await first == await second == {"booked": 1}
    assert booked(driver) == [1]


async def test_a_transaction_that_somebody_else_looks_after(driver: Driver) -> None:
    async with driver.connect() as connection:
        async with transaction(connection):
            assert await async_effects.record(connection, FIRST)
            await book(connection, 1)
        async with transaction(connection):
            assert not await async_effects.record(connection, SECOND)
    assert booked(driver) == [1]


async def test_a_connection_that_commits_each_statement_is_refused(driver: Driver) -> None:
    async with driver.connect(autocommit=True) as connection:
        with pytest.raises(InvalidArgument, match="'in autocommit mode' can't be used"):
            await async_effects.record(connection, FIRST)
        with pytest.raises(InvalidArgument, match="'' can't be used"):
            await async_effects.record(connection, FIRST, name="")


@pytest.mark.system
async def test_asyncpg_s_once_is_a_transaction_of_its_own(socket: Path) -> None:
    async with of_asyncpg(socket).connect() as connection, connection.transaction():
        with pytest.raises(InvalidArgument, match="'in an open transaction' can't be used"):
            await async_effects.once(connection, FIRST, lambda: book(connection, 1))


async def test_what_is_old_is_forgotten_and_nothing_else(driver: Driver) -> None:
    await once(driver, FIRST)
    async with driver.connect() as connection:
        assert await async_effects.forget(connection, timedelta(days=90)) == 0
        async with transaction(connection):
            await connection.execute(
                "UPDATE sexton_effects SET recorded_at = '2020-01-01 00:00:00'"
            )
        assert await async_effects.forget(connection, timedelta(days=90)) == 2
    await once(driver, SECOND)
    assert booked(driver) == [1, 2]

"""Effects that happen once, through asynchronous connections: what `sexton.effects` does, awaited.

>>> import aiosqlite
>>> async with aiosqlite.connect(":memory:") as shop:
...     await shop.execute("CREATE TABLE bookings (customer TEXT, cents INTEGER)")
...     await create_table(shop)
...     async def book():
...         await shop.execute("INSERT INTO bookings VALUES ('ada', 500)")
...         return {"booked": 500}
...     first = await once(shop, context, book)
...     again = await once(shop, context, book)  # finds it done
...     assert first == again == {"booked": 500}

Works on connections to PostgreSQL (psycopg's `AsyncConnection`, asyncpg) and SQLite (aiosqlite),
with the same table: what a blocking connection has recorded an asynchronous one finds.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any, Final, Protocol, TypeVar, cast

from sexton import _effect_statements as sql
from sexton.context import Context
from sexton.errors import InvalidArgument

Result = TypeVar("Result")

TABLE: Final = sql.TABLE
"""The table, for a migration: that of `sexton.effects`."""


class CursorConnection(Protocol):
    """What is used of a connection of psycopg or aiosqlite."""

    def cursor(self) -> Any:
        """Opens a cursor, in an `async with`."""
        ...

    def commit(self) -> Awaitable[object]:
        """Makes the transaction durable."""
        ...

    def rollback(self) -> Awaitable[object]:
        """Takes the transaction back."""
        ...


class AsyncpgConnection(Protocol):
    """What is used of a connection of asyncpg."""

    def execute(self, query: str, *values: Any) -> Awaitable[str]:
        """Runs a statement; gives its kind and how many rows it wrote."""
        ...

    def fetchrow(self, query: str, *values: Any) -> Awaitable[Any]:
        """Runs a statement and gives a row of its answer."""
        ...

    def transaction(self) -> Any:
        """Begins a transaction, in an `async with`."""
        ...

    def is_in_transaction(self) -> bool:
        """Tells whether a transaction is open."""
        ...


Connection = CursorConnection | AsyncpgConnection


async def once(
    connection: Connection,
    context: Context,
    effect: Callable[[], Awaitable[Result]],
    *,
    name: str = "effect",
) -> Result:
    """Has an effect happen once in a run, whichever of its attempts gets to it.

    As `sexton.effects.once`. A cancellation rolls the transaction back, too.

    Args:
        connection: with no transaction open; of psycopg and aiosqlite also one whose writes may be
            committed with the effect.
        context: the attempt.
        effect: what to do; what it returns can be written as JSON.
        name: of the effect, where a run has several; 1 to 200 characters.

    Raises:
        Fenced: a newer attempt of this run has been here: nothing may be written any more.
        InvalidArgument: the name, or what `effect` returned, can't be kept; the connection is one
            of asyncpg with a transaction open.
    """
    async with _transaction(connection):
        if await record(connection, context, name=name):
            result = await effect()
            kept = sql.to_json(result)
            await _run(connection, sql.KEEP, run=_key(context), name=name, result=kept)
        else:
            (kept,) = await _ask(connection, sql.RESULT, run=_key(context), name=name)
            result = cast("Result", None if kept is None else json.loads(kept))
    return result


async def record(connection: Connection, context: Context, *, name: str = "effect") -> bool:
    """Records an effect in the transaction that is open, and neither begins nor ends one.

    As `sexton.effects.record`.

    Raises:
        Fenced: a newer attempt of this run has been here: roll back.
        InvalidArgument: the name can't be kept, or no transaction is open.
    """
    sql.check_name(name)
    await fence(connection, context)
    values = {"run": _key(context), "name": name, "token": context.token}
    return await _run(connection, sql.RECORD, **values) == 1


async def fence(connection: Connection, context: Context) -> None:
    """Shuts out the older attempts of this run, from the open transaction's commit on.

    As `sexton.effects.fence`.

    Raises:
        Fenced: a newer attempt has done so.
        InvalidArgument: no transaction is open.
    """
    await _check_open(connection)
    await _run(connection, sql.RAISE, run=_key(context), token=context.token)
    if _is_sqlite(connection) and not _in_transaction(connection):
        raise sql.not_open()  # else the statement has begun one, where none was open
    (newest,) = await _ask(connection, sql.NEWEST_NOW, run=_key(context))
    sql.check_newest(newest, context)


async def create_table(connection: Connection) -> None:
    """Creates the table where it is missing, and commits."""
    async with _transaction(connection):
        await _run(connection, sql.TABLE)


async def forget(connection: Connection, older_than: timedelta) -> int:
    """Deletes what was recorded longer ago than that, commits, and tells how many rows went.

    An effect that is forgotten can happen again: see `sexton.effects.forget`.
    """
    statement = sql.FORGET_SQLITE if _is_sqlite(connection) else sql.FORGET_POSTGRESQL
    age_s = sql.age_s(older_than)
    async with _transaction(connection):
        return await _run(connection, statement, age=age_s)


class _Committed:
    """A transaction of a connection that has begun one, or begins one with its first statement."""

    def __init__(self, connection: CursorConnection) -> None:
        self._connection = connection

    async def __aenter__(self) -> None:
        if _is_sqlite(self._connection) and not _in_transaction(self._connection):
            await _run(self._connection, "BEGIN IMMEDIATE")

    async def __aexit__(self, failure: type[BaseException] | None, *_: object) -> None:
        if failure is not None:
            await self._connection.rollback()
            return
        try:
            await self._connection.commit()
        except BaseException:
            await self._connection.rollback()
            raise


def _transaction(connection: Connection) -> AbstractAsyncContextManager[object]:
    if not _is_asyncpg(connection):
        return _Committed(cast("CursorConnection", connection))
    of_asyncpg = cast("AsyncpgConnection", connection)
    if of_asyncpg.is_in_transaction():
        expected = "one without, or `record` inside of it"
        raise InvalidArgument("connection", "in an open transaction", expected)
    found: AbstractAsyncContextManager[object] = of_asyncpg.transaction()
    return found


async def _check_open(connection: Connection) -> None:
    """Refuses a connection that would commit each statement by itself."""
    if _is_asyncpg(connection):
        if not cast("AsyncpgConnection", connection).is_in_transaction():
            raise sql.not_open()
    elif not _is_sqlite(connection):
        try:
            for statement in sql.SAVEPOINT:
                await _run(connection, statement)
        except Exception as error:
            if sql.NO_TRANSACTION in str(error):
                raise sql.not_open() from error
            raise


def _key(context: Context) -> str:
    return context.idempotency_key


async def _run(connection: Connection, statement: str, /, **values: object) -> int:
    """Runs a statement and tells how many rows it wrote."""
    if _is_asyncpg(connection):
        text, given = sql.written(statement, values, "dollar")
        done = await cast("AsyncpgConnection", connection).execute(text, *given)
        count = done.rpartition(" ")[2]
        return int(count) if count.isdecimal() else 0
    return (await _execute(connection, statement, values))[1]


async def _ask(connection: Connection, statement: str, /, **values: object) -> Any:
    """Runs a statement and gives a row of its answer."""
    if _is_asyncpg(connection):
        text, given = sql.written(statement, values, "dollar")
        return await cast("AsyncpgConnection", connection).fetchrow(text, *given)
    return (await _execute(connection, statement, values, fetches=True))[0]


async def _execute(
    connection: Connection, statement: str, values: dict[str, object], *, fetches: bool = False
) -> tuple[Any, int]:
    text, given = sql.written(statement, values, sql.driver_of(connection).style)
    async with cast("CursorConnection", connection).cursor() as cursor:
        await cursor.execute(text, given)
        return (await cursor.fetchone() if fetches else None), cursor.rowcount


def _is_sqlite(connection: Connection) -> bool:
    return _is_of("aiosqlite", connection)


def _is_asyncpg(connection: Connection) -> bool:
    return _is_of("asyncpg", connection)


def _is_of(module: str, connection: Connection) -> bool:
    return any(base.__module__.partition(".")[0] == module for base in type(connection).__mro__)


def _in_transaction(connection: Connection) -> bool:
    return bool(cast("Any", connection).in_transaction)

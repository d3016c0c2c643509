"""Effects that happen once: a run's writes to a database of one's own, whatever becomes of workers.

A run can be delivered again after its effect and before its report, and an attempt that has been
replaced can wake up. What helps is a row in the same database, written in the same transaction as
the effect: it says that the effect has happened, and which attempt was the newest.

>>> import sqlite3
>>> from contextlib import closing
>>> shop = sqlite3.connect(":memory:")
>>> _ = shop.execute("CREATE TABLE bookings (customer TEXT, cents INTEGER)")
>>> create_table(shop)
>>> def book():
...     shop.execute("INSERT INTO bookings VALUES ('ada', 500)")
...     return {"booked": 500}
>>> once(shop, context, book)
{'booked': 500}
>>> once(shop, context, book)  # a later attempt of the same run finds it done
{'booked': 500}
>>> shop.execute("SELECT count(*) FROM bookings").fetchone()
(1,)
>>> shop.close()

Works on connections of the DB-API to PostgreSQL (psycopg, psycopg2, pg8000) and SQLite. For
asynchronous connections there is `sexton.async_effects`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, Protocol, TypeVar, cast

from sexton import _effect_statements as sql
from sexton.context import Context

Result = TypeVar("Result")

TABLE: Final = sql.TABLE
"""The table, for a migration. `run` is the idempotency key. The row with the empty name holds the
newest attempt's token, the others one effect each."""


class Cursor(Protocol):
    """What is used of a cursor of the DB-API."""

    @property
    def rowcount(self) -> int:
        """Rows that the last statement wrote."""
        ...

    def execute(self, statement: str, parameters: Any = ..., /) -> object:
        """Runs a statement."""
        ...

    def fetchone(self) -> Any:
        """Gives a row of the last statement's answer."""
        ...

    def close(self) -> object:
        """Frees the cursor."""
        ...


class Connection(Protocol):
    """What is used of a connection of the DB-API."""

    def cursor(self) -> Any:
        """Opens a cursor."""
        ...

    def commit(self) -> object:
        """Makes the transaction durable."""
        ...

    def rollback(self) -> object:
        """Takes the transaction back."""
        ...


def once(
    connection: Connection, context: Context, effect: Callable[[], Result], *, name: str = "effect"
) -> Result:
    """Has an effect happen once in a run, whichever of its attempts gets to it.

    Calls `effect`, which writes through this connection and does not commit, and commits its
    writes together with the record of them. Where an earlier attempt has done so, gives what that
    one returned and calls nothing. Whatever is raised rolls the transaction back.

    Args:
        connection: with no transaction open, or one whose writes may be committed with the effect.
        context: the attempt.
        effect: what to do; what it returns can be written as JSON.
        name: of the effect, where a run has several; 1 to 200 characters.

    Raises:
        Fenced: a newer attempt of this run has been here: nothing may be written any more.
        InvalidArgument: the name, or what `effect` returned, can't be kept; nothing of the
            connection's can be committed.
    """
    if isinstance(connection, sqlite3.Connection) and not connection.in_transaction:
        connection.execute("BEGIN IMMEDIATE")
    if sql.driver_of(connection).module == "psycopg2" and cast("Any", connection).autocommit:
        raise sql.not_open()  # its commit() does nothing then, even where one was begun by hand
    try:
        if record(connection, context, name=name):
            result = effect()
            _run(connection, sql.KEEP, run=_key(context), name=name, result=sql.to_json(result))
        else:
            (kept,) = _ask(connection, sql.RESULT, run=_key(context), name=name)
            result = cast("Result", None if kept is None else json.loads(kept))
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    return result


def record(connection: Connection, context: Context, *, name: str = "effect") -> bool:
    """Records an effect in the transaction that is open, and neither begins nor ends one.

    For transactions that something else looks after. Do the effect in the same transaction where
    this gives True; False: it has been done, by an earlier attempt. Until the transaction ends,
    other attempts of the run wait here.

    Raises:
        Fenced: a newer attempt of this run has been here: roll back.
        InvalidArgument: the name can't be kept, or no transaction is open.
    """
    sql.check_name(name)
    fence(connection, context)
    return _run(connection, sql.RECORD, run=_key(context), name=name, token=context.token) == 1


def fence(connection: Connection, context: Context) -> None:
    """Shuts out the older attempts of this run, from the open transaction's commit on.

    For effects of several transactions: commit this first, and call it again in each of them.

    Raises:
        Fenced: a newer attempt has done so.
        InvalidArgument: no transaction is open.
    """
    _check_open(connection)
    _run(connection, sql.RAISE, run=_key(context), token=context.token)
    (newest,) = _ask(connection, sql.NEWEST_NOW, run=_key(context))
    sql.check_newest(newest, context)


def create_table(connection: Connection) -> None:
    """Creates the table where it is missing, and commits."""
    _execute(connection, TABLE, {})
    connection.commit()


def forget(connection: Connection, older_than: timedelta) -> int:
    """Deletes what was recorded longer ago than that, commits, and tells how many rows went.

    An effect that is forgotten can happen again: keep more than the longest time in which a run is
    delivered, retried or requeued.

    Raises:
        InvalidArgument: less than a second: every effect could happen again.
    """
    sqlite = sql.driver_of(connection).module == "sqlite3"
    statement = sql.FORGET_SQLITE if sqlite else sql.FORGET_POSTGRESQL
    gone = _run(connection, statement, age=sql.age_s(older_than))
    connection.commit()
    return gone


def _key(context: Context) -> str:
    return context.idempotency_key


def _check_open(connection: Connection) -> None:
    """Refuses a connection that would commit each statement by itself."""
    if isinstance(connection, sqlite3.Connection):
        commits_alone = connection.isolation_level is None or (
            getattr(connection, "autocommit", False) is True
        )
        if commits_alone and not connection.in_transaction:
            raise sql.not_open()
        return
    try:
        for statement in sql.SAVEPOINT:
            _execute(connection, statement, {})
    except Exception as error:
        if sql.NO_TRANSACTION in str(error):
            raise sql.not_open() from error
        raise


def _run(connection: Connection, statement: str, **values: object) -> int:
    return _execute(connection, statement, values)[1]


def _ask(connection: Connection, statement: str, **values: object) -> Any:
    return _execute(connection, statement, values, fetches=True)[0]


def _execute(
    connection: Connection, statement: str, values: dict[str, object], *, fetches: bool = False
) -> tuple[Any, int]:
    written, parameters = sql.written(statement, values, sql.driver_of(connection).style)
    cursor: Cursor = connection.cursor()
    try:
        cursor.execute(written, parameters)
        return (cursor.fetchone() if fetches else None), cursor.rowcount
    finally:
        cursor.close()

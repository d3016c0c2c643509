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

Works on connections of the DB-API to PostgreSQL (psycopg, psycopg2, pg8000) and SQLite.
"""

from __future__ import annotations

import json
import re
import sqlite3
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final, Protocol, TypeVar, cast

from sexton.context import Context
from sexton.errors import Fenced, InvalidArgument

Result = TypeVar("Result")

TABLE: Final = """
CREATE TABLE IF NOT EXISTS sexton_effects (
    run text NOT NULL,
    name text NOT NULL,
    token bigint NOT NULL,
    result text,
    recorded_at timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (run, name)
)
"""
"""The table, for a migration. `run` is the idempotency key. The row with the empty name holds the
newest attempt's token, the others one effect each."""

_RAISE: Final = """
INSERT INTO sexton_effects (run, name, token) VALUES (:run, '', :token)
ON CONFLICT (run, name) DO UPDATE SET token = excluded.token
WHERE sexton_effects.token < excluded.token
"""
_NEWEST_NOW: Final = "SELECT token FROM sexton_effects WHERE run = :run AND name = ''"
_RECORD: Final = """
INSERT INTO sexton_effects (run, name, token) VALUES (:run, :name, :token)
ON CONFLICT (run, name) DO NOTHING
"""
_KEEP: Final = "UPDATE sexton_effects SET result = :result WHERE run = :run AND name = :name"
_RESULT: Final = "SELECT result FROM sexton_effects WHERE run = :run AND name = :name"
_FORGET_SQLITE: Final = """
DELETE FROM sexton_effects WHERE recorded_at < datetime('now', '-' || :age || ' seconds')
"""
_FORGET_POSTGRESQL: Final = """
DELETE FROM sexton_effects WHERE recorded_at < CURRENT_TIMESTAMP - :age * interval '1 second'
"""
_PLACE: Final = re.compile(r":([a-z]+)")
_MAX_NAME: Final = 200


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
        InvalidArgument: the name, or what `effect` returned, can't be kept.
    """
    if isinstance(connection, sqlite3.Connection) and not connection.in_transaction:
        connection.execute("BEGIN IMMEDIATE")
    try:
        if record(connection, context, name=name):
            result = effect()
            _run(connection, _KEEP, run=_key(context), name=name, result=_json(result))
        else:
            (kept,) = _ask(connection, _RESULT, run=_key(context), name=name)
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
    if not 1 <= len(name) <= _MAX_NAME:
        raise InvalidArgument("name", name, f"1 to {_MAX_NAME} characters")
    fence(connection, context)
    return _run(connection, _RECORD, run=_key(context), name=name, token=context.token) == 1


def fence(connection: Connection, context: Context) -> None:
    """Shuts out the older attempts of this run, from the open transaction's commit on.

    For effects of several transactions: commit this first, and call it again in each of them.

    Raises:
        Fenced: a newer attempt has done so.
        InvalidArgument: no transaction is open.
    """
    _check_open(connection)
    _run(connection, _RAISE, run=_key(context), token=context.token)
    (newest,) = _ask(connection, _NEWEST_NOW, run=_key(context))
    if newest > context.token:
        raise Fenced(
            f"attempt {context.attempt} of {_key(context)} has been replaced: its token is "
            f"{context.token}, one with {newest} has been here"
        )


def create_table(connection: Connection) -> None:
    """Creates the table where it is missing, and commits."""
    _execute(connection, TABLE, {})
    connection.commit()


def forget(connection: Connection, older_than: timedelta) -> int:
    """Deletes what was recorded longer ago than that, commits, and tells how many rows went.

    An effect that is forgotten can happen again: keep more than the longest time in which a run is
    delivered, retried or requeued.
    """
    statement = _FORGET_SQLITE if _paramstyle(connection)[0] == "sqlite3" else _FORGET_POSTGRESQL
    gone = _run(connection, statement, age=round(older_than.total_seconds()))
    connection.commit()
    return gone


def _key(context: Context) -> str:
    return context.idempotency_key


def _json(result: object) -> str | None:
    try:
        return None if result is None else json.dumps(result, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument("effect", result, f"something to return as JSON ({error})") from None


def _check_open(connection: Connection) -> None:
    """Refuses a connection that would commit each statement by itself."""
    if isinstance(connection, sqlite3.Connection):
        commits_alone = connection.isolation_level is None or (
            getattr(connection, "autocommit", False) is True
        )
        if commits_alone and not connection.in_transaction:
            raise _not_open()
        return
    try:
        # PostgreSQL allows it in transactions only; drivers that begin them by themselves do here.
        _execute(connection, "SAVEPOINT sexton_effects", {})
        _execute(connection, "RELEASE SAVEPOINT sexton_effects", {})
    except Exception as error:
        if "SAVEPOINT can only be used in transaction blocks" in str(error):
            raise _not_open() from error
        raise


def _not_open() -> InvalidArgument:
    return InvalidArgument("connection", "in autocommit mode", "one in an open transaction")


def _run(connection: Connection, statement: str, **values: object) -> int:
    return _execute(connection, statement, values)[1]


def _ask(connection: Connection, statement: str, **values: object) -> Any:
    return _execute(connection, statement, values, fetches=True)[0]


def _execute(
    connection: Connection, statement: str, values: dict[str, object], *, fetches: bool = False
) -> tuple[Any, int]:
    written, parameters = _written(statement, values, _paramstyle(connection)[1])
    cursor: Cursor = connection.cursor()
    try:
        cursor.execute(written, parameters)
        return (cursor.fetchone() if fetches else None), cursor.rowcount
    finally:
        cursor.close()


def _written(
    statement: str, values: dict[str, object], style: str
) -> tuple[str, Sequence[object] | dict[str, object]]:
    """Writes a statement with its values as a driver takes them."""
    if style in ("named", "pyformat"):
        place = ":{}" if style == "named" else "%({})s"
        return _PLACE.sub(lambda match: place.format(match[1]), statement), values
    names = [match[1] for match in _PLACE.finditer(statement)]
    numbers = iter(range(1, len(names) + 1))
    places = {"qmark": "?", "format": "%s"}
    written = _PLACE.sub(lambda _: places.get(style) or f":{next(numbers)}", statement)
    return written, [values[name] for name in names]


def _paramstyle(connection: Connection) -> tuple[str, str]:
    """Gives the driver's module, and how it wants values to be marked."""
    for base in type(connection).__mro__:
        name = base.__module__.partition(".")[0]
        style = getattr(sys.modules.get(name), "paramstyle", None)
        if isinstance(style, str):
            return name, style
    raise InvalidArgument(
        "connection",
        type(connection).__qualname__,
        "a connection of the DB-API itself, such as psycopg.connect() or sqlite3.connect() gives",
    )

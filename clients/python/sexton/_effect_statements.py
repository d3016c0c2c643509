"""What effects are recorded with: the table, the statements, and how drivers want them written."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from sexton.context import Context
from sexton.errors import Fenced, InvalidArgument

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
RAISE: Final = """
INSERT INTO sexton_effects (run, name, token) VALUES (:run, '', :token)
ON CONFLICT (run, name) DO UPDATE SET token = excluded.token
WHERE sexton_effects.token < excluded.token
"""
NEWEST_NOW: Final = "SELECT token FROM sexton_effects WHERE run = :run AND name = ''"
RECORD: Final = """
INSERT INTO sexton_effects (run, name, token) VALUES (:run, :name, :token)
ON CONFLICT (run, name) DO NOTHING
"""
KEEP: Final = "UPDATE sexton_effects SET result = :result WHERE run = :run AND name = :name"
RESULT: Final = "SELECT result FROM sexton_effects WHERE run = :run AND name = :name"
FORGET_SQLITE: Final = """
DELETE FROM sexton_effects WHERE recorded_at < datetime('now', '-' || :age || ' seconds')
"""
FORGET_POSTGRESQL: Final = """
DELETE FROM sexton_effects WHERE recorded_at < CURRENT_TIMESTAMP - :age * interval '1 second'
"""

# PostgreSQL allows it in transactions only; drivers that begin them by themselves do here.
SAVEPOINT: Final = ("SAVEPOINT sexton_effects", "RELEASE SAVEPOINT sexton_effects")
NO_TRANSACTION: Final = "SAVEPOINT can only be used in transaction blocks"

_PLACE: Final = re.compile(r":([a-z]+)")
_MAX_NAME: Final = 200


class Driver(NamedTuple):
    """The module that a connection is of, and how it wants values to be marked."""

    module: str
    style: str


def driver_of(connection: object) -> Driver:
    """Finds a connection's driver; raises `InvalidArgument` where it is none of the DB-API."""
    for base in type(connection).__mro__:
        module = base.__module__.partition(".")[0]
        style = getattr(sys.modules.get(module), "paramstyle", None)
        if isinstance(style, str):
            return Driver(module, style)
    raise InvalidArgument(
        "connection",
        type(connection).__qualname__,
        "a connection of the DB-API itself, such as psycopg.connect() or sqlite3.connect() gives",
    )


def written(
    statement: str, values: Mapping[str, object], style: str
) -> tuple[str, Sequence[object] | Mapping[str, object]]:
    """Writes a statement with its values as a driver takes them."""
    if style in ("named", "pyformat"):
        place = ":{}" if style == "named" else "%({})s"
        return _PLACE.sub(lambda match: place.format(match[1]), statement), values
    names = [match[1] for match in _PLACE.finditer(statement)]
    numbers = iter(range(1, len(names) + 1))
    places = {"qmark": "?", "format": "%s"}
    mark = {"dollar": "$"}.get(style, ":")
    text = _PLACE.sub(lambda _: places.get(style) or f"{mark}{next(numbers)}", statement)
    return text, [values[name] for name in names]


def check_name(name: str) -> None:
    """Raises `InvalidArgument` where an effect can't be named so."""
    if not 1 <= len(name) <= _MAX_NAME:
        raise InvalidArgument("name", name, f"1 to {_MAX_NAME} characters")


def age_s(older_than: timedelta) -> int:
    """Gives an age in whole seconds; raises `InvalidArgument` where it would forget everything."""
    if not isinstance(older_than, timedelta) or older_than < timedelta(seconds=1):
        raise InvalidArgument("older_than", older_than, "a timedelta of 1 second or more")
    return round(older_than.total_seconds())


def check_newest(newest: int, context: Context) -> None:
    """Raises `Fenced` where an attempt with a higher token has been here."""
    if newest > context.token:
        raise Fenced(
            f"attempt {context.attempt} of {context.idempotency_key} has been replaced: its token "
            f"is {context.token}, one with {newest} has been here"
        )


def to_json(result: object) -> str | None:
    """Writes what an effect returned; raises `InvalidArgument` where it can't be kept."""
    try:
        return None if result is None else json.dumps(result, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument("effect", result, f"something to return as JSON ({error})") from None


def not_open() -> InvalidArgument:
    """Says that a connection commits each statement by itself."""
    return InvalidArgument("connection", "in autocommit mode", "one in an open transaction")

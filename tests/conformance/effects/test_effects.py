"""An effect happens once, in whichever database: repeats find it done, replaced attempts fail."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from conformance.effects.attempts import FIRST, SECOND, attempt
from conformance.effects.databases import (
    Database,
    of_pg8000,
    of_psycopg,
    of_psycopg2,
    sqlite,
)

from sexton import Context, effects
from sexton.errors import Fenced, InvalidArgument


@pytest.fixture(
    scope="module",
    params=[
        sqlite,
        *(
            pytest.param(each, marks=pytest.mark.system)
            for each in (of_psycopg, of_psycopg2, of_pg8000)
        ),
    ],
    ids=lambda kind: kind.__name__,
)
def server(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Database:
    if request.param is sqlite:
        return sqlite(tmp_path_factory.mktemp("effects"))
    database: Database = request.param(request.getfixturevalue("socket"))
    return database


@pytest.fixture
def database(server: Database) -> Database:
    with closing(server.connect()) as connection:
        for table in ("bookings", "sexton_effects"):
            execute(connection, f"DROP TABLE IF EXISTS {table}")
        execute(connection, "CREATE TABLE bookings (attempt integer)")
        connection.commit()
        effects.create_table(connection)
    return server


def execute(connection: Any, statement: str) -> Any:
    cursor = connection.cursor()
    cursor.execute(statement)
    return cursor


def book(connection: Any, number: int) -> dict[str, int]:
    execute(connection, f"INSERT INTO bookings VALUES ({number})")
    return {"booked": number}


def booked(database: Database) -> list[int]:
    with closing(database.connect()) as connection:
        rows = execute(connection, "SELECT attempt FROM bookings ORDER BY attempt").fetchall()
    return [number for (number,) in rows]


def once(database: Database, context: Context, **more: Any) -> Any:
    with closing(database.connect()) as connection:
        return effects.once(connection, context, lambda: book(connection, context.attempt), **more)


def test_a_later_attempt_finds_it_done_and_gives_the_same_result(database: Database) -> None:
    assert once(database, FIRST) == {"booked": 1}
    assert once(database, FIRST) == {"booked": 1}
    assert once(database, SECOND) == {"booked": 1}
    assert booked(database) == [1]


def test_other_runs_and_other_effects_of_a_run_happen_too(database: Database) -> None:
    once(database, FIRST)
    once(database, FIRST, name="mail")
    once(database, attempt(1, 12, run="t2"))
    assert booked(database) == [1, 1, 1]


def test_a_replaced_attempt_writes_nothing(database: Database) -> None:
    once(database, SECOND)
    with pytest.raises(Fenced) as caught:
        once(database, FIRST, name="another")
    assert str(caught.value) == (
        "attempt 1 of default/book/t1 has been replaced: its token is 10, one with 17 has been here"
    )
    assert booked(database) == [2]


def test_a_fence_shuts_out_older_attempts_before_the_effect(database: Database) -> None:
    with closing(database.connect()) as connection:
        effects.fence(connection, SECOND)
        connection.commit()
    with pytest.raises(Fenced):
        once(database, FIRST)
    assert once(database, SECOND) == {"booked": 2}
    assert booked(database) == [2]


def test_what_fails_leaves_nothing_and_can_be_done_again(database: Database) -> None:
    def fail(connection: Any) -> None:
        book(connection, 1)
        raise RuntimeError("the shop is closed")

    with closing(database.connect()) as connection:
        with pytest.raises(RuntimeError):
            effects.once(connection, FIRST, lambda: fail(connection))
        with pytest.raises(InvalidArgument, match="JSON"):
            effects.once(connection, FIRST, lambda: book(connection, 1) and object())
    assert booked(database) == []
    assert once(database, SECOND) == {"booked": 2}


def test_a_worker_that_dies_before_the_commit_has_done_nothing(database: Database) -> None:
    with closing(database.connect()) as connection:
        assert effects.record(connection, FIRST)
        book(connection, 1)
    assert booked(database) == []
    assert once(database, SECOND) == {"booked": 2}


def test_of_attempts_at_the_same_time_one_has_the_effect(database: Database) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> Any:
        with closing(database.connect()) as connection:

            def effect() -> dict[str, int]:
                begun.set()
                assert go_on.wait(20)
                return book(connection, 1)

            return effects.once(connection, FIRST, effect)

    with ThreadPoolExecutor() as pool:
        first = pool.submit(slow)
        assert begun.wait(20)
        second = pool.submit(once, database, SECOND)
        go_on.set()
        assert first.result(20) == second.result(20) == {"booked": 1}
    assert booked(database) == [1]


def test_a_transaction_that_somebody_else_looks_after(database: Database) -> None:
    with closing(database.connect()) as connection:
        assert effects.record(connection, FIRST)
        book(connection, 1)
        connection.commit()
        assert not effects.record(connection, SECOND)
        connection.rollback()
    assert booked(database) == [1]


def test_a_connection_that_commits_each_statement_is_refused(database: Database) -> None:
    with closing(database.connect(autocommit=True)) as connection:
        with pytest.raises(InvalidArgument, match="'in autocommit mode' can't be used"):
            effects.record(connection, FIRST)
        execute(connection, "BEGIN")
        assert effects.record(connection, FIRST)
        book(connection, 1)
        execute(connection, "COMMIT")
    assert booked(database) == [1]
    assert once(database, SECOND) is None


def test_what_once_says_was_done_is_durable_also_where_somebody_said_begin(
    database: Database,
) -> None:
    """In autocommit mode commit() of psycopg2 does nothing."""
    with closing(database.connect(autocommit=True)) as connection:
        execute(connection, "BEGIN")
        try:
            effects.once(connection, FIRST, lambda: book(connection, 1))
        except InvalidArgument:
            assert booked(database) == []
            assert database.connect.__qualname__.startswith("of_psycopg2")
        else:
            assert booked(database) == [1]


def test_once_needs_no_transaction_from_sqlite(server: Database, database: Database) -> None:
    with closing(server.connect(autocommit=True)) as connection:
        if isinstance(connection, sqlite3.Connection):
            effects.once(connection, FIRST, lambda: book(connection, 1))
            assert booked(database) == [1]


def test_what_is_old_is_forgotten_and_nothing_else(database: Database) -> None:
    once(database, FIRST)
    with closing(database.connect()) as connection:
        assert effects.forget(connection, timedelta(days=90)) == 0
        execute(connection, "UPDATE sexton_effects SET recorded_at = '2020-01-01 00:00:00'")
        assert effects.forget(connection, timedelta(days=90)) == 2
    once(database, SECOND)
    assert booked(database) == [1, 2]


def test_names_that_can_not_be_kept_are_refused(database: Database) -> None:
    for name in ("", "x" * 201):
        with pytest.raises(InvalidArgument):
            once(database, FIRST, name=name)


def test_something_that_is_no_connection_is_named() -> None:
    with pytest.raises(InvalidArgument, match="a connection of the DB-API itself"):
        effects.create_table(object())  # type: ignore[arg-type]

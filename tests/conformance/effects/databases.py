"""Databases for the tests of effects: SQLite in a file, PostgreSQL of their own."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pg8000.dbapi
import psycopg
import psycopg2
import pytest

_UNPRIVILEGED: Final = "nobody"


class Database(NamedTuple):
    """How tests connect. With `autocommit` a connection commits each statement by itself."""

    connect: Callable[..., Any]


def sqlite(folder: Path) -> Database:
    def connect(*, autocommit: bool = False) -> sqlite3.Connection:
        more: dict[str, Any] = {"isolation_level": None} if autocommit else {}
        return sqlite3.connect(folder / "shop.db", timeout=20, check_same_thread=False, **more)

    return Database(connect)


def of_psycopg(folder: Path) -> Database:
    def connect(*, autocommit: bool = False) -> psycopg.Connection[Any]:
        return psycopg.connect(address(folder), autocommit=autocommit)

    return Database(connect)


def of_psycopg2(folder: Path) -> Database:
    def connect(*, autocommit: bool = False) -> Any:
        connection = psycopg2.connect(address(folder))
        connection.autocommit = autocommit
        return connection

    return Database(connect)


def of_pg8000(folder: Path) -> Database:
    def connect(*, autocommit: bool = False) -> Any:
        connection = pg8000.dbapi.connect(
            "sexton", database="postgres", unix_sock=str(folder / ".s.PGSQL.5432")
        )
        connection.autocommit = autocommit
        return connection

    return Database(connect)


def address(folder: Path) -> str:
    return f"host={folder} user=sexton dbname=postgres"


@contextmanager
def postgres() -> Iterator[Path]:
    """A server on a socket in a folder of its own, run by a user without rights."""
    programs = _programs()
    if programs is None:
        if os.environ.get("SEXTON_REQUIRE_SYSTEM"):
            pytest.fail("PostgreSQL is missing")
        pytest.skip("needs PostgreSQL")
    # The socket's path may have 107 bytes, and every user has to reach it.
    folder = Path(tempfile.mkdtemp(prefix="sexton-postgres-"))
    owner = _UNPRIVILEGED if os.geteuid() == 0 else None
    if owner is not None:
        shutil.chown(folder, owner)
    data = folder / "data"

    def run(program: str, *arguments: str) -> None:
        subprocess.run(
            [programs / program, "-D", data, *arguments],
            check=True, user=owner, cwd=folder, stdout=subprocess.DEVNULL,
        )  # fmt: skip

    run("initdb", "--username=sexton", "--auth=trust", "--no-sync", "--encoding=UTF8")
    options = f"-F -c listen_addresses= -c unix_socket_directories={folder}"
    run("pg_ctl", "-w", "-l", str(folder / "log"), "-o", options, "start")
    try:
        yield folder
    finally:
        run("pg_ctl", "-w", "-m", "immediate", "stop")
        shutil.rmtree(folder)


def _programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    somewhere = shutil.which("initdb")
    return Path(somewhere).resolve().parent if somewhere else None

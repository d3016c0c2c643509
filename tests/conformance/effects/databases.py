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

import psycopg
import pytest

_UNPRIVILEGED: Final = "nobody"


class Database(NamedTuple):
    """How tests connect."""

    connect: Callable[..., Any]
    autocommit: dict[str, Any]
    """What makes a connection commit each statement by itself."""


@contextmanager
def sqlite(folder: Path) -> Iterator[Database]:
    def connect(**more: Any) -> sqlite3.Connection:
        return sqlite3.connect(folder / "shop.db", timeout=20, check_same_thread=False, **more)

    yield Database(connect, {"isolation_level": None})


@contextmanager
def postgres() -> Iterator[Database]:
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

    def connect(**more: Any) -> psycopg.Connection[Any]:
        address = f"host={folder} user=sexton dbname=postgres"
        return psycopg.connect(address, **more)

    try:
        yield Database(connect, {"autocommit": True})
    finally:
        run("pg_ctl", "-w", "-m", "immediate", "stop")
        shutil.rmtree(folder)


def _programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    somewhere = shutil.which("initdb")
    return Path(somewhere).resolve().parent if somewhere else None

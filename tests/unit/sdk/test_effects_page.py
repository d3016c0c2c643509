"""The page about effects: its code runs, and what it does happens once."""

from __future__ import annotations

import json
import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from conformance.effects.attempts import FIRST, SECOND, attempt

from sexton import effects
from sexton.errors import InvalidArgument

PAGE = (Path(__file__).parents[3] / "docs" / "effects.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def names_of(word: str, **replaced: str) -> dict[str, Any]:
    """Runs the block of the page that has the word; gives what it defines."""
    (block,) = [found for found in BLOCKS if word in found]
    for old, new in replaced.items():
        assert old in block
        block = block.replace(old, new)
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(block, "docs/effects.md", "exec"), names)
    return names


class Server(ThreadingHTTPServer):
    """A service whose handler the page shows, and a bucket with conditional writes."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.objects: dict[str, bytes] = {}
        self.writes: list[int] = []
        self.on_get: list[Any] = []
        self.work = lambda: {"charged": 500}
        self.handle_page = names_of("CLAIM")["handle"]
        self.shop = sqlite3.connect(":memory:", check_same_thread=False)
        self.shop.execute("CREATE TABLE requests (key TEXT PRIMARY KEY, token INT, answer TEXT)")

    def etag(self, path: str) -> str | None:
        content = self.objects.get(path)
        return None if content is None else f'"{hash(content)}"'


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        self._body()
        key, token = self.headers["Idempotency-Key"], int(self.headers["Sexton-Token"])
        try:
            status, answer = self.server.handle_page(self.server.shop, key, token, self.server.work)
        except RuntimeError:
            status, answer = 500, {}
        self._answer(status, json.dumps(answer).encode())

    def do_GET(self) -> None:
        content, etag = self.server.objects.get(self.path), self.server.etag(self.path)
        self._answer(404 if content is None else 200, content or b"", etag)
        if self.server.on_get:
            self.server.on_get.pop()()

    def do_PUT(self) -> None:
        content, standing = self._body(), self.server.etag(self.path)
        refused = standing is not None and self.headers["If-None-Match"] == "*"
        refused |= self.headers["If-Match"] not in (None, standing)
        if not refused:
            self.server.objects[self.path] = content
        self.server.writes.append(412 if refused else 200)
        self._answer(self.server.writes[-1], b"")

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers["Content-Length"]))

    def _answer(self, status: int, content: bytes, etag: str | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        if etag is not None:
            self.send_header("ETag", etag)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
            server.shop.close()


async def test_a_booking_happens_once_from_functions_and_from_coroutines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    book, refund = names_of("def book(")["book"], names_of("def refund")["refund"]
    later = attempt(1, 20, run="t2")
    assert [book("ada", each) for each in (FIRST, SECOND)] == [{"booked": 500}] * 2
    assert [await refund("ada", each) for each in (later, later)] == [{"booked": -500}] * 2
    with closing(sqlite3.connect("shop.db")) as shop:
        assert shop.execute("SELECT * FROM bookings").fetchall() == [("ada", 500), ("ada", -500)]


def test_a_request_is_worked_off_once_and_its_answer_given_again(server: Server) -> None:
    charge = names_of("def charge", **{"http://127.0.0.1:8000": server.url})["charge"]
    worked = []

    def fail() -> None:
        raise RuntimeError("the shop is closed")

    def work() -> dict[str, int]:
        worked.append(1)
        return {"charged": 500}

    server.work = fail
    with pytest.raises(httpx.HTTPStatusError, match="500"):
        charge("ada", FIRST)
    server.work = work
    assert charge("ada", FIRST) == charge("ada", SECOND) == charge("ada", FIRST)
    assert worked == [1]
    assert charge("ada", attempt(1, 9, run="t2")) == {"charged": 500}
    assert worked == [1, 1]


def test_a_request_of_a_replaced_attempt_is_refused_while_the_newer_one_works(
    server: Server,
) -> None:
    server.shop.execute(
        "INSERT INTO requests VALUES (?, ?, NULL)", [SECOND.idempotency_key, SECOND.token]
    )
    server.shop.commit()
    charge = names_of("def charge", **{"http://127.0.0.1:8000": server.url})["charge"]
    with pytest.raises(httpx.HTTPStatusError, match="409"):
        charge("ada", FIRST)


def test_an_object_is_written_once_and_the_pointer_never_goes_back(server: Server) -> None:
    names = names_of("If-None-Match")
    write_once, point_to = names["write_once"], names["point_to"]
    name = write_once(server.url, FIRST, b"first")
    assert write_once(server.url, SECOND, b"second") == name == "reports/t1"
    assert server.objects == {"/reports/t1": b"first"}
    assert point_to(server.url, SECOND, name)
    assert not point_to(server.url, FIRST, "reports/t0")
    newer = attempt(1, 20, run="t2")
    assert point_to(server.url, newer, "reports/t2")
    assert json.loads(server.objects["/latest"]) == {"token": 20, "name": "reports/t2"}


def test_of_two_that_move_the_pointer_at_once_the_newer_one_wins(server: Server) -> None:
    point_to = names_of("If-None-Match")["point_to"]
    newer = attempt(1, 20, run="t2")
    server.on_get.append(lambda: server.objects.update({"/latest": b'{"token": 20}'}))
    assert not point_to(server.url, SECOND, "reports/t1")
    server.on_get.append(lambda: server.objects.update({"/latest": b'{"token": 19}'}))
    assert point_to(server.url, newer, "reports/t2")
    assert server.writes == [412, 412, 200]


@pytest.mark.parametrize("age", [timedelta(0), timedelta(days=-90), 90])
def test_what_was_just_recorded_is_not_forgotten_by_a_wrong_age(age) -> None:
    with closing(sqlite3.connect(":memory:")) as shop:
        effects.create_table(shop)
        with pytest.raises(InvalidArgument, match=r"older_than: .* 1 second or more"):
            effects.forget(shop, age)

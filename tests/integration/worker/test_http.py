"""HTTP tasks, made by a real worker against a real server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme
from integration.worker.conftest import Pair
from integration.worker.owner import Owner, serving
from integration.worker.worker_process import working

from sexton.v1 import job_pb2, run_pb2
from sexton.v1 import worker_pb2 as pb
from sexton_worker.executors.http_calls import call
from sexton_worker.executors.http_request import HttpRequest

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

SUCCEEDED, FAILED = run_pb2.ATTEMPT_STATE_SUCCEEDED, run_pb2.ATTEMPT_STATE_FAILED


class Request(NamedTuple):
    """What the server was sent."""

    line: str
    headers: dict[str, str]
    body: str


class Site:
    """A web server that answers as the test says; keeps what it was asked."""

    def __init__(self) -> None:
        self.port = 0
        self.requests: list[Request] = []
        self.answer: Callable[[Request], bytes] = lambda _: reply("200 OK")
        self.silent = False
        self.answers_once = False
        self.asked = asyncio.Event()
        self.closed = asyncio.Event()

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                line, *rest = head.decode().strip().split("\r\n")
                headers = {
                    name.lower(): value
                    for name, _, value in (item.partition(": ") for item in rest)
                }
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.requests.append(Request(line, headers, body.decode()))
                self.asked.set()
                if not self.silent:
                    writer.write(self.answer(self.requests[-1]))
                    await writer.drain()
                if self.answers_once:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            self.closed.set()
        finally:
            writer.close()


@asynccontextmanager
async def site(answer: bytes = b"") -> AsyncIterator[Site]:
    served = Site()
    if answer:
        served.answer = lambda _: answer
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0)
    served.port = server.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        server.close()


def reply(status: str, body: str = "", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body.encode())}", *headers]
    return "\r\n".join([*lines, "", body]).encode()


async def told(pair: Pair, answer: bytes, **task: object) -> pb.Completion:
    """Makes one call that is answered so; gives how the attempt ended."""
    async with site(answer) as served:
        return await pair.owner.completion(pair.owner.http(served.url(), **task))


async def test_a_call_tells_the_server_which_run_it_is(pair: Pair) -> None:
    async with site() as served:
        headers = {
            "X-Shop": job_pb2.EnvValue(value="gr\u00fcn"),
            "Authorization": job_pb2.EnvValue(from_worker="PASSWORD"),
        }
        token = pair.owner.http(served.url("/hook?a=1"), headers=headers, number=3, body="hello")
        assert (await pair.owner.completion(token)).state == SUCCEEDED
        (request,) = served.requests
    assert request.line == "POST /hook?a=1 HTTP/1.1"
    assert request.body == "hello"
    assert (
        request.headers.items()
        >= {
            "sexton-namespace": "default",
            "sexton-job": "backup",
            "sexton-run-id": "t20261129T070000Z-abcdefgh",
            "sexton-nominal-time": "2026-11-29T07:00:00Z",
            "sexton-attempt": "3",
            "sexton-token": str(token),
            "idempotency-key": "default/backup/t20261129T070000Z-abcdefgh",
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203030-01",
            "content-type": "text/plain; charset=utf-8",
            "x-shop": "gr\u00fcn",
            "authorization": "s3cret-words",
        }.items()
    )


async def test_values_of_the_run_stand_in_the_body_as_values(pair: Pair) -> None:
    async with site() as served:
        body = '{"run": "$SEXTON_RUN_ID", "n": ${SEXTON_ATTEMPT}, "price": "5 $", "x": "$HOME"}'
        await pair.owner.completion(pair.owner.http(served.url(), method="PUT", body=body))
        (request,) = served.requests
    assert request.line.startswith("PUT / ")
    assert request.headers["content-type"] == "application/json"
    assert json.loads(request.body) == {
        "run": "t20261129T070000Z-abcdefgh",
        "n": 1,
        "price": "5 $",
        "x": "$HOME",
    }


async def test_what_is_answered_is_kept_as_output_and_json_as_the_result(pair: Pair) -> None:
    json_type = "Content-Type: application/json; charset=utf-8"
    done = await told(pair, reply("200 OK", '{"sent": 3}', json_type))
    assert (done.state, done.result_json) == (SUCCEEDED, '{"sent": 3}')
    assert done.output_tail.startswith("200 OK, 11 bytes of application/json; charset=utf-8 after ")
    assert done.output_tail.endswith('\n{"sent": 3}')
    for body in ("{", "NaN", "[" * 60_000, json.dumps("x" * 70_000)):
        done = await told(pair, reply("200 OK", body, json_type))
        assert (done.state, done.result_json) == (SUCCEEDED, "")
    done = await told(pair, reply("200 OK", "\x1b[31m" + "x" * 100_000 + " the end"))
    assert done.result_json == ""
    assert len(done.output_tail.encode()) <= 16 * 1024
    assert done.output_tail.endswith("x the end")


async def test_a_value_of_the_worker_s_own_is_not_kept_when_it_is_echoed(pair: Pair) -> None:
    headers = {"X-Key": job_pb2.EnvValue(from_worker="PASSWORD")}
    answer = reply("200 OK", '{"key": "s3cret-words"}', "Content-Type: application/json")
    done = await told(pair, answer, headers=headers)
    assert done.result_json == '{"key": "***"}'
    assert "s3cret" not in done.output_tail


@pytest.mark.parametrize(
    ("answer", "kind", "for_good", "retry_after_ms"),
    [
        (reply("500 Oops", "no disk\nat all"), "http 500", False, 0),
        (reply("503 Closed", "", "Retry-After: 120"), "http 503", False, 120_000),
        (reply("429 Slow", "", "Retry-After: soon"), "http 429", False, 0),
        (reply("404 Gone"), "http 404", True, 0),
        (reply("302 There", "", "Location: http://127.0.0.2:1/"), "http 302", True, 0),
        (b"nonsense\r\n\r\n", "connection", False, 0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_may_help_is_repeated_and_what_can_not_is_not(
    pair: Pair, answer: bytes, kind: str, for_good: object, retry_after_ms: int
) -> None:
    done = await told(pair, answer)
    assert (done.state, done.error.kind) == (FAILED, kind)
    assert (done.for_good, done.retry_after_ms) == (for_good, retry_after_ms)


async def test_messages_say_what_the_server_said(pair: Pair) -> None:
    done = await told(pair, reply("500 Oops", "no disk\nat all"))
    assert done.error.message == "500 Internal Server Error: no disk"
    done = await told(pair, reply("302 There", "", "Location: http://127.0.0.2:1/"))
    assert done.error.message == "302 Found: it redirects to http://127.0.0.2:1/"


async def test_the_statuses_that_a_job_expects_and_only_those_are_a_success(pair: Pair) -> None:
    assert (await told(pair, reply("404 Gone"), expect=[404])).state == SUCCEEDED
    assert (await told(pair, reply("200 OK"), expect=[404])).state == FAILED
    there = reply("302 There", "", "Location: /elsewhere")
    assert (await told(pair, there, expect=[302])).state == SUCCEEDED


async def test_redirects_are_followed_on_one_host_and_no_headers_leave_it(pair: Pair) -> None:
    headers = {"X-Key": job_pb2.EnvValue(from_worker="PASSWORD")}
    async with site() as served, site() as other:
        served.answer = lambda request: (
            reply("200 OK") if "/end" in request.line else reply("307 On", "", "Location: /end")
        )
        token = pair.owner.http(served.url(), headers=headers, body="b")
        assert (await pair.owner.completion(token)).state == SUCCEEDED
        assert [request.line for request in served.requests] == [
            "POST / HTTP/1.1", "POST /end HTTP/1.1",
        ]  # fmt: skip
        assert served.requests[1].body == "b"
        served.answer = lambda _: reply("307 On", "", f"Location: {other.url()}")
        token = pair.owner.http(served.url(), headers=headers)
        assert (await pair.owner.completion(token)).error.kind == "http 307"
        assert other.requests == []
        served.answer = lambda _: reply("307 On", "", "Location: /again")
        served.requests.clear()
        token = pair.owner.http(served.url())
        assert (await pair.owner.completion(token)).error.kind == "http 307"
        assert len(served.requests) == 6


async def test_what_can_not_be_reached_is_tried_again(pair: Pair) -> None:
    done = await pair.owner.completion(pair.owner.http("http://127.0.0.1:1/"))
    assert (done.error.kind, done.error.message) == (
        "connection", "no connection: Connection refused",
    )  # fmt: skip
    assert not done.for_good
    async with site() as served:
        served.answer = lambda _: b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhal"
        served.silent = False
        token = pair.owner.http(served.url())
        await served.asked.wait()
        await asyncio.sleep(0)
        pair.owner.cancel(token)
        assert (await pair.owner.completion(token)).state == run_pb2.ATTEMPT_STATE_CANCELLED


async def test_an_end_closes_the_connection(pair: Pair) -> None:
    for how, state in (
        ("cancel", run_pb2.ATTEMPT_STATE_CANCELLED),
        ("terminate", run_pb2.ATTEMPT_STATE_TERMINATED),
        ("timeout", run_pb2.ATTEMPT_STATE_TIMED_OUT),
    ):
        async with site() as served:
            served.silent = True
            token = pair.owner.http(served.url(), timeout_ms=300 if how == "timeout" else 60_000)
            await served.asked.wait()
            if how != "timeout":
                pair.owner.cancel(token, terminate=how == "terminate")
            assert (await pair.owner.completion(token)).state == state
            await served.closed.wait()


async def test_nothing_passes_from_one_call_to_the_next(pair: Pair) -> None:
    async with site() as served:
        served.answer = lambda _: reply("200 OK", "", "Set-Cookie: a=1")
        for _ in range(2):
            await pair.owner.completion(pair.owner.http(served.url()))
        assert all("cookie" not in request.headers for request in served.requests)


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({"body": "$SEXTON_SECRET"}, "there is no $SEXTON_SECRET; there are SEXTON_NAMESPACE"),
        ({"body": '{"a": }'}, "it is to be JSON, and is not"),
        ({"headers": {"A": job_pb2.EnvValue(from_worker="NOT_THERE")}}, "NOT_THERE, which is not"),
        ({"headers": {"A": job_pb2.EnvValue(from_worker="SEXTON_X")}}, "can't be taken"),
        ({"headers": {"A": job_pb2.EnvValue(from_worker="LINES")}}, "more than one line"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_request_that_can_not_be_made_says_why(
    pair: Pair, task: dict[str, object], said: str
) -> None:
    done = await pair.owner.completion(pair.owner.http("http://127.0.0.1:1/", **task))
    assert (done.state, done.error.kind) == (FAILED, "not started")
    assert said in done.error.message


async def test_a_certificate_that_nobody_vouches_for_is_refused() -> None:
    authority = trustme.CA()
    server, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(trusting)
    served = Site()
    listening = await asyncio.start_server(served.serve, "127.0.0.1", 0, ssl=server)
    port = listening.sockets[0].getsockname()[1]
    request = HttpRequest("GET", f"https://127.0.0.1:{port}/", {}, b"", ())
    refused = await call(request, (), ssl.create_default_context())
    assert refused.kind == "connection"
    assert refused.message.startswith("no connection: its certificate can't be verified: ")
    assert (await call(request, (), trusting)).succeeded
    listening.close()


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("answer", "kind", "output"),
    [
        (OK + b"X: " + b"a" * 300_000 + b"\r\n\r\n", "connection", ""),
        (OK + b"Content-Length: 3\r\nContent-Length: 5\r\n\r\nabcde", "connection", ""),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n", "connection", ""),
        (OK + b"Content-Type: a\0b\r\n\r\n", "connection", ""),
        (b"HTTP/1.1 302 X\r\nLocation: http://[::1\r\n\r\n", "connection", ""),
        (b"HTTP/1.1 999 X\r\nContent-Length: 0\r\n\r\n", "http 999", "999 X, 0 bytes after"),
        (b"", "connection", ""),
        (OK + b"Content-Length: 3\r\n\r\n\0\xff\x1b", "", "\n\ufffd\ufffd\x1b"),
        (OK + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd", "", "\nabcd"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 0\r\n\r\n", "", "0 bytes"),
    ],
    ids=lambda value: value.partition(b"\r\n")[0].decode() if isinstance(value, bytes) else "",
)
async def test_whatever_a_server_says_the_attempt_ends_and_says_how(
    answer: bytes, kind: str, output: str
) -> None:
    async with site() as served:
        served.answers_once, served.answer = True, lambda _: answer
        request = HttpRequest("POST", served.url(), {}, b"b", ())
        ended = await call(request, (), ssl.create_default_context())
    assert (ended.succeeded, ended.kind) == (not kind, kind)
    assert output in ended.output_tail


async def test_an_answer_that_is_text_is_followed_as_it_comes_without_the_worker_s_secrets() -> (
    None
):
    for kind, body, expected in (
        ("text/plain", "the key is secret!", "201 Created\nthe key is ***!"),
        ("application/json; charset=utf-8", '{"a": 1}', '201 Created\n{"a": 1}'),
        ("image/png", "secret", "201 Created\n"),
    ):
        async with site(reply("201 Created", body, f"Content-Type: {kind}")) as served:
            parts: list[bytes] = []
            request = HttpRequest("POST", served.url(), {}, b"", (b"secret",))
            ended = await call(request, (), ssl.create_default_context(), parts.append)
        assert ended.succeeded
        assert b"".join(parts).decode() == expected
        assert parts[-1] == b""


async def test_an_endless_answer_is_not_read_to_its_end() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK + b"\r\n")
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"x" * 1024 * 1024)
                await writer.drain()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    request = HttpRequest("GET", f"http://127.0.0.1:{port}/", {}, b"", ())
    ended = await call(request, (), ssl.create_default_context())
    server.close()
    assert ended.succeeded
    assert ended.output_tail.startswith("200 OK, more than 16,777,216 bytes after ")


async def test_a_host_that_is_no_name_is_refused_for_good() -> None:
    request = HttpRequest("GET", "http://xn--/", {}, b"", ())
    ended = await call(request, (), ssl.create_default_context())
    assert (ended.kind, ended.for_good) == ("request", True)


async def test_no_proxy_of_the_environment_is_used(pair: Pair) -> None:
    """The worker was started with HTTP_PROXY set to where nothing listens."""
    assert (await told(pair, reply("200 OK"))).state == SUCCEEDED


async def test_a_stopped_worker_never_wakes_up_with_a_call_of_a_session_that_has_ended(
    tmp_path: Path,
) -> None:
    owner = Owner(session_ms=1_500, heartbeat_ms=100)
    async with (
        site() as served,
        serving(owner) as address,
        working(tmp_path, address) as worker,
    ):
        served.silent = True
        await owner.connected()
        owner.http(served.url())
        await served.asked.wait()
        worker.signal(signal.SIGSTOP)
        assert await worker.end() == -signal.SIGKILL
        await served.closed.wait()


async def test_a_lost_session_closes_its_calls(tmp_path: Path) -> None:
    owner = Owner(session_ms=1_500, heartbeat_ms=100)
    async with site() as served, serving(owner) as address, working(tmp_path, address):
        served.silent = True
        await owner.connected()
        owner.http(served.url())
        await served.asked.wait()
        owner.answers_heartbeats, owner.leader = False, ""
        await served.closed.wait()
        assert owner.completions == []

"""`sexton runs trace`, `sexton runs logs` and `sexton top`: what they print, and from where."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml
from google.protobuf.timestamp_pb2 import Timestamp
from unit.console.test_waterfall import TRACE, at, attempt, run, span
from unit.sdk.memory_api import ENDED_RUN

from sexton.v1 import run_pb2
from sexton.v1 import scheduler_pb2 as api
from sexton_cli.errors import Unavailable, UsageError
from sexton_cli.online import top, tracing
from sexton_cli.online.console import Console, find_console
from sexton_cli.output import Format
from sexton_console.mesh.api import Part
from sexton_console.traces.rail import rail_of
from sexton_console.traces.waterfall import attempts_of, waterfall
from sexton_runtime import otlp

TRACEPARENT = f"00-{TRACE.trace_id.hex()}-{TRACE.span_id.hex()}-01"


def failed_run() -> run_pb2.Run:
    failed = run_pb2.ATTEMPT_STATE_FAILED
    return run(
        attempt(1, 2, 2, 3, 5, state=failed, output_tail="\x1b[31mred\x1b[0m\n\x07one\n"),
        attempt(2, 8, 8, 1, 10, output_tail="two\n"),
        end_time=at(10), traceparent=TRACEPARENT,
    )  # fmt: skip


@pytest.fixture
def console():
    """A console that answers what it is told to, and notes what it is asked."""
    answers: dict[str, str] = {}
    asked: list[tuple[str, str | None]] = []

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, self.headers["authorization"]))
            body = answers.get(self.path)
            self.send_response(200 if body is not None else 404)
            self.end_headers()
            self.wfile.write((body or "").encode())

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    found = Console(f"http://127.0.0.1:{server.server_port}", "secret")
    yield found, answers, asked
    server.shutdown()
    thread.join()
    server.server_close()


def row(name: str, start: int, bar: str, took: str) -> str:
    return f"{name:30}  {' ' * start + bar:50}  {took:>9}"


def note(text: str) -> str:
    return f"{'':30}  {text}"


def test_a_waterfall_is_drawn_to_scale_and_names_what_took_long():
    given = failed_run()
    rail = rail_of(given, at(99).ToNanoseconds())
    process = otlp.process_span(otlp.attempt_span(TRACE, 1)).hex()
    spans = [span(1, 3, 4, process, name="ask the shop", failed=True, message="no answer")]
    lines = tracing.drawn(waterfall(rail, spans, (), attempts_of(TRACE, rail)), 93)
    assert lines == [  # five characters a second
        row("decide", 0, "██▌", "500 ms"),
        note("the leader's decision and its commit"),
        row("line", 2, "███████▌", "1.50 s"),
        note("a free slot of queue mails"),
        row("attempt 1 failed", 10, "█" * 15, "3 s"),
        row("  execute", 10, "█" * 15, "3 s"),
        note("  the task on anna"),
        row("  ask the shop", 15, "█" * 5, "1 s"),
        note("failed: no answer"),
        row("backoff", 25, "█" * 15, "3 s"),
        note("the pause after attempt 1, then a free slot of mails"),
        row("attempt 2 succeeded", 40, "█" * 10, "2 s"),
        row("  execute", 40, "█" * 5, "1 s"),
        note("  the task on anna"),
        row("  settle", 45, "█" * 5, "1 s"),
        note("  the worker's report, and the queue's commit"),
    ]


def test_a_trace_is_shown_from_the_record_alone_where_no_console_is_there(capsys):
    tracing.show_trace(failed_run(), None, Format.TABLE)
    out = capsys.readouterr().out
    assert out.startswith("default/report/t1: succeeded, 10 s in all\n")
    assert "attempt 2 succeeded" in out
    assert out.endswith("from the run's record alone; a console knows the spans of its task too\n")


def test_a_trace_for_programs_has_every_moment_and_gap(capsys, console):
    found, answers, asked = console
    answers["/api/runs/default/report/t1/trace"] = '{"trace_id": "ab", "spans": []}'
    tracing.show_trace(failed_run(), found, Format.JSON)
    data = json.loads(capsys.readouterr().out)
    assert (data["run"], data["state"], data["spans"]) == ("default/report/t1", "succeeded", [])
    assert [moment["name"] for moment in data["moments"]] == [
        "due", "committed", "assigned", "started", "finished", "assigned", "started", "finished",
        "settled",
    ]  # fmt: skip
    assert asked == [("/api/runs/default/report/t1/trace", "Bearer secret")]
    tracing.show_trace(failed_run(), found, Format.YAML)
    printed = capsys.readouterr().out
    assert not printed.startswith("{")
    assert yaml.safe_load(printed) == data


def test_a_console_that_does_not_answer_is_said(capsys, console):
    found, _, _ = console
    tracing.show_trace(failed_run(), found, Format.TABLE)
    assert "does not answer; from the run's record alone" in capsys.readouterr().out
    with pytest.raises(Unavailable, match="does not answer"):
        tracing.show_logs(failed_run(), found, follow=True, attempt=None, times=False)


def test_logs_come_from_the_console_as_text_that_steers_no_terminal(capsys, console):
    found, answers, _ = console
    lines = [
        {"cursor": n, "time_ns": at(n).ToNanoseconds(), "body": body,
         "attributes": {"sexton.attempt": n}}
        for n, body in enumerate(("\x1b[31mred\x1b[0m\x07", "two"), 1)
    ]  # fmt: skip
    path = "/api/runs/default/report/t1/logs"
    answers[path] = answers[f"{path}?follow=1"] = "".join(json.dumps(x) + "\n" for x in lines)
    tracing.show_logs(failed_run(), found, follow=False, attempt=None, times=False)
    assert capsys.readouterr().out == "red\u2407\ntwo\n"
    tracing.show_logs(failed_run(), found, follow=True, attempt=2, times=True)
    assert capsys.readouterr().out == "08:00:02.000  two\n"


def test_without_a_console_the_last_of_each_attempt_is_printed(capsys):
    tracing.show_logs(failed_run(), None, follow=False, attempt=None, times=False)
    assert capsys.readouterr().out == "red\n\u2407one\ntwo\n"
    tracing.show_logs(failed_run(), None, follow=True, attempt=2, times=False)
    assert capsys.readouterr().out == "two\n"


def test_a_console_is_found_where_it_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("SEXTON_DATA", raising=False)
    assert find_console(None, None) is None
    named = find_console("http://console:1/", None)
    assert named is not None
    assert named.url == "http://console:1"
    monkeypatch.setenv("SEXTON_CONSOLE", "https://console")
    assert find_console(None, None) == Console("https://console", "")
    with pytest.raises(UsageError, match="expected http://HOST:PORT"):
        find_console("file:///etc/passwd", None)


def members() -> api.ListMembersResponse:
    role = api.Member.ROLE_COORDINATOR
    leader = api.Member(role=role, leading=True, address="127.0.0.1:7400")
    return api.ListMembersResponse(
        members=[leader, api.Member(role=role)], mesh_time=Timestamp(seconds=1_800_000_000)
    )


def test_top_shows_lines_runs_rates_and_failures():
    queues = api.ListQueuesResponse(
        queues=[api.Queue(name="mails", ready=3, oldest_ready_ms=1_500, running=2, slots=9)]
    )
    minutes = [{"start_s": 0, "due": 10, "done": 9, "failed": 1}] * 60
    numbers = {
        "estimated": False, "minutes": minutes,
        "lateness_s": {"p50": 0.01, "p95": 1.0, "p99": None},
        "failures": [{"count": 4, "job": "default/a", "kind": "exit 3", "message": "no"}],
    }  # fmt: skip
    lines = top.screen(members(), Part(queues), [], numbers, more=False)
    assert lines[0] == "mesh time 2027-01-15 08:00:00 UTC   leads: coordinator 127.0.0.1:7400"
    assert lines[1] == (
        "a minute: 10 due, 9 done, 1.0 failed   late: p50 10 ms, p95 1 s, p99 \u2013"
    )
    assert lines[4].split() == ["mails", "3", "1.50", "s", "0", "2", "9"]
    assert lines[-1] == "     4x  default/a  exit 3: no"


def test_top_says_what_an_older_mesh_and_a_missing_console_leave_out():
    lines = top.screen(members(), Part(None, "not offered"), [], None, more=False)
    assert lines[1] == "no console: rates and lateness are not counted"
    assert "not offered" in lines


def test_logs_of_an_attempt_that_was_not_are_not_empty_but_refused(sexton, mesh):
    assert sexton("runs", "logs", f"nightly/{ENDED_RUN}", "--attempt", "3") == (
        3,
        "",
        f"sexton: run nightly/{ENDED_RUN} has no attempt 3; it has had 2\n",
    )


def test_a_stream_that_says_nothing_but_that_it_is_there_goes_on(console):
    found, answers, _ = console
    answers["/quiet"] = '\n\n{"body":"at last"}\n\n'
    assert list(found.lines("/quiet")) == [{"body": "at last"}]

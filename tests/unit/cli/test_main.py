"""The command line: exit codes, errors without tracebacks, nothing but results on stdout."""

import os
import re
import signal
import subprocess
import sys
import threading

import pytest
from typer.main import get_command

from sexton.v1 import run_pb2
from sexton_cli import main as entry
from sexton_cli.errors import NotFound, Refused, Unavailable
from sexton_cli.output import visible

FILE = "jobs:\n- name: a\n  schedule: {every: 30s}\n  task: {shell: x}\n"


@pytest.fixture(name="jobs")
def _jobs(tmp_path):
    path = tmp_path / "jobs.yaml"
    path.write_text(FILE)
    return str(path)


def fails(capsys, arguments):
    code = entry.run(arguments)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    return code, captured.err


WRONG = [
    (["nope"], 2, "No such command 'nope'."),
    (["preview"], 2, "FILE|EXPR is missing: name a job file, or give an expression"),
    (["apply"], 2, "FILE is missing: name a job file; - is standard input"),
    (["apply", "a.yaml", "-f", "b.yaml"], 2, "-f b.yaml and a.yaml: name one file, once"),
    (["preview", "* * * * *", "--count", "many"], 2, "--count"),
    (["preview", "* * * * *", "--dst", "never"], 2, "expected one of vixie, literal, skip, shift"),
    (["preview", "* * * * *", "--from", "soon"], 2, "--from: 'soon' can't be used; expected a tim"),
    (["preview", "* * * * *", "--run-time", "5"], 2, "--run-time: '5' can't be used"),
    (["preview", "* * * * *", "--job", "a"], 2, "--job: an expression has no jobs"),
    (["preview", "* * * * *", "-o", "xml"], 2, "xml"),
    (["preview", "missing.yaml"], 3, "missing.yaml: no such file"),
    (["simulate", "missing.yml", "--from", "2027-01-01", "--to", "2027-01-02"], 3, "no such file"),
    (["preview", "60 * * * *"], 2, "minute: '60' can't be used; expected 0-59"),
    (["preview", "* * * *"], 2, "these are 4 fields"),
    (["preview", "* * 31 2 *"], 2, "expected one that fires at least once"),
    (["preview", "H 3 * * *"], 2, "H"),
    (["preview", "0 3 * * *", "--tz", "Mars/Base"], 2, "--tz: 'Mars/Base' can't be used"),
    (["preview", "0 3 * * *", "--tz", "../../etc/passwd"], 2, "--tz: '../../etc/passwd'"),
    (["preview", "0 3 * * *", "--count", "-1"], 2, "'--count'"),
    (["preview", "every 1ms"], 2, "every: '1ms' can't be used; expected at least 1s"),
    (["preview", "x" * 10_000], 2, "at most 1,024 characters"),
    (["preview", "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"], 2, "fires at least once"),
]


@pytest.mark.parametrize(("arguments", "code", "expected"), WRONG, ids=lambda v: str(v)[:40])
def test_a_wrong_command_line_ends_with_its_code_and_says_what_would_be_right(
    capsys, arguments, code, expected
):
    found, message = fails(capsys, arguments)
    assert (found, expected in message) == (code, True), message
    assert message.startswith("sexton: ")


def test_a_wrong_command_line_says_where_it_is_told_how_it_is_used(capsys):
    assert fails(capsys, ["jobs", "show"]) == (
        2,
        "sexton: Missing argument 'JOB'.\nsexton: how it is used: sexton jobs show --help\n",
    )
    code, message = fails(capsys, ["runs", "list", "--state", "bad"])
    assert (code, message.count("\n")) == (2, 2)
    assert message.startswith("sexton: Invalid value for '--state': 'bad' is not one of 'waiting'")
    assert message.endswith("sexton: how it is used: sexton runs list --help\n")
    assert "how it is used" not in fails(capsys, ["runs"])[1]


WRONG_WITH_FILE = [
    (["preview", "{}", "--job", "b"], 3, "has no job 'b'; it has a"),
    (["simulate", "{}", "--from", "2027-01-02", "--to", "2027-01-01"], 2, "a time after --from"),
    (["simulate", "{}", "--from", "2027-01-01"], 2, "Missing option '--to'"),
    (
        ["simulate", "{}", *["--from", "2027-01-01", "--to", "2027-01-02", "--outage", "now"]],
        2,
        "A..B",
    ),
    (
        [
            *["simulate", "{}", "--from", "2027-01-01", "--to", "2027-01-02"],
            *["--outage", "2027-01-02..2027-01-01"],
        ],
        2,
        "expected an end after its beginning",
    ),
    (
        ["simulate", "{}", *["--from", "2027-01-01", "--to", "2027-01-02", "--run-time", "b=5s"]],
        3,
        "has no job 'b'; it has a",
    ),
    (
        ["simulate", "{}", *["--from", "2027-01-01", "--to", "2027-01-02", "--run-time", "a"]],
        2,
        "expected JOB=DURATION",
    ),
]


@pytest.mark.parametrize(("arguments", "code", "expected"), WRONG_WITH_FILE)
def test_a_wrong_question_about_a_file_ends_with_its_code(capsys, jobs, arguments, code, expected):
    found, message = fails(capsys, [each.format(jobs) for each in arguments])
    assert (found, expected in message) == (code, True), message


def test_a_bad_job_file_is_refused_with_file_and_line(capsys, tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text(FILE.replace("30s", "1ms"))
    code, message = fails(capsys, ["preview", str(path)])
    assert code == 4
    assert f"{path}:3:14: jobs[0].schedule.every: '1ms' can't be used" in message


def test_a_folder_and_an_unreadable_name_are_refused(capsys, tmp_path):
    folder = tmp_path / "folder.yaml"
    folder.mkdir()
    code, message = fails(capsys, ["preview", str(folder)])
    assert code == 4
    assert "Is a directory" in message


@pytest.mark.parametrize(
    ("error", "code"), [(NotFound("x"), 3), (Refused("x"), 4), (Unavailable("x"), 5)]
)
def test_each_kind_of_failure_has_its_exit_code(capsys, monkeypatch, error, code):
    def broken(_):
        raise error

    monkeypatch.setattr("sexton_cli.offline.preview.read_timing", broken)
    assert fails(capsys, ["preview", "* * * * *"]) == (code, "sexton: x\n")


def test_a_bug_is_one_sentence_and_not_a_traceback(capsys, monkeypatch):
    def broken(_):
        raise ZeroDivisionError("oh")

    monkeypatch.delenv("SEXTON_DEBUG", raising=False)
    monkeypatch.setattr("sexton_cli.offline.preview.read_timing", broken)
    code, message = fails(capsys, ["preview", "* * * * *"])
    assert (code, message) == (
        1,
        "sexton: internal error, ZeroDivisionError: oh; SEXTON_DEBUG=1 shows where\n",
    )


def test_help_is_on_stdout_and_no_command_is_a_usage_error(capsys):
    assert entry.run(["--help"]) == 0
    assert "preview" in capsys.readouterr().out
    code, message = fails(capsys, ["bench"])
    assert code == 2
    assert message.startswith("Usage: sexton bench")


def test_the_version_is_told(capsys):
    assert entry.run(["--version"]) == 0
    assert re.fullmatch(r"sexton (\d+\.\d+\.\d+|unknown)\n", capsys.readouterr().out)


def commands(group, path=()):
    """Yields every command with its path."""
    for name, command in getattr(group, "commands", {}).items():
        yield (*path, name), command
        yield from commands(command, (*path, name))


def test_the_same_thing_is_given_in_the_same_way_everywhere():
    found = dict(commands(get_command(entry.build_app())))
    assert len(found) > 50
    for path, command in found.items():
        flags = {flag for parameter in command.params for flag in parameter.opts}
        for short, long in (
            *(("-o", "--output"), ("-n", "--namespace"), ("-w", "--watch")),
            *(("-A", "--all-namespaces"), ("-f", "--follow" if "logs" in path else "--file")),
        ):
            assert (short in flags) == (long in flags), path


def test_what_could_steer_a_terminal_is_made_visible():
    assert visible("a\x1b[2Jb\u202e\n") == r"a\x1b[2Jb\u202e\n"


@pytest.mark.slow
def test_help_imports_nothing_heavy():
    script = (
        "import sys; from sexton_cli.main import run; run(['--help']);"
        "print([m for m in ('pydantic', 'yaml', 'grpc', 'rich', 'sexton_core', 'dateutil')"
        " if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["runs", "watch"], ["runs", "wait", "nightly/m1"]])
def test_an_interrupted_command_ends_at_once_without_a_word(api, mesh, arguments):
    name = "namespaces/default/jobs/nightly/runs/m1"
    api.runs[name] = run_pb2.Run(name=name, origin=2, state=run_pb2.RUN_STATE_WAITING)
    # A shell has what it starts in the background ignore SIGINT, and children inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        running = subprocess.Popen(
            [sys.executable, "-m", "sexton_cli.main", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        )
    finally:
        signal.signal(signal.SIGINT, before)
    with running:
        try:
            while "WatchRuns" not in api.calls:
                assert running.poll() is None
                threading.Event().wait(0.01)
            running.send_signal(signal.SIGINT)
            assert (running.wait(60), running.stderr.read()) == (130, b"")
        finally:
            running.kill()


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_error():
    script = (
        "import os, sys; from sexton_cli.main import main;"
        "r, w = os.pipe(); os.dup2(w, 1); os.close(r); os.close(w);"
        "main(['preview', '* * * * *', '--count', '5'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_goes_away_in_the_middle_of_a_long_output_is_no_error(monkeypatch, capfd):
    ours, theirs = os.pipe()
    os.close(ours)
    with os.fdopen(theirs, "w") as stdout:
        monkeypatch.setattr("sys.stdout", stdout)
        assert entry.run(["preview", "* * * * *", "--count", "500"]) == 0
        monkeypatch.undo()
    assert capfd.readouterr().err == ""

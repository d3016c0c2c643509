"""Preview and simulate: what they print, and that it is what the core decides."""

import io
import json
import re
import sys

import pytest

from sexton_cli import main as entry
from sexton_cli.bench.time import measure
from sexton_cli.jobfile import load
from sexton_cli.offline.simulation import Outage, simulate
from sexton_core.instants import HOUR, MINUTE, SECOND, format_instant, parse_instant
from sexton_core.words import Decision, Reason

BEGIN = parse_instant("2027-03-01T00:00:00Z")


def prints(capsys, *arguments):
    assert entry.run(list(arguments)) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return re.sub(r"time zone data: \S+", "time zone data: TZDATA", captured.out)


@pytest.fixture(name="write")
def _write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(jobs):
        (tmp_path / "jobs.yaml").write_text(jobs)

    return write


def test_a_preview_shows_local_and_utc_times_notes_and_warnings(capsys):
    shown = prints(
        capsys,
        *("preview", "30 2 * * *", "--tz", "Europe/Berlin", "--from", "2027-03-27"),
        *("--count", "3"),
    )
    assert (
        shown
        == """\
at 02:30 every day, Europe/Berlin
  LOCAL                          UTC                   NOTE
  Sat 2027-03-27 02:30:00 +0100  2027-03-27T01:30:00Z
  Sun 2027-03-28 03:00:00 +0200  2027-03-28T01:00:00Z  the clock skips 02:30:00
  Mon 2027-03-29 02:30:00 +0200  2027-03-29T00:30:00Z
  warning: 2027-03-28 02:30 does not exist in Europe/Berlin: it runs at 03:00 (dst: vixie)
  warning: 2027-10-31 02:30 happens twice in Europe/Berlin: it runs in the first pass only \
(dst: vixie)
  warning: 2028-03-26 02:30 does not exist in Europe/Berlin: it runs at 03:00 (dst: vixie)

time zone data: TZDATA
"""
    )


def test_a_preview_names_the_rule_that_joined_both_day_fields(capsys):
    shown = prints(capsys, *("preview", "0 0 13 * FRI", "--tz", "UTC", "--count", "0"))
    assert (
        "  day of month and day of week are both given: a day may match either "
        "(Debian's rule: neither starts with * or ?)\n"
    ) in shown
    assert shown.count("Debian's rule") == 1


def test_a_preview_says_loudly_that_no_zone_means_utc(capsys):
    shown = prints(capsys, *("preview", "0 3 * * *", "--count", "1"))
    assert "  warning: no timezone is given: wall times are read as UTC\n" in shown


def test_a_preview_reads_a_job_file_from_standard_input(capsys, monkeypatch):
    file = b"jobs: [{name: a, task: {shell: x}, schedule: {every: 1h}}]"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(file)))
    assert "default/a: every 1h" in prints(capsys, "preview", "-", "--count", "1")


def test_a_preview_as_json_is_complete(capsys, write):
    write(
        "calendars: [{name: closed, dates: [2027-03-02]}]\n"
        "jobs:\n"
        "- {name: a, task: {shell: x}, schedule:"
        " {cron: '0 3 * * *', timezone: UTC, exclude: [closed]}}\n"
        "- {name: b, task: {shell: x}}\n"
    )
    shown = json.loads(
        prints(
            capsys,
            *("preview", "jobs.yaml", "--from", "2027-03-01T00:00:00Z", "--count", "2"),
            *("-o", "json"),
        )
    )
    assert re.fullmatch(r"20\d\d[a-z]", shown.pop("tzdata"))
    assert shown == {
        "jobs": [
            {
                "job": "default/a",
                "schedule": "at 03:00 every day, UTC, except on closed",
                "rules": [],
                "times": [
                    {
                        "nominal": "2027-03-01T03:00:00Z",
                        "local": "2027-03-01T03:00:00+00:00",
                        "zone": "UTC",
                        "due": "2027-03-01T03:00:00Z",
                        "notes": [],
                    },
                    {
                        "nominal": "2027-03-02T03:00:00Z",
                        "local": "2027-03-02T03:00:00+00:00",
                        "zone": "UTC",
                        "excluded_by": "closed",
                        "until": "2027-03-02T03:00:00Z",
                    },
                    {
                        "nominal": "2027-03-03T03:00:00Z",
                        "local": "2027-03-03T03:00:00+00:00",
                        "zone": "UTC",
                        "due": "2027-03-03T03:00:00Z",
                        "notes": [],
                    },
                ],
                "warnings": [],
            },
            {"job": "default/b", "schedule": None},
        ],
        "warnings": [],
    }


@pytest.mark.parametrize(
    ("expression", "times"),
    [
        ("every 90m", ["2027-03-01T01:30:00Z", "2027-03-01T03:00:00Z"]),
        ("@every 90m", ["2027-03-01T01:30:00Z", "2027-03-01T03:00:00Z"]),
        ("FREQ=HOURLY;INTERVAL=5", ["2027-03-01T05:00:00Z", "2027-03-01T10:00:00Z"]),
        (
            r"DTSTART:20270301T090000\nRRULE:FREQ=WEEKLY",
            ["2027-03-01T09:00:00Z", "2027-03-08T09:00:00Z"],
        ),
    ],
)
def test_every_kind_of_expression_can_be_previewed(capsys, expression, times):
    arguments = ("preview", expression, "--from", "2027-03-01", "--count", "2", "-o", "json")
    (shown,) = json.loads(prints(capsys, *arguments))["jobs"]
    assert [row["nominal"] for row in shown["times"]] == times


def test_the_command_line_replaces_zone_and_rule_of_every_schedule_of_a_file(capsys, write):
    write(
        "jobs:\n- {name: a, task: {shell: x}, schedules:"
        " [{cron: '30 2 * * *', timezone: UTC}, {cron: '0 12 * * *'}]}\n"
    )
    arguments = ("preview", "jobs.yaml", "--from", "2027-03-28", "--count", "2", "-o", "json")
    changes = ("--tz", "Europe/Berlin", "--dst", "shift")
    (shown,) = json.loads(prints(capsys, *arguments, *changes))["jobs"]
    assert [row["local"] for row in shown["times"]] == [
        "2027-03-28T03:30:00+02:00",
        "2027-03-28T12:00:00+02:00",
    ]


def test_a_herd_of_a_file_is_warned_about(capsys, write):
    one = "- {{name: j{}, task: {{shell: x}}, schedule: {{cron: '0 9 * * *', timezone: UTC}}}}\n"
    write("jobs:\n" + "".join(one.format(number) for number in range(12)))
    shown = prints(capsys, "preview", "jobs.yaml", "--from", "2027-03-01", "--count", "0")
    assert "\nwarning: 12 jobs are due in the minute of 2027-03-01T09:00:00Z" in shown


PING = (
    "jobs:\n- {name: ping, task: {http: {url: 'http://x'}}, schedule: {every: 30s}%s}\n"
    "- {name: on-demand, task: {shell: x}}\n"
)


def follow(policies="", *, minutes=10, outages=(), run_time=0):
    file = load(PING % policies)
    (found,) = simulate(
        file.jobs,
        BEGIN,
        BEGIN + minutes * MINUTE,
        outages=[
            Outage(begin=BEGIN + first * SECOND, end=BEGIN + last * SECOND)
            for first, last in outages
        ],
        run_times={"ping": run_time * SECOND},
    ).jobs
    return found


def started(found):
    return [
        ((run.nominal - BEGIN) // SECOND, (run.started - BEGIN) // SECOND) for run in found.runs
    ]


def test_every_nominal_time_is_decided_once():
    found = follow(minutes=60, outages=[(100, 400), (390, 900)], run_time=45)
    counted = sum(found.count(each) for each in Decision if each is not Decision.BUFFERED)
    assert counted == 120


def test_an_outage_is_caught_up_as_declared():
    outages = [(95, 205)]
    latest = follow(outages=outages, minutes=4)
    assert started(latest)[3:5] == [(180, 205), (210, 210)]
    assert latest.runs[3].reason is Reason.CAUGHT_UP
    every = follow(", catch_up: {policy: all, window: 1h}", outages=outages, minutes=4)
    # The gate holds for catch-up too: the first one runs, the others overlap with it.
    assert started(every)[3:5] == [(120, 205), (210, 210)]
    assert every.count(Decision.SKIPPED) == 2
    waiting = follow(
        ", overlap: buffer_all, catch_up: {policy: all, window: 1h}", outages=outages, minutes=4
    )
    assert started(waiting)[3:6] == [(120, 205), (150, 205), (180, 205)]
    none = follow(", catch_up: {policy: none}", outages=outages, minutes=4)
    assert [each for each in started(none) if 95 < each[0] < 205] == []
    assert none.count(Decision.MISSED) == 3


def test_an_outage_has_its_beginning_and_not_its_end():
    assert started(follow(outages=[(60, 90)], minutes=2)) == [(30, 30), (90, 90), (120, 120)]


def test_a_long_run_is_skipped_over_waited_for_or_stopped_as_declared():
    skipping = follow(run_time=45, minutes=3)
    assert started(skipping) == [(30, 30), (90, 90), (150, 150)]
    assert skipping.count(Decision.SKIPPED) == 3
    waiting = follow(", overlap: buffer_one", run_time=45, minutes=3)
    assert started(waiting)[:3] == [(30, 30), (60, 75), (90, 120)]
    assert waiting.runs[1].reason is Reason.WAITED
    stopping = follow(", overlap: cancel_other", run_time=45, minutes=3)
    assert started(stopping) == [(n, n) for n in (30, 60, 90, 120, 150, 180)]
    assert [run.stopped for run in stopping.runs] == [True] * 5 + [False]
    beside = follow(", overlap: allow_all", run_time=45, minutes=3)
    assert started(beside) == [(n, n) for n in (30, 60, 90, 120, 150, 180)]


def test_a_start_in_1970_asks_for_nothing_before_the_job_s_creation():
    text = "jobs:\n- {name: ping, task: {shell: x}, catch_up: {policy: all, window: 24h}, "
    bounds = "start: 1970-01-01T00:00:00Z, end: 2261-12-31T23:59:59Z"
    file = load(f"{text}schedule: {{every: 1s, {bounds}}}}}\n")
    (found,) = simulate(file.jobs, BEGIN, BEGIN + 5 * SECOND).jobs
    assert started(found) == [(n, n) for n in range(1, 6)]
    assert found.ranges == []


def test_a_simulation_says_where_a_schedule_has_no_time_left():
    file = load("jobs:\n- {name: a, task: {shell: x}, schedule: {at: ['2026-01-01T00:00:00Z']}}\n")
    (found,) = simulate(file.jobs, BEGIN, BEGIN + HOUR).jobs
    assert found.runs == []
    assert "never fires" in found.refused


def test_the_fullest_minutes_are_counted_over_all_jobs():
    job = "- {{name: {}, task: {{shell: x}}, schedule: {{cron: '{}', timezone: UTC}}}}\n"
    file = load("jobs:\n" + job.format("a", "0 * * * *") + job.format("b", "0,30 * * * *"))
    peaks = simulate(file.jobs, BEGIN, BEGIN + HOUR).peaks
    assert [(format_instant(minute), runs) for minute, runs in peaks] == [
        ("2027-03-01T01:00:00Z", 2),
        ("2027-03-01T00:30:00Z", 1),
    ]


def test_a_simulation_that_is_too_long_says_where_it_stopped(monkeypatch):
    monkeypatch.setattr("sexton_cli.offline.simulation.MAX_DECISIONS", 5)
    found = follow(minutes=60)
    assert format_instant(found.stopped_at) == "2027-03-01T00:02:30Z"


def test_a_busy_job_leaves_the_others_their_part_of_a_simulation(capsys, write, monkeypatch):
    monkeypatch.setattr("sexton_cli.offline.simulation.MAX_DECISIONS", 10)
    daily = '- {name: daily, schedule: {cron: "0 3 * * *"}, task: {shell: "true"}}\n'
    write(PING % "" + daily)
    span = ("--from", "2027-03-01", "--to", "2027-03-04")
    shown = prints(capsys, "simulate", "jobs.yaml", *span, "--limit", "0")
    assert [line.split()[:2] for line in shown.splitlines()[1:4]] == [
        ["default/ping", "5"],
        ["default/daily", "3"],
        ["default/ping:", "stopped"],
    ]


def test_a_simulation_is_printed_as_a_table(capsys, write):
    write(PING % "")
    shown = prints(
        capsys,
        *("simulate", "jobs.yaml", "--from", "2027-03-01", "--to", "2027-03-01T00:03:00Z"),
        *("--outage", "2027-03-01T00:01:10Z..2027-03-01T00:02:10Z", "--run-time", "ping=45s"),
    )
    assert (
        shown
        == """\
JOB           FIRED  SKIPPED  MISSED  DROPPED  EXCLUDED  WAITING
default/ping  3      2        1       0        0         0

runs:
JOB           NOMINAL               STARTED               ENDED                 WHY
default/ping  2027-03-01T00:00:30Z  2027-03-01T00:00:30Z  2027-03-01T00:01:15Z  on_time
default/ping  2027-03-01T00:02:00Z  2027-03-01T00:02:10Z  2027-03-01T00:02:55Z  late
default/ping  2027-03-01T00:03:00Z  2027-03-01T00:03:00Z  2027-03-01T00:03:45Z  on_time

what did not run:
JOB           DECISION  FIRST                 LAST                  TIMES  WHY
default/ping  skipped   2027-03-01T00:01:00Z  2027-03-01T00:01:00Z  1      overlap by \
t20270301T000030Z-xlcv6txv
default/ping  missed    2027-03-01T00:01:30Z  2027-03-01T00:01:30Z  1      passed_over
default/ping  skipped   2027-03-01T00:02:30Z  2027-03-01T00:02:30Z  1      overlap by \
t20270301T000200Z-xlcv6txv

fullest minutes:
MINUTE                RUNS
2027-03-01T00:00:00Z  1
2027-03-01T00:02:00Z  1
2027-03-01T00:03:00Z  1

time zone data: TZDATA
"""
    )


def test_a_simulation_as_json_has_counts_runs_and_reasons(capsys, write):
    write(PING % "")
    arguments = ("simulate", "jobs.yaml", "--from", "2027-03-01", "--to", "2027-03-01T00:01:00Z")
    shown = json.loads(prints(capsys, *arguments, "--run-time", "ping=45s", "-o", "json"))
    (job,) = shown["jobs"]
    assert job["counts"] == {"fired": 1, "skipped": 1, "missed": 0, "dropped": 0, "excluded": 0}
    assert job["not_run"] == [
        {
            "decision": "skipped",
            "reason": "overlap",
            "first": "2027-03-01T00:01:00Z",
            "last": "2027-03-01T00:01:00Z",
            "times": 1,
            "counted_all": True,
            "blocked_by": "t20270301T000030Z-xlcv6txv",
        }
    ]
    assert shown["peaks"] == [{"minute": "2027-03-01T00:00:00Z", "runs": 1}]


def test_rows_beyond_the_limit_are_counted_and_not_printed(capsys, write):
    write(PING % "")
    arguments = ("simulate", "jobs.yaml", "--from", "2027-03-01", "--to", "2027-03-01T01:00:00Z")
    shown = prints(capsys, *arguments, "--limit", "2")
    assert "runs (the first 2 of 120):" in shown


@pytest.mark.slow
def test_the_bench_measures_what_it_says(capsys):
    measured = measure(5_000, 2_000)
    assert measured["distinct_schedules"] == 2_000
    assert measured["next_times"] == 15_000
    assert measured["next_times_per_s"] > 0
    shown = json.loads(prints(capsys, "bench", "time", "--jobs", "500", "--json"))
    assert set(shown) == {"on", *measured}
    printed = prints(capsys, "bench", "time", "--jobs", "500")
    assert "MEASURED" in printed
    for said in (shown["on"], printed.splitlines()[0]):
        assert re.fullmatch(r"sexton \S+, CPython 3\.[\d.]+ \(.+\), \d+ cores \w+, .+", said)

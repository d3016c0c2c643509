"""A job file is read exactly, or refused with the line, the value and what would be right."""

import json
import sys
from datetime import date, time

import pytest

from sexton_cli.jobfile import JobFileError, json_schema, load
from sexton_core.instants import DAY, HOUR, MINUTE, SECOND, parse_instant
from sexton_core.policy import CatchUp
from sexton_core.runs.policy import RunPolicy
from sexton_core.runs.retry import Retry
from sexton_core.schedules import (
    AtTiming,
    CalendarSpec,
    CalendarTiming,
    CalendarUnit,
    CronTiming,
    EveryTiming,
    RRuleTiming,
    ScheduleSpec,
    ShortMonth,
    UnionSpec,
)
from sexton_core.words import CatchUpPolicy, DayRule, DstRule, Overlap

EXAMPLE = """\
namespace: default
calendars:
  - name: closed
    dates: [2026-12-24, 2026-12-31]
    weekdays: [SUN]
jobs:
  - name: nightly-backup
    schedule: {cron: "0 3 * * *", timezone: Europe/Berlin, dst: vixie, exclude: [closed]}
    task: {shell: "pg_dump shop | gzip > shop-$SEXTON_NOMINAL_TIME.sql.gz", \
env: {PGPASSWORD: {from_worker: PGPASSWORD}}}
    overlap: skip
    catch_up: {policy: latest, window: 1h}
    retry: {max_attempts: 5, initial_backoff: 1s, multiplier: 2, max_backoff: 5m}
    timeout: 30m
    start_within: 2h
  - name: weekly-report
    schedule: {cron: "0 9 * * MON", timezone: America/New_York}
    task: {python: weekly-report, args: {team: sales}}   # a name registered with @sexton.task
    queue: reports
  - name: ping
    schedule: {every: 30s}
    task: {http: {method: POST, url: "http://127.0.0.1:8080/ping", expect: [200, 204]}}
"""


def job(text, *, calendars=""):
    """Returns the one job of a file; `text` is the rest of its mapping."""
    return load(f"{calendars}jobs:\n- {{name: a, task: {{shell: x}}, {text}}}\n").jobs[0]


def refused(text):
    with pytest.raises(JobFileError) as caught:
        load(text)
    return str(caught.value)


def test_the_example_of_the_documentation_is_read_exactly():
    backup, report, ping = load(EXAMPLE).jobs
    assert [each.full_name for each in (backup, report, ping)] == [
        "default/nightly-backup",
        "default/weekly-report",
        "default/ping",
    ]
    assert backup.line == 7
    assert backup.spec == ScheduleSpec(
        timing=CronTiming(expression="0 3 * * *"),
        timezone="Europe/Berlin",
        dst=DstRule.VIXIE,
        exclude=(
            CalendarSpec(
                name="closed",
                dates=(date(2026, 12, 24), date(2026, 12, 31)),
                weekdays=(6,),
            ),
        ),
    )
    assert backup.task.shell == "pg_dump shop | gzip > shop-$SEXTON_NOMINAL_TIME.sql.gz"
    assert backup.task.env["PGPASSWORD"].from_worker == "PGPASSWORD"
    assert backup.overlap is Overlap.SKIP
    assert backup.catch_up == CatchUp(policy=CatchUpPolicy.LATEST, window_ns=HOUR)
    assert backup.run == RunPolicy(
        retry=Retry(
            max_attempts=5, initial_backoff_ns=SECOND, multiplier=2, max_backoff_ns=5 * MINUTE
        ),
        timeout_ns=30 * MINUTE,
        start_within_ns=2 * HOUR,
    )
    assert report.run == RunPolicy(queue="reports")
    assert (report.task.python, report.task.args) == ("weekly-report", {"team": "sales"})
    assert ping.spec == ScheduleSpec(timing=EveryTiming(period_ns=30 * SECOND))
    assert (ping.task.http.method, ping.task.http.expect) == ("POST", [200, 204])


SCHEDULES = [
    ('cron: "0 0 1 * MON", days: and', CronTiming(expression="0 0 1 * MON", days=DayRule.AND)),
    (
        "every: 1h, offset: 5m, anchor: epoch",
        EveryTiming(period_ns=HOUR, offset_ns=5 * MINUTE, anchor=0),
    ),
    (
        'calendar_interval: {months: 1, at: "09:00", anchor: 2026-01-31, short_month: last}',
        CalendarTiming(
            count=1,
            unit=CalendarUnit.MONTHS,
            at=time(9),
            anchor=date(2026, 1, 31),
            short_month=ShortMonth.LAST,
        ),
    ),
    (
        "at: [2027-01-01T00:00:00Z]",
        AtTiming(instants=(parse_instant("2027-01-01T00:00:00Z"),)),
    ),
    (
        'rrule: "DTSTART:20270101T090000\\nRRULE:FREQ=WEEKLY"',
        RRuleTiming(text="DTSTART:20270101T090000\nRRULE:FREQ=WEEKLY"),
    ),
]


@pytest.mark.parametrize(("text", "timing"), SCHEDULES, ids=lambda v: str(v)[:20])
def test_each_kind_of_schedule_is_read(text, timing):
    assert job(f"schedule: {{{text}}}").spec == ScheduleSpec(timing=timing)


def test_bounds_and_jitter_are_read():
    found = job(
        "schedule: {every: 1h, start: 2027-01-01T00:00:00Z, end: 2028-01-01T00:00:00+01:00,"
        " max_runs: 5, jitter: 1m30s}"
    )
    assert found.spec == ScheduleSpec(
        timing=EveryTiming(period_ns=HOUR),
        start=parse_instant("2027-01-01T00:00:00Z"),
        end=parse_instant("2027-12-31T23:00:00Z"),
        max_runs=5,
        jitter_ns=90 * SECOND,
    )


def test_several_schedules_are_a_union_and_none_is_a_job_for_triggers():
    assert job("schedules: [{every: 1h}, {every: 7m}]").spec == UnionSpec(
        parts=(
            ScheduleSpec(timing=EveryTiming(period_ns=HOUR)),
            ScheduleSpec(timing=EveryTiming(period_ns=7 * MINUTE)),
        )
    )
    assert job("queue: q").spec is None


def test_ranges_and_expressions_of_a_calendar_are_read():
    calendars = "calendars: [{name: c, ranges: [2026-12-24..2027-01-03], crons: ['* 0-6 * * *']}]\n"
    found = job("schedule: {every: 1h, exclude: [c]}", calendars=calendars)
    assert found.spec.exclude == (
        CalendarSpec(
            name="c",
            ranges=((date(2026, 12, 24), date(2027, 1, 3)),),
            crons=("* 0-6 * * *",),
        ),
    )


def test_words_of_yaml_1_1_are_text():
    found = job("labels: {on: yes, time: '12:30', off: no}")
    assert found.labels == (("off", "no"), ("on", "yes"), ("time", "12:30"))


def test_what_the_file_does_not_say_has_the_core_s_defaults():
    found = job("catch_up: {policy: all}, retention: {max_age: 2d}")
    assert found.catch_up == CatchUp(policy=CatchUpPolicy.ALL)
    assert found.run == RunPolicy()
    assert found.retention.max_age_ns == 2 * DAY


JOB = "jobs:\n- name: a\n  task: {shell: x}\n"

NOT_YAML = [
    ("", "1:1: no mapping; expected `jobs:` and a list of jobs"),
    ("- a\n", "1:1: no mapping; expected `jobs:`"),
    ("jobs:\n\t- a\n", "2:1: while scanning for the next token found character"),
    ("a: {b\n", "2:1: while parsing a flow mapping"),
    ("a: &x 1\nb: *x\n", "1:4: anchor or alias 'x'; expected the value written out"),
    ("a: !!python/object:os.system x\n", "1:4: tag 'tag:yaml.org,2002:python/object:os.system'"),
    ("a: 1\n---\nb: 2\n", "2:1: a second document; expected one per file"),
    ("? [a]\n: 1\n", "1:3: a list or mapping as a key; expected text"),
    ("a: \x00\n", "unacceptable character"),
    (b"a: 1\nb: \xff\n", "2:1: byte 0xff; expected UTF-8"),
    ("a: .nan\n", "1:4: .nan is no number; expected a finite one, or text in quotes"),
    ("a: NaN\n", "1:4: NaN is no number"),
    ("a: -.inf\n", "1:4: -.inf is no number"),
    ("a: 1e999\n", "1:4: 1e999 is too large; expected a finite number"),
    ("a: " + "9" * 5_000, "does not fit 64 bits; put it in quotes"),
    ("[" * 100_000, "1:"),
    ("{a: " * 100_000, "1:129: nesting deeper than 32 levels"),
    ("- " * 100_000, "nesting deeper than 32 levels"),
    ("a: " + "[" * 40, "nesting deeper than 32 levels"),
    (b"#" * ((10 << 20) + 1), "the file is 10,485,761 bytes; at most 10,485,760"),
    (JOB + "  name: b\n", "4:3: jobs[0].name: duplicate key; it stands on line 2 already"),
]


@pytest.mark.parametrize(("text", "expected"), NOT_YAML, ids=lambda v: repr(v)[:30])
def test_what_is_no_plain_yaml_is_refused_with_its_line(text, expected):
    message = refused(text)
    assert message.startswith("jobs.yaml:")
    assert expected in message


FIELDS = [
    ("jobs: []\n", "1:1: jobs: an empty list can't be used; expected at least 1 of them"),
    ("jobs: {a: 1}\n", "1:1: jobs: a mapping can't be used; expected a list"),
    ("jobs: [5]\n", "1:8: jobs[0]: 5 can't be used; expected a mapping"),
    ("jobs:\n- name: a\n", "2:3: jobs[0]: 'task' is missing"),
    ("jobs:\n- task: {shell: x}\n", "2:3: jobs[0]: 'name' is missing"),
    (JOB + "  cuncurrency: 2\n", "4:3: jobs[0].cuncurrency: unknown field; expected one of name"),
    (JOB + "  schedul: {}\n", "4:3: jobs[0].schedul: unknown field; expected 'schedule', did you"),
    (JOB + "  timeout: 30\n", "4:3: jobs[0].timeout: 30 can't be used; expected a duration"),
    (JOB + "  timeout: soon\n", "4:3: jobs[0].timeout: 'soon' can't be used; expected whole num"),
    (JOB + "  timeout: 0s\n", "4:3: jobs[0].timeout: '0s' can't be used; expected from"),
    (JOB + "  exclusive: yes\n", "jobs[0].exclusive: 'yes' can't be used; expected true or false"),
    (JOB + "  overlap: skp\n", "jobs[0].overlap: 'skp' can't be used; expected one of skip,"),
    (JOB + "  overlap: Skip\n", "did you mean skip?"),
    (JOB + "  priority: 101\n", "4:3: jobs[0].priority: 101 can't be used; expected a"),
    (JOB + "  priority: high\n", "jobs[0].priority: 'high' can't be used; expected a whole num"),
    (JOB + "  max_live: -1\n", "4:3: jobs[0].max_live: -1 can't be used"),
    (JOB + "  retry: {max_attempts: 0}\n", "jobs[0].retry.max_attempts: 0"),
    (JOB + "  retry: {max_attempts: 1000000000}\n", "a whole number from 1 to 1,000"),
    (JOB + "  retry: {max_backoff: 8d}\n", "4:11: jobs[0].retry.max_backoff: "),
    (JOB + "  retry: {multiplier: 1e30}\n", "jobs[0].retry.multiplier"),
    (JOB + "  delivery: at_most_once\n  retry: {max_attempts: 2}\n", "because delivery is at_mo"),
    (JOB + "  catch_up: {window: 1s}\n", "4:14: jobs[0].catch_up.window: '1s'"),
    (JOB + "  labels: {a: 1}\n", "jobs[0].labels.a: 1 can't be used; expected text; put it in"),
    (JOB + "  labels: {" + "x" * 64 + ": a}\n", "at most 63 printable characters"),
    (JOB + "  schedule: {}\n", "jobs[0].schedule: an empty mapping can't be used; expected exac"),
    (JOB + "  schedule: {cron: '* * * * *', every: 5s}\n", "this has cron and every"),
    (JOB + "  schedule: {every: 5s, days: or}\n", "expected `days` only beside `cron`"),
    (JOB + "  schedule: {every: 5s}\n  schedules: [{every: 1s}]\n", "not both"),
    (JOB + "  schedule: {cron: 5}\n", "jobs[0].schedule.cron: 5 can't be used; expected text; p"),
    (JOB + "  schedule: {cron: '60 * * * *'}\n", "4:14: jobs[0].schedule.cron: minute: '60' can"),
    (JOB + "  schedule: {cron: '* * 31 2 *'}\n", "fires at least once"),
    (JOB + "  schedule: {cron: '0 3 * * *', timezone: Mars/Base}\n", "4:33: jobs[0].schedule.tim"),
    (JOB + "  schedule: {cron: '0 3 * * *', timezone: europe/berlin}\n", "did you mean Europe/Be"),
    (JOB + "  schedule: {cron: '0 3 * * *', dst: vixi}\n", "did you mean vixie?"),
    (JOB + "  schedule: {every: 0s}\n", "4:14: jobs[0].schedule.every: '0s' can't be used"),
    (JOB + "  schedule: {every: 1ms}\n", "expected at least 1s"),
    (JOB + "  schedule: {every: 1h, offset: 1h}\n", "4:25: jobs[0].schedule.offset: '1h'"),
    (JOB + "  schedule: {every: 1h, start: tomorrow}\n", "jobs[0].schedule.start: 'tomorrow' can"),
    (
        JOB + "  schedule: {every: 1h, start: 2027-01-02T00:00:00Z, end: 2027-01-01T00:00:00Z}\n",
        "jobs[0].schedule.end: '2027-01-01T00:00:00Z' can't be used; expected a time after",
    ),
    (JOB + "  schedule: {every: 1h, max_runs: 0}\n", "jobs[0].schedule.max_runs: 0 can"),
    (JOB + "  schedule: {every: 1h, jitter: 9999d}\n", "jobs[0].schedule.jitter: "),
    (JOB + "  schedule: {every: 1h, exclude: [nights]}\n", "'nights' is no calendar of this file"),
    (JOB + "  schedule: {at: [2027-13-01T00:00:00]}\n", "jobs[0].schedule.at[0]: '2027-13-01T00"),
    (JOB + "  schedule: {at: []}\n", "expected at least one time"),
    (JOB + "  schedule: {rrule: 'FREQ=DAILY'}\n", "jobs[0].schedule.rrule: 'no DTSTART'"),
    (
        JOB + "  schedule: {calendar_interval: {months: 1, at: '09:00', anchor: 2026-01-31}}\n",
        "jobs[0].schedule.calendar_interval: short_month: nothing can't be used; expected `last`",
    ),
    (
        JOB + "  schedule: {calendar_interval: {days: 1, at: 9:00, anchor: 2026-01-31}}\n",
        "calendar_interval.at: '9:00' can't be used; expected a wall time, as 09:00",
    ),
    (JOB + "  schedules: [{every: 1s}, {every: 0s}]\n", "4:29: jobs[0].schedules[1].every: '0s'"),
    ("jobs:\n- {name: A, task: {shell: x}}\n", "jobs[0].name: 'A' can't be used; expected 1 to 63"),
    ("jobs:\n- {name: a/b, task: {shell: x}}\n", "jobs[0].name: 'a/b' can't be used"),
    ("jobs:\n- {name: 'n\u0303', task: {shell: x}}\n", "jobs[0].name: "),
    ("jobs:\n- {name: '\U0001f514', task: {shell: x}}\n", "jobs[0].name: "),
    (f"jobs:\n- {{name: {'a' * 256}, task: {{shell: x}}}}\n", "(256 characters) can't be used"),
    ("jobs:\n- {name: a, task: {}}\n", "expected exactly one of python, shell, http; this has no"),
    ("jobs:\n- {name: a, task: {shell: x, args: {}}}\n", "expected `args` only beside `python`"),
    (
        "jobs:\n- {name: a, task: {shell: x, env: {A: 1}}}\n",
        "task.env.A: 1 can't be used; exp",
    ),
    ("jobs:\n- {name: a, task: {http: {url: 'ftp://x'}}}\n", "expected text that matches ^https?"),
    (
        "jobs:\n- {name: a, task: {http: {url: 'http://x', expect: [42]}}}\n",
        "expected at least 100",
    ),
    (JOB + JOB.removeprefix("jobs:\n"), "4:3: jobs[1].name: a second job 'a'; expected one"),
    ("calendars: [{name: c}, {name: c}]\n" + JOB, "a second calendar 'c'"),
    ("calendars: [{name: c, weekdays: [Sunday]}]\n" + JOB, "did you mean SUN?"),
    ("calendars: [{name: c, dates: [2026-02-30]}]\n" + JOB, "calendars[0].dates[0]: '2026-02-30'"),
    ("calendars: [{name: c, ranges: [2026-02-01]}]\n" + JOB, "2026-12-24..2027-01-01"),
    ("calendars: [{name: c, dates: [2026-2-1]}]\n" + JOB, "calendars[0].dates[0]: '2026-2-1'"),
    (JOB + "  schedule:\n", "4:3: jobs[0].schedule: nothing can't be used; expected a value, or"),
    (JOB + "  schedule: {cron: }\n", "4:14: jobs[0].schedule.cron: nothing can't be used"),
    (JOB + "  schedule: {every: 1h, timezone: ~}\n", "4:25: jobs[0].schedule.timezone: nothing"),
    (JOB + "  schedule: {calendar_interval: {days: , at: '09:00'}}\n", "interval.days: nothing"),
    (JOB + "  retry:\n", "4:3: jobs[0].retry: nothing can't be used"),
    ("jobs:\n- name: a\n  task: {shell: }\n", "3:10: jobs[0].task.shell: nothing can't be used"),
    ("jobs:\n- name: a\n  task: {http: null}\n", "3:10: jobs[0].task.http: nothing can't be used"),
    (
        JOB + "  schedule: 0 3 * * *\n",
        "'0 3 * * *' can't be used; expected a mapping of cron, every,",
    ),
    (JOB + "  catch_up: latest\n", "expected a mapping of policy, window, max, late_after"),
    ("jobs:\n- name: a\n  task: {shell: [ls, -l]}\n", "a list can't be used; expected text"),
    (JOB + "  schedule: {cron: '@every 1h', days: and}\n", "4:33: jobs[0].schedule.days: 'and'"),
    (JOB + "  schedule: {at: [9999-01-01T00:00:00]}\n", "at: '9999-01-01T00:00:00' can't be used"),
    (JOB + '  description: "a\\0b"\n', "4:3: jobs[0].description: '3 characters' can't be used"),
    (JOB + '  labels: {a: "x\\ny"}\n', "4:12: jobs[0].labels.a: 'x\\ny' can't be used"),
    (JOB + "  labels: {'': x}\n", "expected a key with at least one character"),
]


@pytest.mark.parametrize(("text", "expected"), FIELDS, ids=lambda v: repr(v)[-40:])
def test_a_wrong_field_is_refused_with_line_value_and_what_would_be_right(text, expected):
    message = refused(text)
    assert message.startswith("jobs.yaml:")
    assert expected in message
    assert len(message) < 1_000


@pytest.mark.parametrize("exclude", ["[]", "[c]"])
@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("crons: [0 0 * * *, 60 * * * *]", "2:24: calendars[0].crons[1]: minute: '60' can't be"),
        ("crons: ['@every 1h']", "2:13: calendars[0].crons[0]: '@every 1h' can't be used"),
        ("ranges: [2027-01-03..2026-12-24]", "2:14: calendars[0].ranges[0]: '2027-01-03..2026-"),
        (
            "weekdays: [MON, TUE, WED, THU, FRI, SAT, SUN]",
            "2:5: calendars[0]: 'all seven weekdays' can't be used",
        ),
    ],
)
def test_a_calendar_s_mistake_is_reported_once_and_where_it_stands(entry, expected, exclude):
    message = refused(
        f"calendars:\n  - {entry}\n    name: c\n"
        f"{JOB}  schedule: {{cron: 0 3 * * *, exclude: {exclude}}}\n"
    )
    assert message.startswith(f"jobs.yaml:{expected}")
    assert "\n" not in message


def test_an_excluded_calendar_is_guessed_from_those_that_exist():
    message = refused(
        "calendars: [{name: nights}]\n" + JOB + "  schedule: {every: 1h, exclude: [night]}\n"
    )
    assert "jobs[0].schedule.exclude[0]: 'night' is no calendar of this file" in message
    assert "did you mean nights?" in message


def test_all_problems_are_reported_at_once_in_order_of_their_lines():
    with pytest.raises(JobFileError) as caught:
        load("jobs:\n- name: B\n  tsk: 1\n  timeout: 5\n", source="mine.yml")
    assert [problem.line for problem in caught.value.problems] == [2, 2, 3, 4]
    assert str(caught.value).splitlines()[-1].startswith("mine.yml:4:3: jobs[0].timeout: 5")


def test_a_hundred_problems_are_counted_and_not_all_shown():
    message = refused("jobs:\n" + "- {name: A, task: {shell: x}}\n" * 100)
    assert len(message.splitlines()) == 21
    assert message.endswith("... and 80 more")


@pytest.mark.slow
def test_more_than_ten_thousand_jobs_are_refused():
    text = "jobs:\n" + "- {name: a, task: {shell: x}}\n" * 10_001
    assert "1:1: jobs: a list can't be used; expected at most 10000 of them" in refused(text)


def test_the_schema_names_every_field_and_is_closed():
    schema = json_schema()
    assert schema["$schema"].endswith("2020-12/schema")
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["jobs"]
    fields = schema["$defs"]["Job"]["properties"]
    assert {"name", "schedule", "schedules", "task", "overlap", "catch_up", "retry"} <= set(fields)
    assert schema["$defs"]["Schedule"]["oneOf"] == [
        {"required": [kind]} for kind in ("cron", "every", "calendar_interval", "at", "rrule")
    ]
    objects = [part for part in schema["$defs"].values() if "properties" in part]
    assert all(part["additionalProperties"] is False for part in objects)


def test_the_schema_allows_no_null_where_the_reader_refuses_it():
    schema = json_schema()
    text = json.dumps([part for name, part in schema["$defs"].items() if name != "JsonValue"])
    assert '"null"' not in text
    assert ": null" not in text


HOLIDAYS = """
calendars:
- {name: closed, dates: [2027-12-24], holidays: [DE-BY], holiday_years: 1}
jobs:
- name: report
  schedule: {cron: "0 9 * * *", timezone: Europe/Berlin, exclude: [closed]}
  task: {shell: ./report}
"""


def test_holidays_are_written_out_as_dates_for_as_long_as_is_said():
    file = load(HOLIDAYS, today=date(2027, 3, 1))
    (closed,) = file.job("report").spec.exclude
    assert closed.dates[0] == date(2027, 1, 1)
    assert date(2027, 1, 6) in closed.dates  # Bavaria's, not Berlin's
    assert date(2027, 12, 24) in closed.dates
    assert {day.year for day in closed.dates} == {2027}
    (note,) = file.notes
    assert note == (
        "calendar closed: the holidays of DE-BY are written out up to the end of 2027; "
        "apply the file again before"
    )


@pytest.mark.parametrize("region", ["XX", "DE-ZZ", ""])
def test_a_region_without_holidays_is_named_with_its_line(region):
    with pytest.raises(JobFileError) as caught:
        load(HOLIDAYS.replace("DE-BY", f'"{region}"'))
    said = f"jobs.yaml:3:50: calendars[0].holidays[0]: {region!r} can't be used"
    assert said in str(caught.value)


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "holidays", None)
    with pytest.raises(JobFileError, match=r"pip install 'sexton\[holidays\]'"):
        load(HOLIDAYS)

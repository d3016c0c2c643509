"""Every field of a job file reaches the wire, and a written file says the same again."""

import string

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from unit.sdk.test_spec_messages import FULL

from sexton._spec_messages import spec_message, spec_of
from sexton.jobs import HttpTask, JobSpec, PythonTask, ShellTask
from sexton.v1 import job_pb2
from sexton_cli.jobfile import JobFileError, file_of, load, messages_of
from sexton_cli.jobfile._yaml import read
from sexton_cli.yaml_text import yaml_text
from sexton_core.schedules import JobIdentity, ScheduleCache
from sexton_records.spec import canonical, decode_definition

EVERYTHING = """\
namespace: team
calendars:
- name: closed
  dates: [2026-12-24]
  ranges: ["2026-12-27..2027-01-01"]
  weekdays: [SUN]
  crons: ["* 12 * * *"]
jobs:
- name: everything
  description: all of it
  labels: {team: data, "on": "1e5"}
  schedules:
  - {cron: "0 3 * * *", days: and, timezone: Europe/Berlin, dst: shift, exclude: [closed],
     start: 2026-01-01T00:00:00Z, end: 2027-01-01T00:00:00Z, max_runs: 9, jitter: 30s}
  - {every: 90s, offset: 2s, anchor: epoch, jitter: 30s}
  - calendar_interval: {months: 1, at: "09:30:15", anchor: 2026-01-31, short_month: last}
    jitter: 30s
  - {at: [2030-12-24T18:00:00, 2030-12-25T00:00:00Z], jitter: 30s}
  - {rrule: "DTSTART:20261201T090000\\nRRULE:FREQ=DAILY", jitter: 30s}
  task: {shell: "make\\nall", env: {A: "1", PASSWORD: {from_worker: PW}}, cwd: /srv}
  queue: reports
  priority: -3
  overlap: cancel_other
  max_buffered: 7
  max_live: 8
  catch_up: {policy: all, window: 2h, max: 5, late_after: 30s}
  retry: {max_attempts: 1, max_deliveries: 6, initial_backoff: 250ms, multiplier: 1.5,
          max_backoff: 1m, jitter: 0.0}
  timeout: 30m
  deadline: 6h
  start_within: 1h
  delivery: at_most_once
  exclusive: true
  retention: {max_age: 7d, max_runs: 10}
- name: python
  schedule: {every: 1d}
  task: {python: report, args: {b: [1, {c: null}], a: ü, deep: {on: true, n: -0.5}}}
- name: http
  task: {http: {method: PUT, url: "http://127.0.0.1/x", headers: {X-Key: {from_worker: KEY}, A: b},
         body: "$SEXTON_RUN_ID", expect: [200, 404]}}
- name: least
  task: {shell: "true"}
"""


def stored(spec):
    """Gives a definition as the mesh keeps it."""
    identity = JobIdentity(
        namespace="team", name="everything", uid="abcdefghijklmnopqrstuvwx", since=0
    )
    return canonical(spec, decode_definition(spec, 1, identity, ScheduleCache()))


def written(name, spec):
    """Gives the file that a stored definition is written as."""
    namespace, job = name.split("/")
    return yaml_text(file_of(namespace, {job: spec_of(spec)}))


def test_every_field_of_a_file_reaches_the_wire():
    specs = messages_of(load(EVERYTHING))
    assert list(specs) == ["team/everything", "team/python", "team/http", "team/least"]
    everything = specs["team/everything"]
    unset = {field.name for field in job_pb2.JobSpec.DESCRIPTOR.fields} - {
        field.name for field, _ in everything.ListFields()
    }
    assert unset == set()
    assert [each.WhichOneof("kind") for each in everything.schedules] == [
        *("cron", "every", "calendar_interval", "at", "rrule"),
    ]
    assert specs["team/python"].task.python.args_json == (
        '{"a":"\\u00fc","b":[1,{"c":null}],"deep":{"n":-0.5,"on":true}}'
    )
    for field in ("cron", "time_zone", "dst", "days", "start_time", "end_time", "max_runs"):
        assert getattr(everything.schedules[0], field), field


def test_a_file_is_stored_as_it_is_sent():
    for spec in messages_of(load(EVERYTHING)).values():
        assert stored(spec) == spec


def test_a_run_that_starts_at_most_once_is_attempted_once_whatever_else_is_said_of_retries():
    text = "jobs:\n- {name: a, task: {shell: x}, delivery: at_most_once, retry: {jitter: 0.5}}\n"
    assert messages_of(load(text))["default/a"].retry.max_attempts == 1


@pytest.mark.parametrize(
    "text", ["timeout: 2s1ns", "retry: {initial_backoff: 1ms1ns}", "catch_up: {window: 1h1ns}"]
)
def test_what_a_client_could_not_give_back_is_refused(text):
    with pytest.raises(JobFileError, match="whole microseconds"):
        load(f"jobs:\n- name: a\n  task: {{shell: x}}\n  {text}\n")


@pytest.mark.parametrize("name", ["everything", "python", "http", "least"])
def test_what_is_written_from_a_stored_job_is_the_same_job(name):
    spec = stored(messages_of(load(EVERYTHING))[f"team/{name}"])
    text = written(f"team/{name}", spec)
    assert messages_of(load(text)) == {f"team/{name}": spec}
    assert isinstance(yaml.safe_load(text), dict)


@pytest.mark.parametrize(
    "spec",
    [
        FULL,
        JobSpec(task=ShellTask("x")),
        JobSpec(task=PythonTask("report", {"1": "08", "n": None})),
        JobSpec(task=HttpTask("http://127.0.0.1/x")),
    ],
    ids=["full", "least", "python", "http"],
)
def test_what_the_sdk_defines_is_written_and_read_as_the_same(spec):
    message = stored(spec_message(spec))
    assert messages_of(load(written("team/a", message))) == {"team/a": message}


@pytest.mark.parametrize("args", [{"n": 2**63 - 1, "m": -(2**63)}, {"a": [[[[[{"b": []}]]]]]}])
def test_the_largest_arguments_of_the_wire_are_written_and_read_as_the_same(args):
    deepest = args
    for _ in range(20):
        deepest = {"a": deepest}
    message = stored(spec_message(JobSpec(task=PythonTask("report", deepest))))
    assert messages_of(load(written("team/a", message))) == {"team/a": message}


def test_what_the_sdk_leaves_out_is_what_a_file_leaves_out():
    assert (
        stored(spec_message(JobSpec(task=ShellTask("true"))))
        == (messages_of(load(EVERYTHING))["team/least"])
    )


def test_calendars_of_one_name_and_two_meanings_are_kept_apart():
    spec = spec_message(FULL)
    spec.schedules[1].exclude.add(name="closed", weekdays=["SAT"])
    spec.schedules[2].exclude.add(name="closed", weekdays=["SAT"])
    read_back = messages_of(load(written("team/a", stored(spec))))["team/a"]
    assert [
        [(each.name, list(each.weekdays)) for each in schedule.exclude]
        for schedule in read_back.schedules[:3]
    ] == [[("closed", ["SUN"])], [("closed-2", ["SAT"])], [("closed-2", ["SAT"])]]


texts = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=30
) | st.sampled_from(
    ["1e5", "08", "0x1", "1_000", "12:30", "2026-12-24", "~", "null", "On", "y", ".inf", "nan"]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**16), 10**16) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(string.ascii_letters, max_size=5), values, max_size=4))
def test_what_is_written_as_yaml_is_read_back_as_it_was(value):
    assert read(yaml_text({"value": value}), "written").value == {"value": value}


@pytest.mark.parametrize("text", ["A\x85", "a b\u2028c", "x\n\u2029y", "\x85"])
def test_breaks_that_only_old_yaml_knows_are_kept(text):
    value = {"value": {text: text}}
    assert read(yaml_text(value), "written").value == value


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_read_back_as_it_was(number):
    assert read(yaml_text({"value": number}), "written").value["value"] == number

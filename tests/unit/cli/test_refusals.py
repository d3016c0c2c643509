"""What a mesh refuses is told in the words that were typed: flags for fields, short names."""

from __future__ import annotations

import pytest
from unit.sdk.memory_api import ENDED_RUN

from sexton.errors import IllegalState, InvalidArgument
from sexton_cli.online.wording import short_names

JOB = "namespaces/default/jobs/nightly"
RUN = f"nightly/{ENDED_RUN}"
FILL = ("jobs", "backfill", "nightly", "--from", "2026-11-26", "--to", "2026-11-28")

REFUSED = [
    (("jobs", "list", "--prefix", "x"), "ListJobs", "prefix", "--prefix"),
    (("jobs", "list", "--search", "x"), "ListJobs", "words", "--search"),
    (("jobs", "list", "nightly"), "ListJobs", "names", "JOB"),
    (("jobs", "pause", "nightly"), "PauseJob", "reason", "--reason"),
    (("jobs", "resume", "nightly"), "ResumeJob", "mode", "--mode"),
    (("jobs", "trigger", "nightly"), "TriggerJob", "request_id", "--request-id"),
    (("jobs", "trigger", "nightly"), "TriggerJob", "overlap", "--overlap"),
    (("jobs", "preview", "nightly"), "PreviewJob", "after_time", "--from"),
    (("jobs", "preview", "nightly"), "PreviewJob", "until_time", "--to"),
    (("jobs", "preview", "nightly"), "PreviewJob", "count", "--count"),
    (("jobs", "ledger", "nightly"), "ListDecisions", "start_time", "--from"),
    (("jobs", "ledger", "nightly"), "ListDecisions", "end_time", "--to"),
    (("jobs", "load"), "ForecastLoad", "end_time", "--next"),
    (("jobs", "load"), "ForecastLoad", "interval_s", "--interval"),
    (FILL, "CreateBackfill", "start_time", "--from"),
    (FILL, "CreateBackfill", "end_time", "--to"),
    (FILL, "CreateBackfill", "overlap", "--overlap"),
    (FILL, "CreateBackfill", "order", "--order"),
    (FILL, "CreateBackfill", "request_id", "--request-id"),
    (("why", "nightly", "--at", "2026-11-30"), "ExplainJob", "time", "--at"),
    (("runs", "list"), "ListRuns", "states", "--state"),
    (("runs", "list"), "ListRuns", "after_time", "--after"),
    (("runs", "list"), "ListRuns", "before_time", "--before"),
    (("runs", "cancel", RUN), "CancelRun", "reason", "--reason"),
    (("runs", "terminate", RUN), "TerminateRun", "reason", "--reason"),
    (("runs", "retry", RUN), "RetryRun", "request_id", "--request-id"),
    (("runs", "retry", RUN), "RetryRun", "overlap", "--overlap"),
    (("dead", "list"), "ListDeadLetters", "filter.before_time", "--before"),
    (("dead", "requeue", RUN), "RequeueDeadLetters", "filter.runs", "RUN"),
    (("dead", "purge", "--all"), "PurgeDeadLetters", "filter.fingerprint", "--fingerprint"),
    (("queues", "pause", "default"), "PauseQueue", "queue", "QUEUE"),
    (("queues", "pause", "default"), "PauseQueue", "reason", "--reason"),
    (("apply", "jobs.yaml"), "ApplyJobs", "source", "--source"),
]


@pytest.mark.parametrize(
    ("command", "call", "field", "typed"), REFUSED, ids=[f"{row[1]} {row[2]}" for row in REFUSED]
)
def test_a_refused_field_is_called_as_it_was_typed(
    sexton, mesh, api, tmp_path, monkeypatch, command, call, field, typed
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.yaml").write_text("jobs: [{name: a, task: {shell: a}}]")
    api.fail(call, InvalidArgument(field, "?", "another"))
    refused = f"sexton: {typed}: '?' can't be used; expected another\n"
    assert sexton(*command) == (2, "", refused)


@pytest.mark.parametrize(
    ("command", "call", "kind", "name"),
    [
        (("jobs", "pause", "nightly"), "PauseJob", "JOB", ""),
        (("runs", "show", "nightly/T1"), "GetRun", "RUN", "/runs/T1"),
        (
            ("jobs", "backfills", "nightly", "--cancel", "x"),
            "CancelBackfill",
            "BACKFILL",
            "/backfills/x",
        ),
    ],
)
def test_a_refused_name_is_told_as_it_is_written(sexton, mesh, api, command, call, kind, name):
    form = "namespaces/{namespace}/jobs/{job}/runs/{run}"
    api.fail(call, InvalidArgument("name", f"{JOB}{name}", form))
    shown = f"default/nightly/{name.rpartition('/')[2]}".rstrip("/")
    refused = f"sexton: {kind}: '{shown}' can't be used; expected NAMESPACE/JOB/RUN\n"
    assert sexton(*command) == (2, "", refused)


def test_what_the_state_does_not_allow_is_refused_with_short_names(sexton, mesh, api):
    api.fail("CancelRun", IllegalState(f"run {JOB}/runs/t1", "SUCCEEDED", ["RUNNING"]))
    code, _, err = sexton("runs", "cancel", RUN)
    refused = "run default/nightly/t1 is SUCCEEDED; this can be done while it is RUNNING\n"
    assert (code, err) == (4, f"sexton: {refused}")


def test_names_of_other_things_stay_as_they_are():
    assert short_names("see namespaces/default, or /srv/jobs/a") == (
        "see namespaces/default, or /srv/jobs/a"
    )


@pytest.mark.parametrize("command", ["show", "trigger", "pause", "resume", "versions", "backfills"])
def test_every_command_about_a_deleted_job_says_that_it_was_deleted(sexton, api, mesh, command):
    del api.jobs[JOB]
    api.deleted[JOB] = "2026-11-28T12:00:00Z"
    code, _, err = sexton("jobs", command, "nightly")
    assert code == 3
    assert err == (
        "sexton: there is no job 'default/nightly': it was deleted at 2026-11-28T12:00:00Z, "
        "and its past is kept: see `sexton jobs ledger nightly`, `sexton why`, "
        "`sexton runs list`\n"
    )


def test_of_a_backfill_that_is_not_there_nothing_is_said_about_its_job(sexton, mesh):
    assert sexton("jobs", "backfills", "nightly", "--cancel", "zzzzzzzz") == (
        3,
        "",
        "sexton: there is no backfill 'default/nightly/zzzzzzzz'\n",
    )


@pytest.mark.parametrize("interval", ["0s", "1ms"])
def test_an_interval_is_refused_as_it_was_typed(sexton, mesh, interval):
    assert sexton("jobs", "load", "--interval", interval) == (
        2,
        "",
        f"sexton: --interval: '{interval}' can't be used; expected whole seconds, from 1s\n",
    )

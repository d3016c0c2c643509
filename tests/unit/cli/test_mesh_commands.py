"""The commands that call a mesh: what they do, print, and end with."""

import io
import json
import sys
import threading

import pytest
import yaml
from unit.sdk.memory_api import ENDED_RUN

from sexton import errors
from sexton.v1 import run_pb2

FILE = """\
jobs:
- name: report
  schedule: {cron: "0 9 * * MON", timezone: America/New_York}
  task: {python: weekly-report, args: {team: sales}}
- name: by-hand
  task: {shell: ./load}
"""
NIGHTLY = "namespaces/default/jobs/nightly"
RUN = f"nightly/{ENDED_RUN}"


@pytest.fixture(name="file")
def _file(tmp_path):
    path = tmp_path / "jobs.yaml"
    path.write_text(FILE)
    return path


# apply


def test_applying_a_file_tells_what_changed_when_each_runs_and_how_to_start_it(sexton, mesh, file):
    code, out, err = sexton("apply", "-f", file)
    assert (code, err) == (0, "")
    assert out == (
        "default/report: created; runs next Mon 2026-11-30 09:00:00 -0500 (America/New_York), "
        "2026-11-30T14:00:00Z\n"
        "default/by-hand: created; no schedule: runs by trigger and backfill\n"
        "to start one now: sexton jobs trigger default/report\n"
    )


def test_applying_it_again_changes_nothing_and_a_change_is_named(sexton, data, mesh, file):
    sexton("apply", "-f", file)
    assert [job["change"] for job in data("apply", "-f", file)] == ["none", "none"]
    file.write_text(FILE.replace("./load", "./load --all"))
    code, out, _ = sexton("apply", "-f", file)
    assert code == 0
    assert "default/report: unchanged;" in out
    assert "default/by-hand: updated (task);" in out
    assert "to start one now" not in out


def test_a_dry_run_tells_and_writes_nothing(sexton, data, mesh, file):
    code, out, _ = sexton("apply", "-f", file, "--dry-run")
    assert code == 0
    assert "default/report: to be created" in out
    assert [job["name"] for job in data("jobs", "list")] == ["nightly"]


def test_the_file_s_name_is_recorded_and_the_namespace_is_the_file_s(sexton, data, mesh, file, api):
    file.write_text("namespace: team\n" + FILE)
    assert sexton("apply", "-f", file, "-o", "name")[1] == "team/report\nteam/by-hand\n"
    assert api.sources == ["jobs.yaml"]


def test_a_file_can_come_from_standard_input(data, mesh, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(FILE.encode())))
    assert [job["change"] for job in data("apply", "-f", "-")] == ["created", "created"]


def test_warnings_of_the_mesh_are_shown(sexton, mesh, file, api):
    sexton("apply", "-f", file)
    api.jobs["namespaces/default/jobs/report"].warnings.append("07:00 does not exist")
    assert "  warning: 07:00 does not exist\n" in sexton("apply", "-f", file)[1]


def test_what_the_mesh_refuses_is_refused_with_its_line_and_nothing_is_applied(
    sexton, mesh, file, api
):
    lines = (
        "2 of 2 jobs can't be used; nothing was written:",
        "jobs[0] namespaces/default/jobs/report: spec.queue: '?' can't be used; expected an id",
        "jobs[1] namespaces/default/jobs/by-hand: spec.task: 9 can't be used; expected a task",
    )
    refusal = errors.InvalidArgument.restore("\n".join(lines), {"field": "jobs[0].spec.queue"})
    api.fail("ApplyJobs", refusal)
    code, out, err = sexton("apply", file)
    assert (code, out) == (4, "")
    assert err.splitlines() == [
        "sexton: 2 of 2 jobs can't be used; nothing was written:",
        f"sexton: {file}:2: default/report: queue: '?' can't be used; expected an id",
        f"sexton: {file}:5: default/by-hand: task: 9 can't be used; expected a task",
    ]


def test_a_file_with_a_mistake_is_refused_with_its_line_before_anything_is_sent(
    sexton, mesh, file, api
):
    file.write_text(FILE.replace("./load}", "./load, env: {SEXTON_JOB: x}}"))
    code, out, err = sexton("apply", "-f", file)
    assert (code, out, api.calls) == (4, "", [])
    assert f"{file}:6:25: jobs[1].task.env: 'SEXTON_JOB' can't be used" in err


# jobs


def test_jobs_are_listed_with_their_next_time_in_their_zone_and_in_utc(sexton, mesh):
    code, out, _ = sexton("jobs", "list")
    assert code == 0
    assert out.splitlines() == [
        "JOB              SCHEDULE   NEXT                           NEXT IN UTC           STATE",
        "default/nightly  0 3 * * *  Mon 2026-11-30 03:00:00 +0100  2026-11-30T02:00:00Z  active",
    ]


def test_jobs_are_searched_for_and_listed_in_the_order_asked_for(sexton, mesh, file):
    sexton("apply", "-f", file)
    sexton("jobs", "pause", "report")

    def names(*asked):
        code, out, err = sexton("jobs", "list", *asked, "-o", "name")
        assert (code, err) == (0, "")
        return [line.removeprefix("default/") for line in out.splitlines()]

    assert names("--search", "default NIGHT") == ["nightly"]
    assert names("--paused") == ["report"]
    assert names("--active") == ["by-hand", "nightly"]
    assert names("--order", "next_time") == ["nightly"]
    assert names("report", "gone", "by-hand") == ["report", "by-hand"]
    assert names("--limit", 2) == ["by-hand", "nightly"]


def test_a_list_of_jobs_that_is_cut_says_so(sexton, mesh, file):
    sexton("apply", "-f", file)
    lines = sexton("jobs", "list", "--limit", 2)[1].splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["default/by-hand", "default/nightly"]
    assert lines[3:] == ["... and more than these 2: --limit shows them"]
    assert "... and" not in sexton("jobs", "list", "--limit", 3)[1]


def test_lists_are_data_too(sexton, data, mesh):
    (job,) = data("jobs", "list")
    assert (job["name"], job["next_time"], job["paused"]) == (
        "nightly",
        "2026-11-30T02:00:00Z",
        False,
    )
    assert job["definition"]["schedule"] == {"cron": "0 3 * * *", "timezone": "Europe/Berlin"}
    assert "task" not in job["definition"], "it may hold values of variables"
    assert yaml.safe_load(sexton("jobs", "list", "-o", "yaml")[1]) == [job]
    assert sexton("jobs", "list", "-o", "name")[1] == "default/nightly\n"


def test_a_namespace_is_chosen_by_option_environment_or_name(sexton, mesh, file, monkeypatch):
    file.write_text("namespace: team\n" + FILE)
    sexton("apply", "-f", file)
    team = "team/by-hand\nteam/report\n"
    assert sexton("jobs", "list", "-n", "team", "-o", "name")[1] == team
    assert sexton("jobs", "list", "-A", "-o", "name")[1] == "default/nightly\n" + team
    assert sexton("jobs", "show", "team/report", "-o", "name")[1] == "team/report\n"
    monkeypatch.setenv("SEXTON_NAMESPACE", "team")
    assert sexton("jobs", "list", "-o", "name")[1] == team
    assert sexton("jobs", "show", "report", "-o", "name")[1] == "team/report\n"


def test_a_job_shown_as_yaml_is_a_file_that_changes_nothing(sexton, data, mesh, file, tmp_path):
    sexton("apply", "-f", file)
    for name in ("report", "by-hand", "nightly"):
        shown = tmp_path / f"{name}.yaml"
        shown.write_text(sexton("jobs", "show", name, "-o", "yaml")[1])
        (applied,) = data("apply", "-f", shown)
        assert (applied["job"], applied["change"]) == (f"default/{name}", "none")


def test_a_job_is_paused_and_resumed(sexton, mesh):
    assert sexton("jobs", "pause", "nightly", "--reason", "disk full") == (
        0,
        "default/nightly: paused\n",
        "",
    )
    assert "paused: disk full" in sexton("jobs", "list")[1]
    assert sexton("jobs", "resume", "nightly", "--mode", "catch_up")[1] == (
        "default/nightly: active; next 2026-11-30T02:00:00Z\n"
    )


def test_a_trigger_names_its_run_and_is_one_run_however_often_it_is_sent(sexton, mesh):
    first = sexton("jobs", "trigger", "nightly", "--request-id", "release-7", "-o", "name")
    assert first == (0, "default/nightly/m20261129T120000Z-release-\n", "")
    assert sexton("jobs", "trigger", "nightly", "--request-id", "release-7", "-o", "name") == first


def test_a_trigger_that_starts_nothing_yet_says_what_it_waits_for(sexton, data, mesh):
    arguments = ("jobs", "trigger", "nightly", "--overlap", "buffer_one")
    assert sexton(*arguments)[1] == "nightly: a start waits: run t1 is live\n"
    assert sexton(*arguments, "-o", "name") == (0, "", "")
    assert data(*arguments) == {"run": None, "decision": "buffered", "reason": "run t1 is live"}


@pytest.mark.parametrize("output", ["table", "json", "yaml", "name"])
def test_a_trigger_that_starts_nothing_is_refused_with_the_reason(sexton, mesh, output):
    code, out, err = sexton("jobs", "trigger", "nightly", "--overlap", "skip", "-o", output)
    assert (code, bool(out)) == (4, output in ("json", "yaml"))
    assert err == "sexton: nightly: no run was started: skipped, run t1 is live\n"


def test_a_job_is_deleted(sexton, mesh):
    assert sexton("jobs", "delete", "nightly") == (0, "default/nightly: deleted\n", "")
    assert sexton("jobs", "delete", "nightly")[0] == 3


def test_why_shows_the_gates_and_the_times_around(sexton, data, mesh):
    arguments = ("why", "nightly", "--at", "2026-11-30T02:00:00Z")
    code, out, _ = sexton(*arguments)
    assert code == 0
    assert "decision      fired (forecast)\n" in out
    assert "nominal time  Mon 2026-11-30 03:00:00 +0100, 2026-11-30T02:00:00Z\n" in out
    assert "schedule  yes     0 3 * * * asks for it\n" in out
    assert data(*arguments)["gates"][1] == {
        "name": "paused",
        "passed": True,
        "detail": "the job is active",
    }


def test_a_deleted_job_is_explained_and_otherwise_said_to_be_gone(sexton, mesh, api):
    api.jobs.clear()
    api.deleted[NIGHTLY] = "2026-11-28T12:00:00Z"
    code, out, _ = sexton("why", "nightly", "--at", "2026-11-30T03:00:00")
    assert (code, "2026-11-30T03:00:00" in out) == (0, True)
    code, _, err = sexton("jobs", "show", "nightly")
    assert (code, "was deleted at 2026-11-28T12:00:00Z, and its past is kept" in err) == (3, True)
    assert "`sexton jobs ledger nightly`" in err
    assert sexton("why", "other", "--at", "2026-11-30T03:00:00")[0] == 3


@pytest.mark.parametrize(
    ("at", "instant"),
    [
        ("2026-11-30T03:00", "2026-11-30T02:00:00Z"),
        ("2026-11-30 03:00:00", "2026-11-30T02:00:00Z"),
        ("2026-11-30", "2026-11-29T23:00:00Z"),
        ("2026-10-25T02:30", "2026-10-25T00:30:00Z"),
        ("2026-11-30T03:00:00-05:00", "2026-11-30T08:00:00Z"),
        ("2026-11-30T03:00-05:00", "2026-11-30T08:00:00Z"),
        ("2026-11-30 03:00Z", "2026-11-30T03:00:00Z"),
    ],
)
def test_a_time_without_an_offset_is_one_of_the_job_s_zone(data, mesh, at, instant):
    assert data("why", "nightly", "--at", at)["nominal_time"] == instant


def test_a_wall_time_that_the_clock_skips_is_named(sexton, mesh):
    code, _, err = sexton("why", "nightly", "--at", "2026-03-29T02:30")
    assert (code, "the clock of Europe/Berlin skips it" in err) == (2, True)


# runs


def test_runs_are_listed_by_job_and_state(sexton, mesh):
    name = f"default/{RUN}\n"
    assert sexton("runs", "list", "-o", "name")[1] == name
    assert sexton("runs", "list", "nightly", "--state", "succeeded", "-o", "name")[1] == name
    assert sexton("runs", "list", "--state", "failed", "-o", "name")[1] == ""
    assert sexton("runs", "list")[1].splitlines()[1].split() == [
        f"default/{RUN}",
        "succeeded",
        "2026-11-29T02:00:00Z",
        "2",
        "42s",
        "one",
    ]


def test_a_time_without_an_offset_is_one_of_utc_where_no_job_is_meant(sexton, mesh):
    run = f"default/{RUN}\n"
    for after, listed in (("2026-11-29T02:00", run), ("2026-11-29 03:00:00", "")):
        assert sexton("runs", "list", "--after", after, "-o", "name")[1] == listed


def test_a_limit_ends_a_list(sexton, mesh):
    for _ in range(3):
        sexton("jobs", "trigger", "nightly")
    assert len(sexton("runs", "list", "--limit", "2", "-o", "name")[1].splitlines()) == 2


def test_a_run_is_shown_with_why_its_attempts_failed_and_what_they_wrote(sexton, data, mesh):
    code, out, _ = sexton("runs", "show", RUN)
    assert code == 0
    assert "  exit 1: no space left\n  | df: 0\n  > no space left\n" in out
    assert "ended         2026-11-29T02:00:42Z, after 42s\n" in out
    run = data("runs", "show", f"default/{RUN}")
    assert (run["state"], run["result"]) == ("succeeded", {"files": 3})
    assert run["attempts"][0]["error"] == {
        "kind": "exit 1",
        "message": "no space left",
        "detail": "df: 0",
    }


def test_what_a_job_writes_can_not_steer_the_terminal(sexton, mesh, api):
    api.runs[f"{NIGHTLY}/runs/{ENDED_RUN}"].attempts[1].output_tail = "\x1b[2Jgone\n"
    assert r"  > \x1b[2Jgone" in sexton("runs", "show", RUN)[1]


def test_a_run_is_cancelled_and_terminated(sexton, mesh):
    for verb, state in (("cancel", "cancelled"), ("terminate", "terminated")):
        run = sexton("jobs", "trigger", "nightly", "-o", "name")[1].strip()
        assert sexton("runs", verb, run)[1] == f"{run}: {state}\n"
    for verb in ("cancel", "terminate"):
        told = (0, f"default/{RUN}: succeeded; it has ended otherwise, and stays so\n", "")
        assert sexton("runs", verb, RUN) == told


def test_a_backlog_of_runs_that_wait_is_ended_and_what_runs_goes_on(sexton, mesh, api):
    # It could not be purged, and everything missed ran (jobrunr #940, kestra #3000).
    runs = [sexton("jobs", "trigger", "nightly", "-o", "name")[1].strip() for _ in range(3)]
    live = f"{NIGHTLY}/runs/{runs[0].rpartition('/')[2]}"
    api.end(live, run_pb2.RUN_STATE_RUNNING)
    code, out, _ = sexton("runs", "cancel", "nightly", "--waiting")
    assert (code, sorted(out.splitlines())) == (
        0,
        sorted(f"{run}: cancelled" for run in runs[1:]),
    )
    assert sexton("runs", "cancel", "nightly", "--waiting") == (0, "", "")
    assert sexton("runs", "cancel", "nihgtly", "--waiting")[0] == 3


@pytest.mark.parametrize(
    ("state", "code"), [(run_pb2.RUN_STATE_SUCCEEDED, 0), (run_pb2.RUN_STATE_FAILED, 1)]
)
def test_waiting_ends_with_how_the_run_ended(sexton, mesh, api, state, code):
    run = sexton("jobs", "trigger", "nightly", "-o", "name")[1].strip()
    name = f"{NIGHTLY}/runs/{run.rpartition('/')[2]}"
    threading.Timer(0.02, api.end, (name, state)).start()
    assert sexton("runs", "wait", run, "--timeout", 5)[0] == code


def test_waiting_in_vain_ends_with_unavailable(sexton, mesh):
    run = sexton("jobs", "trigger", "nightly", "-o", "name")[1].strip()
    code, out, err = sexton("runs", "wait", run, "--timeout", "0.05")
    assert (code, out) == (5, "")
    assert err == f"sexton: run {run} has not ended within 0.05 s\n"


def test_a_watch_prints_each_change_as_a_line(sexton, mesh, api):
    run = sexton("jobs", "trigger", "nightly", "-o", "name")[1].strip()
    api.end(f"{NIGHTLY}/runs/{run.rpartition('/')[2]}")
    assert sexton("runs", "watch", run)[1] == f"{run}: succeeded\n"
    live = sexton("jobs", "trigger", "nightly", "-o", "name")[1].strip()
    lines = sexton("runs", "watch", "--job", "nightly", "--timeout", "0.2", "-o", "json")[1]
    assert [json.loads(line)["id"] for line in lines.splitlines()] == [live.rpartition("/")[2]]


def test_members_show_who_leads(sexton, data, mesh):
    assert sexton("members")[1].splitlines()[2].split() == [
        *("coordinator", "id-2", "127.0.0.1:7402", "yes", "20", "-3", "ms", "0.1.0"),
    ]
    assert [member["role"] for member in data("members")["members"]] == [
        *("store", "coordinator", "queue", "worker"),
    ]
    assert sexton("members", "-o", "name")[1].splitlines()[3] == "worker/id-4"

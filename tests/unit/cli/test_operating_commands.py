"""Commands that look after a mesh, and what the shell offers."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime

import pytest

from sexton import Cron, JobSpec, RunState, ShellTask
from sexton.errors import NotLeader
from sexton.ledger import LedgerEntry
from sexton.v1 import run_pb2
from sexton_cli import main as entry
from sexton_cli.online import times, watching
from sexton_cli.online.questions import show_ledger
from sexton_cli.output import ListFormat

DEAD = "default/nightly/t20261128T020000Z-0a1b2c3d"


@pytest.fixture(autouse=True)
def _mesh_is_there(mesh):
    """Each of these commands calls one."""


def complete(monkeypatch, capsys, words, cursor):
    monkeypatch.setenv("_SEXTON_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(cursor))
    with pytest.raises(SystemExit):
        entry.run([])
    return capsys.readouterr().out.split()


def test_the_shell_completes_commands_jobs_and_runs(monkeypatch, capsys):
    assert complete(monkeypatch, capsys, "sexton jobs bac", 2) == ["backfill", "backfills"]
    assert complete(monkeypatch, capsys, "sexton jobs show ni", 3) == ["nightly"]
    assert complete(monkeypatch, capsys, "sexton jobs show default/", 3) == ["default/nightly"]
    assert complete(monkeypatch, capsys, "sexton jobs list ni", 3) == ["nightly"]
    assert complete(monkeypatch, capsys, "sexton jobs list --sea", 3) == ["--search"]
    assert complete(monkeypatch, capsys, "sexton jobs list --order ne", 4) == ["next_time"]
    assert complete(monkeypatch, capsys, "sexton runs show ni", 3) == ["nightly/"]
    (run,) = complete(monkeypatch, capsys, "sexton runs show nightly/t", 3)
    assert run == "nightly/t20261129T020000Z-0a1b2c3d"


def test_without_a_mesh_the_shell_completes_nothing_and_says_nothing(monkeypatch, capsys):
    monkeypatch.setenv("SEXTON_API", "127.0.0.1:1")
    assert complete(monkeypatch, capsys, "sexton jobs show ni", 3) == []
    assert capsys.readouterr().err == ""


def test_a_list_is_watched_until_it_is_interrupted(sexton, monkeypatch):
    looks = []

    def sleep(seconds):
        looks.append(seconds)
        if len(looks) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    code, out, _ = sexton("queues", "list", "--watch", "-o", "name")
    assert (code, looks) == (130, [watching.EVERY_S] * 2)
    assert out == "default\nreports\n\ndefault\nreports\n"


def test_on_a_terminal_it_is_shown_over_what_was_there(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(time, "sleep", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        watching.show(lambda: print("one"), watch=True)
    assert capsys.readouterr().out == "\x1b[H\x1b[2Jone\n"


def test_what_stands_in_the_way_is_said_at_once(sexton, api, tmp_path):
    file = tmp_path / "jobs.yaml"
    file.write_text("jobs: [{name: load, queue: heavy, task: {shell: ./load}}]")
    name = "namespaces/default/jobs/load"
    api.notices[name] = ["no worker serves the queue 'heavy'"]
    code, out, _ = sexton("apply", "-f", file)
    assert code == 0
    assert "  warning: no worker serves the queue 'heavy'\n" in out
    assert "warning: no worker serves the queue 'heavy'\n" in sexton("jobs", "show", "load")[1]


def test_pruning_deletes_what_the_source_does_not_hold_any_more(sexton, api, tmp_path):
    file = tmp_path / "jobs.yaml"
    file.write_text("jobs: [{name: a, task: {shell: a}}, {name: b, task: {shell: b}}]")
    sexton("apply", "-f", file, "--source", "office")
    file.write_text("jobs: [{name: a, task: {shell: a}}]")
    code, out, err = sexton("apply", "-f", file, "--source", "office", "--prune")
    assert (code, err) == (0, "")
    assert out.endswith(
        "default/b: deleted, for it stands in its source no more\n  loses 30 runs in 30 days\n"
    )
    assert sorted(api.jobs) == [
        "namespaces/default/jobs/a", "namespaces/default/jobs/nightly",
    ]  # fmt: skip


def test_a_worker_that_is_not_there_is_named_with_those_that_are(sexton):
    code, _, err = sexton("workers", "drain", "two")
    assert (code, err) == (3, "sexton: there is no worker 'two'; there are: one\n")
    assert sexton("workers", "drain", "5e551011a0b1c2d3e4f5a6b7")[0] == 0


def test_a_queue_that_nothing_uses_is_paused_and_it_is_said(sexton):
    code, out, err = sexton("queues", "pause", "reprots")
    assert (code, err) == (0, "")
    assert out == (
        "reprots: paused\n"
        "note: nothing uses this queue: no job, no run, no worker; did you mean reports?\n"
    )
    assert sexton("queues", "pause", "default")[1] == "default: paused\n"


def test_a_version_that_is_not_kept_is_named_with_those_that_are(sexton):
    code, _, err = sexton("jobs", "diff", "nightly", "7", "9")
    assert (code, err) == (3, "sexton: default/nightly: version 7 is not kept: 1 are\n")


def test_a_job_with_one_version_has_nothing_to_compare_and_it_is_said(sexton):
    code, out, err = sexton("jobs", "diff", "nightly")
    assert (code, out, err) == (
        0,
        "default/nightly: version 1 is the first: no other before it\n",
        "",
    )


@pytest.mark.parametrize("flags", [(), ("--dry-run",)])
def test_a_run_that_is_no_dead_letter_is_not_purged_and_it_is_said(sexton, flags):
    code, _, err = sexton("dead", "purge", "nightly/none", *flags)
    assert (code, err.split(":")[1]) == (3, " the run is not on the list")
    code, out, err = sexton("dead", "purge", "nightly/none", DEAD, *flags)
    assert (code, out.split()[0]) == (3, "1")
    assert "1 of the 2 runs are not on the list" in err
    assert sexton("dead", "purge", "--job", "nightly", *flags)[0] == 0


def test_a_backfill_is_waited_for(sexton):
    command = ("jobs", "backfill", "nightly", "--from", "2026-11-26", "--to", "2026-11-28")
    code, out, err = sexton(*command, "--wait")
    assert (code, err) == (0, "")
    assert out == "default/nightly/0a1b2c3d: done, 2 of 2 started\n"


def test_what_is_for_programs_has_every_field(data):
    assert data("queues", "list")[0]["oldest_ready_ms"] == 1_500
    assert data("workers", "list")[0]["runs"] == ["default/nightly/t20261129T110000Z-0a1b2c3d"]
    assert data("store", "status")["leases"][0]["token"] == 20
    assert data("dead", "list")[0]["fingerprint"] == "5f0c2b6d"
    assert data("jobs", "preview", "nightly")["times"][0]["local_time"].endswith("+01:00")
    assert data("jobs", "ledger", "nightly")[0]["run"]["state"] == RunState.SUCCEEDED
    assert data("jobs", "load")["total"] == 1
    assert data("jobs", "versions", "nightly")[0]["definition"]["task"] == {"shell": "./backup"}
    assert data("dead", "requeue", "--all")[0]["new_run"].startswith("default/nightly/m")


@pytest.mark.parametrize(
    ("output", "printed"),
    [("table", f"{DEAD}: stays: its job was deleted\n"), ("name", "")],
)
def test_a_dead_letter_that_stays_is_no_success(sexton, api, output, printed):
    api.stays = "its job was deleted"
    code, out, err = sexton("dead", "requeue", DEAD, "-o", output)
    assert (code, out, err) == (4, printed, "")


def test_a_dead_letter_of_a_deleted_job_is_marked_and_what_a_requeue_would_do_is_said(
    sexton, data, api
):
    api.dead[0].job_deleted = True
    api.stays = "its job was deleted"
    out = sexton("dead", "list", "nightly")[1].splitlines()
    assert out[1].split("  ")[:2] == [DEAD, "failed, job deleted"]
    assert out[2] == "of a deleted job nothing can be requeued; `sexton dead purge` takes it off"
    assert data("dead", "list", "--job", "nightly")[0]["job_deleted"] is True
    dry = sexton("dead", "requeue", "--all", "--dry-run")
    assert dry == (0, f"{DEAD}: would stay: its job was deleted\n", "")
    assert sexton("dead", "requeue", "--all", "--dry-run", "-o", "name")[1] == ""


def test_a_list_that_is_cut_says_so(sexton, api):
    api.dead.extend(api.dead * 2)
    assert sexton("dead", "list", "--limit", 2)[1].splitlines()[3:] == [
        "... and more than these 2: --limit shows them"
    ]
    assert len(sexton("dead", "list", "--limit", 3)[1].splitlines()) == 4
    for number in range(2):
        sexton("jobs", "trigger", "nightly", "--request-id", number)
    assert "more than these 2" in sexton("runs", "list", "--limit", 2)[1]
    assert "more" not in sexton("runs", "list", "--limit", 2, "-o", "name")[1]


def test_a_job_s_runs_are_asked_for_in_either_way(sexton):
    run = "default/nightly/t20261129T020000Z-0a1b2c3d\n"
    for named in (["nightly"], ["default/nightly"], ["--job", "nightly"]):
        assert sexton("runs", "list", *named, "-o", "name")[1] == run
        watched = sexton("runs", "watch", *named, "--timeout", "0.01")
        assert watched == (0, "", "")
        assert sexton("dead", "list", *named, "-o", "name")[1] == f"{DEAD}\n"
    assert sexton("runs", "watch", "nope", "--timeout", "0.01")[0] == 3


def test_of_many_live_runs_a_few_are_named(sexton, api):
    job = api.jobs["namespaces/default/jobs/nightly"]
    job.live_runs.extend(f"{job.name}/runs/t20261129T0{hour}0000Z-0a1b2c3d" for hour in range(7))
    (line,) = [x for x in sexton("jobs", "show", "nightly")[1].splitlines() if "live runs" in x]
    assert line.endswith("t20261129T030000Z-0a1b2c3d, t20261129T040000Z-0a1b2c3d and 2 more")
    assert line.count("-0a1b2c3d") == 5


@pytest.mark.parametrize(
    ("expression", "zone"),
    [
        ("TZ=Europe/Berlin 0 3 * * *", "Europe/Berlin"),
        ("CRON_TZ=Asia/Tokyo 0 3 * * *", "Asia/Tokyo"),
        ("0 3 * * *", "UTC"),
    ],
)
def test_a_zone_in_the_expression_is_the_one_that_times_are_shown_in(expression, zone):
    spec = JobSpec(task=ShellTask("true"), schedules=(Cron(expression),))
    assert times.zone_of(spec) == zone


def test_a_running_task_s_progress_is_shown(sexton, data, api):
    name = "namespaces/default/jobs/nightly/runs/t20261129T020000Z-0a1b2c3d"
    api.runs[name].progress.fraction = 0.25
    api.runs[name].progress.message = "a quarter"
    run = "nightly/t20261129T020000Z-0a1b2c3d"
    assert "progress      25%, a quarter\n" in sexton("runs", "show", run)[1]
    assert data("runs", "show", run)["progress"] == {"fraction": 0.25, "message": "a quarter"}


def test_a_run_that_waits_tells_what_stands_in_its_way(sexton, api):
    api.jobs["namespaces/default/jobs/nightly"].notices.append("no worker serves queue default")
    triggered = sexton("jobs", "trigger", "nightly", "--request-id", "one")[1]
    assert triggered.endswith("\nwarning: no worker serves queue default\n")
    code, out, err = sexton("runs", "show", "nightly/m20261129T120000Z-one")
    assert (code, err) == (0, "")
    assert out.endswith("warning: no worker serves queue default\n")
    assert "warning" not in sexton("runs", "show", "nightly/t20261129T020000Z-0a1b2c3d")[1]


def test_a_run_of_a_former_definition_tells_that_its_queue_is_paused(sexton, api):
    sexton("jobs", "trigger", "nightly", "--request-id", "one")
    run = api.runs["namespaces/default/jobs/nightly/runs/m20261129T120000Z-one"]
    run.job_version, run.queue = 7, "reports"
    sexton("queues", "pause", "reports", "--reason", "no paper")
    out = sexton("runs", "show", "nightly/m20261129T120000Z-one")[1]
    assert out.endswith("warning: queue reports is paused: no paper\n")


def test_a_mesh_without_a_leader_says_that_one_is_coming(sexton, api, monkeypatch):
    monkeypatch.setattr("sexton_cli.online.session._RETRY_FOR_S", 0.1)
    api.fail("TriggerJob", *[NotLeader()] * 50)
    code, _, err = sexton("jobs", "trigger", "nightly")
    assert code == 5
    assert "has no leader at this moment: this replica does not lead; no leader is known" in err
    assert "another coordinator takes over within seconds" in err


def test_a_time_without_a_decision_says_whether_there_was_one(capsys):
    def entry(reason):
        return LedgerEntry(
            nominal_time=datetime(2026, 11, 30, tzinfo=UTC), decision=None, reason=reason,
            blocked_by="", run=None, decide_time=None, job_version=1,
        )  # fmt: skip

    show_ledger([entry(""), entry("deleted")], "UTC", ListFormat.TABLE)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[1:] for row in rows] == [["not", "kept", "-"], ["none", "deleted", "-"]]


@pytest.mark.parametrize(
    ("reason", "shown"), [("", "cancelled"), ("too old", "cancelled: too old")]
)
def test_a_cancelled_run_is_not_called_so_twice(sexton, api, mesh, reason, shown):
    run = sexton("jobs", "trigger", "nightly", "-o", "name")[1].strip()
    live = api.runs[f"namespaces/default/jobs/nightly/runs/{run.rpartition('/')[2]}"]
    live.state = run_pb2.RUN_STATE_CANCELLED
    live.error.CopyFrom(run_pb2.RunError(kind="cancelled", message=reason))
    assert sexton("runs", "watch", run)[1] == f"{run}: {shown}\n"

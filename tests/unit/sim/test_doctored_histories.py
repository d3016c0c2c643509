"""Histories of a healthy mesh, changed by hand where no key or compare shows it."""

from __future__ import annotations

import base64
import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import job_pb2, run_pb2
from sexton_core.instants import SECOND
from sexton_records import keys
from sexton_sim.mesh.executor import Behaviour
from sexton_sim.mesh.plan import MeshFaults, MeshPlan
from sexton_sim.mesh.world import run
from sexton_sim.verify import verify

pytestmark = pytest.mark.slow

Line = dict[str, Any]
Doctor = Callable[[Any], object]


def _overlapping(rng: random.Random) -> job_pb2.JobSpec:
    """A job that lasts longer than its period."""
    return job_pb2.JobSpec(
        schedules=[job_pb2.Schedule(every=job_pb2.Every(period=Duration(seconds=1)))],
        task=job_pb2.Task(shell=job_pb2.ShellTask(command=Behaviour(lasts_s=1.5).command())),
        overlap=rng.choice((job_pb2.OVERLAP_POLICY_SKIP, job_pb2.OVERLAP_POLICY_BUFFER_ALL)),
    )


@pytest.fixture(name="lines", scope="module")
def _lines() -> list[Line]:
    calm = MeshFaults(mean_pause_s=0)
    plan = MeshPlan(duration_s=8, quiet_s=1, pause_s=0.2, spec=_overlapping, faults=calm)
    return run(7, plan).recorder.lines


def doctored(lines: list[Line], kind: bytes, message: Any, wanted: Doctor, how: Doctor) -> Any:
    """Changes the first record that is wanted; what is written over it later says the same."""
    lines = copy.deepcopy(lines)
    commits = (line["changes"] for line in lines if line["kind"] == "commit")
    changes = [change for changes in commits for change in changes]
    for index, change in enumerate(changes):
        key = base64.b64decode(change["key"])
        if not key.startswith(kind) or change["after"] is None:
            continue
        record = message.FromString(base64.b64decode(change["after"]["value"]))
        if not wanted(record):
            continue
        how(record)
        value = base64.b64encode(record.SerializeToString()).decode()
        change["after"]["value"] = value
        for later in changes[index + 1 :]:
            if later["key"] == change["key"]:
                if later["before"] is not None:
                    later["before"]["value"] = value
                break
        return lines
    raise AssertionError("there is no such record")


def rules(lines: list[Line], folder: Path) -> list[str]:
    file = folder / "history.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return verify([file]).rules()


def told(lines: list[Line], folder: Path) -> str:
    file = folder / "history.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return "\n".join(it.message for it in verify([file]).violations if it.rule == "S26")


def scheduled(record: pb.DecisionRecord) -> bool:
    skipped = record.kind == pb.DECISION_KIND_SKIPPED and not record.run_id
    return skipped and bool(record.origin == run_pb2.RUN_ORIGIN_SCHEDULE)


@pytest.mark.parametrize(("name", "by_ns"), [("first_ns", -60 * SECOND), ("last_ns", 60 * SECOND)])
def test_a_decision_about_more_than_was_undecided_is_caught(
    lines: list[Line], tmp_path: Path, name: str, by_ns: int
) -> None:
    def stretch(record: Any) -> None:
        setattr(record, name, getattr(record, name) + by_ns)

    changed = doctored(lines, keys.DECISIONS, pb.DecisionRecord, scheduled, stretch)
    assert "S8" in rules(changed, tmp_path)


def test_a_run_that_says_it_was_due_later_than_it_was_is_caught(
    lines: list[Line], tmp_path: Path
) -> None:
    def later(record: Any) -> None:
        record.due_ns += 5 * SECOND

    changed = doctored(lines, keys.ACTIVE, pb.RunRecord, lambda it: it.reason == "on_time", later)
    assert "S7" in rules(changed, tmp_path)


@pytest.mark.parametrize(
    ("how", "rule"),
    [
        (lambda record: record.ClearField("attempts"), "S9"),
        (lambda record: setattr(record, "deliveries", 5), "S9"),
        (lambda record: setattr(record, "completed", False), "S11"),
        (lambda record: setattr(record, "nominal_ns", 5), "S11"),
        (lambda record: setattr(record.template, "queue", "other"), "S11"),
    ],
)
def test_an_end_that_tells_another_run_than_there_was_is_caught(
    lines: list[Line], tmp_path: Path, how: Doctor, rule: str
) -> None:
    def succeeded(record: Any) -> bool:
        return bool(record.state == run_pb2.RUN_STATE_SUCCEEDED) and len(record.attempts) == 1

    changed = doctored(lines, keys.RUNS, pb.RunRecord, succeeded, how)
    assert rules(changed, tmp_path) == [rule]


def _set(**values: Any) -> Doctor:
    def how(record: Any) -> None:
        for name, value in values.items():
            setattr(record, name, value)

    return how


def _add(name: str, by: int) -> Doctor:
    return lambda record: setattr(record, name, getattr(record, name) + by)


def test_what_is_told_of_starts_and_decisions_is_derived(lines: list[Line], tmp_path: Path) -> None:
    def on_time(record: Any) -> bool:
        return bool(record.reason == "on_time") and not record.deliveries

    def manual(record: Any) -> bool:
        return bool(record.reason == "manual") and not record.deliveries

    def blocked(record: Any) -> bool:
        return record.reason == "overlap" and record.blocked_by != "another"

    def fires(record: Any) -> bool:
        return bool(record.counters.fired) and record.HasField("timer_ns")

    def spend_more(record: Any) -> None:
        record.template.task.shell.command = "lasts 60 fails 0 stubborn 0"

    decision, run = (keys.DECISIONS, pb.DecisionRecord), (keys.ACTIVE, pb.RunRecord)
    state, start = (keys.STATE, pb.StateRecord), (keys.BUFFERED, pb.BufferedRecord)
    for (kind, message), wanted, how in (
        (run, on_time, _set(reason="late")),
        (run, on_time, _add("handle_not_before_ns", 1)),
        (run, on_time, spend_more),
        (run, manual, _add("due_ns", 1)),
        (decision, blocked, _set(blocked_by="another")),
        (decision, blocked, _add("times", 1)),
        (start, lambda record: True, _set(waits_for="another")),
        (state, fires, _add("timer_ns", 1)),
        (state, fires, lambda record: _add("fired", 1)(record.counters)),
    ):
        lines = doctored(lines, kind, message, wanted, how)
    said = told(lines, tmp_path)
    assert "fired as 'late', and is on_time" in said
    assert "may not begin when it is due" in said
    assert "is not as its definition says" in said
    assert "one commit about" in said
    assert "was in its way, not 'another'" in said
    assert "times, not" in said
    assert "waits for 'another'" in said
    assert "has a timer for" in said
    assert "fired, and there were" in said

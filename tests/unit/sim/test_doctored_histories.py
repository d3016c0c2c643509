"""Histories of a healthy mesh, changed by hand where no key or compare shows it."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import run_pb2
from sexton_core.instants import SECOND
from sexton_records import keys
from sexton_sim.mesh.plan import MeshFaults, MeshPlan
from sexton_sim.mesh.world import run
from sexton_sim.verify import verify

pytestmark = pytest.mark.slow

Line = dict[str, Any]
Doctor = Callable[[Any], object]


@pytest.fixture(name="lines", scope="module")
def _lines() -> list[Line]:
    calm = MeshPlan(duration_s=12, quiet_s=3, pause_s=0.2, faults=MeshFaults(mean_pause_s=0))
    return run(7, calm).recorder.lines


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
    assert rules(changed, tmp_path) == ["S8"]


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

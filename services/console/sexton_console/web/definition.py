"""A job's definition as text, and what one version changed of another."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import yaml
from google.protobuf.duration_pb2 import Duration
from google.protobuf.json_format import MessageToDict

from sexton.v1 import job_pb2
from sexton.v1 import scheduler_pb2 as api
from sexton_console.words import enum_word, span

_PREFIXES: Final = (
    "OVERLAP_POLICY_", "DELIVERY_", "POLICY_", "DST_RULE_", "DAY_RULE_", "UNIT_", "SHORT_MONTH_",
)  # fmt: skip


class DiffLine(NamedTuple):
    """A line of a comparison."""

    sign: str
    """`+`, `-`, or empty."""
    text: str


class Diff(NamedTuple):
    """What a version changed."""

    version: int
    before: int
    lines: tuple[DiffLine, ...]


def lines_of(spec: job_pb2.JobSpec) -> list[str]:
    """Gives a definition, one field a line."""
    value = _plain(MessageToDict(spec, preserving_proto_field_name=True))
    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100)
    return text.splitlines()


def facts_of(spec: job_pb2.JobSpec) -> list[tuple[str, str]]:
    """Gives the rules of a job that matter day by day, as names and values."""
    kind = spec.task.WhichOneof("kind") or "unknown"
    what = {
        "shell": spec.task.shell.command,
        "python": spec.task.python.task,
        "http": f"{spec.task.http.method or 'POST'} {spec.task.http.url}",
    }.get(kind, "")
    policy = enum_word(job_pb2.CatchUp.Policy, spec.catch_up.policy, "POLICY_")
    overlap = enum_word(job_pb2.OverlapPolicy, spec.overlap, "OVERLAP_POLICY_")
    delivery = enum_word(job_pb2.Delivery, spec.delivery, "DELIVERY_")
    retry = spec.retry
    facts = [
        (f"{kind} task", what),
        ("queue", f"{spec.queue or 'default'}, priority {spec.priority}"),
        ("overlap", overlap.replace("_", " ")),
        ("catch-up", policy.replace("_", " ")),
        (
            "retry",
            f"{retry.max_attempts} attempts, pauses from {_span(retry.initial_backoff)} to "
            + _span(retry.max_backoff),
        ),
        ("timeout", _span(spec.timeout)),
        ("delivery", delivery.replace("_", " ")),
    ]
    if spec.exclusive:
        facts.append(("exclusive", "two executions never overlap"))
    if spec.HasField("deadline"):
        facts.append(("deadline", _span(spec.deadline)))
    if spec.HasField("start_within"):
        facts.append(("start within", _span(spec.start_within)))
    if spec.labels:
        labels = ", ".join(f"{name}={value}" for name, value in sorted(spec.labels.items()))
        facts.append(("labels", labels))
    return facts


def diff_of(versions: Sequence[api.JobVersion], wanted: str) -> Diff | None:
    """Gives what a version changed of the one before it; None where that can't be told."""
    for newer, older in pairwise(versions):
        if str(newer.version) == wanted:
            found = difflib.unified_diff(
                lines_of(older.spec), lines_of(newer.spec), lineterm="", n=2
            )
            lines = [
                DiffLine(line[0].strip(), line[1:])
                for line in found
                if not line.startswith(("+++", "---", "@@"))
            ]
            return Diff(newer.version, older.version, tuple(lines))
    return None


def _span(duration: Duration) -> str:
    return span(duration.ToTimedelta().total_seconds())


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return _word(value) if isinstance(value, str) and value.isupper() else value


def _word(text: str) -> str:
    for prefix in _PREFIXES:
        if text.startswith(prefix):
            return text.removeprefix(prefix).lower()
    return text


def task_lines(task: job_pb2.Task) -> list[str]:
    """Gives what a run executes, one field a line."""
    value = _plain(MessageToDict(task, preserving_proto_field_name=True))
    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=100)
    return text.splitlines()

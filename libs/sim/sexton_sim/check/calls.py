"""Clients' calls against the log: S1, S2, S19, S20, S22, S23.

The revision that an answer carries is the witness: it says where in the log the call belongs. What
is checked is that it fits there: that the log agrees with what was told, that no call is placed
before one that had ended when it began, and that nothing was told before it was durable. The leg
that does not trust revisions is `linearize.py`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from sexton_runtime.kv.types import Compare, Target
from sexton_sim.check.model import Log
from sexton_sim.check.verdict import Verdict
from sexton_sim.history import Call, History, text
from sexton_store.disk import Record

_READS = frozenset({"get", "scan"})


class _Acknowledged:
    """The highest revision that anybody had been told of, by time."""

    def __init__(self, calls: Sequence[Call]) -> None:
        told = sorted(
            (call.ended_ns, call.result["revision"])
            for call in calls
            if call.outcome == "ok" and call.ended_ns is not None and "revision" in call.result
        )
        self._times = [ended_ns for ended_ns, _ in told]
        self._highest: list[int] = []
        highest = 0
        for _, revision in told:
            highest = max(highest, revision)
            self._highest.append(highest)

    def before(self, at_ns: int) -> int:
        index = bisect_left(self._times, at_ns)
        return self._highest[index - 1] if index else 0


def check_calls(history: History, log: Log, verdict: Verdict) -> None:
    """Holds every answer against the log."""
    acknowledged = _Acknowledged(history.calls)
    placed: dict[int, Call] = {}
    for call in history.calls:
        if call.outcome != "ok" or "revision" not in call.result:
            continue
        floor = acknowledged.before(call.invoked_ns)
        revision = call.result["revision"]
        rule = "S19" if call.name in _READS else "S1"
        verdict.checked[rule] += 1
        if revision < floor:
            verdict.violate(
                rule,
                f"{call.process}'s {call.name} was answered as of revision {revision}, although "
                f"{floor} had been told to somebody before it began",
                [call],
            )
        _check_durable(call, revision, log, verdict)
        if call.name in _READS:
            _check_read(call, log, verdict)
        elif call.name == "commit":
            _check_commit(call, log, verdict, placed)
    _check_refused(history, log, verdict)
    _check_mesh_time(history, verdict)


def _check_durable(call: Call, revision: int, log: Log, verdict: Verdict) -> None:
    verdict.checked["S23"] += 1
    if revision > log.last_revision:
        verdict.violate(
            "S2",
            f"{call.process} was told of revision {revision}, which is not in the log "
            f"(it ends at {log.last_revision})",
            [call],
        )
        return
    entry = log.by_revision.get(revision)
    if entry is None or entry.durable_ns is None or call.ended_ns is None:
        return
    if entry.durable_ns > call.ended_ns:
        verdict.violate(
            "S23",
            f"{call.process} was told of revision {revision} at {call.ended_ns / 1e9:.6f} s, and "
            f"it became durable at {entry.durable_ns / 1e9:.6f} s",
            [call, entry],
        )


def _check_read(call: Call, log: Log, verdict: Verdict) -> None:
    revision = call.result["revision"]
    for key, value, *numbers in call.result["kvs"]:
        expected = log.at(key.encode("latin-1"), revision)
        if not _same(expected, value, numbers):
            verdict.violate(
                "S1",
                f"{call.process} read {key} as {value!r} {numbers} at revision {revision}",
                [f"the log says {expected}", call],
            )
    if call.name == "scan":
        prefix = call.args["prefix"].encode("latin-1")
        expected_keys = [text(key) for key in sorted(log.below(prefix, revision))]
        found_keys = [kv[0] for kv in call.result["kvs"]]
        if call.result["whole"] and found_keys != expected_keys:
            verdict.violate(
                "S1",
                f"{call.process} listed {call.args['prefix']} at revision {revision} wrongly",
                [f"found {found_keys}", f"the log says {expected_keys}"],
            )


def _same(expected: Record | None, value: str | None, numbers: Sequence[int]) -> bool:
    if expected is None:
        return value is None
    return value == text(expected.value) and tuple(numbers) == expected[1:]


def _check_commit(call: Call, log: Log, verdict: Verdict, placed: dict[int, Call]) -> None:
    outcome, revision = call.result["outcome"], call.result["revision"]
    if outcome == "COMMITTED":
        _check_committed(call, log, verdict, placed)
    elif outcome == "REFUSED":
        index = call.result["failed_compare"]
        compares = [_compare(entry) for entry in call.args["txn"]["compares"]]
        held = [log.holds(compare, revision) for compare in compares[: index + 1]]
        if held != [True] * index + [False]:
            verdict.violate(
                "S1",
                f"{call.process} was refused by compare {index} at revision {revision}, "
                f"but by the log these held: {held}",
                [call],
            )


def _check_committed(call: Call, log: Log, verdict: Verdict, placed: dict[int, Call]) -> None:
    txn, revision = call.args["txn"], call.result["revision"]
    wanted = [(key.encode("latin-1"), value) for key, value in txn["then"]]
    effective = [
        (text(key), value)
        for key, value in wanted
        if value is not None or log.at(key, revision - 1) is not None
    ]
    entry = log.by_revision.get(revision)
    if not effective or _had_no_effect(wanted, revision, log):
        return
    if entry is None:
        verdict.violate("S2", f"an acknowledged commit is not in the log: {revision}", [call])
        return
    done = [
        (text(change.key), None if change.after is None else text(change.after.value))
        for change in entry.commit.changes
    ]
    if done != effective:
        verdict.violate(
            "S2",
            f"{call.process} was told that revision {revision} is its own, the log says otherwise",
            [call, entry.commit],
        )
    if revision in placed:
        verdict.violate(
            "S1", f"revision {revision} was given to two calls", [placed[revision], call]
        )
    placed[revision] = call
    if entry.durable_ns is not None and entry.durable_ns < call.invoked_ns:
        verdict.violate("S1", f"revision {revision} was durable before it was asked for", [call])
    mesh_ns = entry.commit.mesh_time_ns
    early = mesh_ns < txn["not_before_ns"]
    late = 0 < txn["not_after_ns"] < mesh_ns
    if early or late:
        verdict.violate("S20", f"revision {revision} is outside its bounds of mesh time", [call])


def _had_no_effect(wanted: Sequence[tuple[bytes, Any]], revision: int, log: Log) -> bool:
    """Tells whether all it did may have been to delete what was absent.

    Then it has no revision of its own: it was told the one at which it was evaluated.
    """
    return all(value is None and log.at(key, revision) is None for key, value in wanted)


def _check_refused(history: History, log: Log, verdict: Verdict) -> None:
    """Values are unique to their call, so the log tells whose write it is."""
    seen: dict[tuple[str, str], list[int]] = {}
    for key in log.keys:
        for version in log.versions(key):
            if version.record is not None:
                mark = (text(key), text(version.record.value))
                seen.setdefault(mark, []).append(version.revision)
    for call in history.calls:
        if call.name != "commit" or not call.args.get("unique"):
            continue
        marks = [(key, value) for key, value in call.args["txn"]["then"] if value is not None]
        found = sorted({revision for mark in marks for revision in seen.get(mark, ())})
        verdict.checked["S22"] += 1
        committed = call.outcome == "ok" and call.result["outcome"] == "COMMITTED"
        refused = call.outcome == "fail" or (call.outcome == "ok" and not committed)
        if refused and found:
            verdict.violate(
                "S22", f"a refused transaction of {call.process} is in the log at {found}", [call]
            )
        elif len(found) > 1:
            verdict.violate(
                "S1", f"a transaction of {call.process} was applied more than once: {found}", [call]
            )


def _check_mesh_time(history: History, verdict: Verdict) -> None:
    """Answers, in real time, never show an earlier mesh time than one before."""
    if any(note.what == "reboot" for note in history.of("fault")):
        verdict.unknown("mesh time of answers over a reboot: only commits are durable (S20)")
        return
    told = sorted(
        (call.ended_ns, call.result["mesh_time_ns"])
        for call in history.calls
        if call.outcome == "ok" and call.ended_ns is not None and "mesh_time_ns" in call.result
    )
    times, highest = [ended_ns for ended_ns, _ in told], 0
    maxima: list[int] = []
    for _, mesh_ns in told:
        highest = max(highest, mesh_ns)
        maxima.append(highest)
    for call in history.calls:
        if call.outcome != "ok" or "mesh_time_ns" not in call.result:
            continue
        index = bisect_left(times, call.invoked_ns)
        verdict.checked["S20"] += 1
        if index and call.result["mesh_time_ns"] < maxima[index - 1]:
            verdict.violate("S20", f"mesh time went back: {maxima[index - 1]} was told", [call])


def _compare(entry: Sequence[Any]) -> Compare:
    key, target, operand = entry
    value = operand.encode("latin-1") if isinstance(operand, str) else operand
    return Compare(key.encode("latin-1"), Target[target], value)

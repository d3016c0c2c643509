"""The leg of S1 that trusts no revision: a small Wing-Gong-Lowe search on sampled keys.

Calls on one key are placed one after another, each somewhere between its invocation and its end,
so that every answer is what a single register would have said. An unknown write may take effect at
any time after its invocation, or never. Memory: (which calls are placed, what the register holds).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sexton_sim.check.verdict import Verdict
from sexton_sim.history import Call, History

_MAX_CALLS = 400
_MAX_STATES = 200_000
_NEVER = 1 << 62


class Step(NamedTuple):
    """A call on one key, by values alone."""

    invoked_ns: int
    ended_ns: int
    """When its effect is over; `_NEVER` for an unknown one, which may also not happen."""
    expected: str | None
    """What the register must hold, unless `blind`."""
    written: str | None
    """What it holds afterwards."""
    blind: bool
    succeeded: bool
    """Whether it was told that it found what it expected."""
    optional: bool


def check_registers(
    history: History, prefix: str, verdict: Verdict, *, max_keys: int | None = None
) -> None:
    """Searches an order for each key below `prefix` (of `max_keys`, the busiest)."""
    by_key: dict[str, list[Step]] = {}
    for call in history.calls:
        for key, step in _steps(call, prefix):
            by_key.setdefault(key, []).append(step)
    busiest = sorted(by_key, key=lambda key: (-len(by_key[key]), key))[:max_keys]
    for key in busiest:
        steps = sorted(by_key[key])[:_MAX_CALLS]
        if len(by_key[key]) > _MAX_CALLS:
            cut_ns = steps[-1].invoked_ns
            steps = [step for step in steps if step.optional or step.ended_ns < cut_ns]
        verdict.checked["S1"] += len(steps)
        found = linearizable(steps)
        if found is None:
            verdict.unknown(f"whether {key} is linearizable: the search was too large (S1)")
        elif not found:
            verdict.violate(
                "S1",
                f"no order of the {len(steps)} calls on {key} explains their answers",
                list(steps[:8]),
            )


def linearizable(steps: Sequence[Step], initial: str | None = None) -> bool | None:
    """Tells whether an order exists; None: given up."""
    required = sum(1 << index for index, step in enumerate(steps) if not step.optional)
    seen: set[tuple[int, str | None]] = set()
    stack: list[tuple[int, str | None]] = [(0, initial)]
    while stack:
        placed, value = stack.pop()
        if placed & required == required:
            return True
        if (placed, value) in seen:
            continue
        seen.add((placed, value))
        if len(seen) > _MAX_STATES:
            return None
        left = [index for index in range(len(steps)) if not placed >> index & 1]
        # Nothing may be placed after a call that had ended before it began.
        horizon = min(steps[index].ended_ns for index in left)
        for index in reversed(left):
            step = steps[index]
            if step.invoked_ns > horizon:
                continue
            finds = step.blind or value == step.expected
            if step.optional:
                if finds:
                    stack.append((placed | 1 << index, step.written))
            elif finds is step.succeeded:
                stack.append((placed | 1 << index, step.written if step.succeeded else value))
    return False


def _steps(call: Call, prefix: str) -> list[tuple[str, Step]]:
    """Gives a call's part in each key's story: only one-key calls that compare by value."""
    if call.name == "get" and call.outcome == "ok" and call.ended_ns is not None:
        return [
            (key, Step(call.invoked_ns, call.ended_ns, value, value, False, True, False))
            for key, value, *_ in call.result["kvs"]
            if key.startswith(prefix)
        ]
    if call.name != "commit" or call.outcome == "fail":
        return []
    txn = call.args["txn"]
    if len(txn["then"]) != 1 or not txn["then"][0][0].startswith(prefix) or txn["orelse"]:
        return []
    key, written = txn["then"][0]
    conditions = [(target, operand) for name, target, operand in txn["compares"] if name == key]
    if len(conditions) != len(txn["compares"]) or len(conditions) > 1:
        return []
    expected: str | None = None
    if conditions:
        target, operand = conditions[0]
        if target == "VALUE":
            expected = operand
        elif (target, operand) != ("EXISTS", False):
            return []
    unknown = call.outcome != "ok"
    if not unknown and call.result["outcome"] not in {"COMMITTED", "REFUSED"}:
        return []
    succeeded = unknown or call.result["outcome"] == "COMMITTED"
    ended_ns = _NEVER if unknown or call.ended_ns is None else call.ended_ns
    return [
        (
            key,
            Step(call.invoked_ns, ended_ns, expected, written, not conditions, succeeded, unknown),
        )
    ]

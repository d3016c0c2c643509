"""Searches every interleaving of a small model for states that must not be."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

State = TypeVar("State", bound=Hashable)

STATES_LIMIT = 200_000
"""A model that grows beyond this is no unit test."""


class Found(NamedTuple):
    """What a search found: how many states, and for each kind of violation a shortest way."""

    states: int
    violations: dict[str, list[str]]

    def __str__(self) -> str:
        lines = [f"{self.states} states"]
        for kind, way in self.violations.items():
            lines += [f"* {kind}", *(f"    {n}. {step}" for n, step in enumerate(way, 1))]
        return "\n".join(lines)


def explore(
    start: State,
    moves: Callable[[State], Iterable[tuple[str, State]]],
    violation: Callable[[State], str | None],
    *,
    until: str | None = None,
) -> Found:
    """Visits every reachable state, nearest first; goes no further from a violation.

    `until` ends the search at the first violation of this kind.
    """
    came_from: dict[State, tuple[str, State] | None] = {start: None}
    waiting = deque([start])
    violations: dict[str, list[str]] = {}
    while waiting:
        state = waiting.popleft()
        wrong = violation(state)
        if wrong is not None:
            if wrong not in violations:
                violations[wrong] = list(_way(came_from, state))
            if wrong == until:
                break
            continue
        for label, following in moves(state):
            if following not in came_from:
                came_from[following] = (label, state)
                waiting.append(following)
        assert len(came_from) <= STATES_LIMIT, "the model is too large"
    return Found(len(came_from), violations)


def _way(came_from: dict[Any, Any], state: Any) -> Iterator[str]:
    steps: list[str] = []
    while (step := came_from[state]) is not None:
        label, state = step
        steps.append(label)
    return reversed(steps)

"""The supervisor's machine: from what happened to its processes to what is to be done about it.

It has no I/O and no clock: whoever drives it tells what happened and when, and carries out the
effects that are returned. Times are seconds of any clock that does not go back.
"""

from __future__ import annotations

import signal
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

USAGE: Final = 2
"""Exit code of a process whose command line or configuration can't be used: starting it again does
not help."""
RESTART: Final = 75
"""Exit code of a process that stopped itself in order to be started again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How patient the supervisor is; seconds."""

    first_pause_s: float = 0.1
    """Before a process is started again. Doubles with each end that follows soon."""
    longest_pause_s: float = 5.0
    steady_after_s: float = 10.0
    """A process that has run this long starts from the first pause again."""
    loop_after: int = 5
    """So many ends in a row, each soon after its start, are called a crash loop."""
    first_starts: int = 3
    """So many are the end of everything where the process has never run steadily nor been ready:
    whoever has just started a mesh that can't work is told so, instead of being kept waiting."""
    stop_s: float = 10.0
    """How long each of the later stages of a stop may take; the first one has its own limit."""


class Phase(Enum):
    """Where a process stands."""

    NEW = "new"  # not started yet
    RUNNING = "running"  # exists
    PAUSED = "paused"  # has ended and is going to be started again
    STOPPING = "stopping"  # has been told to end
    ENDED = "ended"  # has ended and stays so


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start the process."""

    name: str


@dataclass(frozen=True, slots=True)
class Send:
    """Send the process a signal."""

    name: str
    signal: signal.Signals


@dataclass(frozen=True, slots=True)
class Say:
    """Tell the person who watches."""

    text: str


Effect: TypeAlias = Spawn | Send | Say


@dataclass(slots=True, kw_only=True)
class _Child:
    stage: int
    phase: Phase = Phase.NEW
    starts: int = 0
    began: float = 0.0
    resume: float = 0.0
    ends_in_a_row: int = 0
    steady: bool = False
    served: bool = False
    killed: bool = field(default=False)
    optional: bool = False


class Supervision:
    """What is known of a set of processes, and what follows from it.

    `stages` gives for each process, in the order of starting, in which stage of a stop it is told
    to end: all of stage 0 have ended before those of stage 1 are told. Without an `optional` one
    the others go on, even where it can't run at all.
    """

    def __init__(
        self,
        stages: Mapping[str, int],
        policy: Policy | None = None,
        *,
        optional: Container[str] = (),
    ) -> None:
        self._children = {
            name: _Child(stage=stage, optional=name in optional) for name, stage in stages.items()
        }
        self._policy = policy or Policy()
        self._stage: int | None = None
        self._deadline = 0.0
        self.exit_code = 0
        """What the supervisor itself ends with."""

    @property
    def stopping(self) -> bool:
        """Tells whether everything is being ended."""
        return self._stage is not None

    @property
    def finished(self) -> bool:
        """Tells whether no process is left and none will be started."""
        return self.stopping and all(
            child.phase is Phase.ENDED for child in self._children.values()
        )

    def phase(self, name: str) -> Phase:
        """Tells where a process stands."""
        return self._children[name].phase

    def starts(self, name: str) -> int:
        """Counts how often a process has been started."""
        return self._children[name].starts

    def next_wake(self) -> float | None:
        """Gives the time at which `tick` has something to do; None: it has not."""
        times = [c.resume for c in self._children.values() if c.phase is Phase.PAUSED]
        if self.stopping and any(not c.killed for c in self._living()):
            times.append(self._deadline)
        return min(times, default=None)

    def begin(self, now: float) -> list[Effect]:
        """Starts everything."""
        return [self._start(name, now) for name in self._children]

    def exited(
        self, name: str, code: int, last_line: str, now: float, *, served: bool = False
    ) -> list[Effect]:
        """Takes note of an end; a negative code is the signal that caused it.

        `served` tells whether the process had said that it was ready.
        """
        child = self._children[name]
        child.served = child.served or served
        if self.stopping:
            child.phase = Phase.ENDED
            effects: list[Effect] = []
            if code not in (0, -signal.SIGTERM, -signal.SIGKILL):
                effects.append(Say(f"{name} ended with {_how(code)}{_quoted(last_line)}"))
            return effects + self._next_stage(now)
        if now - child.began >= self._policy.steady_after_s:
            child.steady, child.ends_in_a_row = True, 0
        child.ends_in_a_row += 1
        ended = f"{name} ended ({_how(code)}){_quoted(last_line)}"
        if self._hopeless(child, code):
            child.phase = Phase.ENDED
            self.exit_code = 1
            return [Say(f"{ended}"), Say(f"{name} can't run; stopping."), *self._stop(now, 0.0)]
        pause_s = self._pause_s(child)
        child.phase, child.resume = Phase.PAUSED, now + pause_s
        if child.ends_in_a_row < self._policy.loop_after:
            return [Say(f"{ended}; starting it again")]
        return [
            Say(f"{ended}"),
            Say(
                f"{name} is in a crash loop: {child.ends_in_a_row} ends in a row; "
                f"next try in {pause_s:g} s"
            ),
        ]

    def tick(self, now: float) -> list[Effect]:
        """Does what has become due."""
        due: list[Effect] = [
            self._start(name, now)
            for name, child in self._children.items()
            if child.phase is Phase.PAUSED and child.resume <= now
        ]
        if self.stopping and now >= self._deadline:
            due += self._kill(child.stage for child in self._living() if child.stage == self._stage)
        return due

    def stop(self, now: float, limit_s: float) -> list[Effect]:
        """Ends everything in its order, the first stage within `limit_s`; a second call at once."""
        if self.stopping:
            return self._kill(child.stage for child in self._living())
        return self._stop(now, limit_s)

    def _stop(self, now: float, limit_s: float) -> list[Effect]:
        for child in self._children.values():
            if child.phase in (Phase.NEW, Phase.PAUSED):
                child.phase = Phase.ENDED
        self._stage = -1
        return self._next_stage(now, limit_s)

    def _next_stage(self, now: float, limit_s: float | None = None) -> list[Effect]:
        """Tells the processes of the next stage to end, once those of the present one have."""
        stages = {child.stage for child in self._living()}
        if self._stage is None or self._stage in stages or not stages:
            return []
        self._stage = min(stages)
        self._deadline = now + (self._policy.stop_s if limit_s is None else limit_s)
        effects: list[Effect] = []
        for name, child in self._children.items():
            if child.phase is Phase.RUNNING and child.stage == self._stage:
                child.phase = Phase.STOPPING
                effects.append(Send(name, signal.SIGTERM))
        return effects

    def _kill(self, stages: Iterator[int]) -> list[Effect]:
        wanted = set(stages)
        effects: list[Effect] = []
        for name, child in self._children.items():
            living = child.phase in (Phase.RUNNING, Phase.STOPPING)
            if living and child.stage in wanted and not child.killed:
                child.killed = True
                effects.append(Send(name, signal.SIGKILL))
        return effects

    def _start(self, name: str, now: float) -> Spawn:
        child = self._children[name]
        child.phase, child.began = Phase.RUNNING, now
        child.starts += 1
        return Spawn(name)

    def _living(self) -> Sequence[_Child]:
        phases = (Phase.RUNNING, Phase.STOPPING)
        return [child for child in self._children.values() if child.phase in phases]

    def _hopeless(self, child: _Child, code: int) -> bool:
        if child.served or child.optional:
            return False  # it can work; a worker's exit code may be that of a task that ended it
        if code == USAGE:
            return True
        never = not child.steady and child.starts == child.ends_in_a_row
        # A signal comes from outside and says nothing about whether the process can work.
        return never and code > 0 and code != RESTART and child.starts >= self._policy.first_starts

    def _pause_s(self, child: _Child) -> float:
        doublings = min(child.ends_in_a_row - 1, 20)
        return min(self._policy.longest_pause_s, self._policy.first_pause_s * 2.0**doublings)


def _how(code: int) -> str:
    if code < 0:
        return f"killed by {signal.Signals(-code).name}" if -code in _SIGNALS else f"signal {-code}"
    return f"exit code {code}"


_SIGNALS = frozenset(signal.Signals)


def _quoted(last_line: str) -> str:
    return f"; its log ends: {last_line}" if last_line else ""

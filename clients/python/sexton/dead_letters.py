"""Dead letters as values: runs that ended without success and wait for a person."""

from __future__ import annotations

from dataclasses import dataclass

from sexton.runs import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A run that waits for a person."""

    run: Run
    """Without output; with its error."""
    fingerprint: str
    """Equal for failures that look alike: job, error kind and message without numbers and ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requeued:
    """What became of one dead letter."""

    run: str
    """The dead run, `NAMESPACE/JOB/RUN`."""
    new_run: str
    """The new one; empty: none was started."""
    reason: str
    """Why none was started: then it stays on the list."""

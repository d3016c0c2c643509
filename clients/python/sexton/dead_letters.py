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
    job_deleted: bool = False
    """Its job was deleted, or is another one by now: it can't be requeued, only purged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requeued:
    """What became of one dead letter."""

    run: str
    """The dead run, `NAMESPACE/JOB/RUN`."""
    new_run: str
    """The new one; empty: none was started, or it was a dry run."""
    reason: str
    """Why none was, or would be, started: then it stays on the list."""

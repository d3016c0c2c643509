"""What the worker counts, as plain integers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Counters:
    """Since the start of the process."""

    begun: int = 0
    """Attempts begun."""
    completed: int = 0
    """Completions that the queue accepted."""
    refused: int = 0
    """Completions that the queue refused: the attempt had been replaced."""
    unreported: int = 0
    """Attempts that had ended when their session was lost: nobody hears of their end."""
    returned: int = 0
    """Assignments given back unbegun."""
    dropped: int = 0
    """Assignments for another session, or that came when the own one was not trusted."""
    repeated: int = 0
    """Assignments of attempts that had begun already."""
    revoked: int = 0
    """Attempts that the queue took away."""
    timed_out: int = 0
    """Attempts that took longer than their timeout."""
    sessions: int = 0
    """Sessions opened."""
    sessions_lost: int = 0
    """Sessions given up because no heartbeat was answered in time."""
    older_owners: int = 0
    """Answers of owners that had been replaced."""

"""What a queue's owner has done since the start of its process; plain numbers, read when asked."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Counters:
    """Rising numbers. Whatever is lost, repeated or repaired has its own."""

    takeovers: int = 0
    """Times that this process became the owner."""
    arrived: int = 0
    """Runs that came on a push stream."""
    assigned: int = 0
    """Attempts committed as assigned."""
    resent: int = 0
    """Attempts sent again with the same token, because a worker did not list them."""
    completed: int = 0
    """Completions that counted."""
    repeated: int = 0
    """Completions that had counted before."""
    refused: int = 0
    """Reports of attempts that are no longer the reporter's."""
    returned: int = 0
    """Attempts given back unbegun."""
    lost: int = 0
    """Attempts whose session ended."""
    retried: int = 0
    """Runs back in line after a failure."""
    settled: int = 0
    """Runs that ended."""
    dead_letters: int = 0
    """Of them, dead letters."""
    sessions_opened: int = 0
    """New sessions."""
    sessions_resumed: int = 0
    """Sessions that came back."""
    sessions_in_grace: int = 0
    """Sessions whose grace passed after their stream had ended."""
    sessions_expired: int = 0
    """Sessions whose full time passed."""
    refused_commits: int = 0
    """Changes that a compare refused."""
    unknown_commits: int = 0
    """Changes whose outcome had to be read."""
    no_space: int = 0
    """Changes for which the store had no space."""
    found: int = 0
    """Runs found by reading the line, of which no push had told."""

"""What a leader counts. Plain integers, shown by observable instruments."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Since the process's start, over all tenures. Whatever is lost or repaired has its own."""

    tenures: int = 0
    """Times that this replica became the leader of a shard."""
    looks: int = 0
    """Looks at a job."""
    runs: int = 0
    """Runs that were committed."""
    ahead: int = 0
    """Starts that were decided before they were due."""
    decisions: int = 0
    """Ranges of what was not fired, that were committed."""
    triggers: int = 0
    """Starts that somebody asked for and that were answered."""
    refused: int = 0
    """Transactions that met a change, or a run that had ended: read and decided again."""
    too_early: int = 0
    """Transactions that came before their time by the store's clock."""
    unknown: int = 0
    """Transactions whose outcome was not known, and was found by reading."""
    postponed: int = 0
    """Looks that came to nothing because the store could not be used."""
    unreadable: int = 0
    """Looks at jobs whose records can't be read."""
    oversized: int = 0
    """Looks at jobs about which not even one decision fits a transaction."""
    pushed: int = 0
    """Runs sent to the owners of queues."""
    unpushed: int = 0
    """Runs not sent: no stream, or too many waited. The owner finds them by reading."""
    ends_asked: int = 0
    """Requests to end a run, repeated ones too."""
    settled: int = 0
    """Notices of runs that had ended."""
    rearmed: int = 0
    """Timers that should have stood and did not, written again."""
    stale_timers: int = 0
    """Timers that stood for no state, removed."""
    horizons: int = 0
    """Loadings of the horizon."""
    compacted: int = 0
    """Times that the watch of definitions had lost its place, and everything was read again."""
    deleted_jobs: int = 0
    """Deleted jobs of which nothing is left to do."""
    removed_runs: int = 0
    """Ended runs removed by retention."""
    removed_decisions: int = 0
    """Decisions removed by retention."""
    removed_versions: int = 0
    """Former definitions removed by retention."""
    removed_former_jobs: int = 0
    """What was kept of deleted jobs, removed by retention."""
    removed_requests: int = 0
    """Requests removed that are too old to be repeated."""
    removed_backfills: int = 0
    """Backfills removed that had ended long ago."""

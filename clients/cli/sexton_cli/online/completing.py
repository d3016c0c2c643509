"""What the shell offers after a Tab: names that exist in the mesh, or nothing."""

from __future__ import annotations

from itertools import islice
from typing import Final

from sexton import errors
from sexton.client import Client

_OFFERED: Final = 50
_TIMEOUT_S: Final = 1.0
"""Somebody waits with a finger on the key."""


def jobs(incomplete: str) -> list[str]:
    """Gives names of jobs that begin so: `JOB`, or `NAMESPACE/JOB` where a namespace is named."""
    namespace, slash, prefix = incomplete.rpartition("/")
    try:
        with Client(namespace=namespace or None, timeout_s=_TIMEOUT_S, retry_for_s=0.0) as client:
            found = islice(client.jobs.list(prefix=prefix), _OFFERED)
            return [job.full_name if slash else job.name for job in found]
    except errors.SextonError:
        return []


def runs(incomplete: str) -> list[str]:
    """Gives runs that begin so, live ones first, the newest first."""
    job, slash, prefix = incomplete.rpartition("/")
    if not slash:
        return [f"{name}/" for name in jobs(incomplete)]
    try:
        with Client(timeout_s=_TIMEOUT_S, retry_for_s=0.0) as client:
            found = islice(client.runs.list(job), _OFFERED)
            return [f"{job}/{run.id}" for run in found if run.id.startswith(prefix)]
    except errors.SextonError:
        return []

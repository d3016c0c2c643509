"""What can be done to a mesh: each action asks first, and shows how a program would do the same."""

from __future__ import annotations

from starlette.routing import Route

from sexton_console.web.actions import of_backfills, of_jobs, of_mesh, of_runs
from sexton_console.web.actions.asking import endpoint


def routes() -> list[Route]:
    """Gives the routes of all actions."""
    return [
        Route(path, endpoint(find), methods=["GET", "POST"])
        for path, find in (
            ("/jobs/{namespace}/{job}/pause", of_jobs.pause),
            ("/jobs/{namespace}/{job}/resume", of_jobs.resume),
            ("/jobs/{namespace}/{job}/trigger", of_jobs.trigger),
            ("/jobs/{namespace}/{job}/delete", of_jobs.delete),
            ("/jobs/{namespace}/{job}/backfill", of_backfills.start),
            ("/jobs/{namespace}/{job}/backfills/{backfill}/cancel", of_backfills.cancel),
            ("/runs/{namespace}/{job}/{run}/cancel", of_runs.cancel),
            ("/runs/{namespace}/{job}/{run}/terminate", of_runs.terminate),
            ("/runs/{namespace}/{job}/{run}/retry", of_runs.retry),
            ("/queues/{queue}/pause", of_mesh.pause_queue),
            ("/queues/{queue}/resume", of_mesh.resume_queue),
            ("/workers/{session}/drain", of_mesh.drain_worker),
            ("/dead-letters/requeue", of_mesh.requeue),
        )
    ]

"""The work of `sexton dead`, `queues`, `workers` and `store status`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from difflib import get_close_matches
from itertools import islice
from typing import Any

from sexton.client import Client
from sexton.dead_letters import DeadLetter, Requeued
from sexton.mesh import Queue, StoreStatus, Worker
from sexton_cli.errors import NotFound, UsageError
from sexton_cli.online import runs, times
from sexton_cli.output import ListFormat, print_data, print_line, print_table

_LOOKED_AT = 2_000
"""Jobs among which one is looked for that names a queue."""
_UNITS = ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"))


def show_dead(letters: Iterable[DeadLetter], output: ListFormat, limit: int) -> None:
    """Prints dead letters, one a line, up to a limit; where there are more, a table says so."""
    found = list(islice(letters, limit + 1))
    more = len(found) > limit
    found = found[:limit]
    if output is ListFormat.NAME:
        for each in found:
            print_line(each.run.full_name)
        return
    data = [
        runs.run_data(each.run) | {"fingerprint": each.fingerprint, "job_deleted": each.job_deleted}
        for each in found
    ]
    if print_data(data, output):
        return
    print_table(
        ("RUN", "STATE", "ENDED", "FINGERPRINT", "ERROR"),
        [
            (
                each.run.full_name,
                each.run.state.value + (", job deleted" if each.job_deleted else ""),
                times.utc(each.run.end_time),
                each.fingerprint,
                f"{each.run.error.kind}: {each.run.error.message}" if each.run.error else "",
            )
            for each in found
        ],
    )
    if more:
        print_line(runs.MORE.format(limit))
    if any(each.job_deleted for each in found):
        print_line("of a deleted job nothing can be requeued; `sexton dead purge` takes it off")


def show_requeued(done: Sequence[Requeued], output: ListFormat, *, dry_run: bool) -> None:
    """Prints what became of dead letters."""
    if output is ListFormat.NAME:
        for each in done:
            if not each.reason:
                print_line(each.new_run or each.run)
        return
    data = [
        {"run": each.run, "new_run": each.new_run or None, "reason": each.reason or None}
        for each in done
    ]
    if print_data(data, output):
        return
    for each in done:
        if each.reason:
            print_line(f"{each.run}: {'would stay' if dry_run else 'stays'}: {each.reason}")
        elif dry_run:
            print_line(f"{each.run}: to be requeued")
        else:
            print_line(f"{each.run}: requeued as {each.new_run}")
    if not done:
        print_line("no dead letter fits")


def show_queues(queues: Sequence[Queue], output: ListFormat) -> None:
    """Prints queues, one a line."""
    if output is ListFormat.NAME:
        for queue in queues:
            print_line(queue.name)
    elif not print_data([_queue_data(queue) for queue in queues], output):
        print_table(
            ("QUEUE", "READY", "DELAYED", "RUNNING", "SLOTS", "OLDEST WAITS", "STATE"),
            [
                (
                    queue.name,
                    queue.ready,
                    queue.delayed,
                    queue.running,
                    queue.slots,
                    times.span(queue.oldest_ready) if queue.ready else times.NEVER,
                    _state(queue),
                )
                for queue in queues
            ],
        )


def show_queue(queue: Queue) -> None:
    """Prints how a queue stands after a change."""
    print_line(f"{queue.name}: {_state(queue)}")


def show_whether_unused(client: Client, queue: Queue) -> None:
    """Says of a queue that nothing uses that this is so: its name may be a mistake."""
    if queue.ready or queue.delayed or queue.running or queue.slots:
        return
    jobs = client.jobs.list(all_namespaces=True, full=True)
    looked_at = list(islice(jobs, _LOOKED_AT + 1))
    named = {job.spec.queue for job in looked_at if job.spec is not None}
    if queue.name in named or len(looked_at) > _LOOKED_AT:
        return
    known = sorted((named | {each.name for each in client.mesh.queues()}) - {queue.name})
    near = get_close_matches(queue.name, known, n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]}?" if near else ""
    print_line(f"note: nothing uses this queue: no job, no run, no worker{hint}")


def show_workers(workers: Sequence[Worker], output: ListFormat) -> None:
    """Prints workers, one a line."""
    if output is ListFormat.NAME:
        for worker in workers:
            print_line(worker.session)
        return
    if print_data([_worker_data(worker) for worker in workers], output):
        return
    print_table(
        ("WORKER", "SESSION", "QUEUES", "ALLOWS", "RUNNING", "HEARD", "STATE"),
        [
            (
                worker.name,
                worker.session,
                ", ".join(worker.queues),
                ", ".join((*worker.kinds, *(("python",) if worker.tasks else ()))) or "nothing",
                f"{worker.running} of {worker.slots}",
                f"{times.span(worker.silent)} ago",
                _worker_state(worker),
            )
            for worker in workers
        ],
    )


def session_of(workers: Sequence[Worker], name: str) -> Worker:
    """Finds a worker by its session's id, or by its name.

    Raises:
        NotFound: there is none.
        UsageError: several have this name.
    """
    found = [each for each in workers if name in (each.session, each.name)]
    if not found:
        names = ", ".join(sorted({each.name for each in workers})) or "none"
        raise NotFound(f"there is no worker {name!r}; there are: {names}")
    if len(found) > 1:
        sessions = ", ".join(each.session for each in found)
        raise UsageError(f"{len(found)} workers are called {name!r}; name a session: {sessions}")
    return found[0]


def show_store(store: StoreStatus, output: ListFormat) -> None:
    """Prints how the store is."""
    data = {
        "revision": store.revision,
        "used_bytes": store.used_bytes,
        "map_bytes": store.map_bytes,
        "max_bytes": store.max_bytes,
        "disk_free_bytes": store.disk_free_bytes,
        "full": store.full,
        "watches": store.watches,
        "clock_disputed": store.clock_disputed,
        "skew_ms": _milliseconds(store.skew),
        "cluster_id": store.cluster_id,
        "incarnation": store.incarnation,
        "leases": [
            {
                "name": lease.name,
                "token": lease.token,
                "holder": lease.holder,
                "address": lease.address,
                "ttl_ms": _milliseconds(lease.ttl),
            }
            for lease in store.leases
        ],
    }
    if print_data(data, output):
        return
    clock = "DISPUTED: see `sexton clock`" if store.clock_disputed else "agreed"
    for name, value in (
        ("state", "FULL: only deletes and settlements are taken" if store.full else "serves"),
        ("revision", store.revision),
        ("records", f"{_size(store.used_bytes)} of at most {_size(store.max_bytes)}"),
        ("disk", f"{_size(store.disk_free_bytes)} free"),
        ("clock", f"{clock}, {_milliseconds(store.skew):+d} ms"),
        ("watches", store.watches),
        ("cluster", f"{store.cluster_id}, incarnation {store.incarnation}"),
    ):
        print_line(f"{name:9} {value}")
    print_line()
    print_table(
        ("LEASE", "TOKEN", "HOLDER", "ADDRESS", "TIME"),
        [
            (lease.name, lease.token, lease.holder, lease.address, times.span(lease.ttl))
            for lease in store.leases
        ],
    )


def _queue_data(queue: Queue) -> dict[str, Any]:
    return {
        "name": queue.name,
        "ready": queue.ready,
        "delayed": queue.delayed,
        "running": queue.running,
        "slots": queue.slots,
        "oldest_ready_ms": _milliseconds(queue.oldest_ready),
        "paused": queue.paused,
        "pause_reason": queue.pause_reason or None,
    }


def _worker_data(worker: Worker) -> dict[str, Any]:
    return {
        "session": worker.session,
        "name": worker.name,
        "queues": list(worker.queues),
        "tasks": list(worker.tasks),
        "kinds": list(worker.kinds),
        "slots": worker.slots,
        "running": worker.running,
        "runs": list(worker.runs),
        "silent_ms": _milliseconds(worker.silent),
        "connected": worker.connected,
        "draining": worker.draining,
        "software_version": worker.software_version,
    }


def _state(queue: Queue) -> str:
    if not queue.paused:
        return "active" if queue.slots else "active, no worker"
    return f"paused: {queue.pause_reason}" if queue.pause_reason else "paused"


def _worker_state(worker: Worker) -> str:
    if worker.draining:
        return "draining"
    return "connected" if worker.connected else "away"


def _milliseconds(duration: timedelta) -> int:
    return round(duration / timedelta(milliseconds=1))


def _size(size: int) -> str:
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"

"""From messages of the API to values: the ledger, backfills, dead letters, queues, the store."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from sexton import backfills, dead_letters, jobs, ledger, mesh
from sexton._messages import run_of, time_of
from sexton._spec_messages import OVERLAPS, spec_of
from sexton._values import EnumWords, datetime_of, parts_of
from sexton.errors import Unimplemented
from sexton.v1 import backfill_pb2, dead_letter_pb2, job_pb2, scheduler_pb2

BACKFILL_ORDERS: Final = EnumWords(backfill_pb2.BackfillOrder, "BACKFILL_ORDER_")
_BACKFILL_STATES: Final = EnumWords(backfill_pb2.BackfillState, "BACKFILL_STATE_")


def preview_of(message: scheduler_pb2.PreviewJobResponse) -> ledger.Preview:
    """Gives the next nominal times."""
    return ledger.Preview(
        times=tuple(
            ledger.PreviewedTime(
                nominal_time=datetime_of(each.nominal_time),
                due_time=datetime_of(each.due_time),
                local_time=each.local_time,
                note=each.note,
            )
            for each in message.times
        ),
        complete=message.complete,
        descriptions=tuple(message.descriptions),
        warnings=tuple(message.warnings),
    )


def version_of(message: scheduler_pb2.JobVersion) -> ledger.JobVersion:
    """Gives a definition with what it rules."""
    return ledger.JobVersion(
        version=message.version,
        spec=spec_of(message.spec),
        after_time=time_of(message, "after_time"),
        until_time=time_of(message, "until_time"),
        source=message.source,
    )


def entry_of(message: scheduler_pb2.LedgerEntry) -> ledger.LedgerEntry:
    """Gives what became of a nominal time."""
    return ledger.LedgerEntry(
        nominal_time=datetime_of(message.nominal_time),
        decision=_decision(message.decision),
        reason=message.reason,
        blocked_by=_full(message.blocked_by),
        run=run_of(message.run) if message.HasField("run") else None,
        decide_time=time_of(message, "decide_time"),
        job_version=message.job_version,
    )


def _decision(word: str) -> ledger.Decision | None:
    try:
        return ledger.Decision(word) if word else None
    except ValueError:
        raise Unimplemented(
            f"decision: the mesh answers with {word!r}, which this version of the SDK does not "
            f"know; update it"
        ) from None


def load_of(message: scheduler_pb2.ForecastLoadResponse) -> ledger.Load:
    """Gives the load to come."""
    return ledger.Load(
        intervals=tuple(
            ledger.LoadInterval(
                start_time=datetime_of(each.start_time),
                count=each.count,
                jobs=tuple(_full(name) for name in each.jobs),
            )
            for each in message.intervals
        ),
        total=message.total,
        jobs=message.jobs,
        truncated=message.truncated,
    )


def backfill_of(message: backfill_pb2.Backfill) -> backfills.Backfill:
    """Gives a backfill."""
    namespace, job, backfill = parts_of(message.name)
    unsaid = message.overlap == job_pb2.OVERLAP_POLICY_UNSPECIFIED
    return backfills.Backfill(
        namespace=namespace,
        job=job,
        id=backfill,
        job_uid=message.job_uid,
        start_time=time_of(message, "start_time"),
        end_time=time_of(message, "end_time"),
        order=BACKFILL_ORDERS.word(
            backfills.BackfillOrder, message.order, backfills.BackfillOrder.OLDEST_FIRST
        ),
        overlap=None if unsaid else OVERLAPS.word(jobs.Overlap, message.overlap),
        skip_succeeded=message.skip_succeeded,
        job_version=message.job_version,
        state=_BACKFILL_STATES.word(backfills.BackfillState, message.state),
        total=message.total,
        started=message.started,
        skipped=message.skipped,
        waits_for=_full(message.waits_for),
        create_time=time_of(message, "create_time"),
        ended_time=time_of(message, "end_state_time"),
    )


def dead_letter_of(message: dead_letter_pb2.DeadLetter) -> dead_letters.DeadLetter:
    """Gives a dead letter."""
    return dead_letters.DeadLetter(
        run=run_of(message.run),
        fingerprint=message.fingerprint,
        job_deleted=message.job_deleted,
    )


def requeued_of(message: dead_letter_pb2.Requeued) -> dead_letters.Requeued:
    """Gives what became of a dead letter."""
    return dead_letters.Requeued(
        run=_full(message.run), new_run=_full(message.new_run), reason=message.reason
    )


def queue_of(message: scheduler_pb2.Queue) -> mesh.Queue:
    """Gives a queue."""
    return mesh.Queue(
        name=message.name,
        shard=message.shard,
        ready=message.ready,
        delayed=message.delayed,
        running=message.running,
        oldest_ready=timedelta(milliseconds=message.oldest_ready_ms),
        slots=message.slots,
        paused=message.paused,
        pause_reason=message.pause_reason,
    )


def worker_of(message: scheduler_pb2.WorkerSession) -> mesh.Worker:
    """Gives a worker."""
    return mesh.Worker(
        session=message.session,
        name=message.worker,
        queues=tuple(message.queues),
        tasks=tuple(message.tasks),
        kinds=tuple(message.kinds),
        slots=message.slots,
        runs=tuple(_full(name) for name in message.runs),
        running=message.running,
        silent=timedelta(milliseconds=message.silent_ms),
        connected=message.connected,
        draining=message.draining,
        software_version=message.software_version,
    )


def store_of(message: scheduler_pb2.GetStoreStatusResponse) -> mesh.StoreStatus:
    """Gives the store's state."""
    return mesh.StoreStatus(
        revision=message.revision,
        used_bytes=message.used_bytes,
        map_bytes=message.map_bytes,
        max_bytes=message.max_bytes,
        disk_free_bytes=message.disk_free_bytes,
        full=message.full,
        watches=message.watches,
        clock_disputed=message.clock_disputed,
        skew=timedelta(milliseconds=message.wall_skew_ms),
        cluster_id=message.cluster_id,
        incarnation=message.incarnation,
        leases=tuple(
            mesh.Lease(
                name=each.name,
                token=each.token,
                holder=each.holder,
                address=each.address,
                ttl=timedelta(milliseconds=each.ttl_ms),
            )
            for each in message.leases
        ),
    )


def _full(name: str) -> str:
    """Gives `NAMESPACE/JOB[/...]` of a resource's name; what is none stays as it is."""
    return "/".join(parts_of(name)) if name.startswith("namespaces/") else name

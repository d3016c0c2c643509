"""Between the wire and the vocabulary, on the store's side. Protobuf types stop here.

Shapes that only the wire can have (an operand or a write that is not there) are refused here; all
bounds are `sexton_runtime.kv.validate`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from sexton.errors import InvalidArgument
from sexton.internal.v1 import store_pb2 as pb
from sexton_runtime.kv._wire import compare_from_wire
from sexton_runtime.kv.status import ClockReading
from sexton_runtime.kv.types import (
    Delete,
    KeyValue,
    Lease,
    Limits,
    Op,
    Outcome,
    Put,
    RevisionEvents,
    Txn,
    TxnResult,
)
from sexton_store.contract import EngineStatus

_OUTCOMES: dict[Outcome, pb.Outcome.ValueType] = {
    outcome: pb.Outcome.Value(f"OUTCOME_{outcome.name}") for outcome in Outcome
}
_KINDS = {1: pb.Event.KIND_PUT, 2: pb.Event.KIND_DELETE}
_make = tuple.__new__
"""Makes a named tuple of what is known to be whole; its own constructor costs twice as much."""
_CLOCK_STATES = {
    1: pb.CLOCK_STATE_STEADY,
    2: pb.CLOCK_STATE_DISPUTED,
    3: pb.CLOCK_STATE_FOLLOWING,
}


def txns_from_wire(txns: Sequence[pb.Txn]) -> tuple[Txn, ...]:
    """Reads the transactions of one Commit."""
    return tuple([_txn_from_wire(txn, index) for index, txn in enumerate(txns)])


def op_from_wire(op: pb.Op | pb.CompareAndSetRequest, path: str) -> Op:
    """Reads one write; `path` names the field that holds it."""
    kind = op.WhichOneof("write")
    if kind == "put":
        return Put(op.key, op.put)
    if kind == "delete" and op.delete:
        return Delete(op.key)
    given = "nothing" if kind is None else "delete: false"
    raise InvalidArgument(f"{path}write", given, "put: VALUE, or delete: true")


def results_to_wire(results: Iterable[TxnResult]) -> list[pb.TxnResult]:
    """Writes the answers to a commit."""
    return [result_to_wire(result) for result in results]


def result_to_wire(result: TxnResult) -> pb.TxnResult:
    """Writes the answer to one transaction."""
    outcome, revision, failed_compare, found_mod_revision = result
    return pb.TxnResult(
        outcome=_OUTCOMES[outcome],
        revision=revision,
        failed_compare=failed_compare,
        found_mod_revision=found_mod_revision,
    )


def kv_to_wire(kv: KeyValue) -> pb.KeyValue:
    """Writes one key."""
    key, value, create_revision, mod_revision, version = kv
    return pb.KeyValue(
        key=key,
        value=value,
        create_revision=create_revision,
        mod_revision=mod_revision,
        version=version,
    )


def add_kvs(
    answer: pb.GetResponse | pb.ScanResponse, kvs: Sequence[KeyValue], *, packed: bool
) -> None:
    """Writes keys into an answer, in columns for whoever reads them so."""
    if not packed:
        answer.kvs.extend([kv_to_wire(kv) for kv in kvs])
    elif kvs:
        keys, values, *numbers = zip(*kvs, strict=True)
        answer.packed.keys.extend(keys)
        if any(values):
            answer.packed.values.extend(values)
        answer.packed.numbers.extend(chain(*numbers))


def revision_to_wire(revision: RevisionEvents) -> pb.RevisionEvents:
    """Writes the changes of one transaction."""
    return pb.RevisionEvents(
        revision=revision.revision,
        mesh_time_ns=revision.mesh_time_ns,
        events=[
            pb.Event(kind=_KINDS[event.kind], kv=kv_to_wire(event.kv)) for event in revision.events
        ],
    )


def lease_to_wire(lease: Lease) -> pb.Lease:
    """Writes a lease."""
    return pb.Lease(
        name=lease.name,
        holder=lease.holder,
        token=lease.token,
        ttl_ms=lease.ttl_ms,
        value=lease.value,
        remaining_ms=lease.remaining_ms,
    )


def clock_to_wire(clock: ClockReading) -> pb.GetClockResponse:
    """Writes the clock."""
    return pb.GetClockResponse(
        mesh_time_ns=clock.mesh_time_ns,
        wall_time_ns=clock.wall_time_ns,
        state=_CLOCK_STATES[clock.state],
        dispute=clock.dispute,
    )


def status_to_wire(status: EngineStatus, limits: Limits, version: str) -> pb.StatusResponse:
    """Writes what the store is and how it is."""
    usage, clock = status.usage, status.clock
    return pb.StatusResponse(
        cluster_id=status.cluster_id,
        incarnation=status.incarnation,
        format_version=status.format_version,
        coordinator_shards=status.coordinator_shards,
        queue_shards=status.queue_shards,
        revision=status.revision,
        mesh_time_ns=clock.mesh_time_ns,
        oldest_watch_revision=status.oldest_watch_revision,
        limits=pb.Limits(**limits._asdict()),
        full=status.full,
        used_bytes=usage.used_bytes,
        map_bytes=usage.map_bytes,
        max_map_bytes=usage.max_map_bytes,
        disk_free_bytes=usage.disk_free_bytes,
        keys=usage.keys,
        watches=status.watches,
        leases=status.leases,
        clock_disputed=_CLOCK_STATES[clock.state] == pb.CLOCK_STATE_DISPUTED,
        software_version=version,
        oldest_reader_ms=usage.oldest_reader_ms,
    )


def _txn_from_wire(txn: pb.Txn, index: int) -> Txn:
    compares = [
        compare_from_wire(each, f"txns[{index}].compares[{at}]")
        for at, each in enumerate(txn.compares)
    ]
    return _make(
        Txn,
        (
            tuple(compares),
            _ops_from_wire(txn.then, index, "then"),
            _ops_from_wire(txn.orelse, index, "orelse"),
            txn.not_before_time_ns,
            txn.not_after_time_ns,
            txn.use_reserve,
        ),
    )


def _ops_from_wire(ops: Sequence[pb.Op], txn: int, branch: str) -> tuple[Op, ...]:
    if not ops:
        return ()
    read: list[Op] = []
    for index, op in enumerate(ops):
        value = op.put
        kind = "put" if value else op.WhichOneof("write")
        if kind == "put":
            read.append(_make(Put, (op.key, value)))
        elif kind == "delete" and op.delete:
            read.append(_make(Delete, (op.key,)))
        else:
            read.append(op_from_wire(op, f"txns[{txn}].{branch}[{index}]."))
    return tuple(read)

"""Between the vocabulary and the wire, on the client's side. Protobuf types stop here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat

from sexton.errors import InvalidArgument
from sexton.internal.v1 import store_pb2 as pb
from sexton_runtime.kv.status import ClockReading, ClockState, StoreStatus
from sexton_runtime.kv.types import (
    Acquired,
    Compare,
    Event,
    EventKind,
    KeyValue,
    Lease,
    Limits,
    Op,
    Outcome,
    Put,
    Renewal,
    RevisionEvents,
    Target,
    Txn,
    TxnResult,
    WatchBatch,
)

_TARGETS = {target.name.lower(): target for target in Target}
_make = tuple.__new__
"""Makes a named tuple of what is known to be whole; its own constructor costs twice as much."""
_OUTCOMES = {int(outcome): outcome for outcome in Outcome}
_KINDS = {int(kind): kind for kind in EventKind}


def add_txns(request: pb.CommitStreamRequest, txns: Iterable[Txn]) -> None:
    """Writes transactions into a request.

    In place: to build each write by itself and have it copied costs two and a half times as much.
    """
    for compares, then, orelse, not_before_ns, not_after_ns, use_reserve in txns:
        into = request.txns.add(
            not_before_time_ns=not_before_ns,
            not_after_time_ns=not_after_ns,
            use_reserve=use_reserve,
        )
        add = into.compares.add
        for compare in compares:
            make_compare(add, compare)
        _add_ops(into.then.add, then)
        if orelse:
            _add_ops(into.orelse.add, orelse)


def _add_ops(add: Callable[..., pb.Op], ops: Iterable[Op]) -> None:
    for op in ops:
        if isinstance(op, Put):
            add(key=op.key, put=op.value)
        else:
            add(key=op.key, delete=True)


def make_compare(make: Callable[..., pb.Compare], compare: Compare) -> pb.Compare:
    """Writes a compare with what makes, or adds, its message."""
    key, target, operand = compare
    if target is Target.MOD_REVISION:
        return make(key=key, mod_revision=operand)
    if target is Target.EXISTS:
        return make(key=key, exists=operand)
    if target is Target.CREATE_REVISION:
        return make(key=key, create_revision=operand)
    if target is Target.VERSION:
        return make(key=key, version=operand)
    return make(key=key, value=operand)


def compare_from_wire(compare: pb.Compare, path: str) -> Compare:
    """Reads a compare; raises `InvalidArgument`, with the path, where it asks for nothing."""
    operand = compare.WhichOneof("operand")
    if operand is None:
        raise InvalidArgument(f"{path}.operand", "nothing", f"one of {', '.join(_TARGETS)}")
    return _make(Compare, (compare.key, _TARGETS[operand], getattr(compare, operand)))


def results_from_wire(answer: pb.CommitStreamResponse) -> tuple[TxnResult, ...]:
    """Reads the answers to a commit."""
    if answer.committed_revisions:
        return tuple(
            [
                _make(TxnResult, (Outcome.COMMITTED, revision, 0, 0))
                for revision in answer.committed_revisions
            ]
        )
    return tuple([result_from_wire(result) for result in answer.results])


def result_from_wire(result: pb.TxnResult) -> TxnResult:
    """Reads the answer to one transaction."""
    return TxnResult(
        _OUTCOMES[result.outcome],
        result.revision,
        result.failed_compare,
        result.found_mod_revision,
    )


def kv_from_wire(kv: pb.KeyValue) -> KeyValue:
    """Reads one key."""
    return KeyValue(kv.key, kv.value, kv.create_revision, kv.mod_revision, kv.version)


def kvs_from_wire(answer: pb.GetResponse | pb.ScanResponse) -> tuple[KeyValue, ...]:
    """Reads the keys of an answer, in columns or, from an older store, one by one."""
    keys, numbers = [*answer.packed.keys], [*answer.packed.numbers]
    if not keys:
        return tuple([kv_from_wire(kv) for kv in answer.kvs])
    count = len(keys)
    values = [*answer.packed.values] or repeat(b"", count)
    created, modified = numbers[:count], numbers[count : 2 * count]
    columns = zip(keys, values, created, modified, numbers[2 * count :], strict=True)
    return tuple(map(_make, repeat(KeyValue), columns))


def watch_batch_from_wire(response: pb.WatchResponse) -> WatchBatch:
    """Reads one message of a watch."""
    return WatchBatch(
        tuple(
            [
                RevisionEvents(
                    revision.revision,
                    revision.mesh_time_ns,
                    tuple([_event_from_wire(event) for event in revision.events]),
                )
                for revision in response.revisions
            ]
        ),
        response.progress_revision,
        response.mesh_time_ns,
    )


def _event_from_wire(event: pb.Event) -> Event:
    kv = event.kv
    fields = kv.key, kv.value, kv.create_revision, kv.mod_revision, kv.version
    return _make(Event, (_KINDS[event.kind], _make(KeyValue, fields)))


def lease_from_wire(lease: pb.Lease) -> Lease:
    """Reads a lease."""
    return Lease(
        lease.name, lease.holder, lease.token, lease.ttl_ms, lease.value, lease.remaining_ms
    )


def acquired_from_wire(response: pb.AcquireLeaseResponse) -> Acquired:
    """Reads the answer to an acquire."""
    return Acquired(response.granted, lease_from_wire(response.lease), response.mesh_time_ns)


def renewals_from_wire(response: pb.RenewLeaseResponse) -> tuple[Renewal, ...]:
    """Reads the answers to renewals."""
    return tuple(Renewal(one.renewed, one.remaining_ms) for one in response.renewals)


def clock_from_wire(response: pb.GetClockResponse) -> ClockReading:
    """Reads a clock's state."""
    return ClockReading(
        mesh_time_ns=response.mesh_time_ns,
        wall_time_ns=response.wall_time_ns,
        state=ClockState(response.state),
        dispute=response.dispute,
    )


def limits_from_wire(limits: pb.Limits) -> Limits:
    """Reads an engine's bounds."""
    return Limits(
        max_key_bytes=limits.max_key_bytes,
        max_value_bytes=limits.max_value_bytes,
        max_ops_per_txn=limits.max_ops_per_txn,
        max_txn_bytes=limits.max_txn_bytes,
        max_txns_per_commit=limits.max_txns_per_commit,
        max_commit_bytes=limits.max_commit_bytes,
        max_keys_per_get=limits.max_keys_per_get,
        max_page_items=limits.max_page_items,
        max_page_bytes=limits.max_page_bytes,
        min_lease_ttl_ms=limits.min_lease_ttl_ms,
        max_lease_ttl_ms=limits.max_lease_ttl_ms,
        max_leases_per_renew=limits.max_leases_per_renew,
    )


def status_from_wire(response: pb.StatusResponse) -> StoreStatus:
    """Reads a store's status."""
    return StoreStatus(
        cluster_id=response.cluster_id,
        incarnation=response.incarnation,
        format_version=response.format_version,
        coordinator_shards=response.coordinator_shards,
        queue_shards=response.queue_shards,
        revision=response.revision,
        mesh_time_ns=response.mesh_time_ns,
        oldest_watch_revision=response.oldest_watch_revision,
        limits=limits_from_wire(response.limits),
        full=response.full,
        used_bytes=response.used_bytes,
        map_bytes=response.map_bytes,
        max_map_bytes=response.max_map_bytes,
        disk_free_bytes=response.disk_free_bytes,
        keys=response.keys,
        watches=response.watches,
        leases=response.leases,
        clock_disputed=response.clock_disputed,
        software_version=response.software_version,
        oldest_reader_ms=response.oldest_reader_ms,
    )

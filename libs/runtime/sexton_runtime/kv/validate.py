"""The bounds and shapes of what may be asked of a store, in one place.

Clients hold their requests against these before batching, so that one bad transaction never spoils
its neighbours; servers and engines hold what they receive against the same ones.

What is too big or too many raises `TooLarge`, every other fault `InvalidArgument`; both name the
field as a path in the request (``txns[3].then[0].key``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain, repeat
from typing import Any, NamedTuple, cast

from sexton.errors import InvalidArgument, TooLarge
from sexton_runtime.kv.columns import Run, runs_of, txns_of
from sexton_runtime.kv.types import (
    LEASE_PREFIX,
    Compare,
    Delete,
    LeaseRef,
    Limits,
    Op,
    Put,
    Target,
    Txn,
)

MAX_REVISION = 2**63 - 1
"""The largest number that the wire carries as a revision or a time."""
MAX_LEASE_NAME_BYTES = 200
MAX_HOLDER_BYTES = 200
MAX_LEASE_VALUE_BYTES = 4_096
"""An address and a few facts; what is larger belongs under a key."""

_LEASE_NAME = re.compile(r"[a-z0-9][a-z0-9/_.-]*\Z")
_LEASE_PREFIX = re.compile(r"([a-z0-9][a-z0-9/_.-]*)?\Z")
_NUMERIC = (Target.CREATE_REVISION, Target.MOD_REVISION, Target.VERSION)


class Cost(NamedTuple):
    """What transactions weigh: compares and writes, and the bytes of their keys and values."""

    ops: int
    size_bytes: int


def check_txns(txns: Sequence[Txn], limits: Limits) -> tuple[tuple[Run, ...], Cost]:
    """Checks the transactions of one Commit, and gives them in columns with what they weigh."""
    runs = runs_of(txns)
    cost = None if runs is None else _weigh_sound(runs, limits)
    if cost is None:
        cost = _check_each(txns, limits)
    assert runs is not None, "a write that is none has been refused"
    return runs, cost


def check_runs(runs: Sequence[Run], limits: Limits) -> Cost:
    """Checks the transactions of one Commit, which are in columns, and weighs them."""
    return _weigh_sound(runs, limits) or _check_each(txns_of(runs), limits)


def _weigh_sound(runs: Sequence[Run], limits: Limits) -> Cost | None:
    """Weighs transactions that are sound beyond doubt; None: they have to be looked at one by one.

    Column by column, at a small part of the cost: almost all transactions are found sound here.
    """
    lengths: list[int] = []
    value_lengths: list[int] = []
    numbers: list[Any] = []
    written: list[bytes] = []
    flags: set[type] = set()
    txns = ops = most_ops = 0
    for run in runs:
        shape = run.shape
        if shape.orelse or Target.VALUE in shape.targets:
            return None
        txns += run.txns
        ops += run.ops
        most_ops = max(most_ops, len(run.compared) + len(run.written))
        lengths += map(len, chain(*run.compared, *run.written))
        written += chain(*run.written)
        for is_put, values in zip(shape.then, run.values, strict=True):
            if is_put:
                value_lengths += map(len, cast("Sequence[bytes]", values))
        for wanted, operands in zip(shape.exists, run.operands, strict=True):
            if wanted is None:
                numbers += operands
            else:
                flags |= {*map(type, operands)}
        numbers += run.not_before_ns
        numbers += run.not_after_ns
    size_bytes = sum(lengths) + sum(value_lengths)
    longest_key, longest_value = max(lengths, default=0), max(value_lengths, default=0)
    sound = (
        0 < txns <= limits.max_txns_per_commit
        and min(lengths, default=1) > 0
        and longest_key <= limits.max_key_bytes
        and longest_value <= limits.max_value_bytes
        and most_ops <= limits.max_ops_per_txn
        and most_ops * (longest_key + longest_value) <= limits.max_txn_bytes
        and size_bytes <= limits.max_commit_bytes
        and len({*written}) == len(written)
        and not any(map(bytes.startswith, written, repeat(LEASE_PREFIX)))
        and flags <= {bool}
        and {*map(type, numbers)} <= {int}
        and min(numbers, default=0) >= 0
        and max(numbers, default=0) <= MAX_REVISION
    )
    return Cost(ops, size_bytes) if sound else None


def _check_each(txns: Sequence[Txn], limits: Limits) -> Cost:
    """Checks and weighs transactions one by one, and names what is wrong with the first that is."""
    if not txns:
        raise InvalidArgument("txns", (), "at least one transaction")
    if len(txns) > limits.max_txns_per_commit:
        raise TooLarge("txns", len(txns), limits.max_txns_per_commit, "transactions")
    ops = size = 0
    for index, txn in enumerate(txns):
        try:
            cost = check_txn(txn, limits)
        except InvalidArgument as fault:
            raise _inside(fault, f"txns[{index}].") from None
        ops += cost.ops
        size += cost.size_bytes
    if size > limits.max_commit_bytes:
        raise TooLarge("txns", size, limits.max_commit_bytes)
    return Cost(ops, size)


def check_txn(txn: Txn, limits: Limits) -> Cost:
    """Checks one transaction and weighs it."""
    compares, then, orelse = txn.compares, txn.then, txn.orelse
    ops = len(compares) + len(then) + len(orelse)
    if ops > limits.max_ops_per_txn:
        raise TooLarge("txn", ops, limits.max_ops_per_txn, "compares and writes")
    size = 0
    for index, compare in enumerate(compares):
        size += _check_compare(compare, index, limits)
    if then:
        size += _check_branch(then, "then", limits)
    if orelse:
        size += _check_branch(orelse, "orelse", limits)
    if size > limits.max_txn_bytes:
        raise TooLarge("txn", size, limits.max_txn_bytes)
    if txn.not_before_ns or txn.not_after_ns:
        check_revision(txn.not_before_ns, "not_before_time_ns")
        check_revision(txn.not_after_ns, "not_after_time_ns")
    return Cost(ops, size)


def check_key(key: bytes, limits: Limits, field: str = "key") -> None:
    """Checks a key that is read or compared."""
    if not key:
        raise InvalidArgument(field, key, f"1 to {limits.max_key_bytes} bytes")
    if len(key) > limits.max_key_bytes:
        raise TooLarge(field, len(key), limits.max_key_bytes)


def check_written_key(key: bytes, limits: Limits, field: str = "key") -> None:
    """Checks a key that is written: never below `leases/`."""
    check_key(key, limits, field)
    if key.startswith(LEASE_PREFIX):
        raise InvalidArgument(field, key, "a key outside leases/, where only lease calls write")


def check_value(value: bytes, limits: Limits, field: str = "value") -> None:
    """Checks a value."""
    if len(value) > limits.max_value_bytes:
        raise TooLarge(field, len(value), limits.max_value_bytes)


def check_revision(revision: int, field: str = "revision") -> None:
    """Checks a revision or token; 0 is allowed."""
    if not 0 <= revision <= MAX_REVISION:
        raise InvalidArgument(field, revision, "0 to 2^63 - 1")


def check_keys(keys: Sequence[bytes], limits: Limits) -> None:
    """Checks the keys of a Get."""
    if not keys:
        raise InvalidArgument("keys", (), f"1 to {limits.max_keys_per_get} keys")
    if len(keys) > limits.max_keys_per_get:
        raise TooLarge("keys", len(keys), limits.max_keys_per_get, "keys")
    for index, key in enumerate(keys):
        if not 0 < len(key) <= limits.max_key_bytes:
            check_key(key, limits, f"keys[{index}]")


def check_range(start: bytes, end: bytes, limit: int, limits: Limits) -> None:
    """Checks the range [start, end) and the page size of a Scan."""
    _check_bound(start, limits, "start")
    _check_bound(end, limits, "end")
    if end and start > end:
        raise InvalidArgument("start", start, f"at most the end, {end!r}")
    if not 0 <= limit <= limits.max_page_items:
        raise InvalidArgument("limit", limit, f"0 to {limits.max_page_items}")


def check_watch(prefix: bytes, start_revision: int, limits: Limits) -> None:
    """Checks what a Watch is to follow."""
    if len(prefix) > limits.max_key_bytes:
        raise TooLarge("prefix", len(prefix), limits.max_key_bytes)
    check_revision(start_revision, "start_revision")


def check_lease_name(name: str, field: str = "name") -> None:
    """Checks a lease's name: `[a-z0-9][a-z0-9/_.-]*`, at most 200 bytes."""
    if len(name) > MAX_LEASE_NAME_BYTES:
        raise TooLarge(field, len(name.encode(errors="replace")), MAX_LEASE_NAME_BYTES)
    if not _LEASE_NAME.match(name):
        raise InvalidArgument(field, name, "a name like coordinator/0: [a-z0-9][a-z0-9/_.-]*")


def check_lease_prefix(prefix: str) -> None:
    """Checks the prefix of a ListLeases: empty, or the beginning of a name."""
    if len(prefix) > MAX_LEASE_NAME_BYTES:
        raise TooLarge("prefix", len(prefix.encode(errors="replace")), MAX_LEASE_NAME_BYTES)
    if not _LEASE_PREFIX.match(prefix):
        raise InvalidArgument("prefix", prefix, "the beginning of a name: [a-z0-9][a-z0-9/_.-]*")


def check_acquire(
    name: str, holder: str, ttl_ms: int, *, value: bytes, replaces: int, limits: Limits
) -> None:
    """Checks an AcquireLease."""
    check_lease_name(name)
    if not holder or not _is_utf8(holder):
        raise InvalidArgument("holder", holder, f"1 to {MAX_HOLDER_BYTES} bytes of UTF-8")
    if len(holder.encode()) > MAX_HOLDER_BYTES:
        raise TooLarge("holder", len(holder.encode()), MAX_HOLDER_BYTES)
    if not limits.min_lease_ttl_ms <= ttl_ms <= limits.max_lease_ttl_ms:
        expected = f"{limits.min_lease_ttl_ms} to {limits.max_lease_ttl_ms} milliseconds"
        raise InvalidArgument("ttl_ms", ttl_ms, expected)
    if len(value) > MAX_LEASE_VALUE_BYTES:
        raise TooLarge("value", len(value), MAX_LEASE_VALUE_BYTES)
    check_revision(replaces, "replaces")


def check_release(name: str, token: int) -> None:
    """Checks a ReleaseLease."""
    check_lease_name(name, "lease.name")
    check_token(token, "lease.token")


def check_renewals(leases: Sequence[LeaseRef], limits: Limits) -> None:
    """Checks a RenewLease."""
    if not leases:
        raise InvalidArgument("leases", (), f"1 to {limits.max_leases_per_renew} leases")
    if len(leases) > limits.max_leases_per_renew:
        raise TooLarge("leases", len(leases), limits.max_leases_per_renew, "leases")
    for index, lease in enumerate(leases):
        check_lease_name(lease.name, f"leases[{index}].name")
        check_token(lease.token, f"leases[{index}].token")


def check_token(token: int, field: str) -> None:
    """Checks a fencing token."""
    if not 1 <= token <= MAX_REVISION:
        raise InvalidArgument(field, token, "a token: 1 to 2^63 - 1")


def _check_compare(compare: Compare, index: int, limits: Limits) -> int:
    key, target, operand = compare
    if not 0 < len(key) <= limits.max_key_bytes:
        check_key(key, limits, f"compares[{index}].key")
    if target in _NUMERIC:
        if not isinstance(operand, int) or not 0 <= operand <= MAX_REVISION:
            field = f"compares[{index}].{target.name.lower()}"
            raise InvalidArgument(field, operand, "0 to 2^63 - 1")
    elif target is Target.VALUE:
        if not isinstance(operand, bytes):
            raise InvalidArgument(f"compares[{index}].value", operand, "bytes")
        check_value(operand, limits, f"compares[{index}].value")
        return len(key) + len(operand)
    elif not isinstance(operand, bool):
        raise InvalidArgument(f"compares[{index}].exists", operand, "true or false")
    return len(key)


def _check_branch(ops: tuple[Op, ...], branch: str, limits: Limits) -> int:
    size = 0
    longest_key, longest_value = limits.max_key_bytes, limits.max_value_bytes
    for index, op in enumerate(ops):
        key = op.key
        if not 0 < len(key) <= longest_key or key.startswith(LEASE_PREFIX):
            check_written_key(key, limits, f"{branch}[{index}].key")
        size += len(key)
        if isinstance(op, Put):
            if len(op.value) > longest_value:
                check_value(op.value, limits, f"{branch}[{index}].put")
            size += len(op.value)
        elif not isinstance(op, Delete):
            raise InvalidArgument(f"{branch}[{index}]", op, "a put or a delete")
    if len(ops) > 1 and len({op.key for op in ops}) < len(ops):
        _raise_repeated(ops, branch)
    return size


def _raise_repeated(ops: tuple[Op, ...], branch: str) -> None:
    seen: set[bytes] = set()
    for index, op in enumerate(ops):
        if op.key in seen:
            raise InvalidArgument(f"{branch}[{index}].key", op.key, "each key once per branch")
        seen.add(op.key)


def _check_bound(key: bytes, limits: Limits, field: str) -> None:
    # One byte more than a key: the first bound after the longest key is that key and a zero byte.
    if len(key) > limits.max_key_bytes + 1:
        raise TooLarge(field, len(key), limits.max_key_bytes + 1)


def _is_utf8(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _inside(fault: InvalidArgument, path: str) -> InvalidArgument:
    facts = {**fault.facts, "field": path + fault.field}
    return InvalidArgument.restore(path + fault.message, facts)

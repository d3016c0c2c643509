"""Transactions in columns: how many of them travel in one message, at the least cost for each.

A mesh at work sends the same few shapes of transactions again and again. Packed, a transaction is
an index into the shapes of its message and some entries of lists that are copied in one call. To
build and read a message per compare and write instead took a quarter of the store's time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from sexton.errors import InvalidArgument, TooLarge
from sexton.internal.v1 import store_pb2 as pb
from sexton_runtime.kv._wire import compare_from_wire, make_compare
from sexton_runtime.kv.types import Compare, Delete, Op, Put, Target, Txn

_MOST: Final = 255
"""Compares, or writes of a branch; a shape tells the number of most in a byte."""
_RESERVE: Final = 1
_BOUNDED: Final = 2
_HEAD_BYTES: Final = 3
_NOT_EXISTS: Final = 8
"""Follows the fields of `Compare`: that its key must be absent."""
_NUMBERS: Final = frozenset({Target.CREATE_REVISION, Target.MOD_REVISION, Target.VERSION})
_make = tuple.__new__
"""Makes a named tuple of what is known to be whole; its own constructor costs twice as much."""


class _Shape(NamedTuple):
    """What transactions have in common; how many keys, values and numbers one of them takes."""

    targets: tuple[Target, ...]
    exists: tuple[bool | None, ...]
    """Of each compare what it asks for, None where that is a number; empty: all are numbers."""
    then: tuple[bool, ...]
    orelse: tuple[bool, ...]
    bounded: bool
    use_reserve: bool
    keys: int
    values: int
    numbers: int


def pack(txns: Sequence[Txn], into: pb.PackedTxns) -> bool:
    """Packs transactions that have passed `check_txns`; False, with nothing written: impossible."""
    fence = _common_fence(txns)
    shapes: dict[bytes, int] = {}
    order: list[int] = []
    keys: list[bytes] = []
    values: list[bytes] = []
    numbers: list[int] = []
    for compares, then, orelse, not_before_ns, not_after_ns, use_reserve in txns:
        own = compares if fence is None else compares[:-1]
        bounded = not_before_ns or not_after_ns
        flags = (_RESERVE if use_reserve else 0) | (_BOUNDED if bounded else 0)
        shape = [flags, len(own), len(then)]
        if max(len(own), len(then), len(orelse)) > _MOST:
            return False
        for key, target, operand in own:
            keys.append(key)
            if target is Target.EXISTS:
                shape.append(target if operand else _NOT_EXISTS)
            elif isinstance(operand, bytes):
                return False
            else:
                shape.append(target)
                numbers.append(operand)
        for op in then + orelse if orelse else then:
            keys.append(op.key)
            if isinstance(op, Put):
                shape.append(1)
                values.append(op.value)
            else:
                shape.append(0)
        if bounded:
            numbers += (not_before_ns, not_after_ns)
        order.append(shapes.setdefault(bytes(shape), len(shapes)))
    into.shapes.extend(shapes)
    into.order.extend(order)
    into.keys.extend(keys)
    into.values.extend(values)
    into.numbers.extend(numbers)
    if fence is not None:
        into.fence.CopyFrom(make_compare(pb.Compare, fence))
    return True


def unpack(packed: pb.PackedTxns, most: int) -> tuple[Txn, ...]:
    """Unpacks what came over the wire.

    Raises:
        InvalidArgument: it does not hang together.
        TooLarge: these are more than `most` transactions, a byte each: none of them is made.

    """
    if len(packed.order) > most:
        raise TooLarge("txns", len(packed.order), most, "transactions")
    shapes = [_read_shape(code) for code in packed.shapes]
    order = list(packed.order)
    _check_counts(packed, shapes, order)
    fence = (compare_from_wire(packed.fence, "packed.fence"),) if packed.HasField("fence") else ()
    keys, values, numbers = iter(packed.keys), iter(packed.values), iter(packed.numbers)
    txns: list[Txn] = []
    for index in order:
        targets, exists, then, orelse, bounded, use_reserve, *_ = shapes[index]
        if exists:
            compares = _with_exists(targets, exists, keys, numbers)
        else:
            compares = [
                _make(Compare, (key, target, number))
                for target, key, number in zip(targets, keys, numbers, strict=False)
            ]
        puts = _ops(then, keys, values)
        txn = (
            (*compares, *fence),
            puts,
            _ops(orelse, keys, values) if orelse else (),
            next(numbers) if bounded else 0,
            next(numbers) if bounded else 0,
            use_reserve,
        )
        txns.append(_make(Txn, txn))
    return tuple(txns)


def _common_fence(txns: Sequence[Txn]) -> Compare | None:
    """Gives the compare with which all of several transactions end, as those of one lease do."""
    if len(txns) < 2 or not txns[0].compares:
        return None
    fence = txns[0].compares[-1]
    for txn in txns:
        if not txn.compares or txn.compares[-1] != fence:
            return None
    return fence


def _ops(kinds: tuple[bool, ...], keys: Iterator[bytes], values: Iterator[bytes]) -> tuple[Op, ...]:
    # `kinds` comes first: where it ends, nothing more is taken of the keys.
    return tuple(
        [
            _make(Put, (key, next(values))) if is_put else _make(Delete, (key,))
            for is_put, key in zip(kinds, keys, strict=False)
        ]
    )


def _with_exists(
    targets: tuple[Target, ...],
    exists: tuple[bool | None, ...],
    keys: Iterator[bytes],
    numbers: Iterator[int],
) -> list[Compare]:
    return [
        _make(Compare, (key, target, next(numbers) if wanted is None else wanted))
        for target, wanted, key in zip(targets, exists, keys, strict=False)
    ]


@lru_cache(maxsize=1024)
def _read_shape(code: bytes) -> _Shape:
    """Reads a shape; a mesh has a few dozen."""
    if len(code) < _HEAD_BYTES or len(code) < _HEAD_BYTES + code[1] + code[2]:
        raise InvalidArgument("packed.shapes", code, "a shape whole")
    flags, compares, writes = code[:_HEAD_BYTES]
    asked, then = code[_HEAD_BYTES:][:compares], code[_HEAD_BYTES + compares :][:writes]
    orelse = code[_HEAD_BYTES + compares + writes :]
    if (
        flags > _RESERVE | _BOUNDED
        or len(orelse) > _MOST
        or not set(asked) <= {*_NUMBERS, Target.EXISTS, _NOT_EXISTS}
        or not set(then + orelse) <= {0, 1}
    ):
        raise InvalidArgument("packed.shapes", code, "a shape of known flags, compares and writes")
    exists = tuple(None if target in _NUMBERS else target == Target.EXISTS for target in asked)
    bounded = bool(flags & _BOUNDED)
    return _Shape(
        targets=tuple(Target.EXISTS if it == _NOT_EXISTS else Target(it) for it in asked),
        exists=() if exists.count(None) == compares else exists,
        then=tuple(map(bool, then)),
        orelse=tuple(map(bool, orelse)),
        bounded=bounded,
        use_reserve=bool(flags & _RESERVE),
        keys=compares + len(then) + len(orelse),
        values=sum(then) + sum(orelse),
        numbers=exists.count(None) + 2 * bounded,
    )


def _check_counts(packed: pb.PackedTxns, shapes: Sequence[_Shape], order: Sequence[int]) -> None:
    """Raises `InvalidArgument` unless the columns have as many entries as the shapes take."""
    keys = values = numbers = 0
    for index, count in Counter(order).items():
        if index >= len(shapes):
            raise InvalidArgument("packed.order", index, "the index of a shape")
        shape = shapes[index]
        keys += count * shape.keys
        values += count * shape.values
        numbers += count * shape.numbers
    for name, given, taken in (
        ("keys", len(packed.keys), keys),
        ("values", len(packed.values), values),
        ("numbers", len(packed.numbers), numbers),
    ):
        if given != taken:
            raise InvalidArgument(f"packed.{name}", given, f"{taken} entries for these shapes")

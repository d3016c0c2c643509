"""Transactions in columns on the wire: many of them in one message, at the least cost for each.

A mesh at work sends the same few shapes of transactions again and again. Packed, a transaction is
an index into the shapes of its message and some entries of lists that are copied in one call. To
build and read a message per compare and write instead took a quarter of the store's time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, groupby, repeat
from typing import Any, Final, NamedTuple

from sexton.errors import InvalidArgument, TooLarge
from sexton.internal.v1 import store_pb2 as pb
from sexton_runtime.kv._wire import compare_from_wire, make_compare
from sexton_runtime.kv.columns import Run, Shape, shape_of
from sexton_runtime.kv.types import Compare, Target

_MOST: Final = 255
"""Compares, or writes of a branch; a shape tells the number of most in a byte."""
_RESERVE: Final = 1
_BOUNDED: Final = 2
_HEAD_BYTES: Final = 3
_NOT_EXISTS: Final = 8
"""Follows the fields of `Compare`: that its key must be absent."""
_MOST_PLACES: Final = 127
"""Compares whose keys a write can name by number, in the byte that says what it is."""
_NUMBERS: Final = frozenset({Target.CREATE_REVISION, Target.MOD_REVISION, Target.VERSION})


class _Code(NamedTuple):
    """A shape as it came; how many keys, values and numbers a transaction of it takes."""

    shape: Shape
    places: tuple[int | None, ...]
    """Of each write in `then` the compare whose key it is to; None: to a key of its own."""
    keys: int
    values: int
    numbers: int


def pack(runs: Sequence[Run], into: pb.PackedTxns) -> bool:
    """Packs transactions that have passed their check; False, with nothing written: impossible."""
    if not all(_fits(run.shape) for run in runs):
        return False
    fence = _common_fence(runs)
    codes: dict[bytes, int] = {}
    for run in runs:
        own = len(run.compared) - (fence is not None)
        named = min(own, _MOST_PLACES)
        places = tuple([it if it is not None and it < named else None for it in run.places()])
        code = _code_of(run.shape, places, fenced=fence is not None)
        into.order.extend(repeat(codes.setdefault(code, len(codes)), run.txns))
        written = zip(run.written, places, strict=True)
        own_keys = [keys for keys, place in written if place is None]
        into.keys.extend(_by_row((*run.compared[:own], *own_keys, *run.else_written)))
        puts = zip(run.shape.then + run.shape.orelse, run.values + run.else_values, strict=True)
        into.values.extend(_by_row([column for is_put, column in puts if is_put]))
        asked = zip(run.shape.exists[:own], run.operands, strict=False)
        numbers = [column for wanted, column in asked if wanted is None]
        if run.shape.bounded:
            numbers += (run.not_before_ns, run.not_after_ns)
        into.numbers.extend(_by_row(numbers))
    into.shapes.extend(codes)
    if fence is not None:
        into.fence.CopyFrom(make_compare(pb.Compare, fence))
    return True


def unpack(packed: pb.PackedTxns, most: int) -> tuple[Run, ...]:
    """Unpacks what came over the wire.

    Raises:
        InvalidArgument: it does not hang together.
        TooLarge: these are more than `most` transactions, a byte each: none of them is made.

    """
    if len(packed.order) > most:
        raise TooLarge("txns", len(packed.order), most, "transactions")
    codes = [_read_code(code) for code in packed.shapes]
    counted = [(index, len([*alike])) for index, alike in groupby(packed.order)]
    _check_counts(packed, codes, counted)
    fence = compare_from_wire(packed.fence, "packed.fence") if packed.HasField("fence") else None
    keys, values, numbers = [*packed.keys], [*packed.values], [*packed.numbers]
    runs: list[Run] = []
    first_key = first_value = first_number = 0
    for index, txns in counted:
        code = codes[index]
        last_key = first_key + txns * code.keys
        last_value = first_value + txns * code.values
        last_number = first_number + txns * code.numbers
        run = _read_run(
            code,
            txns,
            keys[first_key:last_key],
            values[first_value:last_value],
            numbers[first_number:last_number],
        )
        runs.append(run if fence is None else _fenced(run, fence))
        first_key, first_value, first_number = last_key, last_value, last_number
    return tuple(runs)


def _read_run(
    code: _Code, txns: int, keys: list[bytes], values: list[bytes], numbers: list[int]
) -> Run:
    """Takes the columns of a run out of lists in which its transactions follow each other."""
    shape = code.shape
    compares = len(shape.targets)
    key_columns = [keys[place :: code.keys] for place in range(code.keys)]
    compared, own_keys = key_columns[:compares], iter(key_columns[compares:])
    value_columns = iter([values[place :: code.values] for place in range(code.values)])
    number_columns = iter([numbers[place :: code.numbers] for place in range(code.numbers)])
    nothing: list[Any] = [None] * txns
    return Run(
        shape,
        txns,
        tuple(compared),
        tuple(
            [next(number_columns) if wanted is None else [wanted] * txns for wanted in shape.exists]
        ),
        tuple([next(own_keys) if place is None else compared[place] for place in code.places]),
        tuple([next(value_columns) if is_put else nothing for is_put in shape.then]),
        tuple(own_keys),
        tuple([next(value_columns) if is_put else nothing for is_put in shape.orelse]),
        next(number_columns, ()),
        next(number_columns, ()),
    )


def _fenced(run: Run, fence: Compare) -> Run:
    """Adds the condition that all transactions of a message have in common."""
    key, target, operand = fence
    targets, exists, *rest = run.shape
    wanted = operand if target is Target.EXISTS else None
    return run._replace(
        shape=shape_of((*targets, target), (*exists, wanted), *rest),
        compared=(*run.compared, [key] * run.txns),
        operands=(*run.operands, [operand] * run.txns),
    )


def _common_fence(runs: Sequence[Run]) -> Compare | None:
    """Gives the compare with which all of several transactions end, as those of one lease do."""
    if sum([run.txns for run in runs]) < 2 or not all(run.compared for run in runs):
        return None
    first = runs[0]
    fence = Compare(first.compared[-1][0], first.shape.targets[-1], first.operands[-1][0])
    for run in runs:
        same = (
            run.shape.targets[-1] is fence.target
            and run.compared[-1].count(fence.key) == run.txns
            and run.operands[-1].count(fence.operand) == run.txns
        )
        if not same:
            return None
    return fence


def _by_row(columns: Sequence[Sequence[Any]]) -> Iterable[Any]:
    """Gives the entries of columns, transaction by transaction."""
    return chain.from_iterable(zip(*columns, strict=True))


def _fits(shape: Shape) -> bool:
    most = max(len(shape.targets), len(shape.then), len(shape.orelse))
    return most <= _MOST and Target.VALUE not in shape.targets


@lru_cache(maxsize=1024)
def _code_of(shape: Shape, places: tuple[int | None, ...], *, fenced: bool) -> bytes:
    """Writes a shape, without the fence that is written once."""
    own = len(shape.targets) - fenced
    asked = [
        _NOT_EXISTS if wanted is False else int(target)
        for target, wanted in zip(shape.targets, shape.exists, strict=True)
    ][:own]
    flags = (_RESERVE if shape.use_reserve else 0) | (_BOUNDED if shape.bounded else 0)
    then = [
        is_put if place is None else is_put + 2 * (place + 1)
        for is_put, place in zip(shape.then, places, strict=True)
    ]
    return bytes([flags, own, len(then), *asked, *then, *shape.orelse])


@lru_cache(maxsize=1024)
def _read_code(code: bytes) -> _Code:
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
        or max(then, default=0) > 2 * compares + 1
        or not set(orelse) <= {0, 1}
    ):
        raise InvalidArgument("packed.shapes", code, "a shape of known flags, compares and writes")
    exists = tuple(None if target in _NUMBERS else target == Target.EXISTS for target in asked)
    bounded = bool(flags & _BOUNDED)
    puts = tuple(it % 2 == 1 for it in then)
    places = tuple(it // 2 - 1 if it > 1 else None for it in then)
    shape = shape_of(
        tuple(Target.EXISTS if it == _NOT_EXISTS else Target(it) for it in asked),
        exists,
        puts,
        tuple(map(bool, orelse)),
        bounded,
        bool(flags & _RESERVE),
    )
    return _Code(
        shape,
        places,
        keys=compares + places.count(None) + len(orelse),
        values=sum(puts) + sum(orelse),
        numbers=exists.count(None) + 2 * bounded,
    )


def _check_counts(
    packed: pb.PackedTxns, codes: Sequence[_Code], counted: Sequence[tuple[int, int]]
) -> None:
    """Raises `InvalidArgument` unless the columns have as many entries as the shapes take."""
    keys = values = numbers = 0
    for index, txns in counted:
        if index >= len(codes):
            raise InvalidArgument("packed.order", index, "the index of a shape")
        code = codes[index]
        keys += txns * code.keys
        values += txns * code.values
        numbers += txns * code.numbers
    for name, given, taken in (
        ("keys", len(packed.keys), keys),
        ("values", len(packed.values), values),
        ("numbers", len(packed.numbers), numbers),
    ):
        if given != taken:
            raise InvalidArgument(f"packed.{name}", given, f"{taken} entries for these shapes")

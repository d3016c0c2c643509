"""Transactions in columns, as they are weighed, carried and evaluated.

A mesh at work commits hundreds of transactions of one shape at a time: the same things compared, as
much written and deleted. A `Run` is such a row of transactions turned round: of each compare and of
each write the keys of all transactions, then all operands, all values. What is looked at for all of
them - lengths, sums, types - is then looked at in a few calls, not once for each compare and write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby, repeat
from typing import Any, NamedTuple

from sexton_runtime.kv.types import Compare, Delete, Op, Put, Target, Txn

Operand = int | bool | bytes
_make = tuple.__new__
"""Makes a named tuple of what is known to be whole; its own constructor costs twice as much."""


class Shape(NamedTuple):
    """What the transactions of a run have in common."""

    targets: tuple[Target, ...]
    """What each compare looks at."""
    exists: tuple[bool | None, ...]
    """What each compare asks for, where its target is `EXISTS`; None elsewhere."""
    then: tuple[bool, ...]
    """Of each write whether it is a put; the others delete."""
    orelse: tuple[bool, ...]
    bounded: bool
    """Whether bounds of time are given."""
    use_reserve: bool


class Run(NamedTuple):
    """Transactions of one shape that follow each other: of each place a column over all of them."""

    shape: Shape
    txns: int
    compared: tuple[Sequence[bytes], ...]
    operands: tuple[Sequence[Operand], ...]
    written: tuple[Sequence[bytes], ...]
    """Where a write is to a key that is compared, this is the compare's own column, not a copy."""
    values: tuple[Sequence[bytes | None], ...]
    """None where the key is deleted."""
    else_written: tuple[Sequence[bytes], ...] = ()
    else_values: tuple[Sequence[bytes | None], ...] = ()
    not_before_ns: Sequence[int] = ()
    not_after_ns: Sequence[int] = ()
    """Both empty where there are no bounds."""

    @property
    def ops(self) -> int:
        """Counts the compares and writes of all transactions."""
        places = len(self.compared) + len(self.written) + len(self.else_written)
        return places * self.txns

    def places(self) -> tuple[int | None, ...]:
        """Tells of each write in `then` which compare's keys it writes; None: keys of its own."""
        numbers = {id(column): place for place, column in enumerate(self.compared)}
        return tuple([numbers.get(id(column)) for column in self.written])

    def pieces(self, most_ops: int) -> Iterator[Run]:
        """Cuts the run into runs of about so many compares and writes, at least one transaction."""
        if self.ops <= most_ops:
            yield self
            return
        txns = max(1, most_ops * self.txns // self.ops)
        for first in range(0, self.txns, txns):
            part = slice(first, first + txns)
            compared = tuple([column[part] for column in self.compared])
            yield Run(
                self.shape,
                min(txns, self.txns - first),
                compared,
                tuple([column[part] for column in self.operands]),
                tuple(
                    [
                        column[part] if place is None else compared[place]
                        for column, place in zip(self.written, self.places(), strict=True)
                    ]
                ),
                tuple([column[part] for column in self.values]),
                tuple([column[part] for column in self.else_written]),
                tuple([column[part] for column in self.else_values]),
                self.not_before_ns[part],
                self.not_after_ns[part],
            )


def rows(columns: Sequence[Sequence[Any]], txns: int) -> Iterable[tuple[Any, ...]]:
    """Gives of each transaction what stands in its row."""
    return zip(*columns, strict=True) if columns else repeat((), txns)


def runs_of(txns: Sequence[Txn]) -> tuple[Run, ...] | None:
    """Turns transactions round; None where one has a write that is neither a put nor a deletion."""
    if not txns:
        return ()
    runs: list[Run] = []
    for _, as_long in groupby(txns, _lengths):
        together = list(as_long)
        run = _run_of(together)
        if run is not None:
            runs.append(run)
            continue
        for _, alike in groupby(together, _likeness):
            run = _run_of(list(alike))
            if run is None:
                return None
            runs.append(run)
    return tuple(runs)


def txns_of(runs: Iterable[Run]) -> tuple[Txn, ...]:
    """Turns runs into transactions again."""
    txns: list[Txn] = []
    for run in runs:
        shape, count = run.shape, run.txns
        txns += [
            Txn(
                compares_of(shape, keys, operands),
                _ops(written, values),
                _ops(else_written, else_values),
                run.not_before_ns[at] if shape.bounded else 0,
                run.not_after_ns[at] if shape.bounded else 0,
                shape.use_reserve,
            )
            for at, keys, operands, written, values, else_written, else_values in zip(
                range(count), *(rows(columns, count) for columns in run[2:8]), strict=True
            )
        ]
    return tuple(txns)


def compares_of(
    shape: Shape, keys: Sequence[bytes], operands: Sequence[Operand]
) -> tuple[Compare, ...]:
    """Gives the compares of one transaction."""
    return tuple(map(Compare, keys, shape.targets, operands))


@lru_cache(maxsize=1024)
def shape_of(*fields: Any) -> Shape:
    """Makes a shape, once for each: a mesh has a few dozen."""
    return Shape(*fields)


def _run_of(txns: Sequence[Txn]) -> Run | None:
    """Turns transactions of the same `_lengths` round; None: they are not all of one shape."""
    count = len(txns)
    all_compares, thens, orelses, not_before_ns, not_after_ns, reserves = zip(*txns, strict=True)
    bounded = any(not_before_ns) or any(not_after_ns)
    compared: list[Sequence[bytes]] = []
    operands: list[Sequence[Operand]] = []
    targets: list[Target] = []
    exists: list[bool | None] = []
    for column in zip(*all_compares, strict=True):
        keys, kinds, asked = zip(*column, strict=True)
        target, wanted = kinds[0], asked[0] if kinds[0] is Target.EXISTS else None
        if kinds.count(target) != count or (wanted is not None and asked.count(wanted) != count):
            return None
        compared.append(keys)
        operands.append(asked)
        targets.append(target)
        exists.append(wanted)
    writes = [_writes_of(column, count) for column in zip(*thens, strict=True)]
    others = [_writes_of(column, count) for column in zip(*orelses, strict=True)]
    if None in writes or None in others:
        return None
    then = [write for write in writes if write is not None]
    orelse = [write for write in others if write is not None]
    return Run(
        shape_of(
            tuple(targets),
            tuple(exists),
            tuple([is_put for is_put, _, _ in then]),
            tuple([is_put for is_put, _, _ in orelse]),
            bounded,
            reserves[0],
        ),
        count,
        tuple(compared),
        tuple(operands),
        _shared([keys for _, keys, _ in then], compared),
        tuple([values for _, _, values in then]),
        tuple([keys for _, keys, _ in orelse]),
        tuple([values for _, _, values in orelse]),
        not_before_ns if bounded else (),
        not_after_ns if bounded else (),
    )


def _writes_of(
    column: Sequence[Op], count: int
) -> tuple[bool, Sequence[bytes], Sequence[bytes | None]] | None:
    """Turns a write of each transaction round; None: they are not all puts or all deletions."""
    kinds = {*map(type, column)}
    if kinds == {Put}:
        keys, values = zip(*column, strict=True)
        return True, keys, values
    if kinds == {Delete}:
        return False, tuple([op.key for op in column]), [None] * count
    return None


def _shared(
    written: Sequence[Sequence[bytes]], compared: Sequence[Sequence[bytes]]
) -> tuple[Sequence[bytes], ...]:
    """Gives the columns that are written, a compare's own one where the same keys are compared."""
    by_first = {column[0]: column for column in compared}
    found = [(keys, by_first.get(keys[0])) for keys in written]
    return tuple([column if column == keys else keys for keys, column in found])


def _lengths(txn: Txn) -> tuple[int, int, int, bool, bool]:
    """Gives what mostly tells shapes apart, and costs little."""
    compares, then, orelse, not_before_ns, not_after_ns, use_reserve = txn
    bounded = bool(not_before_ns or not_after_ns)
    return len(compares), len(then), len(orelse), bounded, use_reserve


def _likeness(txn: Txn) -> tuple[Any, ...]:
    """Gives what else is the same of transactions that can be in one run."""
    asked = [(it[1], it[2] if it[1] is Target.EXISTS else None) for it in txn.compares]
    return asked, [*map(type, txn.then)], [*map(type, txn.orelse)]


def _ops(keys: Sequence[bytes], values: Sequence[bytes | None]) -> tuple[Op, ...]:
    return tuple(
        [
            _make(Delete, (key,)) if value is None else _make(Put, (key, value))
            for key, value in zip(keys, values, strict=True)
        ]
    )

"""Evaluates transactions: pure, one after the other, against a snapshot and what came before.

A `Step` gathers what one durable write will make true. Each transaction sees the snapshot and the
effects of those before it in the same step; one that writes takes the next revision, one that does
not takes none. Nothing here waits, publishes or touches the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import Final

from sexton_runtime.kv.columns import Operand, Run, compares_of, rows, runs_of
from sexton_runtime.kv.types import Compare, Outcome, Txn, TxnResult
from sexton_store.disk import Record, View
from sexton_store.history import Change, Commit
from sexton_store.known import KnownHeads, Written

Entry = tuple[int, int, tuple[Written, ...]]
"""A transaction that wrote: revision, mesh time, its changes in order.

These live long and in great numbers, so they are plain tuples of bytes and numbers, at which the
garbage collector stops looking. As the vocabulary's named tuples a full window made every full
collection stop the store for 0.3 s.
"""
Result = int | TxnResult
"""The revision of a transaction that was committed, all that there is to say of it; or the rest."""

_ABSENT: Final[Written] = (b"", None, 0, 0, 0)
_CREATED: Final = 2
_MODIFIED: Final = 3
_VERSION: Final = 4
_EXISTS: Final = 5
"""The values of `Target` as plain numbers, by which a tuple is indexed fastest."""
_make = tuple.__new__
"""Makes a named tuple of what is known to be whole; its own constructor costs twice as much."""


class Space(Enum):
    """What may be written in a step."""

    AMPLE = auto()  # everything
    RESERVE = auto()  # what settles or frees
    NONE = auto()  # nothing


class Step:
    """The effects of the transactions evaluated so far, on top of a snapshot."""

    def __init__(
        self,
        view: View,
        *,
        revision: int,
        mesh_ns: int,
        known: KnownHeads,
        space: Space = Space.AMPLE,
        with_history: bool = False,
    ) -> None:
        self.revision = revision
        self.mesh_ns = mesh_ns
        self.entries: list[Entry] = []
        self.last: dict[bytes, Written] = {}
        """The last change of each key, once `writes` was asked for."""
        self.commits: list[Commit] = []
        self.needs_space = False
        """Whether something was written that may not use the reserve."""
        self.must_write = False
        """Whether the step is to be written even if nothing changed."""
        self.space = space
        self._view = view
        self._known = known
        self._with_history = with_history
        self._heads: dict[bytes, Written] = {}
        """Of keys that were written, or looked up in the snapshot (then without a value)."""

    def evaluate(self, txn: Txn) -> TxnResult:
        """Evaluates one transaction. Raises what `run` does."""
        results: list[Result] = []
        for run in runs_of((txn,)) or ():
            self.run(run, results)
        return result_of(results[0])

    def run(self, run: Run, results: list[Result]) -> None:
        """Evaluates transactions one after the other, and appends what became of each.

        Raises `DamagedError` where a record that it must look at is damaged; the step is then
        unusable and is to be evaluated anew without these transactions.
        """
        heads, known, find = self._heads, self._known.young, self._find
        shape = run.shape
        targets = [int(target) for target in shape.targets]
        places = range(len(targets))
        late_or_early = shape.bounded and not self._surely_in_time(run)
        for at, keys, operands, written, values in zip(
            range(run.txns),
            rows(run.compared, run.txns),
            rows(run.operands, run.txns),
            rows(run.written, run.txns),
            rows(run.values, run.txns),
            strict=True,
        ):
            if late_or_early and (outcome := self._out_of_time(run, at)):
                results.append(TxnResult(outcome, self.revision))
                continue
            for place, target, key, operand in zip(places, targets, keys, operands, strict=False):
                head = heads.get(key) or known.get(key) or find(key)
                if target <= _VERSION:
                    found: Operand | None = head[target]
                elif target == _EXISTS:
                    found = head[_MODIFIED] > 0
                else:
                    found = self._value(key)
                if found != operand:
                    results.append(self._refuse(run, at, place, head[_MODIFIED]))
                    break
            else:
                held = compares_of(shape, keys, operands) if self._with_history else ()
                if self._write(written, values, held, use_reserve=shape.use_reserve):
                    results.append(self.revision)
                else:
                    results.append(TxnResult(Outcome.NO_SPACE, self.revision))

    def header(self, key: bytes) -> tuple[int, int, int]:
        """Gives (create_revision, mod_revision, version) of a key; zeros where it is absent."""
        return (self._heads.get(key) or self._known.young.get(key) or self._find(key))[2:]

    def read(self, key: bytes) -> Record | None:
        """Gives a key's record, None where it is absent."""
        head = self._heads.get(key)
        if head is None or (head[1] is None and head[_CREATED]):
            return self._view.get(key)
        return None if head[1] is None else _make(Record, head[1:])

    def writes(self) -> tuple[list[tuple[bytes, Record]], list[bytes]]:
        """Gives the final records and the deletions of the whole step.

        What was created in the step and deleted again is among the deletions.
        """
        self.last = {change[0]: change for _, _, changes in self.entries for change in changes}
        last = self.last.items()
        puts = [(key, _make(Record, change[1:])) for key, change in last if change[1] is not None]
        return puts, [key for key, change in last if change[1] is None]

    def _find(self, key: bytes) -> Written:
        """Looks up a key that the step has not looked up yet."""
        head = self._known.old.get(key)
        if head is None:
            numbers = self._view.header(key)
            head = _ABSENT if numbers is None else (key, None, *numbers)
            self._heads[key] = head
        return head

    def _value(self, key: bytes) -> bytes | None:
        record = self.read(key)
        return None if record is None else record.value

    def _surely_in_time(self, run: Run) -> bool:
        """Tells that all of a run's transactions can be begun and none has a last moment."""
        return max(run.not_before_ns) <= self.mesh_ns and not any(run.not_after_ns)

    def _out_of_time(self, run: Run, at: int) -> Outcome | None:
        """Tells that mesh time is outside a transaction's bounds; None: it is not."""
        if self.mesh_ns < run.not_before_ns[at]:
            return Outcome.TOO_EARLY
        if 0 < run.not_after_ns[at] < self.mesh_ns:
            return Outcome.TOO_LATE
        return None

    def _refuse(self, run: Run, at: int, place: int, modified: int) -> TxnResult:
        """Writes a transaction's other branch: a compare does not hold."""
        written = [column[at] for column in run.else_written]
        values = [column[at] for column in run.else_values]
        if not self._write(written, values, (), use_reserve=run.shape.use_reserve):
            return TxnResult(Outcome.NO_SPACE, self.revision)
        return TxnResult(Outcome.REFUSED, self.revision, place, modified)

    def _write(
        self,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        held: tuple[Compare, ...],
        *,
        use_reserve: bool,
    ) -> bool:
        """Writes under the next revision; False: there is no space, nothing was written."""
        heads, known, find = self._heads, self._known.young, self._find
        if self.space is not Space.AMPLE and self._lacks_space(
            keys, values, use_reserve=use_reserve
        ):
            return False
        before = {key: self.read(key) for key in keys} if self._with_history else {}
        revision = self.revision + 1
        changes: list[Written] = []
        grows = False
        for key, value in zip(keys, values, strict=False):
            head = heads.get(key) or known.get(key) or find(key)
            if value is not None:
                grows = True
                change: Written = (
                    key,
                    value,
                    head[_CREATED] or revision,
                    revision,
                    head[_VERSION] + 1,
                )
            elif head[_CREATED]:
                change = (key, None, 0, 0, 0)
            else:
                continue
            heads[key] = change
            changes.append(change)
        if not changes:
            return True
        self.revision = revision
        self.needs_space = self.needs_space or (grows and not use_reserve)
        self.entries.append((revision, self.mesh_ns, tuple(changes)))
        if self._with_history:
            noted = tuple(
                Change(key, before[key], None if value is None else Record(value, *numbers))
                for key, value, *numbers in changes
            )
            self.commits.append(Commit(revision, self.mesh_ns, held, noted))
        return True

    def _lacks_space(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], *, use_reserve: bool
    ) -> bool:
        """Tells whether these writes, if they have an effect, are more than the space allows."""
        grows = any(value is not None for value in values)
        if self.space is Space.RESERVE:
            return grows and not use_reserve
        return grows or any(self.header(key)[0] for key in keys)


def result_of(result: Result) -> TxnResult:
    """Gives what became of a transaction in full."""
    return TxnResult(Outcome.COMMITTED, result) if isinstance(result, int) else result

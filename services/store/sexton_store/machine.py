"""Evaluates transactions: pure, one after the other, against a snapshot and what came before.

A `Step` gathers what one durable write will make true. Each transaction sees the snapshot and the
effects of those before it in the same step; one that writes takes the next revision, one that does
not takes none. Nothing here waits, publishes or touches the disk.

Transactions of one shape that have nothing to do with each other, as almost all are, are evaluated
together, column by column: for none of them is there a loop of our own, only those of lists. Where
one is refused, or looks at what another has written, they are evaluated one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from itertools import repeat
from typing import Final, cast

from sexton_runtime.kv.columns import Operand, Run, compares_of, rows, runs_of
from sexton_runtime.kv.types import Compare, Outcome, Target, Txn, TxnResult
from sexton_store.disk import Record, Row, View
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
_FEW: Final = 4
"""So many transactions of one shape are evaluated together sooner than one by one."""
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
        """The last change of each key that was written."""
        self.keys: list[bytes] = []
        """Those keys in order, once `writes` was asked for."""
        self.size_bytes = 0
        """What the keys and values of all changes take."""
        self.commits: list[Commit] = []
        self.needs_space = False
        """Whether something was written that may not use the reserve."""
        self.must_write = False
        """Whether the step is to be written even if nothing changed."""
        self.space = space
        self._view = view
        self._known = known
        self._with_history = with_history
        self._looked_up: dict[bytes, Written] = {}
        """Of keys that were looked up in the snapshot, without values."""

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
        if run.txns < _FEW or not self._run_together(run, results):
            self._run_one_by_one(run, results)

    def _run_together(self, run: Run, results: list[Result]) -> bool:
        """Evaluates transactions that all hold and none of which sees another; False: they do not.

        Then nothing has happened.
        """
        shape, txns = run.shape, run.txns
        if self.space is not Space.AMPLE or (shape.bounded and not self._in_time(run)):
            return False
        compared: list[list[Written]] = []
        for target, keys, operands in zip(shape.targets, run.compared, run.operands, strict=True):
            heads = self._heads_of(keys)
            if not _hold(heads, target, operands):
                return False
            compared.append(heads)
        changes: list[list[Written]] = []
        last: dict[bytes, Written] = {}
        size_bytes = 0
        revisions = range(self.revision + 1, self.revision + 1 + txns)
        places = run.places()
        for place, keys, values in zip(places, run.written, run.values, strict=True):
            heads = self._heads_of(keys) if place is None else compared[place]
            change = _changes(keys, values, heads, revisions)
            if change is None:
                return False
            last.update(zip(keys, change, strict=True))
            changes.append(change)
            size_bytes += sum(map(len, keys))
            if values[0] is not None:
                size_bytes += sum(map(len, cast("Sequence[bytes]", values)))
        if len(last) < txns * len(changes):
            return False  # one of them writes what another one writes
        for place, keys in enumerate(run.compared):
            if place in places:
                continue  # each compares what it writes itself, and no other one does
            if not last.keys().isdisjoint(keys[:1] if _all_one(keys) else keys):
                return False
        if not changes:
            results.extend(repeat(self.revision, txns))
            return True
        entries = [*zip(revisions, repeat(self.mesh_ns), zip(*changes, strict=True), strict=False)]
        if self._with_history:
            self._note_commits(run, entries)
        self.entries += entries
        self.last.update(last)
        self.size_bytes += size_bytes
        self.revision += txns
        self.needs_space = self.needs_space or (any(shape.then) and not shape.use_reserve)
        results.extend(revisions)
        return True

    def _run_one_by_one(self, run: Run, results: list[Result]) -> None:
        heads, known, find = self.last, self._known.young, self._find
        shape = run.shape
        targets = [int(target) for target in shape.targets]
        places = range(len(targets))
        late_or_early = shape.bounded and not self._in_time(run)
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
        return (self.last.get(key) or self._known.young.get(key) or self._find(key))[2:]

    def read(self, key: bytes) -> Record | None:
        """Gives a key's record, None where it is absent."""
        head = self.last.get(key)
        if head is None:
            return self._view.get(key)
        return None if head[1] is None else _make(Record, head[1:])

    def writes(self) -> tuple[list[Row], list[bytes]]:
        """Gives the final records and the deletions of the whole step, in order of keys.

        What was created in the step and deleted again is among the deletions.
        """
        last = self.last
        self.keys = sorted(last)
        changes = [last[key] for key in self.keys]
        puts = [change for change in changes if change[1] is not None]
        deletes = [change[0] for change in changes if change[1] is None]
        return cast("list[Row]", puts), deletes

    def _heads_of(self, keys: Sequence[bytes]) -> list[Written]:
        """Gives the heads of a column of keys."""
        return self._look_up(keys[:1]) * len(keys) if _all_one(keys) else self._look_up(keys)

    def _look_up(self, keys: Sequence[bytes]) -> list[Written]:
        older = self._known.old.get
        heads = [*map(self._known.young.get, keys)]
        if not self.last.keys().isdisjoint(keys):
            written = self.last.get
            heads = [written(key) or head for key, head in zip(keys, heads, strict=True)]
        if not all(heads):
            heads = [head or older(key) for key, head in zip(keys, heads, strict=True)]
            unknown = [key for key, head in zip(keys, heads, strict=True) if head is None]
            # In order of keys, in which LMDB finds most of them on the page of the one before.
            numbers = self._view.headers(sorted(unknown)) if unknown else {}
            if not numbers:  # new ones, almost always
                return [head or _ABSENT for head in heads]
            found: dict[bytes, Written] = {key: (key, None, *numbers[key]) for key in numbers}
            return [head or found.get(key, _ABSENT) for key, head in zip(keys, heads, strict=True)]
        return cast("list[Written]", heads)

    def _find(self, key: bytes) -> Written:
        """Looks up a key that the step has not looked up yet."""
        head = self._known.old.get(key) or self._looked_up.get(key)
        if head is None:
            numbers = self._view.header(key)
            head = _ABSENT if numbers is None else (key, None, *numbers)
            self._looked_up[key] = head
        return head

    def _value(self, key: bytes) -> bytes | None:
        record = self.read(key)
        return None if record is None else record.value

    def _in_time(self, run: Run) -> bool:
        """Tells that none of a run's transactions is too early or too late."""
        last_ns = min([it for it in run.not_after_ns if it], default=self.mesh_ns)
        return max(run.not_before_ns) <= self.mesh_ns <= last_ns

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
        heads, known, find = self.last, self._known.young, self._find
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
            self.size_bytes += len(key) + len(value or b"")
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

    def _note_commits(self, run: Run, entries: Sequence[Entry]) -> None:
        """Notes what transactions have compared and changed; they are not yet in `last`."""
        for (revision, mesh_ns, changes), keys, operands in zip(
            entries, rows(run.compared, run.txns), rows(run.operands, run.txns), strict=True
        ):
            noted = [
                Change(key, self.read(key), None if value is None else Record(value, *numbers))
                for key, value, *numbers in changes
            ]
            held = compares_of(run.shape, keys, operands)
            self.commits.append(Commit(revision, mesh_ns, held, tuple(noted)))

    def _lacks_space(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], *, use_reserve: bool
    ) -> bool:
        """Tells whether these writes, if they have an effect, are more than the space allows."""
        grows = any(value is not None for value in values)
        if self.space is Space.RESERVE:
            return grows and not use_reserve
        return grows or any(self.header(key)[0] for key in keys)


def _hold(heads: list[Written], target: Target, operands: Sequence[Operand]) -> bool:
    """Tells whether a compare holds for every transaction; False also where it isn't sure."""
    if target is Target.VALUE:
        return False
    found: list[Operand]
    if target is Target.EXISTS:
        found = [head[_MODIFIED] > 0 for head in heads]
    else:
        place = int(target)
        found = [head[place] for head in heads]  # type: ignore[misc]
    return found == [*operands]


def _changes(
    keys: Sequence[bytes],
    values: Sequence[bytes | None],
    heads: list[Written],
    revisions: range,
) -> list[Written] | None:
    """Gives the changes of a write by all transactions; None: some have none."""
    if values[0] is None:
        if 0 in [head[_CREATED] for head in heads]:
            return None
        return [(key, None, 0, 0, 0) for key in keys]
    return [
        (key, value, head[_CREATED] or revision, revision, head[_VERSION] + 1)
        for key, value, head, revision in zip(keys, values, heads, revisions, strict=True)
    ]


def _all_one(keys: Sequence[bytes]) -> bool:
    """Tells whether a column is one key, as that of a fence is; False also where it isn't sure."""
    return keys[0] is keys[-1] and keys.count(keys[0]) == len(keys)


def result_of(result: Result) -> TxnResult:
    """Gives what became of a transaction in full."""
    return TxnResult(Outcome.COMMITTED, result) if isinstance(result, int) else result

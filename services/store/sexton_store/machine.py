"""Evaluates transactions: pure, one after the other, against a snapshot and what came before.

A `Step` gathers what one durable write will make true. Each transaction sees the snapshot and the
effects of those before it in the same step; one that writes takes the next revision, one that does
not takes none. Nothing here waits, publishes or touches the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

from sexton_runtime.kv.types import (
    Compare,
    Op,
    Outcome,
    Put,
    Target,
    Txn,
    TxnResult,
)
from sexton_store.disk import Record, View
from sexton_store.history import Change, Commit

_ABSENT = (0, 0, 0)
_UNTOUCHED = Record(b"", 0, 0, 0)
"""Stands for a key that the step has not written."""
_POSITIONS = {Target.CREATE_REVISION: 0, Target.MOD_REVISION: 1, Target.VERSION: 2}
"""Where the three numbers stand in a header."""
_make = tuple.__new__
"""Makes a named tuple of what is known to be whole; its own constructor costs twice as much."""


Written = tuple[bytes, bytes | None, int, int]
"""A change as the watch window keeps it: key, value (None: deleted), create revision, version."""
Entry = tuple[int, int, tuple[Written, ...]]
"""A transaction that wrote: revision, mesh time, its changes in order.

These live long and in great numbers, so they are plain tuples of bytes and numbers, at which the
garbage collector stops looking. As the vocabulary's named tuples a full window made every full
collection stop the store for 0.3 s.
"""


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
        space: Space = Space.AMPLE,
        with_history: bool = False,
    ) -> None:
        self.revision = revision
        self.mesh_ns = mesh_ns
        self.entries: list[Entry] = []
        self.commits: list[Commit] = []
        self.needs_space = False
        """Whether something was written that may not use the reserve."""
        self.must_write = False
        """Whether the step is to be written even if nothing changed."""
        self.space = space
        self._view = view
        self._with_history = with_history
        self._overlay: dict[bytes, Record | None] = {}
        self._headers: dict[bytes, tuple[int, int, int]] = {}  # of all keys that were looked at
        self._new: set[bytes] = set()  # those that the snapshot does not have

    def evaluate(self, txn: Txn) -> TxnResult:
        """Evaluates one transaction.

        Raises `DamagedError` where a record that it must look at is damaged; the step is then
        unusable and is to be evaluated anew without this transaction.
        """
        if self.mesh_ns < txn.not_before_ns:
            return TxnResult(Outcome.TOO_EARLY, self.revision)
        if txn.not_after_ns and self.mesh_ns > txn.not_after_ns:
            return TxnResult(Outcome.TOO_LATE, self.revision)
        for index, compare in enumerate(txn.compares):
            key, target, operand = compare
            header = self._headers.get(key) or self.header(key)
            position = _POSITIONS.get(target)
            holds = self._holds(compare) if position is None else header[position] == operand
            if not holds:
                if not self._apply(txn.orelse, (), use_reserve=txn.use_reserve):
                    return TxnResult(Outcome.NO_SPACE, self.revision)
                return TxnResult(Outcome.REFUSED, self.revision, index, header[1])
        if not self._apply(txn.then, txn.compares, use_reserve=txn.use_reserve):
            return TxnResult(Outcome.NO_SPACE, self.revision)
        return _make(TxnResult, (Outcome.COMMITTED, self.revision, 0, 0))

    def header(self, key: bytes) -> tuple[int, int, int]:
        """Gives (create_revision, mod_revision, version) of a key; zeros where it is absent."""
        header = self._headers.get(key)
        if header is None:
            header = self._view.header(key)
            if header is None:
                header = _ABSENT
                self._new.add(key)
            self._headers[key] = header
        return header

    def read(self, key: bytes) -> Record | None:
        """Gives a key's record, None where it is absent."""
        record = self._overlay.get(key, _UNTOUCHED)
        return self._view.get(key) if record is _UNTOUCHED else record

    def writes(self) -> tuple[list[tuple[bytes, Record]], list[bytes]]:
        """Gives the final records and the deletions of the whole step.

        A key that did not exist before the step and does not after it is in neither.
        """
        puts: list[tuple[bytes, Record]] = []
        deletes: list[bytes] = []
        for key, record in self._overlay.items():
            if record is not None:
                puts.append((key, record))
            elif key not in self._new:
                deletes.append(key)
        return puts, deletes

    def _holds(self, compare: Compare) -> bool:
        """Tells whether a key's existence or value is what it is to be."""
        if compare.target is Target.EXISTS:
            return (self.header(compare.key) is not _ABSENT) == compare.operand
        record = self.read(compare.key)
        return record is not None and record.value == compare.operand

    def _apply(self, ops: Sequence[Op], held: tuple[Compare, ...], *, use_reserve: bool) -> bool:
        """Writes under the next revision; False: there is no space, nothing was written."""
        overlay, headers = self._overlay, self._headers
        effective: list[tuple[Op, int, int]] = []
        grows = False
        for op in ops:
            create, _, version = headers.get(op[0]) or self.header(op[0])
            if isinstance(op, Put):
                grows = True
            elif not create:
                continue
            effective.append((op, create, version))
        if not effective:
            return True
        if self.space is not Space.AMPLE and (
            self.space is Space.NONE or (grows and not use_reserve)
        ):
            return False
        self.needs_space = self.needs_space or (grows and not use_reserve)
        before = [self.read(op.key) for op, *_ in effective] if self._with_history else None
        self.revision = revision = self.revision + 1
        written: list[Written] = []
        for op, create, version in effective:
            key = op[0]
            if isinstance(op, Put):
                value = op[1]
                created = create or revision
                overlay[key] = _make(Record, (value, created, revision, version + 1))
                headers[key] = (created, revision, version + 1)
                written.append((key, value, created, version + 1))
            else:
                overlay[key] = None
                headers[key] = _ABSENT
                written.append((key, None, 0, 0))
        self.entries.append((revision, self.mesh_ns, tuple(written)))
        if before is not None:
            changes = tuple(
                Change(op.key, record, overlay[op.key])
                for (op, *_), record in zip(effective, before, strict=True)
            )
            self.commits.append(Commit(revision, self.mesh_ns, held, changes))
        return True

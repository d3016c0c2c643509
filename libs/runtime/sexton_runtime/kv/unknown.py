"""Finding out what became of a transaction whose answer was lost.

After `OutcomeUnknown` a transaction may have been applied, may never be, or may yet be: its request
can still be under way, a ghost that arrives when nobody thinks of it any more. To look once and see
nothing proves nothing. What decides:

**Applied** is decided by a proof that the caller names: keys from which it can be read, for as long
as anybody may ask, that this very transaction was applied.

**Not applied** is decided only when no copy can succeed any more: a revision that it compares has
passed (revisions never return), or mesh time has passed its `not_after`.

To bring a decision about, the same transaction is sent again. That is safe because its own writes
make its own compares fail: however many copies arrive, at most one is applied. Transactions of
which this is not true are refused before anything is sent. (One gap is left: a transaction that
compares nothing but absence could be applied again by a ghost after its key was deleted. Such keys
need an id that is never used twice, or a fence, or a `not_after`, beside them.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sexton.errors import (
    DeadlineExceeded,
    NoSpace,
    OutcomeUnknown,
    Overloaded,
    Unavailable,
)
from sexton_runtime.kv._backoff import Backoff
from sexton_runtime.kv.engine import Engine
from sexton_runtime.kv.types import (
    Compare,
    KeyValue,
    Outcome,
    Put,
    Snapshot,
    Target,
    Txn,
    TxnResult,
)
from sexton_runtime.randomness import Randomness

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
_ATTEMPTS = 3
"""One attempt is given this part of the whole time: a store that hangs once may answer again."""

_REVISIONS = (Target.CREATE_REVISION, Target.MOD_REVISION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """How to read that a transaction was applied.

    `revision` is given the `keys` as they stand and tells the revision of the transaction where
    they show that it was applied, else 0. It must tell it for as long as the outcome may be asked
    for, also after others have gone on from there, and must never tell it otherwise.
    """

    keys: tuple[bytes, ...]
    revision: Callable[[Sequence[KeyValue]], int]


def written(txn: Txn, key: bytes) -> Proof:
    """Proves by the value that `txn` puts under `key`.

    For values that nobody else writes there (they hold a random or natural id) and that stay until
    the outcome is known.
    """
    value = next(op.value for op in txn.then if isinstance(op, Put) and op.key == key)

    def revision(kvs: Sequence[KeyValue]) -> int:
        (kv,) = kvs
        return kv.mod_revision if kv.create_revision and kv.value == value else 0

    return Proof(keys=(key,), revision=revision)


def created(*keys: bytes) -> Proof:
    """Proves by the existence of any of `keys`: natural keys that only this intent creates.

    Give all places where the thing may be found by then (in flight, ended). The revision is that
    at which the found key was created; where that is a later place, it is not the transaction's.
    """

    def revision(kvs: Sequence[KeyValue]) -> int:
        return next((kv.create_revision for kv in kvs if kv.create_revision), 0)

    return Proof(keys=keys, revision=revision)


async def commit_resolved(
    engine: Engine,
    txn: Txn,
    *,
    proof: Proof,
    randomness: Randomness,
    timeout_s: float = 30.0,
) -> TxnResult:
    """Commits one transaction and finds out what became of it, also when answers are lost.

    Gives a result that is final: COMMITTED (exactly once), or what it was refused for, with no copy
    of this call under way that could still succeed. To call it again with the same transaction is
    safe: what an earlier call, or its ghost, has done is COMMITTED too.

    Raises `OutcomeUnknown` when that could not be found out within `timeout_s`. After every other
    error (`Unavailable`, `DeadlineExceeded`, `Overloaded`, ...) this call has done nothing.
    """
    _require_self_excluding(txn)
    try:
        async with asyncio.timeout(timeout_s):
            try:
                (result,) = await engine.commit([txn], timeout_s=timeout_s / _ATTEMPTS)
            except OutcomeUnknown:
                return await _resolve(engine, txn, proof, randomness, timeout_s / _ATTEMPTS)
            if result.outcome is Outcome.REFUSED:
                snapshot = await engine.get(proof.keys)
                if revision := proof.revision(snapshot.kvs):
                    return TxnResult(Outcome.COMMITTED, revision)
            return result
    except TimeoutError:
        raise OutcomeUnknown(f"still not known after {timeout_s:g} s") from None


async def resolve(
    engine: Engine,
    txn: Txn,
    *,
    proof: Proof,
    randomness: Randomness,
    timeout_s: float = 30.0,
) -> TxnResult:
    """Finds out what became of a transaction whose commit raised `OutcomeUnknown`.

    It may be applied by this, if it was not before. As `commit_resolved`, for those who commit many
    at once.
    """
    _require_self_excluding(txn)
    try:
        async with asyncio.timeout(timeout_s):
            return await _resolve(engine, txn, proof, randomness, timeout_s / _ATTEMPTS)
    except TimeoutError:
        raise OutcomeUnknown(f"still not known after {timeout_s:g} s") from None


async def _resolve(
    engine: Engine, txn: Txn, proof: Proof, randomness: Randomness, attempt_s: float
) -> TxnResult:
    backoff = Backoff(randomness, _FIRST_PAUSE_S, _LONGEST_PAUSE_S)
    while True:
        await asyncio.sleep(backoff.next_s())
        try:
            (result,) = await engine.commit([txn], timeout_s=attempt_s)
            if result.outcome is Outcome.COMMITTED:
                return result
            keys = (*proof.keys, *(compare.key for compare in txn.compares))
            snapshot = await engine.get(keys)
        except (Unavailable, DeadlineExceeded, Overloaded, NoSpace):
            continue
        if revision := proof.revision(snapshot.kvs[: len(proof.keys)]):
            return TxnResult(Outcome.COMMITTED, revision)
        if final := _refusal(txn, snapshot, snapshot.kvs[len(proof.keys) :]):
            return final


def _refusal(txn: Txn, snapshot: Snapshot, compared: Sequence[KeyValue]) -> TxnResult | None:
    """Gives the final answer where no copy of the transaction can succeed after this snapshot."""
    for index, (compare, kv) in enumerate(zip(txn.compares, compared, strict=True)):
        if _has_passed(compare, kv):
            return TxnResult(Outcome.REFUSED, snapshot.revision, index, kv.mod_revision)
    if 0 < txn.not_after_ns < snapshot.mesh_time_ns:  # mesh time never goes back
        return TxnResult(Outcome.TOO_LATE, snapshot.revision)
    return None


def _has_passed(compare: Compare, kv: KeyValue) -> bool:
    """Tells whether a compare fails for good: a revision that is gone never returns."""
    if compare.target not in _REVISIONS or compare.operand == 0:
        return False
    created_at = compare.target is Target.CREATE_REVISION
    return (kv.create_revision if created_at else kv.mod_revision) != compare.operand


def _require_self_excluding(txn: Txn) -> None:
    """Asserts that the transaction's own writes make its own compares fail."""
    writes = {op.key: op for op in txn.then}
    assert not txn.orelse, "a transaction with an else branch is never merely refused"
    assert any(
        compare.key in writes and _is_undone_by(compare, isinstance(writes[compare.key], Put))
        for compare in txn.compares
    ), "of the keys that it writes the transaction must compare one's revision or absence"


def _is_undone_by(compare: Compare, put: bool) -> bool:  # noqa: FBT001 - private, one caller
    match compare.target:
        case Target.MOD_REVISION | Target.VERSION:
            return put or compare.operand != 0  # deleting what is absent changes nothing
        case Target.CREATE_REVISION:
            return (compare.operand == 0) is put
        case Target.EXISTS:
            return bool(compare.operand) is not put
        case Target.VALUE:
            return False

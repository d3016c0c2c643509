"""The quick look at many transactions together says what the thorough one says of each."""

from __future__ import annotations

import random
from typing import Any, Final

from sexton.errors import InvalidArgument, TooLarge
from sexton_runtime.kv import validate
from sexton_runtime.kv.columns import runs_of, txns_of
from sexton_runtime.kv.types import Compare, Delete, Limits, Op, Put, Target, Txn

LIMITS: Final = Limits(
    max_key_bytes=8,
    max_value_bytes=8,
    max_ops_per_txn=4,
    max_txn_bytes=14,
    max_txns_per_commit=4,
    max_commit_bytes=18,
    max_keys_per_get=4,
    max_page_items=4,
    max_page_bytes=90,
    min_lease_ttl_ms=100,
    max_lease_ttl_ms=1_000,
    max_leases_per_renew=4,
)
"""So small that what is drawn passes some and not others."""
NUMBERS: Final = (Target.CREATE_REVISION, Target.MOD_REVISION, Target.VERSION)
FAULTY: Final = 0.03
"""So often something is drawn that may be wrong."""


def test_what_is_accepted_together_would_be_accepted_alone_and_weighs_the_same() -> None:
    draw = random.Random("columns")
    together = refused = 0
    for _ in range(3_000):
        txns = [_txn(draw) for _ in range(draw.choice((0, 1, 1, 2, 2, 3, 4, 5)))]
        runs = runs_of(txns)
        assert runs is not None
        assert list(txns_of(runs)) == txns
        quick = validate._weigh_sound(runs, LIMITS)
        try:
            thorough: validate.Cost | None = validate._check_each(txns, LIMITS)
        except (InvalidArgument, TooLarge):
            thorough = None
            refused += 1
        together += quick is not None
        assert quick in (None, thorough), txns
    assert together > 200
    assert refused > 200


def _txn(draw: random.Random) -> Txn:
    compares = tuple(_compare(draw) for _ in range(draw.randint(0, 2)))
    orelse = _ops(draw) if draw.random() < FAULTY else ()
    return Txn(compares, _ops(draw), orelse, _number(draw), _number(draw), draw.random() < 0.5)


def _compare(draw: random.Random) -> Compare:
    target = draw.choice((*NUMBERS, Target.EXISTS))
    if draw.random() < FAULTY:
        target = Target.VALUE
    operand: Any = draw.random() < 0.5 if target is Target.EXISTS else _number(draw)
    if target is Target.VALUE:
        operand = b"v" * draw.randint(0, 9)
    if draw.random() < FAULTY:
        operand = draw.choice((True, 1, -1, b"", 2**63))
    return Compare(_key(draw), target, operand)


def _ops(draw: random.Random) -> tuple[Op, ...]:
    return tuple(
        Delete(_key(draw))
        if draw.random() < 0.3
        else Put(_key(draw), b"v" * (9 if draw.random() < FAULTY else draw.choice((0, 1, 1, 8))))
        for _ in range(draw.randint(0, 3))
    )


def _key(draw: random.Random) -> bytes:
    if draw.random() < FAULTY:
        return draw.choice((b"", b"leases/a", b"leases", b"k" * 9))
    return b"%c" % draw.randrange(40) * draw.choice((1, 1, 2, 8))


def _number(draw: random.Random) -> int:
    return draw.choice((-1, 2**63)) if draw.random() < FAULTY else draw.choice((0, 7, 2**63 - 1))

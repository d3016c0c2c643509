"""Transactions in columns are the same transactions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import InvalidArgument, TooLarge
from sexton.internal.v1 import store_pb2 as pb
from sexton_runtime.kv.columns import runs_of, txns_of
from sexton_runtime.kv.packed import pack, unpack
from sexton_runtime.kv.types import Compare, Delete, Put, Target, Txn, absent, fence

KEYS = st.binary(min_size=1, max_size=3)
NUMBERS = st.integers(0, 2**63 - 1)
COMPARES = st.one_of(
    st.builds(
        Compare,
        KEYS,
        st.sampled_from((Target.CREATE_REVISION, Target.MOD_REVISION, Target.VERSION)),
        NUMBERS,
    ),
    st.builds(Compare, KEYS, st.just(Target.EXISTS), st.booleans()),
)
OPS = st.lists(
    st.one_of(st.builds(Put, KEYS, st.binary(max_size=3)), st.builds(Delete, KEYS)), max_size=3
).map(tuple)
TXNS = st.builds(
    Txn, st.lists(COMPARES, max_size=3).map(tuple), OPS, OPS, NUMBERS, NUMBERS, st.booleans()
)


@given(st.lists(TXNS, max_size=5), st.one_of(st.none(), COMPARES))
def test_what_is_packed_is_unpacked_again(txns: list[Txn], common: Compare | None) -> None:
    if common is not None:
        txns = [txn._replace(compares=(*txn.compares, common)) for txn in txns]
    runs = runs_of(txns)
    assert runs is not None
    packed = pb.PackedTxns()
    assert pack(runs, packed)
    unpacked = txns_of(unpack(pb.PackedTxns.FromString(packed.SerializeToString()), 5))

    assert unpacked == tuple(txns)
    operands = [type(it.operand) for txn in unpacked for it in txn.compares]
    assert operands == [type(it.operand) for txn in txns for it in txn.compares]


def test_what_transactions_have_in_common_is_written_once() -> None:
    held = fence("owner", 7)
    packed = pb.PackedTxns()
    txns = [Txn((absent(b"%d" % number), held), (Put(b"%d" % number, b""),)) for number in range(9)]
    assert pack(runs_of(txns) or (), packed)
    assert len(packed.shapes) == 1
    assert packed.fence.create_revision == 7
    assert len(packed.keys) == 9  # a write to the key that is compared names it


def test_a_write_to_a_key_that_is_compared_has_no_key_of_its_own() -> None:
    txns = [
        Txn((absent(b"a%d" % n), absent(b"b%d" % n)), (Delete(b"b%d" % n), Put(b"c%d" % n, b"")))
        for n in range(3)
    ]
    packed = pb.PackedTxns()
    assert pack(runs_of(txns) or (), packed)
    assert len(packed.keys) == 9
    (run,) = unpack(packed, 3)
    assert run.places() == (1, None)
    assert [piece.places() for piece in run.pieces(1)] == [(1, None)] * 3
    assert txns_of([run]) == tuple(txns)


def test_a_compare_of_a_value_is_not_packed() -> None:
    request = pb.CommitStreamRequest()
    txn = Txn((Compare(b"a", Target.VALUE, b""),), (Delete(b"a"),))
    assert not pack(runs_of([txn]) or (), request.packed)
    assert not request.HasField("packed")


@pytest.mark.parametrize(
    "packed",
    [
        pb.PackedTxns(order=[0]),
        pb.PackedTxns(order=[1], shapes=[b"\0\0\0"]),
        pb.PackedTxns(order=[0], shapes=[b""]),
        pb.PackedTxns(order=[0], shapes=[b"\0\1\0"], keys=[b"a"]),
        pb.PackedTxns(order=[0], shapes=[b"\4\0\0"]),
        pb.PackedTxns(order=[0], shapes=[b"\0\1\0\6"], keys=[b"a"]),
        pb.PackedTxns(order=[0], shapes=[b"\0\0\1\2"], keys=[b"a"], values=[b""]),
        pb.PackedTxns(order=[0], shapes=[b"\0\0\1\1"], keys=[b"a"]),
        pb.PackedTxns(order=[0], shapes=[b"\0\0\1\1"], values=[b"a"]),
        pb.PackedTxns(order=[0], shapes=[b"\0\1\0\3"], keys=[b"a"]),
        pb.PackedTxns(order=[0], shapes=[b"\0\1\1\5\4"], keys=[b"a"]),
        pb.PackedTxns(order=[0], shapes=[b"\0\1\1\5\2"], keys=[b"a", b"b"]),
        pb.PackedTxns(order=[0], shapes=[b"\2\0\0"], numbers=[1]),
        pb.PackedTxns(order=[0], shapes=[b"\0\0\0"], keys=[b"a"]),
        pb.PackedTxns(order=[0], shapes=[b"\0\0\0" + b"\0" * 256], keys=[b"a"] * 256),
        pb.PackedTxns(order=[0], shapes=[b"\0\0\0"], fence=pb.Compare(key=b"a")),
    ],
)
def test_columns_that_do_not_hang_together_are_refused(packed: pb.PackedTxns) -> None:
    with pytest.raises(InvalidArgument, match="packed"):
        unpack(packed, 9)


def test_too_many_transactions_are_refused_before_they_are_made() -> None:
    packed = pb.PackedTxns(order=[0] * 1_001, shapes=[b"\0\0\0"])
    with pytest.raises(TooLarge, match="1,001 transactions are too many; at most 1,000"):
        unpack(packed, 1_000)

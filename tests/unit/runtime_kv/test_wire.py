"""What travels to the store."""

from __future__ import annotations

from sexton.internal.v1 import store_pb2 as pb
from sexton_runtime.kv._wire import add_txns, common_fence, make_compare
from sexton_runtime.kv.types import Compare, Put, Target, Txn, absent, fence

OWN = absent(b"a")
FENCE = fence("owner", 7)
PUT = (Put(b"a", b""),)


def test_the_fence_of_several_transactions_is_taken_out_of_each() -> None:
    txns = [Txn((OWN, FENCE), PUT), Txn((fence("owner", 7),), PUT)]
    assert common_fence(txns) == FENCE

    request = pb.CommitStreamRequest()
    add_txns(request, txns, fenced=True)
    assert [[compare.key for compare in txn.compares] for txn in request.txns] == [[b"a"], []]


def test_what_not_all_transactions_end_with_stays_with_each() -> None:
    with_fence = Txn((OWN, FENCE), PUT)
    assert common_fence([with_fence]) is None
    assert common_fence([with_fence, Txn((), PUT)]) is None
    assert common_fence([Txn((), PUT), with_fence]) is None
    assert common_fence([with_fence, Txn((OWN, fence("owner", 8)), PUT)]) is None
    assert common_fence([with_fence, Txn((FENCE, OWN), PUT)]) is None


def test_a_compare_says_which_target_it_means() -> None:
    for target, operand in (
        (Target.CREATE_REVISION, 0),
        (Target.MOD_REVISION, 5),
        (Target.VERSION, 2),
        (Target.EXISTS, False),
        (Target.VALUE, b""),
    ):
        made = make_compare(pb.Compare, Compare(b"k", target, operand))
        named = made.WhichOneof("operand")
        assert named == target.name.lower()
        assert getattr(made, named) == operand

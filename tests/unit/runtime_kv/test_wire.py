"""What travels to the store."""

from __future__ import annotations

from sexton.internal.v1 import store_pb2 as pb
from sexton_runtime.kv._wire import make_compare
from sexton_runtime.kv.types import Compare, Target


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

"""What is read travels in columns to whoever reads them, and one by one to everybody else."""

from __future__ import annotations

import pytest

from sexton.internal.v1 import store_pb2 as pb
from sexton_runtime.kv._wire import kvs_from_wire
from sexton_runtime.kv.types import KeyValue
from sexton_store._wire import add_kvs

FOUND = KeyValue(b"a", b"value", 3, 7, 2)
ABSENT = KeyValue(b"b", b"", 0, 0, 0)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    "kvs", [(), (ABSENT,), (FOUND, ABSENT), (ABSENT, FOUND._replace(value=b""), FOUND)]
)
def test_what_is_read_is_the_same_in_both_forms(kvs: tuple[KeyValue, ...], *, packed: bool) -> None:
    for answer in (pb.GetResponse(), pb.ScanResponse()):
        add_kvs(answer, kvs, packed=packed)
        assert kvs_from_wire(type(answer).FromString(answer.SerializeToString())) == kvs
        assert bool(answer.kvs) == (bool(kvs) and not packed)

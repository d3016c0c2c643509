"""A scan that leaves out what has been written but once."""

from __future__ import annotations

import pytest
from unit.store.rig import Rig, simulated

from sexton_runtime.kv.types import Put, Txn
from sexton_store import engine


async def _write(rig: Rig, keys: list[bytes], times: int) -> None:
    for time in range(times):
        await rig.engine.commit([Txn(then=(Put(key, b"%d" % time),)) for key in keys])


@simulated
async def test_keys_written_fewer_times_are_left_out(rig: Rig) -> None:
    await _write(rig, [b"a", b"b", b"c", b"d"], 1)
    await _write(rig, [b"b", b"d"], 2)

    page = await rig.engine.scan(min_version=2)
    assert [(kv.key, kv.value, kv.version) for kv in page.kvs] == [
        (b"b", b"1", 3),
        (b"d", b"1", 3),
    ]
    page = await rig.engine.scan(min_version=3, keys_only=True, reverse=True, limit=1)
    assert [(kv.key, kv.value) for kv in page.kvs] == [(b"d", b"")]
    page = await rig.engine.scan(
        min_version=3, keys_only=True, reverse=True, page_token=page.next_token
    )
    assert ([kv.key for kv in page.kvs], page.next_token) == ([b"b"], b"")


@simulated
async def test_a_page_ends_where_many_were_left_out_and_the_next_goes_on(rig: Rig) -> None:
    await _write(rig, [b"%02d" % number for number in range(20)], 1)
    await _write(rig, [b"17"], 1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "MAX_PASSED", 10)
        page = await rig.engine.scan(min_version=2)
        assert page.kvs == ()
        page = await rig.engine.scan(min_version=2, page_token=page.next_token)
        assert [kv.key for kv in page.kvs] == [b"17"]
        assert page.next_token == b""

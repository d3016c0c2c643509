"""A scan that leaves out much gives others their turn."""

from __future__ import annotations

import pytest
from unit.store.rig import Rig, simulated

from sexton_runtime.kv.types import Put, Txn
from sexton_store import engine


async def _write(rig: Rig, keys: list[bytes], times: int) -> None:
    for time in range(times):
        await rig.engine.commit([Txn(then=(Put(key, b"%d" % time),)) for key in keys])


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

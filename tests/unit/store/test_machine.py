"""Transactions that are evaluated together come to the same as one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton_runtime.kv.columns import runs_of
from sexton_runtime.kv.types import Compare, Delete, Put, Target, Txn, absent, fence
from sexton_store.disk import WriteBatch
from sexton_store.known import KnownHeads
from sexton_store.machine import Result, Space, Step
from sexton_store.memory_disk import MemoryDisk

MESH_NS = 50
KEYS = st.sampled_from([b"%c" % letter for letter in b"abcdefgh"])
COMPARES = st.one_of(
    st.builds(Compare, KEYS, st.just(Target.MOD_REVISION), st.sampled_from((0, 0, 7, 11))),
    st.builds(Compare, KEYS, st.just(Target.CREATE_REVISION), st.sampled_from((0, 3))),
    st.builds(Compare, KEYS, st.just(Target.VERSION), st.integers(0, 2)),
    st.builds(Compare, KEYS, st.just(Target.EXISTS), st.booleans()),
    st.builds(Compare, KEYS, st.just(Target.VALUE), st.just(b"old")),
)
OPS = st.lists(
    st.one_of(st.builds(Put, KEYS, st.binary(max_size=3)), st.builds(Delete, KEYS)),
    max_size=3,
    unique_by=lambda op: op.key,
).map(tuple)
TIMES = st.sampled_from((0, 0, 0, MESH_NS - 1, MESH_NS, MESH_NS + 1))
TXNS = st.builds(
    Txn, st.lists(COMPARES, max_size=2).map(tuple), OPS, OPS, TIMES, TIMES, st.booleans()
)


@st.composite
def alike(draw: st.DrawFn) -> list[Txn]:
    """Draws transactions of one shape, whose keys may be the same or each other's."""
    writes = draw(st.lists(st.booleans(), max_size=2))
    rows = st.tuples(*[KEYS] * 5, st.sampled_from((0, 0, 0, 7)))
    return [
        Txn(
            (Compare(first, Target.MOD_REVISION, asked), absent(second)),
            tuple(
                Put(key, b"v") if is_put else Delete(key)
                for is_put, key in zip(writes, dict.fromkeys((first, *others)), strict=False)
            ),
        )
        for first, second, *others, asked in draw(st.lists(rows, min_size=3, max_size=8))
    ]


def evaluated(txns: list[Txn], known: KnownHeads, disk: MemoryDisk, **options: Any) -> Any:
    with disk.view() as view:
        step = Step(view, revision=10, mesh_ns=MESH_NS, known=known, with_history=True, **options)
        results: list[Result] = []
        for run in runs_of(txns) or ():
            step.run(run, results)
        last = (step.revision, step.needs_space, step.entries, step.commits, step.size_bytes)
        return results, last, step.writes()


async def a_disk() -> MemoryDisk:
    disk = MemoryDisk()
    rows = [
        (b"a", b"old", 3, 3, 1),
        (b"b", b"old", 3, 7, 2),
        (b"c", b"old", 7, 7, 1),
        (b"g", b"old", 9, 9, 1),
    ]
    await disk.write(WriteBatch(rows, (), b"c"), use_reserve=False)
    return disk


@given(
    txns=st.one_of(st.lists(TXNS, max_size=6), alike()),
    space=st.sampled_from((Space.AMPLE, *Space)),
)
async def test_together_as_one_by_one(txns: list[Txn], space: Space) -> None:
    disk, known = await a_disk(), KnownHeads()
    known.note({b"b": (b"b", b"old", 3, 7, 2), b"d": (b"d", None, 0, 0, 0)}, 0)
    together = evaluated(txns, known, disk, space=space)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Step, "_run_together", lambda _self, _run, _results: False)
        assert evaluated(txns, known, disk, space=space) == together


@pytest.mark.parametrize(
    "txns",
    [
        [Txn((absent(b"n%d" % n), fence("l", 0)), (Put(b"n%d" % n, b""),)) for n in range(9)],
        [
            Txn((Compare(key, Target.EXISTS, True),), (Delete(key),))
            for key in (b"a", b"b", b"c", b"g")
        ],
        [Txn((), (Put(b"n%d" % n, b""), Put(b"m%d" % n, b""))) for n in range(9)],
        [Txn((absent(b"n%d" % n),)) for n in range(9)],
    ],
)
async def test_what_a_mesh_commits_is_evaluated_together(
    txns: list[Txn], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Step, "_run_one_by_one")
    results, (revision, *_), _ = evaluated(txns, KnownHeads(), await a_disk())
    assert len(results) == len(txns)
    assert revision == (10 + len(txns) if txns[0].then else 10)

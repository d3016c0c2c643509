"""What every disk does, the real one and its twin."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from conformance.disk.bench import Bench
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sexton_runtime.kv.types import KeyValue
from sexton_store.disk import Disk, DiskFailedError, DiskFullError, Record, WriteBatch

KIB = 1024
ONE = Record(b"one", 1, 1, 1)
TWO = Record(b"two", 1, 2, 2)


async def put(disk: Disk, *puts: tuple[bytes, Record], reserve: bool = False) -> None:
    rows = [(key, *record) for key, record in puts]
    await disk.write(WriteBatch(rows, (), b"cluster"), use_reserve=reserve)


async def delete(disk: Disk, *keys: bytes, reserve: bool = False) -> None:
    await disk.write(WriteBatch((), keys, b"cluster"), use_reserve=reserve)


def scanned(disk: Disk, start: bytes = b"", end: bytes = b"", **options: bool) -> list[bytes]:
    with disk.view() as view:
        return [kv.key for kv in view.scan(start, end, **options)]


async def fill(
    disk: Disk, prefix: bytes = b"fill/", value_bytes: int = 2 * KIB, *, reserve: bool = False
) -> list[bytes]:
    """Writes until there is no room, and gives the keys that were written."""
    keys: list[bytes] = []
    while len(keys) < 10_000:
        batch = [b"%s%05d" % (prefix, number) for number in range(len(keys), len(keys) + 20)]
        value = random.Random(len(keys)).randbytes(value_bytes)
        try:
            await put(disk, *((key, Record(value, 1, 1, 1)) for key in batch), reserve=reserve)
        except DiskFullError:
            return keys
        keys += batch
    raise AssertionError("the disk does not become full")


class TestSteps:
    def test_a_new_disk_is_empty(self, disk: Disk) -> None:
        assert disk.cluster_record() is None
        assert scanned(disk) == []
        assert disk.usage().keys == 0
        with disk.view() as view:
            assert view.cluster_record() == b""
            assert view.get(b"absent") is None
            assert view.header(b"absent") is None

    async def test_a_step_is_seen_when_write_has_returned(self, disk: Disk) -> None:
        await put(disk, (b"b", ONE), (b"a", TWO))
        with disk.view() as view:
            assert view.get(b"a") == TWO
            assert view.get(b"b") == ONE
            assert view.header(b"a") == (1, 2, 2)
            assert view.cluster_record() == b"cluster"
        assert disk.cluster_record() == b"cluster"
        assert disk.usage().keys == 2

    async def test_puts_replace_and_deletes_remove_in_one_step(self, disk: Disk) -> None:
        await put(disk, (b"kept", ONE), (b"changed", ONE), (b"deleted", ONE))
        batch = WriteBatch([(b"changed", *TWO)], [b"deleted", b"never there"], b"next")
        await disk.write(batch, use_reserve=False)
        with disk.view() as view:
            assert list(view.scan(b"", b"")) == [
                KeyValue(b"changed", *TWO),
                KeyValue(b"kept", *ONE),
            ]
        assert disk.cluster_record() == b"next"

    async def test_a_step_of_the_cluster_record_alone_is_a_step(self, disk: Disk) -> None:
        await disk.write(WriteBatch((), (), b"alone"), use_reserve=True)
        assert disk.cluster_record() == b"alone"

    @pytest.mark.parametrize("size", [0, 1, 4096, 1024 * KIB])
    async def test_values_of_every_size_come_back(self, disk: Disk, size: int) -> None:
        value = random.Random(size).randbytes(size)
        await put(disk, (b"k" * 480, Record(value, 5, 7, 3)))
        with disk.view() as view:
            assert view.get(b"k" * 480) == Record(value, 5, 7, 3)

    async def test_numbers_up_to_two_to_the_53_come_back(self, disk: Disk) -> None:
        record = Record(b"", 2**53 - 2, 2**53 - 1, 2**53 - 1)
        await put(disk, (b"k", record))
        with disk.view() as view:
            assert view.get(b"k") == record

    async def test_every_byte_may_stand_in_a_key(self, disk: Disk) -> None:
        keys = [b"\x00", b"\x00\x00", b"\x00\xff", b"a\x00b", b"\xff", b"\xff\xff"]
        await put(disk, *((key, ONE) for key in reversed(keys)))
        assert scanned(disk) == keys


class TestViews:
    async def test_a_view_stays_as_it_was(self, disk: Disk) -> None:
        await put(disk, (b"a", ONE))
        with disk.view() as before:
            await disk.write(WriteBatch([(b"b", *ONE)], [b"a"], b"after"), use_reserve=False)
            assert [kv.key for kv in before.scan(b"", b"")] == [b"a"]
            assert before.cluster_record() == b"cluster"
        assert scanned(disk) == [b"b"]

    @pytest.mark.parametrize(
        ("start", "end", "found"),
        [
            (b"", b"", [b"a", b"b", b"b/1", b"c"]),
            (b"b", b"", [b"b", b"b/1", b"c"]),
            (b"", b"b", [b"a"]),
            (b"b", b"c", [b"b", b"b/1"]),
            (b"b", b"b", []),
            (b"b/", b"b0", [b"b/1"]),
            (b"d", b"", []),
            (b"", b"0", []),
            (b"", b"zz", [b"a", b"b", b"b/1", b"c"]),
        ],
    )
    async def test_a_scan_is_the_half_open_range_in_either_order(
        self, disk: Disk, start: bytes, end: bytes, found: Sequence[bytes]
    ) -> None:
        await put(disk, (b"a", ONE), (b"b", ONE), (b"b/1", ONE), (b"c", ONE))
        assert scanned(disk, start, end) == list(found)
        assert scanned(disk, start, end, reverse=True) == list(reversed(found))

    async def test_a_scan_of_keys_leaves_the_values_out(self, disk: Disk) -> None:
        await put(disk, (b"a", TWO))
        with disk.view() as view:
            assert list(view.scan(b"", b"", keys_only=True)) == [KeyValue(b"a", b"", 1, 2, 2)]

    async def test_a_scan_may_be_left_half_way(self, disk: Disk) -> None:
        await put(disk, (b"a", ONE), (b"b", ONE))
        with disk.view() as view:
            assert next(view.scan(b"", b"")).key == b"a"
        await put(disk, (b"c", ONE))
        assert scanned(disk) == [b"a", b"b", b"c"]

    async def test_a_view_that_failed_is_closed(self, disk: Disk) -> None:
        with pytest.raises(ZeroDivisionError), disk.view():
            raise ZeroDivisionError
        assert disk.usage().oldest_reader_ms == 0


class TestRestart:
    async def test_what_was_written_is_there_after_a_restart(self, bench: Bench) -> None:
        await put(bench.disk, (b"a", ONE), (b"b", TWO))
        disk: Disk = await bench.restart()
        assert disk.cluster_record() == b"cluster"
        assert disk.usage().keys == 2
        with disk.view() as view:
            assert view.get(b"b") == TWO

    async def test_a_closed_disk_writes_nothing(self, disk: Disk) -> None:
        await disk.close()
        await disk.close()
        with pytest.raises(DiskFailedError):
            await put(disk, (b"a", ONE))


@pytest.mark.slow
class TestFull:
    async def test_a_step_that_does_not_fit_changes_nothing(self, disk: Disk) -> None:
        keys = await fill(disk)
        assert len(keys) >= 400
        assert scanned(disk) == keys
        assert disk.cluster_record() == b"cluster"

    async def test_a_full_disk_can_be_emptied_and_filled_again(self, disk: Disk) -> None:
        keys = await fill(disk)
        for index in range(0, len(keys), 20):
            await delete(disk, *keys[index : index + 20], reserve=True)
        assert scanned(disk) == []
        again = await fill(disk)
        assert len(again) > 0.9 * len(keys)

    async def test_settlements_go_through_on_a_full_disk_for_long(self, disk: Disk) -> None:
        keys = await fill(disk)
        for round_number in range(100):
            key = keys[round_number]
            settled = (b"ended/" + key, b"settled" * 50, 1, 1, 1)
            batch = WriteBatch([settled], [key], b"round %d" % round_number)
            await disk.write(batch, use_reserve=True)
        assert len(scanned(disk, b"ended/", b"ended0")) == 100
        assert disk.cluster_record() == b"round 99"

    async def test_the_reserve_ends_too_and_deletes_still_go_through(self, disk: Disk) -> None:
        keys = await fill(disk)
        assert await fill(disk, b"reserve/", reserve=True)
        for index in range(0, len(keys), 5):
            await delete(disk, *keys[index : index + 5], reserve=True)
        assert scanned(disk, b"fill/", b"fill0") == []

    async def test_ordinary_steps_go_on_after_room_was_made(self, disk: Disk) -> None:
        keys = await fill(disk)
        await delete(disk, *keys[:200], reserve=True)
        for number in range(20):
            await put(disk, (b"small/%d" % number, ONE))
        assert len(scanned(disk, b"small/", b"small0")) == 20


class TestHistory:
    async def test_a_steps_lines_are_kept_in_order(self, bench: Bench) -> None:
        disk: Disk = bench.disk
        await disk.write(WriteBatch((), (), b"1", (b"a\n", b"b\n")), use_reserve=False)
        await disk.write(WriteBatch((), (), b"2", (b"c\n",)), use_reserve=False)
        assert bench.history.lines == [b"a\n", b"b\n", b"c\n"]

    async def test_a_refused_step_leaves_no_line(self, bench: Bench) -> None:
        disk: Disk = bench.disk
        await disk.write(WriteBatch((), (), b"1", (b"kept\n",)), use_reserve=False)
        huge = [(b"huge/%d" % n, bytes(512 * KIB), 1, 1, 1) for n in range(8)]
        with pytest.raises(DiskFullError):
            await disk.write(WriteBatch(huge, (), b"2", (b"refused\n",)), use_reserve=False)
        assert bench.history.lines == [b"kept\n"]


Steps = list[tuple[dict[bytes, bytes], set[bytes]]]
KEYS = st.binary(min_size=1, max_size=4)
STEPS = st.lists(st.tuples(st.dictionaries(KEYS, st.binary(max_size=40)), st.sets(KEYS)))


@pytest.mark.slow
class TestModel:
    @settings(
        max_examples=30,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(steps=STEPS)
    async def test_it_is_a_sorted_dictionary(self, bench: Bench, steps: Steps) -> None:
        disk: Disk = bench.disk
        await delete(disk, *scanned(disk))
        model: dict[bytes, Record] = {}
        for revision, (puts, deletes) in enumerate(steps, start=1):
            final = {key: Record(value, 1, revision, 1) for key, value in puts.items()}
            gone = sorted(deletes - set(final))
            rows = [(key, *record) for key, record in final.items()]
            await disk.write(WriteBatch(rows, gone, b"%d" % revision), use_reserve=False)
            model.update(final)
            for key in gone:
                model.pop(key, None)
        with disk.view() as view:
            assert list(view.scan(b"", b"")) == [
                KeyValue(key, *model[key]) for key in sorted(model)
            ]
        assert disk.usage().keys == len(model)

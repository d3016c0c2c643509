from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton_store.disk import DamagedError, Record
from sexton_store.record import (
    RECORD_OVERHEAD_BYTES,
    decode_cluster_record,
    decode_head,
    decode_record,
    encode_cluster_record,
    encode_record,
)

REVISIONS = st.integers(0, 2**53)
RECORDS = st.builds(Record, st.binary(max_size=100), REVISIONS, REVISIONS, REVISIONS)
KEYS = st.binary(min_size=1, max_size=480)


def test_the_format_on_disk_is_fixed() -> None:
    data = encode_record(b"jobs/a", Record(b"value", 1, 2, 3))
    assert [data[:4].hex(), data[4:8].hex(), data[8:16].hex(), data[16:24].hex()] == [
        "4efd1538",
        "6303e0e1",
        "0100000000000000",
        "0200000000000000",
    ]
    assert [data[24:32].hex(), data[32:]] == ["0300000000000000", b"value"]


@given(key=KEYS, record=RECORDS)
def test_what_is_encoded_is_decoded(key: bytes, record: Record) -> None:
    data = encode_record(key, record)
    assert len(data) == RECORD_OVERHEAD_BYTES + len(record.value)
    assert decode_record(key, data) == record
    assert decode_record(key, memoryview(data)) == record
    assert decode_head(key, data) == record[1:]


@given(record=RECORDS, data=st.data())
def test_any_flipped_bit_is_found(record: Record, data: st.DataObject) -> None:
    encoded = bytearray(encode_record(b"key", record))
    position = data.draw(st.integers(0, len(encoded) * 8 - 1))
    encoded[position // 8] ^= 1 << position % 8
    with pytest.raises(DamagedError, match="b'key' is damaged"):
        decode_record(b"key", bytes(encoded))


@given(record=RECORDS, data=st.data())
def test_any_flipped_bit_of_the_numbers_is_found_without_the_value(
    record: Record, data: st.DataObject
) -> None:
    encoded = bytearray(encode_record(b"key", record))
    position = data.draw(st.integers(0, RECORD_OVERHEAD_BYTES * 8 - 1))
    encoded[position // 8] ^= 1 << position % 8
    with pytest.raises(DamagedError, match="b'key' is damaged"):
        decode_head(b"key", bytes(encoded))


@given(record=RECORDS, cut=st.integers(1, 200))
def test_a_record_that_was_cut_off_is_found(record: Record, cut: int) -> None:
    encoded = encode_record(b"key", record)
    with pytest.raises(DamagedError):
        decode_record(b"key", encoded[:-cut] if cut < len(encoded) else b"")


def test_a_record_under_another_key_is_found() -> None:
    data = encode_record(b"one", Record(b"value", 1, 1, 1))
    with pytest.raises(DamagedError, match="b'two'"):
        decode_record(b"two", data)


@given(content=st.binary(max_size=200))
def test_a_cluster_record_comes_back(content: bytes) -> None:
    assert decode_cluster_record(encode_cluster_record(content)) == content


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x00\x00", b"\x01\x00\x00\x00", b"abcdefgh"])
def test_a_damaged_cluster_record_is_found(data: bytes) -> None:
    with pytest.raises(DamagedError, match="the cluster record is damaged"):
        decode_cluster_record(data)

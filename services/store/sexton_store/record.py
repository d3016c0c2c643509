"""How a record and the cluster record look on disk: checksum first, then what it protects.

LMDB 0.9 keeps no checksums, so every value carries its own. A record is::

    head checksum   u32   CRC32C of the key, the value's checksum and the three numbers
    value checksum  u32   CRC32C of the value
    create revision u64
    mod revision    u64
    version         u64
    value

all little-endian. Two checksums, chained, cover key, numbers and value together and let the
numbers be trusted without reading a value of 1 MiB. The key is covered so that a value that ends up
under another key is found out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from crc32c import crc32c

from sexton_runtime.kv.types import KeyValue
from sexton_store.disk import DamagedError, Record, Row

_HEAD = struct.Struct("<IIQQQ")
_COVERED = struct.Struct("<IQQQ")
_CHECKSUM = struct.Struct("<I")
_make = tuple.__new__
"""Makes a named tuple of what is known to be whole; its own constructor costs twice as much."""

RECORD_OVERHEAD_BYTES = _HEAD.size


def encode_record(key: bytes, record: Record) -> bytes:
    """Encodes a record as it is stored under `key`."""
    value, create_revision, mod_revision, version = record
    covered = _COVERED.pack(crc32c(value), create_revision, mod_revision, version)
    return crc32c(key + covered).to_bytes(4, "little") + covered + value


def encode_rows(rows: Iterable[Row]) -> list[tuple[bytes, bytes]]:
    """Encodes many records as `encode_record` does, each with its key."""
    pack, checksum = _COVERED.pack, crc32c
    encoded: list[tuple[bytes, bytes]] = []
    for key, value, create_revision, mod_revision, version in rows:
        covered = pack(checksum(value), create_revision, mod_revision, version)
        head = checksum(key + covered).to_bytes(4, "little")
        encoded.append((key, head + covered + value))
    return encoded


def decode_head(key: bytes, data: bytes | memoryview) -> tuple[int, int, int]:
    """Reads (create_revision, mod_revision, version), leaving the value unread and unchecked.

    Raises `DamagedError` where the head is not what was written under this key.
    """
    if len(data) < _HEAD.size:
        raise _cut_off(key, data)
    head_checksum, _, create_revision, mod_revision, version = _HEAD.unpack_from(data)
    if crc32c(key + data[4 : _HEAD.size]) != head_checksum:
        raise _damaged(key, "head")
    return create_revision, mod_revision, version


def decode_record(key: bytes, data: bytes | memoryview) -> Record:
    """Reads a record whole; raises `DamagedError` where it is not what was written."""
    # Not by way of `decode_head`: this is read on the store's loop, and a call more is a third.
    if len(data) < _HEAD.size:
        raise _cut_off(key, data)
    data = bytes(data)  # its parts are taken out of bytes faster than out of a view
    head_checksum, value_checksum, create_revision, mod_revision, version = _HEAD.unpack_from(data)
    if crc32c(key + data[4 : _HEAD.size]) != head_checksum:
        raise _damaged(key, "head")
    value = data[_HEAD.size :]
    if crc32c(value) != value_checksum:
        raise _damaged(key, "value")
    return _make(Record, (value, create_revision, mod_revision, version))


def decode_key(key: bytes, data: bytes | memoryview) -> KeyValue:
    """Reads a key with its record's numbers; raises `DamagedError` as `decode_head` does."""
    return _make(KeyValue, (key, b"", *decode_head(key, data)))


def decode_key_value(key: bytes, data: bytes | memoryview) -> KeyValue:
    """Reads a key with its record; raises `DamagedError` as `decode_record` does."""
    return _make(KeyValue, (key, *decode_record(key, data)))


def encode_cluster_record(content: bytes) -> bytes:
    """Encodes the cluster record: its checksum, then its bytes."""
    return _CHECKSUM.pack(crc32c(content)) + content


def decode_cluster_record(data: bytes | memoryview) -> bytes:
    """Reads the cluster record; raises `DamagedError` where it is not what was written."""
    content = bytes(data[_CHECKSUM.size :])
    if len(data) < _CHECKSUM.size or crc32c(content) != _CHECKSUM.unpack_from(data)[0]:
        raise DamagedError("the cluster record is damaged: its checksum is wrong")
    return content


def _cut_off(key: bytes, data: bytes | memoryview) -> DamagedError:
    return DamagedError(f"the record of key {key!r} is cut off: {len(data)} bytes")


def _damaged(key: bytes, part: str) -> DamagedError:
    return DamagedError(f"the record of key {key!r} is damaged: its {part}'s checksum is wrong")

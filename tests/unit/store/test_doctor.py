from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import lmdb
import pytest

from sexton_runtime.clock import SystemClock
from sexton_runtime.kv.types import Put, Txn
from sexton_runtime.randomness import SeededRandomness
from sexton_store.checks import CHECKS, Check
from sexton_store.cluster import ClusterState, encode_lease
from sexton_store.disk import Record
from sexton_store.doctor import Diagnosis, examine, examine_in_child
from sexton_store.engine import EmbeddedEngine
from sexton_store.folder import CLUSTER, CLUSTER_KEY, DATA_FILE, RECORDS
from sexton_store.lmdb_disk import LmdbConfig, LmdbDisk
from sexton_store.record import encode_record

SMALL = LmdbConfig(reserve_bytes=0, verify_up_to_bytes=0)


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """A store with three records, one of them a lease, at revision 4."""
    disk = LmdbDisk.open(tmp_path, SMALL)
    engine = EmbeddedEngine(disk, SystemClock(), SeededRandomness(1))
    await engine.start()
    await engine.commit([Txn(then=(Put(b"a", b"1"),)), Txn(then=(Put(b"b", b"2"),))])
    await engine.acquire_lease("leader", "holder", 10_000)
    await engine.commit([Txn(then=(Put(b"a", b"3"),))])
    await engine.stop()
    await disk.close()
    return tmp_path


def spoil(folder: Path, key: bytes, data: bytes | None, database: bytes = RECORDS) -> None:
    """Writes what no store writes."""
    with (
        lmdb.Environment(str(folder), max_dbs=2) as env,
        env.begin(write=True, db=env.open_db(database)) as txn,
    ):
        if data is None:
            txn.delete(key)
        else:
            txn.put(key, data)


def findings(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    return [(finding.check, finding.message) for finding in diagnosis.findings]


def test_a_sound_store_has_no_findings(folder: Path) -> None:
    diagnosis = examine(folder)
    assert diagnosis.healthy
    assert (diagnosis.records, diagnosis.revision) == (3, 4)


@pytest.mark.slow
def test_the_child_finds_the_same(folder: Path) -> None:
    assert examine_in_child(folder) == examine(folder)
    spoil(folder, b"a", b"garbage")
    diagnosis = examine_in_child(folder)
    assert not diagnosis.healthy
    assert diagnosis == examine(folder)


def test_a_diagnosis_survives_json(folder: Path) -> None:
    spoil(folder, b"a", b"garbage")
    diagnosis = examine(folder)
    assert Diagnosis.from_json(diagnosis.to_json()) == diagnosis
    assert '"healthy": false' in diagnosis.to_json()


@pytest.mark.parametrize(
    ("key", "record", "check", "message"),
    [
        (b"k", Record(b"", 1, 5, 2), "revisions", "key b'k' was written at 5, after the revis"),
        (b"k", Record(b"", 3, 2, 1), "revisions", "key b'k' was created at 3, written at 2"),
        (b"k", Record(b"", 0, 2, 1), "revisions", "key b'k' was created at 0"),
        (b"k", Record(b"", 2, 2, 0), "revisions", "key b'k' was created at 2, written at 2, ver"),
        (b"k", Record(b"", 2, 3, 1), "revisions", "key b'k' cannot have version 1 from 2 to 3"),
        (b"k", Record(b"", 2, 3, 3), "revisions", "key b'k' cannot have version 3 from 2 to 3"),
        (b"k" * 481, Record(b"", 1, 1, 1), "revisions", "has 481 bytes"),
        (b"leases/x", Record(b"\xff", 1, 1, 1), "leases", "the value of b'leases/x' is no lease"),
        (
            b"leases/x",
            Record(encode_lease("h", 99, b""), 1, 1, 1),
            "leases",
            "the lease b'leases/x' of holder 'h' has a ttl of 99 ms",
        ),
    ],
)
def test_an_impossible_record_is_found(
    folder: Path, key: bytes, record: Record, check: str, message: str
) -> None:
    spoil(folder, key, encode_record(key, record))
    [(found_check, found)] = findings(examine(folder))
    assert found_check == check
    assert message in found


def test_a_record_under_another_key_is_found(folder: Path) -> None:
    spoil(folder, b"c", encode_record(b"b", Record(b"2", 2, 2, 1)))
    assert findings(examine(folder)) == [
        ("checksums", "the record of key b'c' is damaged: its head's checksum is wrong")
    ]


def test_a_missing_cluster_record_is_found(folder: Path) -> None:
    spoil(folder, CLUSTER_KEY, None, CLUSTER)
    assert findings(examine(folder)) == [("cluster", "there are 3 records but no cluster record")]


def test_a_damaged_cluster_record_is_found(folder: Path) -> None:
    spoil(folder, CLUSTER_KEY, b"garbage", CLUSTER)
    assert ("cluster", "the cluster record is damaged: its checksum is wrong") in findings(
        examine(folder)
    )


def test_a_file_of_something_else_is_found(tmp_path: Path) -> None:
    (tmp_path / DATA_FILE).write_bytes(b"not a store" * 1000)
    [(check, message)] = findings(examine(tmp_path))
    assert check == "structure"
    assert "is not a data file of a store" in message


def test_another_lmdb_file_is_found(tmp_path: Path) -> None:
    with lmdb.Environment(str(tmp_path)) as env, env.begin(write=True) as txn:
        txn.put(b"some", b"thing")
    assert findings(examine(tmp_path)) == [
        ("structure", "the data file is not one of a store: its databases are absent")
    ]


def test_a_damaged_structure_is_found_without_reading_records(folder: Path) -> None:
    file = folder / DATA_FILE
    content = bytearray(file.read_bytes())
    for page in range(2, len(content) // 4096):
        content[page * 4096 + 10] ^= 0x40
    file.write_bytes(content)
    diagnosis = examine(folder)
    assert diagnosis.records == 0
    assert {finding.check for finding in diagnosis.findings} == {"structure"}


def test_more_findings_are_counted_than_listed(folder: Path) -> None:
    for number in range(120):
        spoil(folder, b"bad/%03d" % number, b"garbage")
    diagnosis = examine(folder)
    assert diagnosis.findings_total == 120
    assert len(diagnosis.findings) == 100


def test_a_missing_folder_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        examine(tmp_path)


def test_other_parts_bring_their_own_checks(folder: Path) -> None:
    class Index:
        """Every record has an index entry; says so at the end."""

        name = "index"

        def __init__(self) -> None:
            self.keys: list[bytes] = []

        def start(self, cluster: ClusterState | None) -> Iterable[str]:
            return []

        def record(self, key: bytes, record: Record) -> Iterable[str]:
            self.keys.append(key)
            return [f"{key!r} is odd"] if record.value == b"2" else []

        def end(self) -> Iterable[str]:
            return [f"{len(self.keys)} records and no index"]

    checks: list[type[Check]] = [*CHECKS, Index]  # type: ignore[list-item]
    assert findings(examine(folder, checks)) == [
        ("index", "b'b' is odd"),
        ("index", "3 records and no index"),
    ]

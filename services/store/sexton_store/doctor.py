"""The doctor: examines a data folder offline, as far as the disk alone can tell.

Reading a damaged file through LMDB can end the process (SIGBUS, a failed assertion), so an
examination runs in a child process: `examine` in the child, `examine_in_child` for everybody else.
First the file's structure is verified from its plain bytes; only if that is sound every record is
read: checksums first, then what the checks of `checks.py` know.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import lmdb
from lmdb.verify import VerifyError, verify

from sexton_store import cluster
from sexton_store.checks import CHECKS, Check
from sexton_store.cluster import ClusterState
from sexton_store.disk import DamagedError
from sexton_store.folder import CLUSTER, CLUSTER_KEY, DATA_FILE, RECORDS, check_whole
from sexton_store.record import decode_cluster_record, decode_record

MAX_FINDINGS = 100
"""More are counted, not listed: one damaged page can spoil thousands of records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is not as it must be."""

    check: str
    """Which check found it."""
    message: str
    """What is wrong, with the key where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What an examination found."""

    data_bytes: int
    """Size of the data file."""
    records: int
    """Records read."""
    revision: int
    """The cluster record's revision; 0: none."""
    newer_format: int
    """The format of data that newer software wrote; 0: it is known here."""
    findings_total: int
    findings: tuple[Finding, ...]
    """The first `MAX_FINDINGS`."""

    @property
    def healthy(self) -> bool:
        """Tells whether nothing was found."""
        return self.findings_total == 0

    def to_json(self) -> str:
        """Gives the diagnosis as one JSON object."""
        return json.dumps({"healthy": self.healthy} | asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Diagnosis:
        """Reads what `to_json` gave."""
        fields = json.loads(text)
        del fields["healthy"]
        findings = tuple(Finding(**finding) for finding in fields.pop("findings"))
        return cls(findings=findings, **fields)


class _Contents(NamedTuple):
    records: int
    revision: int
    newer_format: int


class _Findings:
    def __init__(self) -> None:
        self.total = 0
        self.first: list[Finding] = []

    def add(self, check: str, messages: Iterable[str]) -> None:
        for message in messages:
            self.total += 1
            if len(self.first) < MAX_FINDINGS:
                self.first.append(Finding(check=check, message=message))


def examine(folder: Path, checks: Sequence[Callable[[], Check]] = CHECKS) -> Diagnosis:
    """Examines the data file of `folder`, which no process has open. Can end this process.

    Raises `OSError` where there is no file to read.
    """
    data_file = folder / DATA_FILE
    findings = _Findings()
    contents = _Contents(0, 0, 0)
    try:
        check_whole(data_file)
        findings.add("structure", verify(str(data_file), subdir=False))  # type: ignore[no-untyped-call]
    except (DamagedError, VerifyError) as error:
        findings.add("structure", [str(error)])
    if not findings.total:
        with lmdb.Environment(
            str(folder), max_dbs=2, readonly=True, lock=False, create=False
        ) as env:
            contents = _read_all(env, [make() for make in checks], findings)
    return Diagnosis(
        data_bytes=data_file.stat().st_size,
        **contents._asdict(),
        findings_total=findings.total,
        findings=tuple(findings.first),
    )


def examine_in_child(folder: Path) -> Diagnosis:
    """Examines the data file of `folder` in a child process, whatever that does to the child."""
    data_bytes = (folder / DATA_FILE).stat().st_size
    command = [sys.executable, "-m", "sexton_store.doctor", str(folder)]
    child = subprocess.run(  # noqa: S603 - our own module, in our own interpreter
        command, env=child_environment(), capture_output=True, text=True, check=False
    )
    if child.returncode == 0:
        return Diagnosis.from_json(child.stdout)
    if child.returncode < 0:
        reason = f"reading it ended a process with {signal.Signals(-child.returncode).name}"
    else:
        reason = f"the examination failed: {child.stderr.strip()[-500:]}"
    return Diagnosis(
        data_bytes=data_bytes,
        records=0,
        revision=0,
        newer_format=0,
        findings_total=1,
        findings=(Finding(check="structure", message=reason),),
    )


def verify_in_child(folder: Path) -> Diagnosis:
    """Examines a store's data as `examine_in_child` does; raises as `require_healthy`."""
    diagnosis = examine_in_child(folder)
    require_healthy(diagnosis, folder / DATA_FILE, _advice(folder))
    return diagnosis


def require_healthy(diagnosis: Diagnosis, file: Path, advice: str) -> None:
    """Unless all is well raises `DamagedError`, with what was found first, or `NewerFormatError`.

    `file` is what its reader knows the data as, `advice` a sentence on what to do.
    """
    if diagnosis.newer_format:
        raise cluster.NewerFormatError(diagnosis.newer_format)
    if not diagnosis.healthy:
        raise DamagedError(
            f"{file} is damaged ({counted(diagnosis.findings_total)}, the first: "
            f"{diagnosis.findings[0].message}). {advice}"
        )


def require_whole(folder: Path) -> None:
    """Raises `DamagedError` where the data file has been cut short or is none; reads two pages."""
    try:
        check_whole(folder / DATA_FILE)
    except DamagedError as error:
        raise DamagedError(f"{folder / DATA_FILE}: {error}. {_advice(folder)}") from None


def counted(findings: int) -> str:
    """Gives a number of findings in words."""
    return f"{findings} finding" if findings == 1 else f"{findings} findings"


def _advice(folder: Path) -> str:
    return f"`sexton doctor --data {folder}` tells more; restore a backup."


def child_environment() -> dict[str, str]:
    """Gives the environment in which a child process finds the modules that this one has."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _read_all(env: lmdb.Environment, checks: Sequence[Check], findings: _Findings) -> _Contents:
    """Reads every record once, unless newer software wrote them."""
    count = 0
    try:
        databases = [env.open_db(name, create=False) for name in (RECORDS, CLUSTER)]
    except lmdb.NotFoundError:
        findings.add("structure", ["the data file is not one of a store: its databases are absent"])
        return _Contents(0, 0, 0)
    with env.begin(buffers=True) as txn:
        try:
            state = _cluster_record(txn.get(CLUSTER_KEY, db=databases[1]), findings)
        except cluster.NewerFormatError as error:
            findings.add("format", [str(error)])
            return _Contents(0, 0, error.found)
        for check in checks:
            findings.add(check.name, check.start(state))
        for raw, data in txn.cursor(databases[0]):
            count += 1
            key = bytes(raw)
            try:
                record = decode_record(key, data)
            except DamagedError as error:
                findings.add("checksums", [str(error)])
                continue
            for check in checks:
                findings.add(check.name, check.record(key, record))
        for check in checks:
            findings.add(check.name, check.end())
    return _Contents(count, 0 if state is None else state.revision, 0)


def _cluster_record(data: memoryview | None, findings: _Findings) -> ClusterState | None:
    if data is None:
        return None
    try:
        return cluster.decode(decode_cluster_record(data))
    except DamagedError as error:
        findings.add("cluster", [str(error)])
        return None


if __name__ == "__main__":
    print(examine(Path(sys.argv[1])).to_json())  # noqa: T201 - the parent reads it

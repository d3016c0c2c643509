"""One file out of the many in which a mesh has written its history: `sexton history export`."""

from __future__ import annotations

import gzip
import json
import os
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sexton_sim.sources import FORMAT, Sources


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was put into a file."""

    file: str
    commits: int
    notes: int
    """Lines of clients' calls, of jobs, of faults and clocks."""
    bytes: int


def export(sources: Sources, file: Path) -> Exported:
    """Writes a history as one file, whole or not at all; `.gz` at its end: compressed.

    Raises:
        FileExistsError: the file is there.
        OSError: it can't be written.
    """
    if file.exists():
        raise FileExistsError(f"{file} exists")
    partial = file.with_name(f".{file.name}.{os.getpid()}.partial")
    notes = 0
    try:
        with ExitStack() as stack:
            target = _open(partial, stack, compressed=file.suffix == ".gz")
            header = {"kind": "history", "format": FORMAT, "boots": sorted(sources.boots)}
            target.write(json.dumps(header, separators=(",", ":")).encode() + b"\n")
            for line in sources.noted_lines():
                target.write(line)
                notes += 1
            for line in sources.store_lines():
                target.write(line)
        os.link(partial, file)
    finally:
        partial.unlink(missing_ok=True)
    return Exported(file=str(file), commits=sources.commits, notes=notes, bytes=file.stat().st_size)


def _open(path: Path, stack: ExitStack, *, compressed: bool) -> IO[bytes] | gzip.GzipFile:
    """Opens a file for this user only: it holds what the data does."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    plain = stack.enter_context(os.fdopen(descriptor, "wb"))
    if not compressed:
        return plain
    packed = gzip.GzipFile(filename="", fileobj=plain, mode="wb", compresslevel=1, mtime=0)
    return stack.enter_context(closing(packed))

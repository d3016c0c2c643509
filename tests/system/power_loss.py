"""Every image that a power loss could leave of a store's data file, rebuilt from a trace.

The model of the disk: what was written before a completed sync is there; of what was written since,
any set of pages may be there, whole, torn between two sectors, or as garbage. A write through a
descriptor opened with O_DSYNC (LMDB's meta page) is there when it has returned; until then any part
of it may be.

As a program (``python -m system.power_loss TRACE SEED STEPS SCRATCH MUTANT``) it opens each image,
has the doctor examine it, compares it with the durable states of the load, and writes one line.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from faults.store_load import CONFIG, State, durable_states, max_revision, records

from sexton_store.disk import WriteBatch
from sexton_store.doctor import examine
from sexton_store.lmdb_disk import LmdbDisk
from sexton_store.memory_disk import MemoryDisk

PAGE_BYTES = 4096
SECTOR_BYTES = 512
META_STEP_BYTES = 8
"""A meta page is torn at every multiple of this: finer than any disk would."""
ALL_SUBSETS_UP_TO_PAGES = 4
SUBSETS_PER_SYNC = 10
"""Above that many pages so many sets are drawn at random."""

TRACED_CALLS = (
    "openat,close,lseek,write,writev,pwrite64,pwritev,pwritev2,fdatasync,fsync,sync_file_range,"
    "msync,ftruncate,truncate,fallocate,copy_file_range,rename,renameat,renameat2"
)


class Written(NamedTuple):
    """Bytes that went to the data file; `sync`: they were durable on return."""

    offset: int
    data: bytes
    sync: bool


class Synced(NamedTuple):
    """All that was written before is durable."""


class Named(NamedTuple):
    """The file got its name; until then a power loss leaves none, and a store begins anew."""


class Answered(NamedTuple):
    """The load was told this revision."""

    revision: int


Event = Written | Synced | Named | Answered


class Image(NamedTuple):
    """What a power loss left; at least revision `answered` must be in it."""

    name: str
    content: bytes
    answered: int


_CALL = re.compile(r"^(\d+) +(\w+)\((.*)$")
_RESUMED = re.compile(r"^(\d+) +<\.\.\. (\w+) resumed>(.*)$")
_UNFINISHED = " <unfinished ...>"
_FD = re.compile(r"^(\d+)<((?:\\x[0-9a-f]{2})*)>")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_RESULT = re.compile(r"\) += (-?\d+)")
_OFFSET = re.compile(r", (\d+)\) += -?\d+")
_DATA_FILE = b"/data.mdb"


def read_trace(trace: Path) -> list[Event]:
    """Reads what happened to the data file, in order of completion."""
    events: list[Event] = []
    dsync: dict[int, bool] = {}
    positions: dict[int, int] = {}
    for call, arguments in _calls(trace):
        result = int(found[1]) if (found := _RESULT.search(arguments)) else -1
        if call == "rename" and _bytes(_TEXT.findall(arguments)[-1]).endswith(_DATA_FILE):
            events.append(Named())
        if call == "openat":
            dsync[result] = "O_DSYNC" in arguments
            continue
        described = _FD.match(arguments)
        if described is None or result < 0:
            continue
        fd, path = int(described[1]), _bytes(described[2])
        if call == "write" and fd == 1:
            answer = _bytes(_TEXT.findall(arguments)[0]).strip()
            events += [Answered(int(answer))] if answer.isdigit() else []
        if not path.endswith(_DATA_FILE):
            continue
        if call == "lseek":
            positions[fd] = result
        elif call in {"fdatasync", "fsync"}:
            events.append(Synced())
        elif call in {"pwrite64", "writev"}:
            data = b"".join(map(_bytes, _TEXT.findall(arguments)))
            assert result == len(data), arguments[-100:]
            offset = positions[fd] if call == "writev" else int(_OFFSET.findall(arguments)[-1])
            events.append(Written(offset, data, dsync[fd]))
        else:
            assert call == "close", f"the model knows no {call} of a data file"
    return events


def answered_early(events: list[Event]) -> list[Event]:
    """A store that answers before it has written the meta page."""
    changed: list[Event] = []
    for event in events:
        if isinstance(event, Answered):
            writes = [i for i, e in enumerate(changed) if isinstance(e, Written) and e.sync]
            changed.insert(writes[-1], event)
        else:
            changed.append(event)
    return changed


def pages_unsynced(events: list[Event]) -> list[Event]:
    """A store that writes the meta page without having synced its pages."""
    changed: list[Event] = []
    for event in events:
        match event:
            case Synced():
                pass
            case Written(offset, data, sync=True):
                changed += [Written(offset, data, sync=False), Synced()]
            case _:
                changed.append(event)
    return changed


MUTANTS: dict[str, Callable[[list[Event]], list[Event]]] = {
    "": list,
    "answered early": answered_early,
    "pages unsynced": pages_unsynced,
}
"""Stores that are wrong, which must be found out; the first is the one that was traced."""


def images(events: list[Event], seed: str) -> Iterator[Image]:
    """Rebuilds what a power loss at any moment could leave."""
    rng = random.Random(seed)
    durable = bytearray()
    pending: dict[int, bytes] = {}
    answered, named = 0, False
    for number, event in enumerate(events):
        match event:
            case Answered(revision):
                answered = revision
            case Named():
                assert not pending, "the file was given its name before it was synced"
                named = True
            case Written(offset, data, sync=True):
                assert not pending, "the meta page was written before its pages were synced"
                if named:
                    for cut in range(0, len(data) + META_STEP_BYTES, META_STEP_BYTES):
                        torn = _with(durable, {offset: data[:cut]})
                        yield Image(f"{number}: meta cut at {cut}", torn, answered)
                durable = bytearray(_with(durable, {offset: data}))
            case Written(offset, data):
                for start in range(0, len(data), PAGE_BYTES):
                    pending[offset + start] = data[start : start + PAGE_BYTES]
            case Synced():
                if named:
                    for name, pages in _partial(pending, rng):
                        yield Image(f"{number}: {name}", _with(durable, pages), answered)
                durable = bytearray(_with(durable, pending))
                pending = {}


def _partial(
    pending: dict[int, bytes], rng: random.Random
) -> Iterator[tuple[str, dict[int, bytes]]]:
    """Gives the sets of pages, whole or not, that may have reached the disk before the sync."""
    offsets = sorted(pending)
    if len(offsets) <= ALL_SUBSETS_UP_TO_PAGES:
        sizes = range(len(offsets) + 1)
        subsets = [set(s) for size in sizes for s in itertools.combinations(offsets, size)]
    else:
        subsets = [set(), set(offsets), *({o} for o in offsets[:2])]
        subsets += [{o for o in offsets if rng.random() < 0.5} for _ in range(SUBSETS_PER_SYNC)]
    for subset in subsets:
        yield f"pages at {sorted(subset)}", {offset: pending[offset] for offset in sorted(subset)}
    for offset in rng.sample(offsets, min(3, len(offsets))):
        cut = rng.randrange(SECTOR_BYTES, PAGE_BYTES, SECTOR_BYTES)
        whole = {other: pending[other] for other in offsets if rng.random() < 0.7}
        yield f"page at {offset} torn", whole | {offset: pending[offset][:cut]}
        yield f"page at {offset} garbage", whole | {offset: rng.randbytes(PAGE_BYTES)}


def _with(content: bytearray, pages: dict[int, bytes]) -> bytes:
    changed = bytearray(content)
    for offset, data in pages.items():
        if data:
            changed.extend(bytes(max(0, offset + len(data) - len(changed))))
            changed[offset : offset + len(data)] = data
    return bytes(changed)


def _calls(trace: Path) -> Iterator[tuple[str, str]]:
    """Reads the calls with their arguments and results, each where it ended."""
    unfinished: dict[str, str] = {}
    for line in trace.read_text().splitlines():
        if resumed := _RESUMED.match(line):
            thread, call, rest = resumed.groups()
            yield call, unfinished.pop(thread) + rest
        elif called := _CALL.match(line):
            thread, call, rest = called.groups()
            if rest.endswith(_UNFINISHED):
                unfinished[thread] = rest.removesuffix(_UNFINISHED)
            else:
                yield call, rest


def _bytes(escaped: str) -> bytes:
    return bytes.fromhex(escaped.replace("\\x", ""))


async def judge(image: Image, folder: Path, states: dict[int, State]) -> str:
    """Opens what lies in `folder` as a store does after a power loss; tells what is wrong."""
    diagnosis = examine(folder)
    if not diagnosis.healthy:
        return f"the doctor: {diagnosis.findings[0].message}"
    disk = LmdbDisk.open(folder, CONFIG)
    try:
        revision, found = max_revision(disk), records(disk)
        if revision < image.answered:
            return f"revision {image.answered} was answered and {revision} found"
        if found != states[revision]:
            return f"the records are not those of revision {revision}"
        content = disk.cluster_record() or b""
        await disk.write(WriteBatch((), sorted(found), content), use_reserve=True)
        return "" if not records(disk) else "what was deleted afterwards is there"
    finally:
        await disk.close()


async def _main(trace: Path, seed: str, steps: int, scratch: Path, mutant: str) -> None:
    states = await durable_states(MemoryDisk(), seed, steps)
    states[0] = {}
    events = MUTANTS[mutant](read_trace(trace))
    for number, image in enumerate(images(events, seed)):
        folder = scratch / str(number)
        folder.mkdir()
        (folder / "data.mdb").write_bytes(image.content)
        verdict = await judge(image, folder, states)
        print(f"{image.name}: {verdict or 'sound'}", flush=True)
        if not verdict:
            shutil.rmtree(folder)


if __name__ == "__main__":
    _trace, _seed, _steps, _scratch, _mutant = sys.argv[1:]
    asyncio.run(_main(Path(_trace), _seed, int(_steps), Path(_scratch), _mutant))

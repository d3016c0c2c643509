"""Histories of real meshes: the files and folders in which their parts were written.

A mesh writes in several places: the store one line per commit into its own folder
(`sexton_store.history`), clients their calls (`SEXTON_HISTORY`), jobs what they did, tests what
they did to it. `Sources` reads any mix of these, and what `sexton history export` made of them.
Lines tell by themselves what they are; the commits are given one after the other and never held in
memory all at once. A last line that was cut off, files that were rotated, and stores that were
restarted, killed in the middle of a step or restored from a backup are all in order.

All times are CLOCK_BOOTTIME of one machine, during one boot. Lines that name another boot can't be
compared with it; they are counted as foreign and passed over.
"""

from __future__ import annotations

import gzip
import io
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from sexton_sim.history import Durable, History, read_entries
from sexton_store.history import commit_of

FORMAT = 1
"""Of exported files. Newer ones are refused."""
_COMMIT = b'{"revision":'
_START = b'{"start":'
_GZIP = b"\x1f\x8b"
_STORE_FILE = re.compile(r"history-(\d{8,})\.jsonl")
_SUFFIXES = (".jsonl", ".jsonl.gz")
_NOTED = frozenset({"op", "exec", "fault", "clock"})
_ENDS = frozenset({"ok", "fail", "unknown"})
_NEEDED: Final[Mapping[str, Mapping[str, Any]]] = {
    "invoke": {"at_ns": int, "id": int | str, "process": str, "call": str, "args": dict},
    "op": {"at_ns": int, "id": int | str, "result": dict},
    "note": {"at_ns": int, "what": str},
}
"""Fields of lines, besides those that may be left out."""
_FACTS: Final[Mapping[tuple[str, str], Mapping[str, Any]]] = {
    ("exec", "ended"): {"how": str},
    ("exec", "effect"): {"accepted": bool},
    ("exec", "act"): {"lease": str, "token": int},
    ("clock", "rate"): {"rate": int | float},
}


class UnreadableError(Exception):
    """What was given is no history. The message says which line of which file, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The store was opened: started, started again, or restored from a backup."""

    revision: int
    """What was durable then."""
    incarnation: str
    """Of the store; another one after a restore. Empty: not known."""
    boot_id: str
    """The boot of its machine; empty: not known."""
    undone: int = 0
    """Commits that were written before, above that revision: they came to nothing."""
    undone_steps: int = 0
    """Of how many steps they were. Only the last one before a crash can come to nothing."""


@dataclass(slots=True)
class _File:
    """One file, looked through once."""

    path: Path
    first: int | None = None
    """The first revision that it speaks of; None: it has no commits."""
    last: int = 0
    commits: int = 0
    lines: int = 0
    """Whole lines that it had; a store that runs adds to them."""
    starts: list[dict[str, Any]] = field(default_factory=list)
    notes: list[dict[str, Any]] = field(default_factory=list)


class _Where(NamedTuple):
    path: Path
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


class Sources:
    """The files of one history."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Looks through everything once; holds all lines but the commits.

        Raises:
            UnreadableError: a line that belongs to no history, or two stores' commits.
            OSError: a file can't be read.
        """
        files = [_survey(path) for path in _expand(paths)]
        if not any(file.lines for file in files):
            named = ", ".join(str(file.path) for file in files[:3])
            raise UnreadableError(f"{named}: there is not one whole line in it")
        self._logs = _in_order([file for file in files if file.first is not None])
        self._starts = [start for file in self._logs for start in file.starts]
        self.boots = {boot for start in self._starts if (boot := start.get("boot_id"))}
        """The boots of the store's machine."""
        self.commits = sum(file.commits for file in self._logs)
        """Lines of commits, whether or not they came to something."""
        self.foreign = 0
        """Notes and calls of another boot, or of another machine."""
        self._files = files

    @property
    def comparable(self) -> bool:
        """Tells whether all commits are of one boot, so that their times are of one clock."""
        return len(self.boots) <= 1

    def notes(self) -> History:
        """Gives everything but the commits: calls, what jobs noted, faults, clocks."""
        self.foreign = 0
        lines = [*self._noted()]
        lines.sort(key=lambda line: line["at_ns"])  # stable: files keep their own order
        return read_entries(lines)

    def log(self) -> Iterator[Opening | Durable]:
        """Gives the openings of the store and the commits that became durable, in order.

        After the last opening all commits are given: whether the last of them became durable is
        known to the store only.
        """
        return _timed(self._read(), comparable=self.comparable)

    def whole(self) -> History:
        """Gives the whole history at once, for those that fit into memory."""
        history = self.notes()
        history.commits.extend(item for item in self.log() if isinstance(item, Durable))
        return history

    def store_lines(self) -> Iterator[bytes]:
        """Gives the store's lines as they were written."""
        for file in self._logs:
            for line, _ in _lines(file.path, file.lines):
                if line.startswith((_COMMIT, _START)):
                    yield line

    def noted_lines(self) -> Iterator[bytes]:
        """Gives the other lines, of each file in its order."""
        for file in self._files:
            for line in file.notes:
                yield json.dumps(line, separators=(",", ":")).encode() + b"\n"

    # Inside

    def _noted(self) -> Iterator[dict[str, Any]]:
        """Gives the other lines of this boot, with numbers of calls that are unique."""
        calls: dict[tuple[int, Any], int] = {}
        for number, file in enumerate(self._files):
            for line in file.notes:
                boot = line.get("boot_id")
                if boot and self.boots and boot not in self.boots:
                    self.foreign += 1
                elif line["kind"] == "op":
                    # Several clients may write one file: their numbers are drawn, not counted.
                    key = (number, line["id"])
                    if line["phase"] == "invoke":
                        calls[key] = len(calls)
                    if key in calls:
                        yield {**line, "id": calls[key]}
                else:
                    yield _noted(line)

    def _read(self) -> Iterator[Opening | tuple[dict[str, Any], _Where]]:
        starts = iter(self._starts)
        following = next(starts, None)
        undone: dict[Any, int] = {}
        for file in self._logs:
            for line, where in _lines(file.path, file.lines):
                if line.startswith(_START):
                    yield _opening(json.loads(line), undone)
                    undone = {}
                    following = next(starts, None)
                elif line.startswith(_COMMIT) or b'"commit"' in line[:20]:
                    entry = _parsed(line, where)
                    if following is not None and entry["revision"] > following["start"]:
                        step = entry.get("boot_ns", 0)
                        undone[step] = undone.get(step, 0) + 1
                    else:
                        yield entry, where


def _noted(line: dict[str, Any]) -> dict[str, Any]:
    """Completes a line that says no more than it must."""
    facts = dict(line.get("facts") or {})
    if "within_ns" in line:
        facts["within_ns"] = line["within_ns"]
    return {"target": "", **line, "facts": facts}


def _expand(paths: Sequence[Path]) -> list[Path]:
    """Finds the files: each once, those of a folder and of its folder `history`."""
    found: dict[Path, Path] = {}
    for path in paths:
        inside = [path]
        if path.is_dir():
            inside = [
                file
                for folder in (path, path / "history")
                if folder.is_dir()
                for file in sorted(folder.iterdir())
                if file.name.endswith(_SUFFIXES)
            ]
            if not inside:
                raise UnreadableError(f"{path}: there is no history in this folder (*.jsonl)")
        for file in inside:
            found.setdefault(file.resolve(), file)
    return [*found.values()]


def _in_order(files: list[_File]) -> list[_File]:
    """Puts the files with commits in the order in which they were written."""
    folders: dict[Path, list[_File]] = {}
    for file in files:
        named = _STORE_FILE.fullmatch(file.path.name)
        group = file.path.resolve().parent if named else file.path.resolve()
        folders.setdefault(group, []).append(file)
    groups = [sorted(group, key=lambda file: file.path.name) for group in folders.values()]
    ordered = sorted(groups, key=lambda group: group[0].first or 0)
    for before, after in itertools.pairwise(ordered):
        last = max(file.last for file in before)
        if (after[0].first or 0) < last:
            raise UnreadableError(
                f"{before[0].path} and {after[0].path} hold the commits of two stores, or the same "
                f"ones twice: verify each by itself"
            )
    return [file for group in ordered for file in group]


def _survey(path: Path) -> _File:
    """Looks through a file: everything but its commits is kept."""
    file = _File(path)
    for line, where in _lines(path):
        file.lines = where.line
        if line.startswith(_COMMIT):
            # Cheaply: there may be a million of them.
            digits = line[len(_COMMIT) : line.find(b",")]
            if not digits.isdigit():
                raise UnreadableError(f"{where}: a commit without its revision")
            revision = int(digits)
        elif line.startswith(_START):
            start = _parsed(line, where)
            _check(start, where, {"start": int})
            file.starts.append(start)
            revision = start["start"]
        else:
            entry = _parsed(line, where)
            kind = entry.get("kind")
            if kind == "commit":
                _check(entry, where, {"revision": int})
                revision = entry["revision"]
            elif kind == "history":
                _check(entry, where, {"format": int})
                if entry["format"] > FORMAT:
                    raise UnreadableError(f"{where}: format {entry['format']} is newer than this")
                continue
            elif kind in _NOTED:
                _check_note(entry, where)
                file.notes.append(entry)
                continue
            else:
                raise UnreadableError(f"{where}: this is no line of a history")
        file.commits += not line.startswith(_START)
        file.first = revision if file.first is None else file.first
        file.last = max(file.last, revision)
    return file


def _check_note(entry: dict[str, Any], where: _Where) -> None:
    needed = _NEEDED["op" if entry["kind"] == "op" else "note"]
    if entry.get("phase") == "invoke":
        needed = _NEEDED["invoke"]
    elif entry["kind"] == "op" and entry.get("phase") not in _ENDS:
        raise UnreadableError(f"{where}: a call is in the phase {entry.get('phase')!r}")
    _check(entry, where, needed)
    if entry["kind"] != "op":
        facts = entry.get("facts", {})
        known = {"facts": dict, "target": str, "within_ns": int}
        _check(entry, where, {name: known[name] for name in known if name in entry})
        needed = _FACTS.get((entry["kind"], entry["what"]), {})
        also = {name: int for name in ("token", "revision", "backup") if name in facts}
        _check(facts, where, {**needed, **also})


def _check(entry: dict[str, Any], where: _Where, needed: Mapping[str, Any]) -> None:
    for name, kind in needed.items():
        if name not in entry or not isinstance(entry[name], kind):
            found = f"not {entry[name]!r:.40}" if name in entry else "and has none"
            raise UnreadableError(f"{where}: this line needs {name} as {_named(kind)}, {found}")


def _named(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind).replace(" | ", " or ")


def _lines(path: Path, most: int | None = None) -> Iterator[tuple[bytes, _Where]]:
    """Gives a file's whole lines; what comes after the last end of a line was cut off."""
    with _open(path) as file:
        try:
            for number, line in enumerate(itertools.islice(file, most), 1):
                if not line.endswith(b"\n"):
                    return
                if not line.isspace():
                    yield line, _Where(path, number)
        except (gzip.BadGzipFile, EOFError) as error:
            raise UnreadableError(f"{path}: this file is damaged: {error}") from None


@contextmanager
def _open(path: Path) -> Iterator[IO[bytes]]:
    with path.open("rb") as file:
        if file.peek(2)[:2] == _GZIP:
            with gzip.GzipFile(fileobj=file, mode="rb") as packed:
                yield io.BufferedReader(packed, 1 << 20)
        else:
            yield file


def _parsed(line: bytes, where: _Where) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        entry = None
    if not isinstance(entry, dict):
        raise UnreadableError(f"{where}: this is no line of a history")
    return entry


def _opening(start: dict[str, Any], undone: dict[Any, int]) -> Opening:
    return Opening(
        revision=start["start"],
        incarnation=start.get("incarnation", ""),
        boot_id=start.get("boot_id", ""),
        undone=sum(undone.values()),
        undone_steps=len(undone),
    )


def _timed(
    items: Iterable[Opening | tuple[dict[str, Any], _Where]], *, comparable: bool
) -> Iterator[Opening | Durable]:
    """Gives each commit with when it was begun, and by when it was durable: by the next step's."""
    step: list[Durable] = []
    for item in items:
        if isinstance(item, Opening):
            yield from step
            step = []
            yield item
            continue
        entry, where = item
        try:
            commit = commit_of(entry)
        except (KeyError, TypeError, ValueError) as error:
            raise UnreadableError(f"{where}: this commit can't be read: {error!r}") from None
        if "begun_ns" in entry:
            yield Durable(commit, entry["begun_ns"], entry["durable_ns"])
        elif commit.boot_ns is None or not comparable:
            yield Durable(commit, None, None)
        else:
            if step and step[0].begun_ns != commit.boot_ns:
                yield from (Durable(it.commit, it.begun_ns, commit.boot_ns) for it in step)
                step = []
            step.append(Durable(commit, commit.boot_ns, None))
    yield from step

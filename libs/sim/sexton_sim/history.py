"""Histories: what clients did, what the store committed, what jobs did, what was done to them.

A history is a JSONL file that simulations, process tests and container tests all write and one
checker (`sexton_sim.check`) reads. Its lines, in order of time:

======  ==========================================================================================
kind    meaning
======  ==========================================================================================
op      a client's call. `phase` invoke, then at most one of ok (with `result`), fail (it did not
        happen), unknown (it may have happened, or may yet). A stream (`watch`) has many ok's.
commit  a transaction that the store made durable: the store's own history line, with `begun_ns`
        and `durable_ns` where whoever wrote it knows them
exec    written by the code that acts (a job, a lease's holder): what it did, under which token
fault   something injected, with its target: crash, start, suspend, resume, cut, ...
clock   a machine's clocks: its `rate` and `wall_rate` from here on, or a jump
======  ==========================================================================================

Times (`*_ns`) are nanoseconds on the recorder's clock, the same for the whole file: virtual time
in a simulation, CLOCK_BOOTTIME on one host. Keys and values are text, one character per byte.
A time-out of a mutation is *unknown*, never *failed*.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sexton_runtime.kv.types import Compare, Op, Put, Target, Txn
from sexton_store.history import Commit, commit_line, commit_of

Observer = Callable[[dict[str, Any]], None]


@dataclass(slots=True)
class Call:
    """A client's call, from its invocation to what is known of its end."""

    id: int
    process: str
    name: str
    args: dict[str, Any]
    invoked_ns: int
    ended_ns: int | None = None
    outcome: str = "unknown"
    result: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Durable:
    """A commit and when it was begun and durable; None: not known."""

    commit: Commit
    begun_ns: int | None
    durable_ns: int | None


@dataclass(frozen=True, slots=True)
class Note:
    """An exec, fault or clock line."""

    kind: str
    at_ns: int
    what: str
    target: str
    facts: dict[str, Any]


@dataclass(slots=True)
class History:
    """A whole history, as the checker reads it."""

    calls: list[Call] = field(default_factory=list)
    watches: dict[int, list[tuple[int, dict[str, Any]]]] = field(default_factory=dict)
    """The updates of each watch (by its call's id): when it came, what it said."""
    commits: list[Durable] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    def of(self, kind: str) -> Iterator[Note]:
        """Gives the notes of one kind."""
        return (note for note in self.notes if note.kind == kind)


class Recorder:
    """Writes a history. `now_ns` is its one clock; `observer` sees every line as it is written."""

    def __init__(self, now_ns: Callable[[], int], observer: Observer | None = None) -> None:
        self.lines: list[dict[str, Any]] = []
        self._now_ns = now_ns
        self._observer = observer
        self._calls = 0

    def invoke(self, process: str, call: str, **args: Any) -> int:
        """A call begins; gives its number."""
        self._calls += 1
        self._write("op", phase="invoke", id=self._calls, process=process, call=call, args=args)
        return self._calls

    def ok(self, call: int, **result: Any) -> None:
        """It was answered."""
        self._write("op", phase="ok", id=call, result=result)

    def fail(self, call: int, error: object) -> None:
        """It failed, and nothing happened."""
        self._write("op", phase="fail", id=call, result={"error": str(error)})

    def unknown(self, call: int, error: object) -> None:
        """Nobody knows whether it happened."""
        self._write("op", phase="unknown", id=call, result={"error": str(error)})

    def commits(
        self, lines: Iterable[bytes], *, begun_ns: int | None, durable_ns: int | None
    ) -> None:
        """The store's history lines of one step have become durable."""
        for line in lines:
            entry = json.loads(line)
            if "start" not in entry:
                self._write("commit", begun_ns=begun_ns, durable_ns=durable_ns, **entry)

    def exec(self, what: str, target: str, **facts: Any) -> None:
        """Some code acted."""
        self._write("exec", what=what, target=target, facts=facts)

    def fault(self, what: str, target: str = "", **facts: Any) -> None:
        """Something was done to somebody."""
        self._write("fault", what=what, target=target, facts=facts)

    def clock(self, what: str, target: str, **facts: Any) -> None:
        """A machine's clock changed."""
        self._write("clock", what=what, target=target, facts=facts)

    def history(self) -> History:
        """Gives what has been written so far."""
        return read_entries(self.lines)

    def dump(self, path: Path) -> None:
        """Writes the history as a file."""
        with path.open("w", encoding="utf-8") as file:
            for line in self.lines:
                file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def _write(self, kind: str, **entry: Any) -> None:
        line = {"kind": kind, "at_ns": self._now_ns(), **entry}
        self.lines.append(line)
        if self._observer is not None:
            self._observer(line)


def read_file(path: Path) -> History:
    """Reads a history file. A last line that was cut off is passed over."""
    with path.open(encoding="utf-8") as file:
        return read_entries(json.loads(line) for line in file if line.endswith("\n"))


def read_entries(entries: Iterable[dict[str, Any]]) -> History:
    """Reads a history from its lines."""
    history = History()
    calls: dict[int, Call] = {}
    for entry in entries:
        kind, at_ns = entry["kind"], entry["at_ns"]
        if kind == "op" and entry["phase"] == "invoke":
            call = Call(entry["id"], entry["process"], entry["call"], entry["args"], at_ns)
            calls[call.id] = call
            history.calls.append(call)
        elif kind == "op":
            call = calls[entry["id"]]
            if call.name == "watch" and entry["phase"] == "ok":
                history.watches.setdefault(call.id, []).append((at_ns, entry["result"]))
            else:
                call.ended_ns = at_ns
                call.outcome = entry["phase"]
                call.result = entry["result"]
        elif kind == "commit":
            # Through the store's own reader, so that there is one format.
            commit = commit_of(entry)
            history.commits.append(Durable(commit, entry["begun_ns"], entry["durable_ns"]))
        else:
            note = Note(kind, at_ns, entry["what"], entry["target"], entry["facts"])
            history.notes.append(note)
    return history


def commits_as_entries(commits: Iterable[Commit], at_ns: int = 0) -> Iterator[dict[str, Any]]:
    """Gives the lines of commits that a store's own history folder kept, without their times."""
    for commit in commits:
        entry = json.loads(commit_line(commit))
        yield {"kind": "commit", "at_ns": at_ns, "begun_ns": None, "durable_ns": None, **entry}


def text(data: bytes) -> str:
    """Gives bytes as text, one character per byte."""
    return data.decode("latin-1")


def txn_entry(txn: Txn) -> dict[str, Any]:
    """Gives a transaction as a history keeps it."""
    return {
        "compares": [_compare_entry(compare) for compare in txn.compares],
        "then": [_op_entry(op) for op in txn.then],
        "orelse": [_op_entry(op) for op in txn.orelse],
        "not_before_ns": txn.not_before_ns,
        "not_after_ns": txn.not_after_ns,
    }


def _compare_entry(compare: Compare) -> Sequence[Any]:
    operand = compare.operand
    return [
        text(compare.key),
        Target(compare.target).name,
        text(operand) if isinstance(operand, bytes) else operand,
    ]


def _op_entry(op: Op) -> Sequence[Any]:
    return [text(op.key), text(op.value) if isinstance(op, Put) else None]

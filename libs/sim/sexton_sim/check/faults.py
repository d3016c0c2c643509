"""What was done to a mesh, by time and by whom it hit: what excuses, and what must be recovered."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from sexton_sim.history import History, Note

NEVER_NS: Final = 1 << 62
ROUGH_NS: Final = 12_000_000_000
"""A rough network is over after this, unless everything was healed before."""
_BEGIN: Final = {"sleep": "still", "suspend": "silent", "cut": "broken", "full_disk": "full"}
_BEGIN_DOWN: Final = frozenset({"crash", "exit", "power_loss", "kill"})
_END: Final = {"wake": "still", "resume": "silent", "mend": "broken", "emptied": "full"}
_HARMLESS: Final = frozenset({"inject", "backup", "start"})
"""What is noted, and does nothing to anybody."""


class Span(NamedTuple):
    """Something that lasted, on the recorder's clock."""

    begin_ns: int
    end_ns: int
    kind: str
    """`still`: the whole machine; `silent`: one process; `broken`: a connection; `down`: no
    process; `full`: a disk; `rough`: the whole network."""
    target: str
    source: str
    """Of a connection, its other end; else empty."""
    note: Note

    def within(self, since_ns: int, until_ns: int) -> int:
        """Tells for how long of a time it lasted."""
        return max(0, min(self.end_ns, until_ns) - max(self.begin_ns, since_ns))

    def hits(self, name: str) -> bool:
        """Tells whether it concerned a process."""
        return self.kind == "rough" or name in {self.target, self.source}


@dataclass(slots=True)
class _Rate:
    at_ns: int
    rate: float


class Faults:
    """All that was done, as the history tells it."""

    def __init__(self, history: History) -> None:
        self.told = any(note.kind == "fault" for note in history.notes)
        """Whether anybody noted faults at all."""
        self.notes = [note for note in history.notes if note.kind in {"fault", "clock"}]
        self.restores = {
            int(note.facts["revision"]): int(note.facts.get("backup", 0))
            for note in history.of("fault")
            if note.what == "restore" and "revision" in note.facts
        }
        """Restores: at which revision the store went on, and which the backup had."""
        self._restored = [
            (note.at_ns, int(note.facts.get("backup", 0)))
            for note in history.of("fault")
            if note.what == "restore"
        ]
        self.spans = sorted(_spans(self.notes), key=lambda span: span.begin_ns)
        self._times = [note.at_ns for note in self.notes if note.what not in _HARMLESS]
        self._rates: dict[str, list[_Rate]] = {}
        for note in history.of("clock"):
            if note.what == "rate":
                rates = self._rates.setdefault(note.target, [_Rate(0, 1.0)])
                rates.append(_Rate(note.at_ns, float(note.facts["rate"])))

    def around(self, since_ns: int, until_ns: int, *kinds: str) -> Iterator[Span]:
        """Gives what lasted at some moment of a time."""
        for span in self.spans:
            if span.begin_ns > until_ns:
                return
            if span.end_ns >= since_ns and (not kinds or span.kind in kinds):
                yield span

    def brought_back(self, revision: int, since_ns: int, until_ns: int) -> bool:
        """Tells whether a restore in a time brought back what was so at a revision."""
        return any(
            since_ns <= at_ns <= until_ns and revision <= backup for at_ns, backup in self._restored
        )

    def lately(self, at_ns: int, within_ns: int) -> bool:
        """Tells whether anything was done, or ended, so short a time before."""
        index = bisect_right(self._times, at_ns)
        return index > 0 and at_ns - self._times[index - 1] <= within_ns

    def rates(self, name: str, since_ns: int, until_ns: int) -> list[float]:
        """Gives how fast a machine's clock ran in a time; 1.0: exactly."""
        rates = self._rates.get(name)
        if rates is None:
            return [1.0]
        first = bisect_right(rates, since_ns, key=lambda it: it.at_ns) - 1
        return [it.rate for it in rates[max(0, first) :] if it.at_ns <= until_ns]


def _spans(notes: Iterable[Note]) -> Iterator[Span]:
    open_: dict[tuple[str, str, str], Note] = {}

    def end(key: tuple[str, str, str], at_ns: int) -> Iterator[Span]:
        note = open_.pop(key, None)
        if note is not None:
            yield Span(note.at_ns, at_ns, *key, note)

    for note in notes:
        what, target = note.what, note.target
        source = str(note.facts.get("source", ""))
        if what == "healed":
            for key in list(open_):
                yield from end(key, note.at_ns)
        elif what in _BEGIN:
            open_.setdefault((_BEGIN[what], target, source), note)
        elif what in _END:
            yield from end((_END[what], target, source), note.at_ns)
        elif what == "rough":
            yield Span(note.at_ns, note.at_ns + ROUGH_NS, "rough", "", "", note)
        elif what in _BEGIN_DOWN:
            for kind in ("still", "silent"):
                yield from end((kind, target, ""), note.at_ns)
            open_.setdefault(("down", target, ""), note)
        elif what == "start":
            yield from end(("down", target, ""), note.at_ns)
    for key in list(open_):
        yield from end(key, NEVER_NS)

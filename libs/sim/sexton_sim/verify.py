"""Histories of real meshes, judged: what `sexton verify` and the fault tests call.

The checker is the one that judges simulations. What a history can't tell is said, not passed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from google.protobuf.message import DecodeError

from sexton_sim.check.executions import Times
from sexton_sim.check.leases import LeaseRules
from sexton_sim.check.mesh import MeshRules
from sexton_sim.check.model import Replay, prefix
from sexton_sim.check.verdict import Verdict
from sexton_sim.history import Durable, History
from sexton_sim.sources import Opening, Sources, UnreadableError
from sexton_store.disk import DamagedError

_UNFIT = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError,
          DamagedError, DecodeError)  # fmt: skip
"""What comes of lines that are well-formed, and say what no part of a mesh ever writes."""
_BUSY_NS = 2_000_000_000
"""A real machine has other things to do, too."""


def verify(paths: Sequence[Path], times: Times | None = None) -> Verdict:
    """Judges the history that files and folders hold together; see `judge`.

    Raises:
        UnreadableError: what was given is no history.
        OSError: a file can't be read.
    """
    return judge(Sources(paths), times)


def judge(sources: Sources, times: Times | None = None) -> Verdict:
    """Judges a history, commit by commit; nothing is held in memory but what still stands.

    `times` are those with which the mesh is set up; None: the default ones, and real tasks.

    Raises:
        UnreadableError: there are no commits; or a commit, call or note says what no mesh writes.
    """
    times = times or Times(kills_noted=False, slack_ns=_BUSY_NS)
    if not sources.commits:
        raise UnreadableError(
            "there are no commits, and without them nothing can be judged: give the files too that "
            "the store writes with --history, or what `sexton history export` makes of them"
        )
    verdict = Verdict()
    history = sources.notes()
    if not sources.comparable:
        verdict.unknown(
            f"what was when: the history spans {len(sources.boots)} boots of the machine, whose "
            f"clocks can't be compared (S9, S11, S13)"
        )
    if sources.foreign:
        verdict.unknown(
            f"{sources.foreign} notes and calls are of another machine or boot (S10, S13)"
        )
    place = "what was done to the mesh"
    try:
        judged = _Judged(sources, history, verdict, times)
        for item in sources.log():
            at = item.revision if isinstance(item, Opening) else item.commit.revision
            place = f"revision {at}"
            judged.take(item)
        place = "a call, or what a job noted"
        judged.finish()
    except _UNFIT as error:
        raise UnreadableError(f"{place} is not as a mesh writes it: {error!r}") from error
    return verdict


class _Judged:
    """All rules over one history, while its log goes by."""

    def __init__(self, sources: Sources, history: History, verdict: Verdict, times: Times) -> None:
        self._sources = sources
        self._replay = Replay(verdict)
        self._leases = LeaseRules(history, verdict, whole=False)
        self._mesh = MeshRules(
            history, verdict, quiet=_quiet(history), drained=False, whole=False, times=times
        )
        self._restores = self._mesh.faults.restores

    def take(self, item: Opening | Durable) -> None:
        """Looks at an opening of the store, or at a commit."""
        replay = self._replay
        if isinstance(item, Opening):
            if not replay.open(item) and not self._restored(item.revision):
                self._mesh.begin_late()
            return
        before = item.commit.revision - 1
        # A history that the checker's own recorder wrote has no openings.
        if before != replay.last_revision and before in self._restores:
            self._restored(before)
        if not replay.take(item):
            self._mesh.begin_late()
        self._leases.take(item)
        self._mesh.take(item)

    def finish(self) -> None:
        """Looks at what is left."""
        self._leases.finish()
        self._mesh.finish()

    def _restored(self, revision: int) -> bool:
        """Takes back what a restore took back; tells whether it is known which that was."""
        if revision not in self._restores:
            return False
        commits = prefix(_until(self._sources, revision), self._restores, revision)
        self._replay.restore(revision, commits)
        self._mesh.go_back(commits)
        return True


def _until(sources: Sources, revision: int) -> Iterator[Durable]:
    """Reads the commits up to a revision once more."""
    for item in sources.log():
        if isinstance(item, Durable):
            if item.commit.revision > revision:
                return
            yield item


def _quiet(history: History) -> tuple[int, int] | None:
    """Finds the last time in which everything worked: since the last healing nothing was done."""
    faults = [note for note in history.of("fault") if note.what not in {"inject", "start"}]
    if not faults or faults[-1].what != "healed":
        return None
    return faults[-1].at_ns, max(
        [note.at_ns for note in history.notes]
        + [call.ended_ns or call.invoked_ns for call in history.calls]
    )

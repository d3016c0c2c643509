"""Histories of real meshes, judged: what `sexton verify` and the fault tests call.

The checker is the one that judges simulations. What a history can't tell is said, not passed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from sexton_sim.check.executions import Times
from sexton_sim.check.leases import LeaseRules
from sexton_sim.check.mesh import MeshRules
from sexton_sim.check.model import Replay, prefix
from sexton_sim.check.verdict import Verdict
from sexton_sim.history import Durable, History
from sexton_sim.sources import Opening, Sources


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
    """
    times = times or Times(kills_noted=False)
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
    replay, leases = Replay(verdict), LeaseRules(history, verdict)
    mesh = MeshRules(history, verdict, quiet=_quiet(history), drained=False, times=times)
    restores = mesh.faults.restores
    for item in sources.log():
        if isinstance(item, Opening):
            known = replay.open(item)
            if not known and item.revision in restores:
                commits = prefix(_until(sources, item.revision), restores, item.revision)
                replay.go_back(commits)
                mesh.go_back(commits)
            elif not known:
                mesh.begin_late()
            continue
        if not replay.take(item):
            mesh.begin_late()
        leases.take(item)
        mesh.take(item)
    leases.finish()
    mesh.finish()
    return verdict


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

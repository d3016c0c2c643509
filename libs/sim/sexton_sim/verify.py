"""Histories of real meshes, judged: what `sexton verify` and the fault tests call.

The checker is the one that judges simulations. What a history can't tell is said, not passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sexton_sim.check.leases import check_leases
from sexton_sim.check.mesh import check_mesh
from sexton_sim.check.model import Replay
from sexton_sim.check.verdict import Verdict
from sexton_sim.sources import Opening, Sources


def verify(paths: Sequence[Path]) -> Verdict:
    """Judges the history that files and folders hold together.

    Raises:
        UnreadableError: what was given is no history.
        OSError: a file can't be read.
    """
    return judge(Sources(paths))


def judge(sources: Sources) -> Verdict:
    """Judges a history."""
    verdict = Verdict()
    history = sources.notes()
    replay = Replay(verdict)
    for item in sources.log():
        if isinstance(item, Opening):
            replay.open(item)
        else:
            replay.take(item)
            history.commits.append(item)
    check_leases(history, verdict)
    check_mesh(history, verdict)
    return verdict

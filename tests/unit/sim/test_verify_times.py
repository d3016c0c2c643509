from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sexton_sim import verify
from sexton_sim.check.executions import Times
from sexton_sim.check.mesh import MeshRules
from sexton_store.history import FileHistory, start_line


def test_a_history_is_judged_by_the_times_of_its_own_mesh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Times | None] = []

    class Watched(MeshRules):
        def __init__(self, *arguments: Any, times: Times | None = None, **others: Any) -> None:
            seen.append(times)
            super().__init__(*arguments, times=times, **others)

    monkeypatch.setattr(verify, "MeshRules", Watched)
    history = FileHistory(tmp_path)
    commit = b'{"revision":1,"mesh_time_ns":1,"compares":[],"changes":[],"boot_ns":1}\n'
    history.append([start_line(0), commit])
    history.close()
    times = Times(session_ns=8_000_000_000, kills_noted=False)
    verify.verify([tmp_path], times)
    verify.verify([tmp_path])
    assert seen[0] is times
    assert seen[1] is not None
    assert not seen[1].kills_noted

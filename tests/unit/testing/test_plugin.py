"""The fixture comes with the installation."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime

from sexton import JobSpec, ShellTask
from sexton_testing import Rehearsal


def test_each_test_gets_a_mesh_of_its_own(rehearsal: Rehearsal) -> None:
    assert rehearsal.now == datetime(2030, 1, 1, tzinfo=UTC)
    rehearsal.apply({"job": JobSpec(task=ShellTask("true"))})


def test_which_knows_nothing_of_the_one_before(rehearsal: Rehearsal) -> None:
    assert rehearsal.runs() == []
    rehearsal.apply({"job": JobSpec(task=ShellTask("true"))})
    assert rehearsal.trigger("job").run is not None


def test_what_rehearses_nothing_loads_nothing() -> None:
    code = "import sys, sexton_testing.plugin; print('sexton_core' in sys.modules)"
    printed = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert printed == "False\n"

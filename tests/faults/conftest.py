from __future__ import annotations

import os
from pathlib import Path

import pytest
from faults.judge import Row
from faults.play import table, write_report

_ROWS = pytest.StashKey[list[Row]]()


@pytest.fixture
def rows(request: pytest.FixtureRequest) -> list[Row]:
    """What came of the scenarios that were played; shown at the end."""
    return request.config.stash.setdefault(_ROWS, [])


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Shows the table, and writes it where SEXTON_FAULTS_REPORT names a file."""
    rows = config.stash.get(_ROWS, [])
    if not rows:
        return
    terminalreporter.section("faults")
    terminalreporter.write_line(table(rows))
    if report := os.environ.get("SEXTON_FAULTS_REPORT"):
        write_report(rows, Path(report))

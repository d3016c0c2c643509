"""The page about performance names every bench, with options that there are."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from sexton_cli.main import run

PAGE = (Path(__file__).parents[3] / "docs" / "performance.md").read_text()
NAMED = sorted(set(re.findall(r"sexton bench ([a-z][^`\n]*)", PAGE)))


@pytest.mark.slow
@pytest.mark.parametrize("command", NAMED)
def test_each_command_of_the_page_is_one(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", *shlex.split(command), "--help"]) == 0
    assert "Usage" in capsys.readouterr().out


def test_the_page_has_every_bench(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "--help"]) == 0
    listed = re.findall(r"^ {2}([a-z]+) {2,}Measure", capsys.readouterr().out, re.MULTILINE)
    assert len(listed) == 10
    assert set(listed) == {command.split()[0] for command in NAMED}

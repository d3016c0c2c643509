"""`sexton-sim`: wrong flags are refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from sexton_sim.__main__ import main


@pytest.mark.parametrize(
    "flags",
    [
        ["--seeds", "0"],
        ["--seeds", "-1"],
        ["--minutes", "0"],
        ["--duration", "-5"],
        ["--duration", "nan"],
        ["--only", "1"],
        ["--shrink"],
        ["--trace"],
        ["--history", "history.jsonl"],
        ["--replay", "3", "--only", "1,x"],
        ["--replay", "3", "--only", "999"],
    ],
)
def test_flags_that_would_run_nothing_or_be_passed_over_are_refused(flags: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(flags)
    assert refused.value.code == 2


def test_a_file_in_no_folder_is_refused_before_the_seeds_run(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["--seeds", "1", "--json", str(tmp_path / "nowhere" / "table.json")])
    assert refused.value.code == 2


def test_a_fault_that_the_seed_does_not_have_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--replay", "3", "--only", "1,999", "--duration", "20"])
    told = capsys.readouterr().err
    assert "--only 1,999: seed 3 has faults 1 to " in told
    assert "none of number 999; without --only they are listed" in told

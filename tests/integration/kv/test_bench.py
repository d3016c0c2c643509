from __future__ import annotations

import json
from pathlib import Path

import pytest

from sexton_cli.bench import store as bench
from sexton_cli.main import run


@pytest.mark.slow
def test_the_bench_measures_everything_and_names_its_units(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, small in (
        ("CLIENTS", (1, 2)), ("OPS_PER_COMMIT", (1, 100)), ("LEASES", 5), ("LEASE_TTL_S", 0.6),
        ("_UNLOADED_CALLS", 5),
    ):  # fmt: skip
        monkeypatch.setattr(bench, name, small)
    monkeypatch.setenv("SEXTON_SECRETS_DIR", "/nowhere")  # of a mesh that is none of its business
    arguments = ["bench", "store", "--json", "--seconds", "0.1", "--dir", str(tmp_path)]
    assert run(arguments) == 0
    measured = json.loads(capsys.readouterr().out)
    assert [(row["clients"], row["ops_per_commit"]) for row in measured["commits"]] == [
        (1, 1), (2, 1), (1, 100), (2, 100),
    ]  # fmt: skip
    numbers = ("commits_per_s", "ops_per_s", "p50_ms", "p99_ms", "lmdb_commits_per_s",
               "ratio_to_lmdb")  # fmt: skip
    assert all(row[number] > 0 for row in measured["commits"] for number in numbers)
    assert measured["compare_and_set"]["ratio_to_commit_plus_call"] > 0
    assert measured["leases"]["held_under_load"] == 5
    assert measured["leases"]["renewals_per_s"] > 0
    assert list(tmp_path.iterdir()) == [], "it leaves nothing behind"

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sexton_cli.main import run


@pytest.mark.slow
def test_the_bench_of_throughput_settles_every_run_and_counts_what_each_service_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--json", "--jobs", "20", "--seconds", "2", "--dir", str(tmp_path)]
    assert run(["bench", "throughput", *arguments]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert (measured["runs"], measured["offered_runs_per_s"]) == (40, 20)
    assert measured["runs_per_s"] > 0
    services = {"store", "queue", "coordinator", "worker", "all"}
    assert set(measured["cpu_us_per_run"]) == set(measured["cores_busy"]) == services
    assert list(tmp_path.iterdir()) == [], "it leaves nothing behind"

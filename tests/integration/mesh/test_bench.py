from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from sexton_cli.bench import soak
from sexton_cli.bench.mesh import Shape
from sexton_cli.main import run

SERVICES = {"store", "queue", "coordinator", "worker"}


class Bench:
    """Runs `sexton bench` on a folder of its own, which it has to leave empty."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def __call__(self, *arguments: str) -> dict[str, Any]:
        assert run(["bench", *arguments, "--json", "--dir", str(self.folder)]) == 0
        assert list(self.folder.iterdir()) == [], "it leaves nothing behind"
        measured: dict[str, Any] = json.loads(self._capsys.readouterr().out)
        return measured


@pytest.fixture
def bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Bench:
    return Bench(tmp_path, capsys)


@pytest.mark.slow
def test_the_bench_of_throughput_settles_every_run_and_counts_what_each_service_used(
    bench: Bench,
) -> None:
    measured = bench("throughput", "--jobs", "20", "--seconds", "2")
    assert (measured["repeated"], measured["runs"], measured["offered_runs_per_s"]) == (1, 40, 20)
    assert measured["runs_per_s"] > 0
    assert set(measured["cpu_us_per_run"]) == set(measured["cores_busy"]) == SERVICES | {"all"}
    assert set(measured["memory_mib"]) == SERVICES


@pytest.mark.slow
def test_a_soak_shows_the_mesh_ten_times_and_the_last_against_the_middle(tmp_path: Path) -> None:
    measured = asyncio.run(soak.measure(10, 2, tmp_path, Shape()))
    rows = measured["windows"]
    assert sum(row["runs"] for row in rows) == measured["runs"] == 20
    assert rows[-1]["store_mib"] > 0
    assert set(measured["last_to_middle"]) == set(rows[0]) - {"until_s", "runs"}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_bench_of_lateness_reads_from_every_run_when_it_was_started(bench: Bench) -> None:
    measured = bench("lateness", "--jobs", "20", "--seconds", "2", "--spread")
    assert (measured["runs"], measured["spread"]) == (40, True)
    assert 0 < measured["p50_ms"] <= measured["p99_ms"] <= measured["max_ms"]
    assert 0 < measured["usual_p50_ms"] <= measured["usual_last_ms"] <= measured["max_ms"]
    assert set(measured["memory_most_mib"]) == SERVICES


@pytest.mark.slow
def test_the_bench_of_latency_sees_an_answer_before_a_result(bench: Bench) -> None:
    measured = bench("latency", "--triggers", "5")
    assert measured["triggers"] == 5
    assert 0 < measured["acknowledged_p50_ms"] < measured["p50_ms"] <= measured["max_ms"]


@pytest.mark.slow
def test_the_bench_of_jobs_applies_reads_and_takes_over_with_all_of_them(bench: Bench) -> None:
    measured = bench("jobs", "--jobs", "150")
    (row,) = measured["rows"]
    assert (measured["jobs"], row["jobs"]) == (150, 150)
    assert {"store", "coordinator", "client", "all"} <= measured["cpu_us_per_job"].keys()
    assert {"get_p50_ms", "list_p50_ms", "takeover_ms", "store_start_ms"} <= set(row)
    assert measured["many_to_few"]["get_p50_ms"] == 1.0, "so few are measured once"
    assert measured["store_bytes_per_job"] > 0


@pytest.mark.slow
def test_the_bench_of_scaling_divides_what_each_service_used_by_the_runs(bench: Bench) -> None:
    measured = bench("scaling", "--jobs", "60", "--rate", "20", "--seconds", "2")
    (row,) = measured["rows"]
    assert (row["jobs"], row["runs"], row["cpu_to_fewest_jobs"]) == (60, 40, 1.0)
    assert {f"{service}_us" for service in SERVICES} <= set(row)


@pytest.mark.slow
def test_the_bench_of_scaling_refuses_numbers_that_it_can_not_spread(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for given in ("many", "50,200", "2000000"):
        assert run(["bench", "scaling", "--jobs", given]) == 2
        assert "from the rate (100) to 1,000,000" in capsys.readouterr().err


@pytest.mark.faults  # with three meshes it takes as long as all the others
def test_the_bench_of_tracing_compares_three_meshes(bench: Bench) -> None:
    measured = bench("tracing", "--jobs", "20", "--seconds", "1", "--repeat", "1")
    rows = measured["rows"]
    assert [row["tracing"] for row in rows] == ["off", "none_sampled", "all_sampled"]
    assert rows[0]["runs_per_s_to_off"] == 1.0


@pytest.mark.faults
def test_the_bench_of_takeover_loses_nothing_and_is_judged(bench: Bench) -> None:
    measured = bench("takeover", "--jobs", "20", "--seconds", "6")
    for fault in ("leader_killed", "leader_stopped", "worker_killed"):
        found = measured[fault]
        assert (found["runs"], found["lost"], found["violations"]) == (120, 0, 0)
        assert found["checked"] > 0
    assert measured["leader_killed"]["gap_ms"] > 0
    assert measured["worker_killed"]["started_again"] > 0

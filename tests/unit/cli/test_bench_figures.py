from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sexton import Every
from sexton_cli.bench.figures import median_of, percentile, ratio, times
from sexton_cli.bench.load import Load, busy, by_run

FIRST = datetime(2026, 12, 1, tzinfo=UTC)


def test_the_median_is_taken_of_every_figure_however_deep() -> None:
    runs = [
        {"runs": 40, "p50_ms": 3.0, "by": {"store": 7}, "rows": [{"jobs": 10, "us": 5}]},
        {"runs": 40, "p50_ms": 1.0, "by": {"store": 9}, "rows": [{"jobs": 10, "us": 6}]},
        {"runs": 40, "p50_ms": 2.5, "by": {"store": 1}, "rows": [{"jobs": 10, "us": 1}]},
    ]
    assert median_of(runs) == {
        "repeated": 3,
        "runs": 40,
        "p50_ms": 2.5,
        "by": {"store": 7},
        "rows": [{"jobs": 10, "us": 5}],
    }


def test_what_is_no_number_in_all_repetitions_stays_as_it_was_first() -> None:
    runs = [{"spread": True, "again_ms": None}, {"spread": True, "again_ms": 4}]
    assert median_of(runs) == {"repeated": 2, "spread": True, "again_ms": None}


def test_percentiles_are_those_of_the_nearest_rank() -> None:
    assert percentile([1, 2, 3, 4], 50) == 3
    assert percentile([7], 99) == 7
    assert times("get_", [3_000_000, 1_000_000, 2_000_000]) == {
        "get_p50_ms": 2.0,
        "get_p99_ms": 3.0,
        "get_max_ms": 3.0,
    }
    assert ratio(1, 0) is None


def test_a_load_counts_the_runs_that_it_asks_for() -> None:
    assert Load(jobs=5, seconds=3, task="nothing").runs == 15
    assert Load(jobs=100, seconds=20, task="nothing", period_s=10).runs == 200
    assert Load(jobs=1_000, seconds=2, task="nothing", period_s=10).runs == 200
    assert Load(jobs=3, seconds=4, task="nothing", period_s=2).runs == 6


def test_jobs_of_one_load_are_due_in_their_second_of_the_period() -> None:
    load = Load(jobs=10, seconds=3, task="nothing", period_s=5, spread_s=1)
    (early,), (late,) = load.spec(1, FIRST).schedules, load.spec(4, FIRST).schedules
    assert isinstance(early, Every)
    assert (early.period, early.jitter) == (timedelta(seconds=5), timedelta(seconds=1))
    assert (early.start, early.end) == (
        FIRST + timedelta(seconds=1),
        FIRST + timedelta(seconds=2),
    )
    assert late.start == late.end == FIRST + timedelta(seconds=4), "after what is measured"


def test_processor_time_is_that_between_two_readings() -> None:
    before, after = {"store": 1.0, "queue": 2.0}, {"store": 1.5, "queue": 2.25}
    assert by_run(before, after, 1_000) == {"store": 500, "queue": 250, "all": 750}
    assert busy(before, after, 0.5) == {"store": 1.0, "queue": 0.5, "all": 1.5}

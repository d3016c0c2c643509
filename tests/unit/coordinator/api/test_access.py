"""Which calls of the API the reader's secret allows."""

from __future__ import annotations

import pytest

from sexton.v1 import backfill_pb2, dead_letter_pb2, scheduler_pb2  # noqa: F401 - known by name
from sexton_coordinator.api.services import reads_of

READS = {
    "sexton.v1.JobService": (
        *("GetJob", "ListJobs", "ExplainJob", "PreviewJob"),
        *("ListJobVersions", "ListDecisions", "ForecastLoad"),
    ),
    "sexton.v1.RunService": ("GetRun", "ListRuns", "WatchRuns"),
    "sexton.v1.MeshService": ("ListMembers", "ListQueues", "GetStoreStatus"),
    "sexton.v1.BackfillService": ("GetBackfill", "ListBackfills"),
    "sexton.v1.DeadLetterService": ("ListDeadLetters",),
}


@pytest.mark.parametrize("service", READS)
def test_a_reader_may_make_the_calls_that_change_nothing_and_no_others(service: str) -> None:
    assert reads_of(service) == set(READS[service])

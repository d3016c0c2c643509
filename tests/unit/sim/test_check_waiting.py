"""What still waits when a history ends, though nothing is in its way, is judged too (L3)."""

from __future__ import annotations

import pytest

from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import backfill_pb2
from sexton_core.instants import SECOND
from sexton_records import keys
from sexton_sim.check import Verdict
from sexton_sim.check.backfills import BackfillRules
from sexton_sim.check.jobs import JobLog
from sexton_sim.check.records import Changed, MeshCommit
from sexton_sim.check.scheduling import SchedulingRules

UID = "a" * 24
QUIET = (10 * SECOND, 40 * SECOND)


@pytest.mark.parametrize(("since_s", "broken"), [(5, ["L3"]), (32, ["L3"]), (34, [])])
def test_a_start_in_the_buffer(since_s: int, broken: list[str]) -> None:
    verdict = Verdict()
    rules = SchedulingRules(verdict, rebooted=False, quiet=QUIET)
    rules.jobs[UID] = JobLog(UID, idle_since_ns=since_s * SECOND)
    rules.finish()
    assert verdict.rules() == broken
    assert verdict.checked["L3"] == 1


@pytest.mark.parametrize(
    ("state", "broken"), [(pb.StateRecord(), ["L3"]), (pb.StateRecord(paused_at_ns=1), [])]
)
def test_a_backfill(state: pb.StateRecord, broken: list[str]) -> None:
    verdict = Verdict()
    rules = BackfillRules(verdict, {UID: JobLog(UID, state=state)}, quiet=QUIET)
    begun = pb.BackfillRecord(state=backfill_pb2.BACKFILL_STATE_STARTING, version=1)
    change = Changed(keys.backfill_key(0, UID, "b" * 16), None, begun, 0)
    commit = MeshCommit(7, SECOND, 12 * SECOND, 12 * SECOND, (), {keys.BACKFILLS: [change]})
    rules.take(commit)
    rules.note_idle(commit)
    rules.finish()
    assert verdict.rules() == broken

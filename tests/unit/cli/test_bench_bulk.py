"""A store that was written in bulk holds what a mesh would have left."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import lmdb

from sexton.internal.v1 import records_pb2 as records
from sexton_cli.bench.bulk import fill, job_id
from sexton_core.ids import scheduled_run_id
from sexton_records import keys
from sexton_store.folder import RECORDS
from sexton_store.record import decode_record


def test_a_store_in_bulk_has_jobs_with_timers_and_runs_that_can_be_found(tmp_path: Path) -> None:
    fill(tmp_path / "store", jobs=2, runs=1_010)
    folder = str(tmp_path / "store")
    with lmdb.open(folder, max_dbs=2, readonly=True, lock=False) as env:
        records_db = env.open_db(RECORDS)
        with env.begin(db=records_db) as txn:
            stored = {bytes(key): bytes(value) for key, value in txn.cursor()}
    found = {key: decode_record(key, value).value for key, value in stored.items()}
    kinds = Counter(key.partition(b"/")[0].decode() for key in found)
    assert kinds == {
        "jobs": 2, "state": 2, "timers": 2, "runs": 1_010, "ended": 1_010, "dead": kinds["dead"],
    }  # fmt: skip
    job = records.JobRecord.FromString(found[keys.job_key("default", job_id(1))])
    state = records.StateRecord.FromString(found[keys.state_key(0, job.uid)])
    assert keys.timer_key(0, state.armed_ns, job.uid) in found
    runs = [
        records.RunRecord.FromString(value)
        for key, value in found.items()
        if key.startswith(keys.runs_prefix("default", job_id(1)))
    ]
    assert len(runs) == 10
    for run in runs:
        assert run.run_id == scheduled_run_id(job.uid, run.nominal_ns)
        assert run.nominal_ns <= state.cursor_ns < run.nominal_ns + 11 * 86_400 * 10**9
        assert keys.ended_key(0, run.end_time_ns, job.uid, run.run_id) in found

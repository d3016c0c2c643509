"""What a backfill leaves out, and when it looks."""

from __future__ import annotations

import asyncio

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from simulation.coordinator.mesh import Mesh, S, every

from sexton.internal.v1 import coordinator_pb2
from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import backfill_pb2, job_pb2
from sexton_core.words import ResumeMode


def test_what_succeeds_while_a_backfill_is_held_up_is_left_out() -> None:
    async def scenario(mesh: Mesh) -> None:
        start = await mesh.boundary(10)
        job = await mesh.create(
            schedules=every(10),
            overlap=job_pb2.OVERLAP_POLICY_BUFFER_ALL,
            catch_up=job_pb2.CatchUp(
                policy=job_pb2.CatchUp.POLICY_ALL, window=Duration(seconds=600)
            ),
        )
        await mesh.pause(job)
        await mesh.until(start + 12 * S)
        asked = coordinator_pb2.StartBackfillRequest(
            uid=job.uid,
            request=backfill_pb2.CreateBackfillRequest(
                parent=f"namespaces/{job.namespace}/jobs/{job.job}",
                request_id="again",
                start_time=Timestamp(seconds=start // S),
                end_time=Timestamp(seconds=start // S + 10),
                skip_succeeded=True,
            ),
            version=1,
            total=2,
        )
        stub = await mesh.leader_stub()
        await stub.StartBackfill(asked, timeout=5)
        await asyncio.sleep(6)
        await mesh.resume(job, ResumeMode.CATCH_UP)
        await asyncio.sleep(12)
        (kv,) = await mesh.below(b"backfills/")
        backfill = pb.BackfillRecord.FromString(kv.value)
        assert backfill.state == backfill_pb2.BACKFILL_STATE_DONE
        assert (backfill.started, backfill.skipped) == (0, 2)
        assert (await mesh.nominal_times(job, start))[:2] == [0, 10]

    Mesh().run(scenario)

"""What went wrong is put right, in a mesh of real processes whose leader is killed meanwhile."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from integration.mesh.mesh_process import MeshProcess, wait_for

from sexton.v1 import backfill_pb2, dead_letter_pb2, job_pb2
from sexton.v1 import scheduler_pb2 as api
from sexton.v1.backfill_pb2_grpc import BackfillServiceStub
from sexton.v1.dead_letter_pb2_grpc import DeadLetterServiceStub
from sexton.v1.scheduler_pb2_grpc import JobServiceStub, MeshServiceStub, RunServiceStub

pytestmark = pytest.mark.slow

JOBS = "namespaces/default/jobs/"


class Api:
    """The raw API of a mesh, asked until it answers: a replica may be killed at any time."""

    def __init__(self, mesh: MeshProcess) -> None:
        secret = (mesh.data / "secrets" / "client").read_text().strip()
        self._metadata = (("authorization", f"Bearer {secret}"),)
        everybody = mesh.processes().values()
        self._addresses = [one.address for one in everybody if one.role == "coordinator"]

    def call(self, stub: Any, method: str, request: Any) -> Any:
        for attempt in range(100):
            address = self._addresses[attempt % len(self._addresses)]
            with grpc.insecure_channel(address) as channel:
                try:
                    return getattr(stub(channel), method)(
                        request, metadata=self._metadata, timeout=5
                    )
                except grpc.RpcError as error:
                    if error.code() not in {
                        grpc.StatusCode.UNAVAILABLE,
                        grpc.StatusCode.DEADLINE_EXCEEDED,
                    }:
                        raise
            time.sleep(0.1)
        raise AssertionError(f"{method} was not answered")


def test_dead_letters_and_a_backfill_run_once_each_though_the_leader_is_killed(tmp_path: Path):
    flags = ("--coordinators", "2", "--queues", "1", "--workers", "1")
    mesh = MeshProcess(tmp_path, *flags).start()
    try:
        api_ = Api(mesh)
        marks = tmp_path / "marks"
        marks.mkdir()
        broken = tmp_path / "broken"
        broken.touch()
        command = f"test ! -e {broken} && touch {marks}/$SEXTON_RUN_ID"
        schedule = job_pb2.Schedule(cron="0 0 1 1 *")
        spec = job_pb2.JobSpec(
            task=job_pb2.Task(shell=job_pb2.ShellTask(command=command)),
            schedules=[schedule],
            retry=job_pb2.Retry(max_attempts=1),
        )
        job = job_pb2.Job(name=f"{JOBS}report", spec=spec)
        made = api_.call(JobServiceStub, "CreateJob", api.CreateJobRequest(job=job))
        assert list(made.job.notices) == []
        for number in range(3):
            request = api.TriggerJobRequest(name=job.name, request_id=f"r{number}")
            run = api_.call(JobServiceStub, "TriggerJob", request).run
            wait_for(lambda name=run.name: ended(api_, name), "the run has failed")
        broken.unlink()
        mesh.send(mesh.leader("coordinator"), signal.SIGKILL)
        everything = dead_letter_pb2.RequeueDeadLettersRequest(all=True)
        answer = api_.call(DeadLetterServiceStub, "RequeueDeadLetters", everything)
        mesh.send(mesh.leader("coordinator"), signal.SIGKILL)
        new = {one.new_run.rpartition("/")[2] for one in answer.requeued if one.new_run}
        request = backfill_pb2.CreateBackfillRequest(
            parent=job.name,
            start_time=Timestamp(seconds=1_600_000_000),
            end_time=Timestamp(seconds=1_760_000_000),
            request_id="fill",
        )
        backfill = api_.call(BackfillServiceStub, "CreateBackfill", request).backfill
        assert backfill.total == 5
        done = backfill_pb2.BACKFILL_STATE_DONE
        wait_for(lambda: filled(api_, backfill.name).state == done, "the range has been run")
        wait_for(lambda: len(list(marks.iterdir())) >= 8, "everything has run")
        names = {path.name for path in marks.iterdir()}
        assert len(names) == 8
        assert sum(name.startswith("b") for name in names) == 5
        assert {name for name in names if name.startswith("m")} >= new
        left = api_.call(
            DeadLetterServiceStub, "ListDeadLetters", dead_letter_pb2.ListDeadLettersRequest()
        )
        assert list(left.dead_letters) == []
        queues = api_.call(MeshServiceStub, "ListQueues", api.ListQueuesRequest())
        assert [worker.kinds for worker in queues.workers] == [["shell", "http"]]
    finally:
        mesh.stop(signal.SIGKILL)


def ended(api_: Api, name: str) -> bool:
    run = api_.call(RunServiceStub, "GetRun", api.GetRunRequest(name=name)).run
    return bool(run.HasField("end_time"))


def filled(api_: Api, name: str) -> backfill_pb2.Backfill:
    request = backfill_pb2.GetBackfillRequest(name=name)
    found: backfill_pb2.Backfill = api_.call(BackfillServiceStub, "GetBackfill", request).backfill
    return found

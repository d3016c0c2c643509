"""What can't be used is refused by name, with what would be right, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from unit.coordinator.api.world import JOB, MINUTES, NS, World, shell, story

from sexton import errors
from sexton.v1 import job_pb2, run_pb2
from sexton.v1 import scheduler_pb2 as api

RUN = f"{JOB}/runs/t20261129T030000Z-abcdefgh"

BAD_JOB_NAMES = [
    "",
    "report",
    "namespaces/default/jobs/",
    "namespaces/default/jobs/a/b",
    "namespaces/default/jobs/a/runs/b",
    "namespaces/default/job/a",
    "jobs/a/namespaces/default",
    "namespaces//jobs/a",
    "namespaces/default/jobs/Report",
    "namespaces/default/jobs/-a",
    "namespaces/default/jobs/a-",
    "namespaces/default/jobs/1a",
    "namespaces/default/jobs/" + "a" * 64,
    "namespaces/default/jobs/" + "a" * 256,
    "namespaces/" + "n" * 256 + "/jobs/a",
    "namespaces/default/jobs/caf\u00e9",
    "namespaces/default/jobs/cafe\u0301",
    "namespaces/default/jobs/\U0001f600",
    "namespaces/default/jobs/a\0",
    "namespaces/default/jobs/a\n",
    "namespaces/default/jobs/ a",
    "namespaces/default/jobs/a?etag=1",
    "../../etc/passwd",
]
BAD_RUN_NAMES = [
    *BAD_JOB_NAMES,
    JOB,
    f"{JOB}/runs/",
    f"{JOB}/runs/x",
    f"{JOB}/runs/t20261329T030000Z-abcdefgh",
    f"{JOB}/runs/{'t' * 256}",
]


Call = tuple[str, Callable[[str], Any]]
BY_JOB: list[Call] = [
    ("CreateJob", lambda n: api.CreateJobRequest(job=job_pb2.Job(name=n))),
    ("GetJob", lambda n: api.GetJobRequest(name=n)),
    ("UpdateJob", lambda n: api.UpdateJobRequest(job=job_pb2.Job(name=n))),
    ("DeleteJob", lambda n: api.DeleteJobRequest(name=n)),
    ("PauseJob", lambda n: api.PauseJobRequest(name=n)),
    ("ResumeJob", lambda n: api.ResumeJobRequest(name=n)),
    ("TriggerJob", lambda n: api.TriggerJobRequest(name=n, request_id="r")),
    ("ExplainJob", lambda n: api.ExplainJobRequest(name=n, time=Timestamp(seconds=1))),
    ("ListDecisions", lambda n: api.ListDecisionsRequest(name=n)),
    ("ListJobVersions", lambda n: api.ListJobVersionsRequest(name=n)),
]
BY_RUN: list[Call] = [
    ("GetRun", lambda n: api.GetRunRequest(name=n)),
    ("CancelRun", lambda n: api.CancelRunRequest(name=n)),
    ("TerminateRun", lambda n: api.TerminateRunRequest(name=n)),
    ("RetryRun", lambda n: api.RetryRunRequest(name=n, request_id="r")),
]


@pytest.mark.parametrize(("method", "make"), [*BY_JOB, *BY_RUN], ids=lambda value: str(value)[:12])
def test_names_are_read_strictly(method: str, make: Callable[[str], Any]) -> None:
    of_runs = method.endswith("Run")

    async def scenario(world: World) -> None:
        await world.make()
        before = await world.revision()
        call = getattr(world.runs_api if of_runs else world.jobs_api, method)
        for name in BAD_RUN_NAMES if of_runs else BAD_JOB_NAMES:
            with pytest.raises(errors.InvalidArgument) as raised:
                await call(make(name))
            assert raised.value.field in {"name", "job.name"}
            assert "an id is 1 to 63 of a-z, 0-9 and -" in raised.value.message
            assert len(raised.value.message) < 500
        assert await world.revision() == before

    story(scenario)


def test_a_name_that_is_no_run_id_is_told_what_a_run_id_looks_like() -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(errors.InvalidArgument) as raised:
            await world.runs_api.GetRun(api.GetRunRequest(name=f"{JOB}/runs/bogus"))
        assert raised.value.message.endswith(
            "; 'bogus' is not a run id such as t20261129T030000Z-abcdefgh"
        )

    story(scenario)


@pytest.mark.parametrize(("method", "make"), [*BY_JOB[1:], *BY_RUN], ids=lambda v: str(v)[:12])
def test_what_is_not_there_is_not_found(method: str, make: Callable[[str], Any]) -> None:
    of_runs = method.endswith("Run")

    async def scenario(world: World) -> None:
        await world.make()
        before = await world.revision()
        call = getattr(world.runs_api if of_runs else world.jobs_api, method)
        request = make(RUN if of_runs else f"{NS}/jobs/none")
        if method == "UpdateJob":
            request.job.spec.CopyFrom(job_pb2.JobSpec(task=shell()))
        with pytest.raises(errors.NotFound):
            await call(request)
        assert await world.revision() == before

    story(scenario)


def _schedule(**fields: Any) -> dict[str, Any]:
    return {"schedules": [job_pb2.Schedule(**fields)]}


def _at(*times: str) -> dict[str, Any]:
    return {"schedules": [job_pb2.Schedule(at=job_pb2.At(times=times))]}


DEEP = '{"a":' * 100_000 + "1" + "}" * 100_000
PYTHON = job_pb2.PythonTask(task="report")

BAD_SPECS: list[tuple[str, dict[str, Any], str]] = [
    ("no task", {"task": None}, "spec.task: 'nothing'"),
    ("cron of four fields", _schedule(cron="* * * *"), "spec.cron: "),
    ("cron beyond sixty", _schedule(cron="60 * * * *"), "spec."),
    ("cron that steps by nothing", _schedule(cron="*/0 * * * *"), "spec."),
    ("cron that never fires", _schedule(cron="* * 31 2 *"), "fires"),
    ("cron of ten kilobytes", _schedule(cron="*" * 10_000), "spec."),
    ("cron at boot", _schedule(cron="@reboot"), "spec."),
    ("cron that is empty", _schedule(cron=""), "spec."),
    ("a schedule of no kind", {"schedules": [job_pb2.Schedule()]}, "spec.schedule: 'nothing'"),
    ("a zone elsewhere", _schedule(cron="0 3 * * *", time_zone="Mars/Base"), "Mars/Base"),
    ("a zone in a file", _schedule(cron="0 3 * * *", time_zone="../../etc/passwd"), "spec."),
    ("an unknown rule", _schedule(cron="0 3 * * *", dst=99), "spec.dst: 99"),
    ("a period of nothing", _schedule(every=job_pb2.Every(period=Duration())), "spec."),
    (
        "a period below zero",
        _schedule(every=job_pb2.Every(period=Duration(seconds=-1))),
        "spec.",
    ),
    (
        "a period of a millisecond",
        _schedule(every=job_pb2.Every(period=Duration(nanos=1_000_000))),
        "spec.",
    ),
    (
        "an end before the start",
        _schedule(
            cron="0 3 * * *",
            start_time=Timestamp(seconds=1_800_000_000),
            end_time=Timestamp(seconds=1_700_000_000),
        ),
        "spec.",
    ),
    ("a time that has passed", _at("2001-01-01T00:00:00Z"), "never fires after"),
    ("a day that is none", _at("2001-02-30T00:00:00Z"), "spec.at: "),
    ("jitter below zero", _schedule(cron="0 3 * * *", jitter=Duration(seconds=-5)), "spec.jitter"),
    ("too many schedules", {"schedules": [MINUTES[0]] * 21}, "spec.schedules: 21"),
    ("a priority of 101", {"priority": 101}, "spec.priority: 101"),
    ("a queue with a slash", {"queue": "a/b"}, "spec.queue: 'a/b'"),
    ("an unknown overlap", {"overlap": 99}, "spec.overlap: 99"),
    ("a buffer below zero", {"max_buffered": -1}, "spec.max_buffered: -1"),
    ("runs below zero", {"max_live": -1}, "spec.max_live: -1"),
    ("runs without bound", {"max_live": 10**9}, "spec.max_live: 1000000000"),
    ("attempts without bound", {"retry": job_pb2.Retry(max_attempts=10**9)}, "max_attempts"),
    ("attempts below zero", {"retry": job_pb2.Retry(max_attempts=-1)}, "max_attempts"),
    (
        "a backoff beyond all",
        {"retry": job_pb2.Retry(max_backoff=Duration(seconds=2**40))},
        "max_backoff",
    ),
    ("a multiplier of nan", {"retry": job_pb2.Retry(multiplier=float("nan"))}, "multiplier"),
    ("jitter of infinity", {"retry": job_pb2.Retry(jitter=float("inf"))}, "jitter"),
    ("a time-out of nothing", {"timeout": Duration()}, "timeout"),
    (
        "exclusive runs together",
        {"exclusive": True, "overlap": job_pb2.OVERLAP_POLICY_ALLOW_ALL},
        "spec.exclusive",
    ),
    ("too many labels", {"labels": {f"k{n}": "v" for n in range(33)}}, "spec.labels: 33"),
    ("a label with a line break", {"labels": {"a": "b\nc"}}, "spec.labels.a"),
    ("a novel", {"description": "x" * 1_001}, "spec.description"),
    ("a command of nothing", {"task": shell("  ")}, "spec.task.shell"),
    ("a command with NUL", {"task": shell("echo\0")}, "spec.task.shell"),
    ("a reserved variable", {"task": shell(SEXTON_TOKEN="1")}, "spec.task.env"),
    (
        "arguments too deep",
        {"task": job_pb2.Task(python=job_pb2.PythonTask(task="a", args_json=DEEP))},
        "spec.task.args",
    ),
    (
        "arguments that are no number",
        {"task": job_pb2.Task(python=job_pb2.PythonTask(task="a", args_json='{"a": NaN}'))},
        "NaN is no JSON",
    ),
    (
        "arguments that are there twice",
        {"task": job_pb2.Task(python=job_pb2.PythonTask(task="a", args_json='{"a":1,"a":2}'))},
        "stands in it twice",
    ),
    (
        "a file as address",
        {"task": job_pb2.Task(http=job_pb2.HttpTask(url="file:///etc/passwd"))},
        "spec.task.http.url",
    ),
]


def test_definitions_that_cannot_be_used_are_refused_by_every_way_in() -> None:
    async def scenario(world: World) -> None:
        await world.make(description="before")
        before = await world.revision()
        for what, fields, expected in BAD_SPECS:
            given: dict[str, Any] = {"task": shell(), "schedules": MINUTES} | fields
            spec = job_pb2.JobSpec(**given)
            new = job_pb2.Job(name=f"{NS}/jobs/new", spec=spec)
            known = job_pb2.Job(name=JOB, spec=spec)
            calls: list[tuple[Any, Any]] = [
                (world.jobs_api.CreateJob, api.CreateJobRequest(job=new)),
                (world.jobs_api.UpdateJob, api.UpdateJobRequest(job=known)),
                (world.jobs_api.ApplyJobs, api.ApplyJobsRequest(jobs=[known, new])),
            ]
            for call, request in calls:
                with pytest.raises(errors.InvalidArgument) as raised:
                    await call(request)
                assert expected in raised.value.message, (what, raised.value.message)
                assert "spec." in raised.value.field, what
                assert len(raised.value.message) < 1_000
        assert await world.revision() == before

    story(scenario)


OTHERS: list[tuple[str, str, Any, str]] = [
    ("jobs", "CreateJob", api.CreateJobRequest(), "job.name"),
    (
        "jobs",
        "CreateJob",
        api.CreateJobRequest(
            job=job_pb2.Job(name=f"{NS}/jobs/new", spec=job_pb2.JobSpec(task=shell())),
            request_id="x" * 129,
        ),
        "request_id",
    ),
    (
        "jobs",
        "CreateJob",
        api.CreateJobRequest(
            job=job_pb2.Job(name=f"{NS}/jobs/new", spec=job_pb2.JobSpec(task=shell())),
            request_id="a\0",
        ),
        "request_id",
    ),
    ("jobs", "TriggerJob", api.TriggerJobRequest(name=JOB), "request_id"),
    ("jobs", "TriggerJob", api.TriggerJobRequest(name=JOB, request_id="\n"), "request_id"),
    (
        "jobs",
        "TriggerJob",
        api.TriggerJobRequest(name=JOB, request_id="r", overlap=77),  # type: ignore[arg-type]
        "overlap",
    ),
    ("jobs", "ListJobs", api.ListJobsRequest(parent="default"), "parent"),
    ("jobs", "ListJobs", api.ListJobsRequest(parent=JOB), "parent"),
    ("jobs", "ListJobs", api.ListJobsRequest(page_size=-1), "page_size"),
    ("jobs", "ListJobs", api.ListJobsRequest(page_size=1_001), "page_size"),
    ("jobs", "ListJobs", api.ListJobsRequest(prefix="A"), "prefix"),
    ("jobs", "ListJobs", api.ListJobsRequest(prefix="a/"), "prefix"),
    ("jobs", "ListJobs", api.ListJobsRequest(prefix="\U0001f600"), "prefix"),
    ("jobs", "ListJobs", api.ListJobsRequest(view=9), "view"),  # type: ignore[arg-type]
    ("jobs", "ListJobs", api.ListJobsRequest(words="x" * 201), "words"),
    ("jobs", "ListJobs", api.ListJobsRequest(order=9), "order"),  # type: ignore[arg-type]
    ("jobs", "ListJobs", api.ListJobsRequest(names=["a"]), "names"),
    ("jobs", "ListJobs", api.ListJobsRequest(names=[JOB] * 1_001), "names"),
    ("jobs", "ListJobs", api.ListJobsRequest(names=[JOB], parent=NS), "names"),
    ("jobs", "ListJobs", api.ListJobsRequest(page_token="x"), "page_token"),
    ("jobs", "ListJobs", api.ListJobsRequest(page_token="A" * 5_000), "page_token"),
    ("jobs", "ListJobs", api.ListJobsRequest(page_token="\u00e9"), "page_token"),
    (
        "jobs",
        "UpdateJob",
        api.UpdateJobRequest(job=job_pb2.Job(name=JOB), update_mask=FieldMask(paths=["nothing"])),
        "update_mask",
    ),
    (
        "jobs",
        "UpdateJob",
        api.UpdateJobRequest(
            job=job_pb2.Job(name=JOB), update_mask=FieldMask(paths=["schedules.cron"])
        ),
        "update_mask",
    ),
    ("jobs", "UpdateJob", api.UpdateJobRequest(job=job_pb2.Job(name=JOB, etag="x")), "etag"),
    ("jobs", "UpdateJob", api.UpdateJobRequest(job=job_pb2.Job(name=JOB, etag="-1")), "etag"),
    ("jobs", "DeleteJob", api.DeleteJobRequest(name=JOB, etag="9" * 30), "etag"),
    ("jobs", "DeleteJob", api.DeleteJobRequest(name=JOB, uid="me"), "uid"),
    ("jobs", "PauseJob", api.PauseJobRequest(name=JOB, reason="x" * 201), "reason"),
    ("jobs", "PauseJob", api.PauseJobRequest(name=JOB, reason="a\x1b[31m"), "reason"),
    ("jobs", "ResumeJob", api.ResumeJobRequest(name=JOB, mode=8), "mode"),  # type: ignore[arg-type]
    ("jobs", "ApplyJobs", api.ApplyJobsRequest(source="x" * 201), "source"),
    ("jobs", "ExplainJob", api.ExplainJobRequest(name=JOB), "time"),
    (
        "jobs",
        "ExplainJob",
        api.ExplainJobRequest(name=JOB, time=Timestamp(seconds=-1)),
        "time",
    ),
    (
        "jobs",
        "ExplainJob",
        api.ExplainJobRequest(name=JOB, time=Timestamp(seconds=1, nanos=-5)),
        "time",
    ),
    (
        "jobs",
        "ExplainJob",
        api.ExplainJobRequest(name=JOB, time=Timestamp(seconds=10**11)),
        "time",
    ),
    ("runs", "ListRuns", api.ListRunsRequest(parent="x"), "parent"),
    ("runs", "ListRuns", api.ListRunsRequest(parent=RUN), "parent"),
    ("runs", "ListRuns", api.ListRunsRequest(page_size=2**31 - 1), "page_size"),
    ("runs", "ListRuns", api.ListRunsRequest(page_token="?"), "page_token"),
    ("runs", "ListRuns", api.ListRunsRequest(view=9), "view"),  # type: ignore[arg-type]
    ("runs", "ListRuns", api.ListRunsRequest(states=[0]), "states"),  # type: ignore[list-item]
    ("runs", "ListRuns", api.ListRunsRequest(states=[99]), "states"),  # type: ignore[list-item]
    (
        "runs",
        "ListRuns",
        api.ListRunsRequest(after_time=Timestamp(seconds=5), before_time=Timestamp(seconds=5)),
        "before_time",
    ),
    (
        "runs",
        "ListRuns",
        api.ListRunsRequest(after_time=Timestamp(seconds=-(2**60))),
        "after_time",
    ),
    ("runs", "CancelRun", api.CancelRunRequest(name=RUN, reason="x" * 201), "reason"),
    ("runs", "TerminateRun", api.TerminateRunRequest(name=RUN, reason="\0"), "reason"),
]


def test_other_fields_that_cannot_be_used_are_refused() -> None:
    async def scenario(world: World) -> None:
        await world.make()
        before = await world.revision()
        for service, method, request, field in OTHERS:
            stub = world.jobs_api if service == "jobs" else world.runs_api
            with pytest.raises(errors.InvalidArgument) as raised:
                await getattr(stub, method)(request)
            assert raised.value.field == field, (method, request, raised.value.message)
            assert "can't be used; expected" in raised.value.message
        assert await world.revision() == before

    story(scenario)


@pytest.mark.parametrize("name", ["", "x", f"{JOB}/runs/x", "namespaces/Default"])
def test_a_watch_of_nothing_that_has_a_name_is_refused(name: str) -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(errors.InvalidArgument, match="name: "):
            async for _ in world.runs_api.WatchRuns(api.WatchRunsRequest(name=name)):
                pass
        request = api.WatchRunsRequest(name=JOB, ended_only=True)
        with pytest.raises(errors.InvalidArgument, match="ended_only: "):
            async for _ in world.runs_api.WatchRuns(request):
                pass

    story(scenario)


@pytest.mark.parametrize("name", [JOB, RUN])
def test_a_watch_of_what_is_not_there_is_not_found(name: str) -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(errors.NotFound):
            async for _ in world.runs_api.WatchRuns(api.WatchRunsRequest(name=name)):
                pass

    story(scenario)


def test_a_page_token_serves_its_own_query_only() -> None:
    async def scenario(world: World) -> None:
        for letter in "abc":
            await world.make(f"{NS}/jobs/{letter}")
            await world.start_run(letter, f"{NS}/jobs/{letter}")
        jobs = await world.jobs_api.ListJobs(api.ListJobsRequest(parent=NS, page_size=1))
        runs = await world.runs_api.ListRuns(api.ListRunsRequest(parent=NS, page_size=1))
        for token in (jobs.next_page_token, runs.next_page_token):
            assert token
            forged = ("B" if token[0] == "A" else "A") + token[1:]
            calls: list[tuple[Any, Any]] = [
                (world.jobs_api.ListJobs, api.ListJobsRequest(page_token=token)),
                (world.jobs_api.ListJobs, api.ListJobsRequest(parent=NS, page_token=forged)),
                (
                    world.jobs_api.ListJobs,
                    api.ListJobsRequest(parent=NS, prefix="a", page_token=token),
                ),
                (world.runs_api.ListRuns, api.ListRunsRequest(page_token=token)),
                (world.runs_api.ListRuns, api.ListRunsRequest(parent=NS, page_token=forged)),
                (
                    world.runs_api.ListRuns,
                    api.ListRunsRequest(
                        parent=NS, page_token=token, states=[run_pb2.RUN_STATE_FAILED]
                    ),
                ),
            ]
            for call, request in calls:
                with pytest.raises(errors.InvalidArgument, match="page_token"):
                    await call(request)

    story(scenario, lasts_s=100)


def test_times_in_a_refusal_can_be_read() -> None:
    async def scenario(world: World) -> None:
        same = Timestamp(seconds=5)
        with pytest.raises(errors.InvalidArgument, match="'1970-01-01T00:00:05Z' can't be used"):
            await world.runs_api.ListRuns(
                api.ListRunsRequest(parent=NS, after_time=same, before_time=same)
            )

    story(scenario)


SERVICES = {
    "JobService": "jobs_api",
    "RunService": "runs_api",
    "MeshService": "mesh_api",
    "BackfillService": "fill_api",
    "DeadLetterService": "dead_api",
}


TAKEN = {"ListMembers", "ListQueues", "GetStoreStatus", "ApplyJobs"}
"""Calls without texts of their own; a file of no jobs may have any source."""


def _texts(message: Message, text: str) -> None:
    """Fills every text of a request, also inside of what it holds."""
    for field in message.DESCRIPTOR.fields:
        value = [text] if field.is_repeated else text
        inner = field.message_type
        if field.type == field.TYPE_STRING:
            message.MergeFrom(type(message)(**{field.name: value}))
        elif inner and not field.is_repeated and not inner.full_name.startswith("google."):
            _texts(getattr(message, field.name), text)


async def _refusal(call: Any, request: Message) -> errors.SextonError | None:
    try:
        await call(request)
    except errors.SextonError as error:
        return error
    return None


@pytest.mark.parametrize("service", SERVICES)
def test_no_call_is_broken_by_an_empty_request_or_by_strange_texts(service: str) -> None:
    methods = descriptor_pool.Default().FindServiceByName(f"sexton.v1.{service}").methods

    async def scenario(world: World) -> None:
        before = await world.revision()
        for method in methods:
            call = getattr(getattr(world, SERVICES[service]), method.name)
            if method.server_streaming:
                continue
            for text in ("", "x" * 256, "a\0b", "\x1b[31m", "caf\u00e9", "\U0001f600/../x"):
                request = message_factory.GetMessageClass(method.input_type)()
                _texts(request, text)
                error = await _refusal(call, request)
                if error is None:
                    assert text == "" or method.name in TAKEN, f"{method.name} took {text!r}"
                else:
                    assert isinstance(error, errors.InvalidArgument | errors.NotFound), method.name
                    assert len(error.message) < 1_000
        assert await world.revision() == before

    story(scenario)

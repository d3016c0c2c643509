"""What a caller of the SDK sees, of the blocking client and of the asynchronous one."""

import asyncio
import inspect
import threading
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from unit.sdk.memory_api import ENDED_RUN, NOW, SECRET, MemoryApi, serving, with_history

import sexton
from sexton import Change, JobSpec, PythonTask, RunState, ShellTask, errors
from sexton.v1 import job_pb2, run_pb2

RUN = f"namespaces/default/jobs/nightly/runs/{ENDED_RUN}"
SPEC = JobSpec(task=ShellTask("true"))


def test_a_job_is_created_read_changed_and_deleted(client):
    created = client.jobs.create("hourly", SPEC)
    assert (created.full_name, created.version, created.next_time) == ("default/hourly", 1, None)
    assert client.jobs.get(created).spec.task == ShellTask("true")
    changed = client.jobs.update(created, replace(created.spec, priority=7))
    assert (changed.version, changed.spec.priority) == (2, 7)
    client.jobs.delete(changed)
    with pytest.raises(errors.NotFound, match="'namespaces/default/jobs/hourly'"):
        client.jobs.get("hourly")


async def test_the_asynchronous_client_makes_the_same_calls(address):
    async with sexton.AsyncClient(address) as client:
        created = await client.jobs.create("hourly", SPEC)
        names = [job.name async for job in client.jobs.list()]
        triggered = await client.jobs.trigger(created)
        run = await client.runs.cancel(triggered.run)
        waited = await client.runs.wait(run)
        mesh = await client.members()
    assert names == ["hourly", "nightly"]
    assert (run.state, waited) == (RunState.CANCELLED, run)
    assert [member.leading for member in mesh.members] == [False, True, True, False]


def test_only_the_fields_that_are_named_are_taken_over(client):
    changed = client.jobs.update(
        "nightly", JobSpec(task=ShellTask("other"), priority=3), fields=["priority"]
    )
    assert (changed.spec.priority, changed.spec.task) == (3, ShellTask("./backup"))


def test_a_change_of_what_somebody_else_has_changed_is_refused(client):
    job = client.jobs.get("nightly")
    client.jobs.update("nightly", replace(job.spec, priority=1))
    with pytest.raises(errors.Conflict, match="read it again"):
        client.jobs.update(job, replace(job.spec, priority=2))


def test_a_job_that_was_read_is_deleted_as_that_incarnation_only(client, api):
    job = client.jobs.get("nightly")
    api.jobs["namespaces/default/jobs/nightly"].uid = "another"
    client.jobs.delete(job)
    assert client.jobs.get("nightly").uid == "another"


def test_lists_fetch_page_after_page_and_only_as_far_as_they_are_read(address, api):
    for number in range(7):
        name = f"namespaces/default/jobs/job-{number}"
        api._written(job_pb2.Job(name=name, spec=api.jobs[RUN.partition("/runs/")[0]].spec))
    api._page_size = 2
    with sexton.Client(address) as client:
        names = [job.name for job in client.jobs.list(prefix="job-")]
        assert names == [f"job-{number}" for number in range(7)]
        assert api.calls.count("ListJobs") == 4
        next(iter(client.jobs.list()))
        assert api.calls.count("ListJobs") == 5


def test_definitions_are_left_out_of_lists_unless_asked_for(client):
    assert [job.spec for job in client.jobs.list()] == [None]
    assert [job.spec.task for job in client.jobs.list(full=True)] == [ShellTask("./backup")]


def test_names_choose_their_namespace(address):
    with sexton.Client(address, namespace="team") as client:
        assert client.jobs.create("a", SPEC).full_name == "team/a"
        assert client.jobs.create("other/a", SPEC).full_name == "other/a"
        assert [job.full_name for job in client.jobs.list()] == ["team/a"]
        everywhere = [job.full_name for job in client.jobs.list(all_namespaces=True)]
        assert everywhere == ["default/nightly", "other/a", "team/a"]


@pytest.mark.parametrize("name", ["", "A", "a/b/c/d", "a b", "../x", "a/", "/a", "-a", "a" * 64])
def test_a_name_that_can_not_be_is_refused_before_anything_is_sent(client, api, name):
    with pytest.raises(errors.InvalidArgument):
        client.jobs.get(name)
    with pytest.raises(errors.InvalidArgument):
        client.runs.get(name)
    assert api.calls == []


def test_what_the_mesh_refuses_names_the_field(client):
    with pytest.raises(errors.InvalidArgument) as refused:
        client.jobs.create("a", replace(SPEC, schedules=(sexton.Cron("60 * * * *"),)))
    assert refused.value.field == "minute"


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (replace(SPEC, max_live=0), "max_live"),
        (replace(SPEC, retry=sexton.Retry(max_attempts=0)), "retry.max_attempts"),
        (replace(SPEC, retry=sexton.Retry(multiplier=0.5)), "retry.multiplier"),
        (replace(SPEC, retry=sexton.Retry(multiplier=float("nan"))), "retry.multiplier"),
        (replace(SPEC, task=PythonTask("a", {"x": {1, 2}})), "task.args"),
        (replace(SPEC, task=PythonTask("a", {"x": float("nan")})), "task.args"),
        (replace(SPEC, schedules=(sexton.Cron("@daily", start=datetime(2026, 1, 1)),)), "start"),  # noqa: DTZ001
        (replace(SPEC, schedules=("0 3 * * *",)), "schedules"),
    ],
)
def test_what_would_mean_something_else_on_the_wire_is_refused_here(client, api, spec, field):
    with pytest.raises(errors.InvalidArgument) as refused:
        client.jobs.create("a", spec)
    assert (refused.value.field, api.calls) == (field, [])


def test_applying_twice_changes_nothing(client, api):
    specs = {"a": SPEC, "team/b": replace(SPEC, priority=1)}
    assert [each.change for each in client.jobs.apply(specs, source="jobs.py")] == [
        Change.CREATED,
        Change.CREATED,
    ]
    again = client.jobs.apply({**specs, "a": replace(SPEC, priority=2)}, source="jobs.py")
    assert [(each.change, each.changed) for each in again] == [
        (Change.UPDATED, ("priority",)),
        (Change.NONE, ()),
    ]
    assert api.sources == ["jobs.py", "jobs.py"]


def test_jobs_that_share_a_definition_share_it_in_the_answer_too(client):
    applied = client.jobs.apply({"a": SPEC, "b": replace(SPEC, priority=3), "c": SPEC})
    a, b, c = [each.job.spec for each in applied]
    assert (a.priority, b.priority, c.priority) == (0, 3, 0)
    assert a is c


def test_a_long_answer_that_leaves_the_definitions_out_is_completed(client, api):
    api.terse = True
    (applied,) = client.jobs.apply({"a": SPEC})
    assert applied.job.spec == SPEC


def test_a_dry_run_writes_nothing(client):
    (applied,) = client.jobs.apply({"a": SPEC}, dry_run=True)
    assert applied.change is Change.CREATED
    client.jobs.create("a", SPEC, dry_run=True)
    assert [job.name for job in client.jobs.list()] == ["nightly"]


def test_a_trigger_that_starts_nothing_says_why(client):
    done = client.jobs.trigger("nightly", overlap=sexton.Overlap.BUFFER_ONE)
    assert (done.run, done.decision, done.reason) == (None, "buffered", "run t1 is live")


def test_a_run_tells_all_that_is_known_about_it(client):
    run = client.runs.get(f"nightly/{ENDED_RUN}")
    assert (run.full_name, run.state, run.ended) == (
        f"default/nightly/{ENDED_RUN}",
        RunState.SUCCEEDED,
        True,
    )
    assert run.nominal_time == datetime(2026, 11, 29, 2, 0, tzinfo=UTC)
    assert run.result == {"files": 3}
    first, second = run.attempts
    assert (first.error.kind, first.error.message) == ("exit 1", "no space left")
    assert second.end_time - second.start_time == timedelta(seconds=39)


def test_an_explanation_is_complete(client):
    explained = client.jobs.explain("nightly", NOW)
    assert (explained.nominal_time, explained.decision, explained.forecast) == (NOW, "fired", True)
    assert [gate.name for gate in explained.gates] == ["schedule", "paused"]
    assert explained.following_time == NOW + timedelta(days=1)


def test_waiting_ends_when_the_run_does(client, api):
    run = client.jobs.trigger("nightly").run
    name = f"namespaces/default/jobs/nightly/runs/{run.id}"
    threading.Timer(0.02, api.end, (name, run_pb2.RUN_STATE_FAILED)).start()
    assert client.runs.wait(run, timeout_s=5).state is RunState.FAILED


def test_waiting_has_its_limit(client):
    run = client.jobs.trigger("nightly").run
    with pytest.raises(errors.DeadlineExceeded, match=r"has not ended within 0\.05 s"):
        client.runs.wait(run, timeout_s=0.05)


def test_waiting_for_a_run_that_is_not_there_says_so(client):
    with pytest.raises(errors.NotFound):
        client.runs.wait("nightly/t1", timeout_s=5)


@pytest.mark.slow
def test_a_watch_goes_on_over_a_broken_stream_and_shows_each_change_once(client, api):
    run = client.jobs.trigger("nightly").run
    api.fail("WatchRuns", errors.Unavailable(), errors.SlowWatcher())
    changes = client.runs.watch(run)
    assert next(changes).state is RunState.WAITING
    api.end(f"namespaces/default/jobs/nightly/runs/{run.id}")
    assert [change.state for change in changes] == [RunState.SUCCEEDED]
    assert api.calls.count("WatchRuns") == 3


def test_a_client_that_was_closed_says_so_and_opens_nothing(address, api):
    client = sexton.Client(address)
    client.jobs.get("nightly")
    client.close()
    client.close()
    asked = len(api.calls)
    for call in (
        lambda: client.jobs.get("nightly"),
        lambda: next(client.runs.watch(f"nightly/{ENDED_RUN}")),
    ):
        with pytest.raises(RuntimeError, match="this client has been closed"):
            call()
    assert len(api.calls) == asked


def test_an_interrupt_at_the_begin_of_a_stream_leaves_nothing_to_wait_for(address, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    # Between the making of a call and the thread that moves it, where there is one.
    monkeypatch.setattr("grpc._channel._run_channel_spin_thread", interrupted)
    client = sexton.Client(address)
    with suppress(KeyboardInterrupt):
        next(client.runs.watch(f"nightly/{ENDED_RUN}"))
    closing = threading.Thread(target=client.close, daemon=True)
    closing.start()
    closing.join(5)
    assert not closing.is_alive()


async def test_a_watch_of_a_job_shows_its_runs_until_it_is_left(address, api):
    async with sexton.AsyncClient(address) as client:
        first = (await client.jobs.trigger("nightly")).run
        seen = []
        async with aclosing(client.runs.watch(job="nightly")) as changes:
            async for run in changes:
                seen.append((run.id, run.state))
                if len(seen) == 2:
                    break
                second = (await client.jobs.trigger("nightly")).run
    assert seen == [(first.id, RunState.WAITING), (second.id, RunState.WAITING)]


@pytest.mark.slow
def test_an_end_that_happens_while_the_stream_is_broken_is_seen(client, api):
    one, other = (client.jobs.trigger("nightly").run for _ in range(2))
    changes = client.runs.watch(job="nightly", timeout_s=5)
    assert {next(changes).id, next(changes).id} == {one.id, other.id}
    api.cut()
    api.end(f"namespaces/default/jobs/nightly/runs/{one.id}")
    del api.runs[f"namespaces/default/jobs/nightly/runs/{other.id}"]
    change = next(changes)
    assert (change.id, change.state) == (one.id, RunState.SUCCEEDED)
    changes.close()


@pytest.mark.slow
def test_a_run_that_comes_and_goes_while_the_stream_is_broken_is_seen_once(client, api):
    changes = client.runs.watch(job="nightly", timeout_s=5)
    first = client.jobs.trigger("nightly").run
    assert next(changes).id == first.id
    for _ in range(2):
        api.cut()
        short = client.jobs.trigger("nightly").run
        api.end(f"namespaces/default/jobs/nightly/runs/{short.id}")
        change = next(changes)
        assert (change.id, change.state) == (short.id, RunState.SUCCEEDED)
    api.end(f"namespaces/default/jobs/nightly/runs/{first.id}")
    assert next(changes).id == first.id
    changes.close()


@pytest.mark.slow
def test_a_stream_that_says_nothing_is_sought_elsewhere(client, api, monkeypatch, address):
    monkeypatch.setattr("sexton._watching._STREAM_S", 0.1)
    never = threading.Event()
    hanging = with_history(MemoryApi())
    hanging.fail("WatchRuns", never)
    with serving(hanging) as first, sexton.Client([first, address]) as both:
        assert both.runs.wait(f"nightly/{ENDED_RUN}", timeout_s=5).ended
        never.set()


def test_a_secret_is_sent_and_a_wrong_one_is_refused():
    with serving(with_history(MemoryApi(secret=SECRET))) as address:
        with sexton.Client(address, secret=SECRET) as client:
            assert client.jobs.get("nightly").name == "nightly"
        for secret in ("", "another-secret-of-somebody"):
            with (
                sexton.Client(address, secret=secret) as client,
                pytest.raises(errors.Unauthenticated),
            ):
                client.jobs.get("nightly")


def test_a_blocking_call_shows_the_signature_and_the_words_of_the_asynchronous_one(client):
    assert str(inspect.signature(client.jobs.pause)) == (
        "(job: 'JobRef', *, reason: 'str' = '', timeout_s: 'float | None' = None) -> 'Job'"
    )
    assert client.jobs.pause.__doc__.startswith("Stops new starts.")


def test_a_client_can_be_used_from_several_threads(client):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(client.jobs.get("nightly").name))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["nightly"] * 8


async def test_many_calls_run_at_once(address):
    async with sexton.AsyncClient(address) as client:
        jobs = await asyncio.gather(*(client.jobs.get("nightly") for _ in range(20)))
    assert {job.name for job in jobs} == {"nightly"}


def test_text_that_utf8_can_not_hold_is_refused_by_name(client):
    half = "\ud800"
    for wrong in (
        lambda: client.jobs.create("a", JobSpec(task=ShellTask(f"echo {half}"))),
        lambda: client.jobs.create("a", JobSpec(task=ShellTask("true"), labels={"a": half})),
        lambda: client.jobs.pause("nightly", reason=half),
        lambda: client.jobs.apply({}, source=half),
        lambda: client.jobs.trigger("nightly", request_id=half),
        lambda: client.runs.cancel("nightly/t1", reason=half),
        lambda: list(client.jobs.list(prefix=half)),
    ):
        with pytest.raises(errors.InvalidArgument, match="text that UTF-8 can hold"):
            wrong()


def test_a_large_file_goes_in_parts_that_are_all_checked_first(client, api):
    seen = []
    specs = {f"job-{number}": JobSpec(task=ShellTask("true")) for number in range(1_200)}
    done = client.jobs.apply(
        specs, source="many.yaml", prune=True, on_progress=lambda *told: seen.append(told)
    )
    assert [each.change for each in done] == [Change.CREATED] * 1_200
    assert seen == [(500, 1_200), (1_000, 1_200), (1_200, 1_200)]
    assert api.calls == ["ApplyJobs"] * 6
    fewer = dict(list(specs.items())[:1_199])
    again = client.jobs.apply(fewer, source="many.yaml", prune=True)
    assert [each.change for each in again[-2:]] == [Change.NONE, Change.PRUNED]
    assert again[-1].job.name == "job-1199"
    assert "namespaces/default/jobs/nightly" in api.jobs


def test_dead_letters_are_not_worked_off_because_nothing_was_said(client):
    with pytest.raises(errors.InvalidArgument, match="which: 'nothing'"):
        client.dead.purge()
    assert client.dead.purge(fingerprint="of none") == 0
    assert client.dead.purge(all_namespaces=True) == 1


@pytest.mark.parametrize("part", ["jobs", "runs", "backfills", "dead", "mesh"])
def test_both_clients_make_the_same_calls(client, part):
    asynchronous = getattr(client, part).target
    calls = {name for name in dir(asynchronous) if not name.startswith("_")}
    assert {name for name in dir(getattr(client, part)) if not name.startswith("_")} - {
        "target"
    } == calls
    assert getattr(sexton.AsyncClient("127.0.0.1:1"), part).__class__ is asynchronous.__class__


def test_a_backfill_that_goes_on_is_waited_for_until_the_time_is_up(client, api, monkeypatch):
    monkeypatch.setattr("sexton._operating_api._LOOK_EVERY_S", 0.01)
    api.goes_on = True
    with pytest.raises(errors.DeadlineExceeded, match=r"has started 2 of 6 runs within 0\.05 s"):
        client.backfills.wait("nightly/0a1b2c3d", timeout_s=0.05)


def test_an_answer_of_a_newer_mesh_is_named(client, api):
    api.decision = "pondered"
    with pytest.raises(errors.Unimplemented, match="'pondered', which this version"):
        list(client.jobs.decisions("nightly"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda client: client.jobs.get(None), "job: None can't be used; expected a str"),
        (lambda client: client.runs.get(3), "run: 3 can't be used; expected a str"),
        (lambda client: client.backfills.get(b"a/b"), "backfill: b'a/b' can't be used"),
        (lambda client: client.jobs.create("a", "make"), "spec: 'make' can't be used"),
        (lambda client: client.jobs.explain("a", "2026"), "time: '2026' can't be used"),
        (lambda client: client.jobs.trigger("a", request_id=5), "request_id: 5 can't be used"),
        (lambda client: client.jobs.preview("a", count=0), "count: 0 can't be used"),
        (lambda client: client.jobs.preview("a", count=2**40), "count: 1099511627776 can't"),
        (lambda client: client.jobs.load(interval=60), "interval: '60' can't be used"),
        (lambda client: client.jobs.load(interval=timedelta(0)), "interval: '0:00:00' can't"),
        (lambda client: list(client.runs.list(states=["gone"])), "run_state: 'gone' can't be used"),
    ],
)
def test_what_is_of_another_type_is_refused_as_what_is_out_of_range(client, call, message):
    with pytest.raises(errors.InvalidArgument, match=message):
        call(client)


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.jobs.create("a", SPEC, request_id=""),
        lambda client: client.jobs.trigger("nightly", request_id=""),
        lambda client: client.runs.retry(f"nightly/{ENDED_RUN}", request_id=""),
        lambda client: client.jobs.backfill("nightly", NOW, NOW, request_id=""),
    ],
)
def test_an_empty_request_id_is_not_taken_for_none(client, call):
    with pytest.raises(errors.InvalidArgument, match="request_id: '' can't be used; expected 1 to"):
        call(client)

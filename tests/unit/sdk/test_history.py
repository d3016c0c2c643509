"""What a client and a task write into a history, as `sexton verify` reads it."""

import json
import os
import stat
import threading

import pytest
from google.protobuf.message_factory import GetMessageClass

import sexton
from sexton import JobSpec, ShellTask, errors
from sexton.history import answered, asked, boot_id, boot_ns, noted
from sexton.v1 import backfill_pb2, dead_letter_pb2, scheduler_pb2

SPEC = JobSpec(task=ShellTask("true"))


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(name="path")
def _path(tmp_path):
    return tmp_path / "calls.jsonl"


def test_each_call_is_invoked_and_answered(address, path):
    with sexton.Client(address, history=path) as client:
        client.jobs.create("hourly", SPEC)
        client.jobs.pause("hourly")
    invoked, answered, paused, done = lines(path)
    assert [line["phase"] for line in (invoked, answered, paused, done)] == ["invoke", "ok"] * 2
    assert (invoked["call"], invoked["args"]["name"]) == (
        "CreateJob",
        "namespaces/default/jobs/hourly",
    )
    assert answered["id"] == invoked["id"] != paused["id"]
    assert answered["result"]["version"] == 1
    assert (paused["call"], done["result"]["paused"]) == ("PauseJob", True)
    assert invoked["at_ns"] <= answered["at_ns"] <= boot_ns()
    assert invoked["boot_id"] == boot_id()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("module", [scheduler_pb2, backfill_pb2, dead_letter_pb2])
def test_every_call_of_the_api_can_be_written(module):
    for service in module.DESCRIPTOR.services_by_name.values():
        for method in service.methods:
            assert "body" in asked(GetMessageClass(method.input_type)())
            assert isinstance(answered(GetMessageClass(method.output_type)()), dict)


def test_what_is_refused_has_failed(address, path):
    with (
        sexton.Client(address, history=path) as client,
        pytest.raises(errors.NotFound),
    ):
        client.jobs.pause("nothing")
    assert [line["phase"] for line in lines(path)] == ["invoke", "fail"]
    assert lines(path)[1]["result"]["error"].startswith("NotFound: ")


async def test_a_call_whose_time_is_up_is_unknown(address, path, api):
    hangs = threading.Event()
    api.fail("DeleteJob", hangs)
    async with sexton.AsyncClient(address, history=path) as client:
        with pytest.raises(errors.DeadlineExceeded):
            await client.jobs.delete("nightly", timeout_s=0.05)
    hangs.set()
    assert [line["phase"] for line in lines(path)] == ["invoke", "unknown"]


def test_the_environment_names_the_file(address, path, monkeypatch):
    monkeypatch.setenv("SEXTON_HISTORY", str(path))
    with sexton.Client(address) as client:
        client.jobs.get("nightly")
    assert [line["phase"] for line in lines(path)] == ["invoke", "ok"]


def test_a_file_that_cannot_be_written_is_refused(address, tmp_path):
    with pytest.raises(errors.InvalidArgument, match="history"):
        sexton.Client(address, history=tmp_path / "nowhere" / "calls.jsonl")


def context(**changes):
    fields = {
        "namespace": "default",
        "job": "nightly",
        "run_id": "t1",
        "nominal_time": None,
        "attempt": 2,
        "token": 77,
        "traceparent": "",
        "logger": None,
        "_remaining_s": lambda: 1.0,
        "_cancelled": None,
        "_report": None,
    }
    return sexton.Context(**fields | changes)


def test_a_task_notes_its_start_and_its_end(path):
    with noted(context(), path):
        assert [line["what"] for line in lines(path)] == ["started"]
    with pytest.raises(ValueError, match="no"), noted(context(), path):
        raise ValueError("no")
    found = lines(path)
    assert [(line["what"], line["facts"].get("how")) for line in found] == [
        ("started", None),
        ("ended", "succeeded"),
        ("started", None),
        ("ended", "failed"),
    ]
    expected = {"namespace": "default", "job": "nightly", "run": "t1", "number": 2, "token": 77}
    assert found[0]["facts"] == expected
    assert found[0]["target"].endswith(f"/{os.getpid()}")


def test_without_a_file_nothing_is_noted(monkeypatch):
    monkeypatch.delenv("SEXTON_HISTORY", raising=False)
    with noted(context()):
        pass

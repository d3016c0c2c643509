"""Which replica a call goes to, and when it is made again."""

import threading
import time

import pytest
from unit.sdk.memory_api import MemoryApi, serving, with_history

import sexton
from sexton import JobSpec, ShellTask, errors

SPEC = JobSpec(task=ShellTask("true"))
NOBODY = "127.0.0.1:1"


def test_a_replica_that_is_gone_is_passed_over(api, address):
    with sexton.Client(f"{NOBODY},{address}") as client:
        assert client.jobs.get("nightly").name == "nightly"
        assert client.jobs.get("nightly").name == "nightly"


def test_a_replica_that_dies_is_replaced_by_the_other():
    jobs = with_history(MemoryApi())
    with serving(jobs) as second:
        with serving(with_history(MemoryApi())) as first:
            client = sexton.Client([first, second])
            client.jobs.get("nightly")
            assert jobs.calls == []
        client.jobs.get("nightly")
        assert jobs.calls == ["GetJob"]
        client.close()


@pytest.mark.slow
def test_a_replica_that_hangs_is_left_for_another(api, address):
    never = threading.Event()
    hanging = with_history(MemoryApi())
    hanging.fail("GetJob", never)
    with serving(hanging) as first, sexton.Client([first, address], timeout_s=2.0) as client:
        started = time.monotonic()
        assert client.jobs.get("nightly").name == "nightly"
        assert api.calls == ["GetJob"]
        assert time.monotonic() - started < 2.0
        never.set()


def test_nobody_there_is_unavailable_once_the_patience_is_over():
    with sexton.Client(NOBODY, retry_for_s=0.1) as client, pytest.raises(errors.Unavailable):
        client.jobs.get("nightly")


def test_what_did_not_happen_is_tried_again(client, api):
    api.fail("GetJob", errors.NotLeader("somewhere"), errors.Overloaded(), errors.Unavailable())
    assert client.jobs.get("nightly").name == "nightly"
    assert api.calls == ["GetJob"] * 4


def test_a_call_that_a_stopping_server_ended_is_made_to_another(client, api):
    api.fail("GetJob", errors.Cancelled())
    assert client.jobs.get("nightly").name == "nightly"
    job = client.jobs.get("nightly")
    api.fail("UpdateJob", errors.Cancelled(), None)
    with pytest.raises(errors.Cancelled):
        client.jobs.update(job, SPEC)


def test_a_creation_whose_outcome_is_unknown_is_repeated_with_its_id(client, api):
    api.fail("CreateJob", None, errors.OutcomeUnknown())
    assert client.jobs.create("a", SPEC, request_id="same").version == 1
    api.fail("CreateJob", errors.OutcomeUnknown())
    assert client.jobs.create("a", SPEC, request_id="same").version == 1


def test_a_trigger_whose_outcome_is_unknown_gives_one_run(client, api):
    api.fail("TriggerJob", errors.OutcomeUnknown(), errors.OutcomeUnknown())
    client.jobs.trigger("nightly")
    assert api.calls == ["TriggerJob"] * 3
    assert sum(name.rpartition("/")[2].startswith("m") for name in api.runs) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda client, job: client.jobs.update(job, SPEC),
        lambda client, job: client.jobs.delete("nightly"),
    ],
    ids=["update of what was read", "delete by name"],
)
def test_what_is_not_idempotent_is_left_to_the_caller(client, api, change):
    job = client.jobs.get("nightly")
    api.fail("UpdateJob", errors.OutcomeUnknown(), None)
    api.fail("DeleteJob", errors.OutcomeUnknown(), None)
    with pytest.raises(errors.OutcomeUnknown):
        change(client, job)


def test_a_delete_of_what_was_read_is_repeated(client, api):
    job = client.jobs.get("nightly")
    api.fail("DeleteJob", errors.OutcomeUnknown())
    client.jobs.delete(job)
    assert api.jobs == {}


def test_a_refusal_is_not_repeated(client, api):
    api.fail("GetJob", errors.PermissionDenied())
    with pytest.raises(errors.PermissionDenied):
        client.jobs.get("nightly")
    assert api.calls == ["GetJob"]


def test_every_call_has_a_deadline(client, api):
    never = threading.Event()
    api.fail("GetJob", never)
    with pytest.raises(errors.DeadlineExceeded):
        client.jobs.get("nightly", timeout_s=0.05)
    never.set()

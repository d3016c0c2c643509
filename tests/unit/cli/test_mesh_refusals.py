"""What is not there, wrong or not reachable: what commands say of it, and end with."""

import json
import os
import subprocess
import sys

import pytest
import yaml
from unit.sdk.memory_api import ENDED_RUN, SECRET, MemoryApi, serving, with_history

from sexton import errors, local_mesh
from sexton.local_mesh import LocalMesh

RUN = f"nightly/{ENDED_RUN}"

NAMES = [
    *(("jobs", verb, "nope") for verb in ("show", "pause", "resume", "trigger", "delete")),
    ("why", "nope", "--at", "2026-11-30"),
    *(("runs", verb, "nightly/t1") for verb in ("show", "cancel", "terminate", "wait", "watch")),
]


@pytest.mark.parametrize("arguments", NAMES, ids=" ".join)
def test_what_does_not_exist_ends_with_3(sexton, mesh, arguments):
    code, out, err = sexton(*arguments)
    assert (code, out) == (3, "")
    assert err.startswith("sexton: there is no ")


def test_a_job_in_another_namespace_is_pointed_at(sexton, mesh):
    assert (
        "there is default/nightly: name the namespace, or use -n"
        in (sexton("jobs", "show", "nightly", "-n", "team")[2])
    )


def test_a_misspelt_job_is_guessed(sexton, mesh):
    assert "did you mean nightly?" in sexton("jobs", "trigger", "nigthly")[2]


WRONG = [
    (("jobs", "show", "Nightly"), "JOB: 'Nightly' can't be used; expected 1 to 63 of a-z"),
    (("jobs", "show", "a/b/c"), "expected JOB or NAMESPACE/JOB"),
    (("runs", "show", "nightly"), "expected JOB/RUN or NAMESPACE/JOB/RUN"),
    (("jobs", "list", "-n", "Ü"), "namespace: 'Ü' can't be used"),
    (("jobs", "list", "-o", "xml"), "xml"),
    (("jobs", "list", "a", "--prefix", "b"), "JOB: 'b' can't be used; expected neither a prefix"),
    (("why", "nightly"), "--at"),
    (("why", "nightly", "--at", "soon"), "--at: 'soon' can't be used"),
    (("jobs", "resume", "nightly", "--mode", "later"), "later"),
    (("why", "nightly", "--at", "2026-02-30T03:00"), "day is out of range"),
    (("why", "nightly", "--at", "1969-01-01"), "between 1970-01-01 and"),
    (("runs", "list", "--state", "lazy"), "lazy"),
    (("runs", "list", "--after", "1"), "--after: '1' can't be used"),
    (("jobs", "list", "--api", "nowhere"), "--api: 'nowhere' can't be used"),
    (("runs", "trace", RUN, "--api", "nowhere"), "--api: 'nowhere' can't be used"),
    (("top", "--once", "--api", "nowhere"), "--api: 'nowhere' can't be used"),
    (("runs", "list", "nightly", "--job", "other"), "--job other and nightly: name one of them"),
    (("runs", "watch", RUN, "--job", "other"), "name one of them"),
    (("jobs", "diff", "nightly", "1", "-f", "jobs.yaml"), "give one file, or two versions"),
    (("jobs", "load", "--next", "40d"), "--next: '40d' can't be used; expected more than 0 and"),
    (("jobs", "load", "--interval", "1500ms"), "--interval: '1500ms' can't be used"),
    (("apply",), "FILE is missing"),
    (
        ("jobs", "ledger", "nightly", "--from", "2026-11-30", "--to", "2026-11-29"),
        "--to: '2026-11-29' can't be used; expected a time at or after --from, 2026-11-30",
    ),
    (
        ("jobs", "preview", "nightly", "--from", "2026-11-30", "--to", "2026-11-30"),
        "--to: '2026-11-30' can't be used; expected a time after --from, 2026-11-30",
    ),
    (
        ("jobs", "backfill", "nightly", "--from", "2026-11-30", "--to", "2026-11-29"),
        "expected a time at or after --from",
    ),
    (
        ("dead", "list", "--after", "2026-11-30", "--before", "2026-11-29"),
        "--before: '2026-11-29' can't be used; expected a time after --after, 2026-11-30",
    ),
    (("dead", "purge", "nightly"), "expected JOB/RUN or NAMESPACE/JOB/RUN; all of a job: --job n"),
]


@pytest.mark.parametrize(("arguments", "expected"), WRONG, ids=lambda value: str(value)[:40])
def test_a_wrong_command_line_ends_with_2_and_says_what_would_be_right(
    sexton, mesh, arguments, expected
):
    code, out, err = sexton(*arguments)
    assert (code, out, expected in err) == (2, "", True), err


READS = [
    ("jobs", "list"),
    ("jobs", "show", "nightly"),
    ("runs", "list"),
    ("runs", "show", RUN),
    ("why", "nightly", "--at", "2026-11-30"),
    ("members",),
]


@pytest.mark.parametrize("arguments", READS, ids=" ".join)
def test_without_a_mesh_every_command_ends_with_5_and_says_how_to_start_one(
    sexton, monkeypatch, arguments
):
    monkeypatch.setattr("sexton_cli.online.session._RETRY_FOR_S", 0.05)
    code, out, err = sexton(*arguments, "--api", "127.0.0.1:1")
    assert (code, out) == (5, "")
    assert err == (
        "sexton: no mesh answers at 127.0.0.1:1: Connection refused\n"
        "sexton: start one with `sexton up`, or name it with --api HOST:PORT (SEXTON_API)\n"
    )


@pytest.mark.parametrize("arguments", READS, ids=" ".join)
def test_whatever_reads_prints_every_format(sexton, mesh, arguments):
    for output in ("table", "json", "yaml", "name"):
        code, out, err = sexton(*arguments, "-o", output)
        assert (code, err, bool(out)) == (0, "", True)
        if output == "json":
            json.loads(out)
        if output == "yaml":
            yaml.safe_load(out)


def test_a_wrong_secret_is_refused_and_the_way_out_is_named(sexton, monkeypatch, tmp_path):
    with serving(with_history(MemoryApi(secret=SECRET))) as address:
        monkeypatch.setenv("SEXTON_API", address)
        code, out, err = sexton("jobs", "list")
        assert (code, out) == (4, "")
        assert "set SEXTON_CLIENT_SECRET_FILE to the file secrets/client" in err
        (tmp_path / "client").write_text(SECRET)
        monkeypatch.setenv("SEXTON_CLIENT_SECRET_FILE", str(tmp_path / "client"))
        assert sexton("jobs", "list", "-o", "name")[1] == "default/nightly\n"
        monkeypatch.setenv("SEXTON_CLIENT_SECRET_FILE", str(tmp_path / "nowhere"))
        assert sexton("jobs", "list")[0] == 4


def test_a_mesh_of_this_machine_is_found_with_its_secret_by_itself(sexton, tmp_path, monkeypatch):
    (tmp_path / "client").write_text(SECRET)
    with serving(with_history(MemoryApi(secret=SECRET))) as address:
        mesh = LocalMesh(api=(address,), client_secret_file=tmp_path / "client")
        local_mesh.announce(mesh, tmp_path / "state" / "sexton")
        assert sexton("jobs", "list", "-o", "name") == (0, "default/nightly\n", "")
    monkeypatch.setattr("sexton_cli.online.session._RETRY_FOR_S", 0.05)
    code, _, err = sexton("jobs", "list")
    assert (code, f"no mesh answers at {address}" in err) == (5, True)


CODES = [
    (errors.Conflict(), 4),
    (errors.NoSpace(), 4),
    (errors.Internal("5ca1ab1e"), 1),
    (errors.Unimplemented(), 1),
    (errors.OutcomeUnknown(), 5),
]


@pytest.mark.parametrize(("error", "code"), CODES, ids=lambda value: type(value).__name__)
def test_each_error_of_the_mesh_has_its_exit_code(sexton, mesh, api, monkeypatch, error, code):
    monkeypatch.setattr("sexton_cli.online.session._RETRY_FOR_S", 0.0)
    api.fail("PauseJob", *[error] * 50)
    assert sexton("jobs", "pause", "nightly")[0] == code


def test_a_mesh_that_is_there_and_can_not_answer_is_not_told_to_be_started(
    sexton, mesh, api, monkeypatch
):
    monkeypatch.setattr("sexton_cli.online.session._RETRY_FOR_S", 0.0)
    api.fail("ListJobs", errors.Unavailable("the store does not answer"))
    code, out, err = sexton("jobs", "list")
    assert (code, out) == (5, "")
    assert "can't answer now: the store does not answer\nsexton: try again\n" in err
    api.fail("ListJobs", errors.DeadlineExceeded())
    assert "did not answer in time" in sexton("jobs", "list")[2]


@pytest.mark.slow
def test_a_list_in_json_is_all_that_stands_on_stdout(mesh):
    done = subprocess.run(
        [sys.executable, "-m", "sexton_cli.main", "jobs", "list", "-o", "json"],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path), "GRPC_VERBOSITY": "debug"},
    )
    assert [job["name"] for job in json.loads(done.stdout)] == ["nightly"]

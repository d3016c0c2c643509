"""Tasks run on a real worker process and are reported to the queue."""
# ruff: noqa: ASYNC110, ASYNC240 - other processes write the files

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from integration.worker.conftest import Pair
from integration.worker.worker_process import written

from sexton.v1 import job_pb2, run_pb2

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


async def test_python_and_shell_tasks_run_and_say_what_became_of_them(pair: Pair) -> None:
    owner = pair.owner
    (hello,) = owner.hellos
    assert list(hello.queues) == ["default"]
    assert list(hello.kinds) == ["shell", "http"]
    assert "whoami-alone" in hello.tasks
    done = await owner.completion(owner.python("add", '{"a": 1, "b": 2}'))
    assert (done.state, done.result_json) == (run_pb2.ATTEMPT_STATE_SUCCEEDED, "3")
    done = await owner.completion(owner.shell("echo hello; echo wrong >&2; false | true; exit $?"))
    assert done.state == run_pb2.ATTEMPT_STATE_FAILED
    assert (done.error.kind, done.error.message) == (
        "exit 1", "it ended with exit status 1: wrong",
    )  # fmt: skip
    assert done.output_tail == "hello\nwrong\n"


async def test_a_task_is_told_which_run_it_executes(pair: Pair) -> None:
    owner = pair.owner
    expected = {
        "job": "backup",
        "namespace": "default",
        "run_id": "t20261129T070000Z-abcdefgh",
        "nominal_time": "2026-11-29T07:00:00+00:00",
        "attempt": 3,
        "key": "default/backup/t20261129T070000Z-abcdefgh",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203030-01",
        "remaining": True,
    }
    for name in ("whoami", "whoami-alone"):
        token = owner.python(name, number=3)
        said = json.loads((await owner.completion(token)).result_json)
        assert said.items() >= (expected | {"token": token}).items()
    token = owner.shell("env", number=3)
    output = (await owner.completion(token)).output_tail
    told = dict(line.partition("=")[::2] for line in output.splitlines())
    assert {name: value for name, value in told.items() if "SEXTON" in name} == {
        "SEXTON_NAMESPACE": "default",
        "SEXTON_JOB": "backup",
        "SEXTON_RUN_ID": "t20261129T070000Z-abcdefgh",
        "SEXTON_NOMINAL_TIME": "2026-11-29T07:00:00Z",
        "SEXTON_ATTEMPT": "3",
        "SEXTON_TOKEN": str(token),
        "SEXTON_IDEMPOTENCY_KEY": "default/backup/t20261129T070000Z-abcdefgh",
    }
    assert told["TRACEPARENT"] == "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203030-01"
    assert "PASSWORD" not in told


async def test_a_failure_says_what_was_raised_and_where(pair: Pair) -> None:
    owner = pair.owner
    done = await owner.completion(owner.python("fail", '{"message": "\\u001b[31mno disk"}'))
    assert done.state == run_pb2.ATTEMPT_STATE_FAILED
    assert (done.error.kind, done.error.message) == ("ValueError", "\x1b[31mno disk")
    assert "raise ValueError(message)" in done.error.detail
    assert "calls.py" not in done.error.detail
    done = await owner.completion(owner.python("leave"))
    assert (done.error.kind, done.error.message) == ("SystemExit", "3")
    done = await owner.completion(owner.python("add", '{"a": 1, "b": 1}'))
    assert done.result_json == "2"


async def test_a_failure_says_what_may_follow(pair: Pair) -> None:
    owner = pair.owner
    done = await owner.completion(owner.python("fail-for-good"))
    assert (done.state, done.for_good) == (run_pb2.ATTEMPT_STATE_FAILED, True)
    assert (done.error.kind, done.error.message) == (
        "sexton.task.Failure", "there is no such customer",
    )  # fmt: skip
    done = await owner.completion(owner.python("fail-for-now"))
    assert (done.for_good, done.retry_after_ms) == (False, 300_000)


async def test_what_cannot_be_run_fails_and_says_why(pair: Pair) -> None:
    owner = pair.owner

    async def message(token: int) -> str:
        done = await owner.completion(token)
        assert done.state == run_pb2.ATTEMPT_STATE_FAILED
        return done.error.message

    said = await message(owner.python("nobody"))
    assert said.startswith("this worker knows no task 'nobody'; it knows: add")
    assert "missing a required argument: 'b'" in await message(owner.python("add", '{"a": 1}'))
    assert "not JSON" in await message(owner.python("add", "{"))
    assert "no JSON object" in await message(owner.python("add", "[1]"))
    assert "JSON" in await message(owner.python("add", "[" * 60_000))
    assert "kind 'none'" in await message(owner.assign(job_pb2.Task()))
    assert "No such file" in await message(owner.shell("true", cwd="/nowhere"))
    assert "NUL" in await message(owner.shell("echo \0"))
    assert await message(owner.shell("")) != ""
    missing = {"A": job_pb2.EnvValue(from_worker="NOT_THERE")}
    assert "NOT_THERE" in await message(owner.shell("true", env=missing))
    secret = {"A": job_pb2.EnvValue(from_worker="SEXTON_SECRETS_WORKER")}
    assert "can't be taken" in await message(owner.shell("true", env=secret))
    wrong = {"A-B": job_pb2.EnvValue(value="1")}
    assert "no variable's name" in await message(owner.shell("true", env=wrong))
    taken = {"SEXTON_TOKEN": job_pb2.EnvValue(value="1")}
    assert "set by Sexton" in await message(owner.shell("true", env=taken))
    assert "too long" in await message(owner.shell("true " + "x" * 200_000))
    assert "ended by signal 9" in await message(owner.shell("kill -9 $$"))


async def test_results_are_bounded_and_json(pair: Pair) -> None:
    owner = pair.owner
    limit = 64 * 1024
    for name in ("give", "give-alone"):
        done = await owner.completion(owner.python(name, json.dumps({"size": limit - 2})))
        assert done.state == run_pb2.ATTEMPT_STATE_SUCCEEDED
        assert len(done.result_json) == limit
        done = await owner.completion(owner.python(name, json.dumps({"size": limit - 1})))
        assert done.state == run_pb2.ATTEMPT_STATE_FAILED
        assert "65,537 bytes of JSON; at most 65,536 are kept" in done.error.message
    done = await owner.completion(owner.python("give-object"))
    assert "can't be written as JSON" in done.error.message


async def test_output_is_kept_as_text_and_only_its_last_part(pair: Pair) -> None:
    owner = pair.owner
    done = await owner.completion(owner.shell("printf '\\033[31mred\\033[0m \\377 \\303\\244'"))
    assert done.output_tail == "\x1b[31mred\x1b[0m \ufffd \u00e4"
    done = await owner.completion(owner.shell("head -c 50000000 /dev/zero | tr '\\0' x; echo end"))
    assert len(done.output_tail) == 16 * 1024
    assert done.output_tail.endswith("xxxend\n")
    done = await owner.completion(owner.python("talk"))
    assert done.output_tail == (
        "printed\nto stderr\nINFO logged by the context\nWARNING logged by a library\n"
    )
    done = await owner.completion(owner.python("talk-alone"))
    assert done.output_tail == "printed\nINFO logged\n"
    assert "printed" not in pair.worker.said()
    assert "logged" not in pair.worker.said()


async def test_secrets_come_from_the_worker_and_stay_out_of_its_log(pair: Pair) -> None:
    owner = pair.owner
    env = {
        "FIRST": job_pb2.EnvValue(from_worker="PASSWORD"),
        "SECOND": job_pb2.EnvValue(value="$(touch here) `x` 'y'"),
    }
    done = await owner.completion(
        owner.shell('test "$FIRST" = s3cret-words; echo "$? $SECOND"', env=env)
    )
    assert done.output_tail == "0 $(touch here) `x` 'y'\n"
    done = await owner.completion(owner.shell('echo "can not log in: $FIRST"; exit 1', env=env))
    assert done.output_tail == "can not log in: ***\n"
    assert done.error.message == "it ended with exit status 1: can not log in: ***"
    assert "s3cret" not in pair.worker.said()


async def test_each_attempt_has_a_scratch_folder_that_goes_with_it(pair: Pair) -> None:
    owner = pair.owner
    done = await owner.completion(owner.shell("pwd; ls -A | wc -l; echo 1 > file"))
    folder, files = done.output_tail.split()
    assert files == "0"
    async with asyncio.timeout(10):
        while Path(folder).exists():
            await asyncio.sleep(0.01)
    done = await owner.completion(owner.shell("pwd", cwd="/usr"))
    assert done.output_tail == "/usr\n"


async def test_functions_are_asked_to_end(pair: Pair) -> None:
    owner = pair.owner
    token = owner.python("wait-async")
    await owner.begun(token)
    owner.cancel(token)
    done = await owner.completion(token)
    assert (done.state, done.error.kind) == (run_pb2.ATTEMPT_STATE_CANCELLED, "cancelled")
    token = owner.python("wait-thread")
    await owner.begun(token)
    owner.cancel(token)
    done = await owner.completion(token)
    assert (done.state, done.result_json) == (run_pb2.ATTEMPT_STATE_SUCCEEDED, '"stopped"')
    token = owner.python("wait-async", timeout_ms=100)
    done = await owner.completion(token)
    assert (done.state, done.error.message[:25]) == (
        run_pb2.ATTEMPT_STATE_TIMED_OUT, "it took longer than 0.1 s",
    )  # fmt: skip


async def test_functions_in_processes_are_asked_and_then_killed(pair: Pair, tmp_path: Path) -> None:
    owner = pair.owner

    async def cancelled(name: str) -> tuple[int, str]:
        path = tmp_path / name
        token = owner.python(name, json.dumps({"path": str(path)}))
        await written(path)
        owner.cancel(token)
        done = await owner.completion(token)
        return done.state, done.result_json or done.error.message

    state, said = await cancelled("wait-alone")
    assert (state, said) == (run_pb2.ATTEMPT_STATE_SUCCEEDED, '"stopped"')
    state, said = await cancelled("wait-alone-async")
    assert state == run_pb2.ATTEMPT_STATE_CANCELLED
    assert said.startswith("by hand (asyncio.exceptions.CancelledError)")
    state, said = await cancelled("wait-alone-stubborn")
    assert state == run_pb2.ATTEMPT_STATE_CANCELLED
    assert said.startswith("by hand (signal 9")


@pytest.mark.parametrize("task", ["block-loop", "spin"])
async def test_heartbeats_and_other_runs_go_on_while_user_code_blocks(
    pair: Pair, task: str
) -> None:
    owner = pair.owner
    token = owner.python(task, '{"seconds": 0.9}')
    await owner.begun(token)
    await owner.beats(3)
    assert (await owner.completion(owner.shell("echo on"))).output_tail == "on\n"
    assert token not in [completion.attempt.token for completion in owner.completions]
    assert (await owner.completion(token)).state == run_pb2.ATTEMPT_STATE_SUCCEEDED


async def test_progress_travels_with_the_heartbeats(pair: Pair) -> None:
    owner = pair.owner
    token = owner.python("wait-thread")
    await owner.until(lambda: any(said.attempt.token == token for said in owner.progress))
    said = next(said for said in owner.progress if said.attempt.token == token)
    assert (said.fraction, said.message) == (0.5, "half")
    owner.cancel(token)
    await owner.completion(token)

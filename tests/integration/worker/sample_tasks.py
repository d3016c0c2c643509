"""Tasks that the tests of the worker run."""
# ruff: noqa: ASYNC240 - a tiny local file

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from sexton.context import Context, current_context
from sexton.task import Failure, task


@task
async def add(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


@task
def whoami(context: Context) -> dict[str, Any]:
    assert current_context() is context
    return {
        "job": context.job,
        "namespace": context.namespace,
        "run_id": context.run_id,
        "nominal_time": context.nominal_time.isoformat(),
        "attempt": context.attempt,
        "token": context.token,
        "key": context.idempotency_key,
        "traceparent": context.traceparent,
        "remaining": context.remaining.total_seconds() > 50,
    }


@task(isolation="process")
def whoami_alone(context: Context) -> dict[str, Any]:
    return whoami(context) | {"pid": os.getpid(), "env_token": os.environ["SEXTON_TOKEN"]}


@task
def fail(message: str) -> None:
    raise ValueError(message)


@task
def fail_for_good() -> None:
    raise Failure("there is no such customer", for_good=True)


@task(isolation="process")
def fail_for_now() -> None:
    raise Failure("the shop is closed", retry_after=timedelta(minutes=5))


@task
async def leave() -> None:
    sys.exit(3)


@task
def talk(context: Context) -> None:
    print("printed")
    print("to stderr", file=sys.stderr, flush=True)
    assert sys.stdout.encoding
    context.logger.info("logged by the %s", "context")
    logging.getLogger("some.library").warning("logged by a library")


@task(isolation="process")
def talk_alone(context: Context) -> None:
    print("printed")
    context.logger.info("logged")


@task
def give(size: int) -> str:
    return "x" * size


@task
def give_object() -> object:
    return object()


@task(isolation="process")
def give_alone(size: int) -> str:
    return "x" * size


@task
async def block_loop(seconds: float) -> None:
    time.sleep(seconds)  # noqa: ASYNC251 - that is the point


@task
def spin(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


@task
async def wait_async(context: Context) -> None:
    context.progress(0.25, "a quarter")
    await asyncio.sleep(60)


@task
async def leave_thread() -> None:
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 300)


@task
def wait_thread(context: Context) -> str:
    context.progress(0.5, "half")
    return "stopped" if context.wait_cancelled(60) else "not"


@task
def wait_stubborn(seconds: float) -> None:
    time.sleep(seconds)


@task(isolation="process")
def wait_alone(context: Context, path: str) -> str:
    Path(path).write_text(f"{os.getpid()}\n")
    context.progress(0.75, "three quarters")
    return "stopped" if context.wait_cancelled(60) else "not"


@task(isolation="process")
async def wait_alone_async(path: str) -> None:
    Path(path).write_text(f"{os.getpid()}\n")
    await asyncio.sleep(60)


@task(isolation="process")
def wait_alone_stubborn(path: str) -> None:
    Path(path).write_text(f"{os.getpid()}\n")
    while True:
        time.sleep(1)


@task
def start_processes(folder: str) -> None:
    """Starts a program and a forked process from a thread of the worker, and waits."""
    program = subprocess.Popen(["sleep", "300"], start_new_session=True)
    forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(300,))
    forked.start()
    Path(folder, "pids").write_text(f"{program.pid} {forked.pid}\n")
    time.sleep(300)

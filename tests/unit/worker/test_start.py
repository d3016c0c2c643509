"""How a worker is configured, and what keeps it from starting."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import re
from pathlib import Path

import pytest

from sexton.task import TaskRegistry, registry
from sexton_runtime.config import ConfigError, Sources, add_flags, parse_flags
from sexton_worker.__main__ import main
from sexton_worker.config import WorkerConfig
from sexton_worker.contract import Ended, HttpWork, Order, Ref
from sexton_worker.executors.local import LocalExecutor


def load(**flags: str) -> WorkerConfig:
    given = {f"worker.{name}": value for name, value in flags.items()}
    return Sources(flags=given, environment={}).load(WorkerConfig, "worker")


def test_lists_are_separated_by_commas() -> None:
    config = load(
        queue="127.0.0.1:7402, [::1]:7403", queues="mails,reports", app="a.b,c", allow="shell"
    )
    assert config.queue == ("127.0.0.1:7402", "[::1]:7403")
    assert config.queues == ("mails", "reports")
    assert config.app == ("a.b", "c")
    assert config.allow == ("shell",)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({}, "worker.queue: is missing"),
        ({"queue": "nowhere"}, "'nowhere' is no address"),
        ({"queue": ","}, "worker.queue"),
        ({"queues": "Mails"}, "worker.queues"),
        ({"allow": "perl"}, "'perl' can't be allowed; there is shell, http"),
        ({"app": "a/b.py"}, "'a/b.py' is no module's name"),
        ({"slots": "0"}, "worker.slots"),
        ({"slots": "100001"}, "worker.slots"),
        ({"name": "x" * 201}, "worker.name"),
        ({"cancel_grace_s": "-1"}, "worker.cancel_grace_s"),
    ],
)
def test_what_can_not_be_used_is_named(flags: dict[str, str], said: str) -> None:
    given = {"queue": "127.0.0.1:7402"} | flags if flags else {}
    with pytest.raises(ConfigError) as caught:
        load(**given)
    assert said in str(caught.value)


def test_wrong_flags_end_it_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--slots", "5"], program="sexton worker") == 2
    assert "sexton worker: worker.queue: is missing; set --queue" in capsys.readouterr().err


async def test_a_worker_that_allows_no_calls_says_how_to_allow_them(tmp_path):
    ended: asyncio.Queue[Ended] = asyncio.Queue()

    class Hears:
        def ended(self, token, ended_):
            ended.put_nowait(ended_)

    executor = LocalExecutor(TaskRegistry(), scratch=tmp_path, mark="mark")
    await executor.start(Hears())
    try:
        work = HttpWork("POST", "http://127.0.0.1:1/", {}, "", ())
        executor.begin(Order(Ref(b"h", 7), "s", 1, "default", "ping", "t1", 0, 10**9, "", work))
        said = await ended.get()
    finally:
        await executor.stop()
    assert (said.kind, said.message) == (
        "not started",
        "this worker makes no HTTP calls; start it with --allow http",
    )


async def test_an_executor_that_could_not_start_removes_nothing_where_it_stands(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "precious").touch()
    executor = LocalExecutor(TaskRegistry(), scratch=tmp_path / "absent", mark="mark")
    with pytest.raises(FileNotFoundError):
        await executor.start(None)
    await executor.stop()
    assert (tmp_path / "precious").exists()


PAGE = (Path(__file__).parents[3] / "docs" / "workers.md").read_text()


def test_the_page_names_every_flag() -> None:
    named = set(re.findall(r"^\| `--([a-z-]+)`", PAGE, re.MULTILINE))
    flags = {field.name.replace("_", "-") for field in dataclasses.fields(WorkerConfig)}
    assert named == flags


def test_the_python_task_of_the_page_can_be_registered() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, object] = {"__name__": "example"}
    exec(compile(block, "docs/workers.md", "exec"), names)
    task = registry.get("remind")
    assert task is not None
    assert task.context_parameter == "context"


def test_the_command_of_the_page_can_be_understood() -> None:
    (command,) = re.findall(r"^sexton worker (.*)$", PAGE, re.MULTILINE)
    parser = argparse.ArgumentParser()
    add_flags(parser, WorkerConfig, "worker", own=True)
    config = parse_flags(parser, command.split()).load(WorkerConfig, "worker")
    assert (config.app, config.allow, config.slots) == (("myjobs",), ("shell",), 100)

"""Every example in the SDK's docstrings does what it shows, against an API in memory."""

import ast
import doctest
import importlib
import inspect
import logging
import re
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from unit.sdk.memory_api import MemoryApi, serving, with_history

import sexton

MODULES = [
    "sexton",
    "sexton.client",
    "sexton.jobs",
    "sexton.runs",
    "sexton.schedules",
    "sexton.async_effects",
    "sexton.effects",
    "sexton.holidays",
    "sexton.tls",
    "sexton._jobs_api",
    "sexton._runs_api",
    "sexton._job_questions_api",
    "sexton._operating_api",
]


def examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    for name in MODULES:
        module = importlib.import_module(name)
        for found in finder.find(module, name):
            if found.examples:
                yield pytest.param(found, id=found.name)


ALL = list(examples())


def globs(client):
    return {
        **{name: getattr(sexton, name) for name in sexton.__all__},
        "client": client,
        "context": attempt(),
        "datetime": datetime,
        "UTC": UTC,
        "timedelta": timedelta,
    }


def attempt():
    return sexton.Context(
        namespace="default",
        job="book",
        run_id="t20261129T030000Z-abcdefgh",
        nominal_time=datetime(2026, 11, 29, 3, tzinfo=UTC),
        attempt=1,
        token=17,
        traceparent="",
        logger=logging.getLogger("test"),
        _remaining_s=lambda: 60.0,
        _cancelled=threading.Event(),
        _report=lambda *_: None,
    )


@pytest.fixture(autouse=True)
def _found_by_itself(address, monkeypatch):
    monkeypatch.setenv("SEXTON_API", address)


@pytest.mark.parametrize(
    "example", [each for each in ALL if "async with" not in each.values[0].docstring]
)
def test_an_example_does_what_it_shows(example, client, capsys):
    example.globs.update(globs(client))
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    runner.run(example)
    assert runner.summarize(verbose=False).failed == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    "example", [each for each in ALL if "async with" in each.values[0].docstring]
)
async def test_an_asynchronous_example_runs(example, client):
    names = {**example.globs, **globs(client)}
    for step in example.examples:
        code = compile(step.source, example.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(code, names)
        if inspect.isawaitable(result):
            await result


def test_each_call_of_the_client_has_an_example():
    shown = {each.values[0].name.rpartition(".")[2] for each in ALL}
    calls = {
        name
        for part in (
            sexton._jobs_api.AsyncJobs,
            sexton._job_questions_api.AsyncJobQuestions,
            sexton._runs_api.AsyncRuns,
            sexton._operating_api.AsyncBackfills,
            sexton._operating_api.AsyncDeadLetters,
            sexton._operating_api.AsyncMesh,
        )
        for name in vars(part)
        if not name.startswith("_")
    }
    assert calls - shown == set()


def test_each_block_of_the_page_about_the_sdk_runs(monkeypatch):
    page = (Path(__file__).parents[3] / "docs" / "sdk.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) >= 5
    for block in blocks:
        with serving(with_history(MemoryApi())) as address:
            monkeypatch.setenv("SEXTON_API", address)
            exec(compile(block, "docs/sdk.md", "exec"), {"__name__": "example"})

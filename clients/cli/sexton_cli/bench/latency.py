"""How long one trigger takes on an idle mesh, until the client has seen the result."""

from __future__ import annotations

import asyncio
from pathlib import Path
from time import perf_counter_ns
from typing import Final

from sexton import JobSpec, PythonTask
from sexton_cli.bench.figures import Figures, times
from sexton_cli.bench.mesh import Shape, running
from sexton_cli.bench.tasks import PAYLOAD

_UNMEASURED: Final = 20
"""Triggers before the first that counts: connections are made, code is loaded."""
_PAUSE_S: Final = 0.05
_WAIT_S: Final = 60.0


async def measure(triggers: int, folder: Path | None) -> Figures:
    """Measures so many triggers, one after the other, with a pause before each."""
    acknowledged, seen = [], []
    async with running(folder, Shape()) as mesh, mesh.client() as client:
        await client.jobs.create("bench-0", JobSpec(task=PythonTask("stamp", PAYLOAD)))
        for number in range(_UNMEASURED + triggers):
            await asyncio.sleep(_PAUSE_S)
            sent = perf_counter_ns()
            run = (await client.jobs.trigger("bench-0")).run
            answered = perf_counter_ns()
            assert run is not None, "nothing stands in its way"
            ended = await client.runs.wait(run, timeout_s=_WAIT_S)
            assert ended.result, "the task tells when it was started"
            if number >= _UNMEASURED:
                acknowledged.append(answered - sent)
                seen.append(perf_counter_ns() - sent)
    return {
        "triggers": triggers,
        **times("", seen),
        **times("acknowledged_", acknowledged),
    }

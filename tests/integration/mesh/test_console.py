"""The console beside a mesh of real processes: what it receives, and that nobody needs it."""

from __future__ import annotations

import json
import signal
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from integration.mesh.mesh_process import MeshProcess, wait_for

from sexton import JobSpec, ShellTask
from sexton_runtime import otlp


def ask(mesh: MeshProcess, path: str) -> Any:
    """Asks the console; None where it does not answer."""
    url = json.loads((mesh.data / "mesh.json").read_text())["console"]
    secret = (mesh.data / "secrets" / "reader").read_text().strip()
    request = urllib.request.Request(url + path, headers={"authorization": f"Bearer {secret}"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.read().decode()
    except OSError:
        return None


@pytest.mark.slow
def test_a_run_is_traced_and_the_console_may_die(tmp_path: Path) -> None:
    mesh = MeshProcess(tmp_path, "--console", "--coordinators", "1", "--queues", "1")
    try:
        mesh.start()
        mesh.create("told", JobSpec(task=ShellTask("echo one; echo two")))
        with mesh.client() as client:
            run = client.jobs.trigger("told").run
            assert run is not None
            assert client.runs.wait(run, timeout_s=30).state.value == "succeeded"
        path = f"/api/runs/{run.full_name}"

        def traced() -> dict[str, Any] | None:
            spans = json.loads(ask(mesh, f"{path}/trace") or '{"spans": []}')["spans"]
            found = {span["name"]: span for span in spans}
            return found if {"run told", "attempt 1", "process told"} <= found.keys() else None

        spans = wait_for(traced, "the run's spans are there")
        trace = otlp.trace_of(run.traceparent)
        assert trace is not None
        assert spans["run told"]["span_id"] == trace.span_id.hex()
        assert spans["attempt 1"]["parent_id"] == trace.span_id.hex()
        assert spans["process told"]["parent_id"] == spans["attempt 1"]["span_id"]
        said = wait_for(lambda: ask(mesh, f"{path}/logs?format=text"), "its output is there")
        assert said == "one\ntwo\n"
        console = mesh.process("console")
        mesh.send(console, signal.SIGKILL)
        with mesh.client() as client:  # nobody waits for it
            second = client.jobs.trigger("told").run
            assert second is not None
            assert client.runs.wait(second, timeout_s=30).state.value == "succeeded"
        wait_for(lambda: ask(mesh, "/health"), "a console answers again")
        assert traced() is not None, "what was received is kept"
        path = f"/api/runs/{second.full_name}"
        assert wait_for(lambda: ask(mesh, f"{path}/logs?format=text"), "nothing is lost")
    finally:
        assert mesh.stop() == 0

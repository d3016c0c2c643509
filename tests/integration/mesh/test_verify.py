"""A real mesh is verified: what it wrote proves its promises, and says what it can't prove."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from integration.mesh.mesh_process import PATIENCE_S, MeshProcess

from sexton import JobSpec, Overlap, RunState, ShellTask

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[3] / "docs" / "verify.md"


@pytest.fixture(name="mesh", scope="module")
def _mesh(tmp_path_factory: pytest.TempPathFactory):
    mesh = MeshProcess(tmp_path_factory.mktemp("mesh"), "--drain", "5", "--history")
    try:
        yield mesh.start()
    finally:
        mesh.stop()


def sexton(*arguments: object, code: int = 0) -> str:
    command = [sys.executable, "-m", "sexton_cli.main", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def noting_task(folder: Path) -> ShellTask:
    """The shell snippet of the page, as users copy it."""
    (snippet,) = re.findall(r"```bash\n(note\(\).*?)```", DOCS.read_text(), re.DOTALL)
    snippet = snippet.replace("/var/tmp/backup.jsonl", str(folder / "notes.jsonl"))
    return ShellTask(snippet.replace("save-everything", "sleep 0.2"))


def test_a_mesh_whose_parts_are_killed_keeps_its_promises(mesh: MeshProcess, tmp_path: Path):
    calls = mesh.data / "history" / "calls.jsonl"
    with mesh.client(history=calls) as client:
        client.jobs.create(
            "noted", JobSpec(task=noting_task(mesh.data / "history"), overlap=Overlap.ALLOW_ALL)
        )
        for role in ("store", "coordinator", "queue"):
            process = mesh.leader(role) if role != "store" else mesh.process("store")
            runs = [client.jobs.trigger("noted").run for _ in range(2)]
            mesh.send(process, signal.SIGKILL)
            mesh.replaced(process)
            for run in runs:
                ended = client.runs.wait(run, timeout_s=PATIENCE_S)
                assert ended.state is RunState.SUCCEEDED
    file = tmp_path / "history.jsonl.gz"
    said = sexton("history", "export", file, "--data", mesh.data)
    assert f"to judge it: sexton verify {file}" in said
    verdict = json.loads(sexton("verify", file, "--json"))
    results: dict[str, Any] = {rule["rule"]: rule for rule in verdict["rules"]}
    assert verdict["ok"]
    wanted = ("S3", "S5", "S9", "S10", "S11", "S13", "S15", "S16", "S21", "S22")
    assert [rule for rule in wanted if results[rule]["result"] != "holds"] == []
    assert results["S9"]["checked"] >= 12
    table = sexton("verify", mesh.data)
    assert re.search(r"^S5 +holds ", table, re.MULTILINE)


def test_a_changed_history_is_violated_and_a_foreign_file_is_refused(
    mesh: MeshProcess, tmp_path: Path
):
    file = tmp_path / "history.jsonl"
    sexton("history", "export", file, "--data", mesh.data)
    lines = file.read_text().splitlines(keepends=True)
    changed = [number for number, line in enumerate(lines) if line.startswith('{"revision":9,')]
    del lines[changed[0]]
    file.write_text("".join(lines))
    assert "S2: revisions 9 to 9 are gone" in sexton("verify", file, code=1)
    other = tmp_path / "other.jsonl"
    other.write_text("hello\n")
    assert sexton("verify", other, code=2) == ""
    sexton("verify", tmp_path / "missing", code=3)

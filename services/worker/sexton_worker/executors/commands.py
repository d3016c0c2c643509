"""What is started for an attempt: a shell with its command, or Python with its task."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sexton_worker.contract import MAX_RESULT_BYTES, Ended, Order, PythonWork, ShellWork, head
from sexton_worker.environment import (
    EnvironmentProblem,
    process_variables,
    run_variables,
    shell_variables,
    values_of_the_worker,
)
from sexton_worker.executors.guard import CommandEnd, GuardedCommand
from sexton_worker.strikeout import secrets_among

_BOOTSTRAP: Final = (
    "import json,sys;order=json.load(sys.stdin);sys.path[:]=order['path'];"
    "from sexton_worker.child import main;main(order)"
)
"""The child finds modules where this process does, before it imports any of ours."""
_SHOWN_CHARACTERS: Final = 300


class Unusable(Exception):  # noqa: N818 - a fault of a job's definition
    """An attempt can't be begun; the message says why."""


@dataclass(slots=True)
class ProcessResult:
    """What a task in a process of its own says about its end."""

    on_progress: Callable[[float, str], object]
    said: dict[str, Any] = field(default_factory=dict)

    def hear(self, line: bytes) -> None:
        """Takes a line of the result's pipe. Anything may have written there."""
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(message, dict):
            return
        progress = message.get("progress")
        if isinstance(progress, list) and len(progress) == 2:
            fraction, text = progress
            if isinstance(fraction, float | int):
                self.on_progress(float(fraction), str(text))
        elif isinstance(message.get("ended"), dict):
            self.said = message["ended"]

    def ended(self, end: CommandEnd) -> Ended:
        """Gives the attempt's end."""
        if end.problem or not self.said:
            return command_ended(end, unsaid="it ended without a result")
        said = {name: str(self.said.get(name, "")) for name in ("kind", "message", "detail")}
        if self.said.get("succeeded") is True:
            result = head(str(self.said.get("result_json", "")), MAX_RESULT_BYTES)
            return Ended(succeeded=True, result_json=result, output_tail=end.output_tail)
        retry_after = self.said.get("retry_after")
        return Ended.failure(
            said["kind"],
            said["message"],
            said["detail"],
            end.output_tail,
            for_good=self.said.get("for_good") is True,
            retry_after=retry_after if isinstance(retry_after, int) else 0,
        )


def shell_command(
    order: Order, work: ShellWork, scratch: Path, own: Mapping[str, str]
) -> GuardedCommand:
    """Gives what runs a shell command.

    Raises:
        Unusable: it can't be run as the job asks.
    """
    if not work.command or "\0" in work.command or "\0" in work.cwd:
        raise Unusable("the command is empty, or it or its cwd holds a NUL character")
    try:
        env = shell_variables(order, work, own)
    except EnvironmentProblem as problem:
        raise Unusable(str(problem)) from None
    folder = "" if os.path.isabs(work.cwd) else _folder(order, scratch)
    return GuardedCommand(
        argv=_shell(work.command),
        env=env,
        cwd=str(Path(folder, work.cwd)) if folder else work.cwd,
        scratch=folder,
        secrets=secrets_among(values_of_the_worker(work, own)),
    )


def python_command(
    order: Order,
    work: PythonWork,
    scratch: Path,
    own: Mapping[str, str],
    *,
    app: tuple[str, ...],
    result: ProcessResult,
) -> GuardedCommand:
    """Gives what runs a task in a process of its own."""
    folder = _folder(order, scratch)
    told = {
        "path": sys.path,
        "app": app,
        "task": work.task,
        "args_json": work.args_json,
        "timeout_ns": order.timeout,
        "number": order.number,
        "token": order.ref.token,
        "nominal_time": order.nominal_time,
        "names": [order.namespace, order.job, order.run_id],
        "traceparent": order.traceparent,
    }
    return GuardedCommand(
        argv=(sys.executable, "-c", _BOOTSTRAP),
        env=process_variables(order, own),
        cwd=folder,
        scratch=folder,
        stdin=json.dumps(told),
        on_line=result.hear,
    )


def command_ended(end: CommandEnd, *, unsaid: str = "") -> Ended:
    """Gives the end of an attempt from that of its command."""
    if end.problem:
        return Ended.failure("not started", end.problem, "", end.output_tail)
    if end.status == 0 and not unsaid:
        return Ended(succeeded=True, output_tail=end.output_tail)
    kind = f"exit {end.status}" if end.status >= 0 else f"signal {-end.status}"
    said = (
        f"it ended with exit status {end.status}"
        if end.status >= 0
        else f"it was ended by signal {-end.status}"
    )
    lines = end.output_tail.strip().splitlines()
    last = f": {lines[-1][:_SHOWN_CHARACTERS]}" if lines else ""
    return Ended.failure(kind, f"{unsaid or said}{last}", "", end.output_tail)


def _shell(command: str) -> tuple[str, ...]:
    bash = shutil.which("bash")
    if bash:
        return bash, "-o", "pipefail", "-c", command
    return shutil.which("sh") or "/bin/sh", "-c", command


def _folder(order: Order, scratch: Path) -> str:
    return str(scratch / f"{run_variables(order)['SEXTON_RUN_ID']}-{order.ref.token}")

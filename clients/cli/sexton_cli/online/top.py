"""The work of `sexton top`: how a mesh is now, in the terminal, again and again."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from datetime import UTC
from typing import Any, Final

from sexton import errors
from sexton.v1 import scheduler_pb2 as api
from sexton_cli.online.console import Console
from sexton_cli.online.session import Target, explained, settings_of
from sexton_cli.output import visible
from sexton_console.mesh.api import MeshApi, Part, part
from sexton_console.web.pages.job import RunRow, run_row
from sexton_console.words import LIVE_STATES, enum_word, span

_RUNS: Final = 10
_READ: Final = 100
_FAILURES: Final = 5
_HOME: Final = "\x1b[H\x1b[2J"


def show_top(target: Target, console: Console | None, *, every_s: float, once: bool) -> None:
    """Shows how the mesh is until Ctrl-C, or once.

    Raises:
        CliError: the mesh does not answer.
    """
    found = settings_of(target)
    try:
        asyncio.run(_show(MeshApi(found), console, every_s=every_s, once=once))
    except errors.SextonError as error:
        raise explained(error, found.addresses) from None


async def _show(mesh: MeshApi, console: Console | None, *, every_s: float, once: bool) -> None:
    try:
        while True:
            members, queues, live, numbers = await asyncio.gather(
                mesh.members(),
                part(mesh.queues()),
                mesh.runs(states=LIVE_STATES, size=_READ),
                _numbers(console),
            )
            runs = sorted((run_row(run) for run in live.runs), key=lambda run: run.due)
            lines = screen(members, queues, runs, numbers, more=bool(live.next_page_token))
            clear = _HOME if sys.stdout.isatty() and not once else ""
            sys.stdout.write(clear + "".join(f"{visible(line)}\n" for line in lines))
            sys.stdout.flush()
            if once:
                return
            await asyncio.sleep(every_s)
    finally:
        await mesh.close()


async def _numbers(console: Console | None) -> Any:
    return None if console is None else await asyncio.to_thread(console.get, "/api/now")


def screen(
    members: api.ListMembersResponse,
    queues: Part[api.ListQueuesResponse],
    runs: Sequence[RunRow],
    numbers: Any,
    *,
    more: bool,
) -> list[str]:
    """Gives the lines that are shown."""
    leaders = [
        f"{enum_word(api.Member.Role, member.role, 'ROLE_')} {member.address}"
        for member in members.members
        if member.leading
    ]
    mesh_time = members.mesh_time.ToDatetime(UTC)
    lines = [
        f"mesh time {mesh_time:%Y-%m-%d %H:%M:%S} UTC   leads: {', '.join(leaders) or 'nobody'}"
    ]
    lines += _counted(numbers)
    lines += [
        "",
        f"{'QUEUE':24} {'READY':>8} {'OLDEST':>10} {'DELAYED':>8} {'RUNNING':>8} {'SLOTS':>8}",
    ]
    if queues.value is None:
        lines.append(queues.absent)
    else:
        lines += [
            f"{queue.name[:24]:24} {queue.ready:>8} "
            f"{span(queue.oldest_ready_ms / 1_000) if queue.ready else '-':>10} "
            f"{queue.delayed:>8} {queue.running:>8} {queue.slots:>8}"
            + ("  paused" if queue.paused else "")
            for queue in queues.value.queues
        ]
    shown = f"{len(runs)}{'+' if more else ''} in flight, the oldest first"
    lines += ["", f"{'RUN':56} {'STATE':12} {'SINCE DUE':>10} {'ATTEMPT':>8}  WORKER   ({shown})"]
    now = time.time_ns()
    lines += [
        f"{f'{run.namespace}/{run.job}/{run.run}'[:56]:56} {run.state:12} "
        f"{span((now - run.due) / 1e9):>10} {run.attempts:>8}  {run.worker}"
        for run in runs[:_RUNS]
    ]
    if numbers is not None and numbers["failures"]:
        lines += ["", "failures of the last hour"]
        lines += [
            f"{each['count']:>6.0f}x  {each['job']}  {each['kind']}: {each['message']}"[:120]
            for each in numbers["failures"][:_FAILURES]
        ]
    return lines


def _counted(numbers: Any) -> list[str]:
    if numbers is None:
        return ["no console: rates and lateness are not counted"]
    last = numbers["minutes"][-6:-1]
    due, done, failed = (sum(each[name] for each in last) / 5 for name in ("due", "done", "failed"))
    late = numbers["lateness_s"]
    about = "about " if numbers["estimated"] else ""
    rates = f"a minute: {about}{due:.0f} due, {done:.0f} done, {failed:.1f} failed"
    parts = ", ".join(f"{name} {span(late[name])}" for name in ("p50", "p95", "p99"))
    return [f"{rates}   late: {parts}"]

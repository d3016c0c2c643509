"""A whole mesh at work, in real processes: `sexton up` on an empty folder, with three sample jobs.

Shows every run as it ends, until Ctrl-C. With `--seconds N` it ends by itself: half way the leading
coordinator is killed with `kill -9`, and at the end every nominal time must have exactly one run;
exits non-zero when anything goes otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sexton import AsyncClient, Role, Run, RunState
from sexton_cli.up import leash
from sexton_cli.up.plan import free_base, taken

HERE = Path(__file__).parent
PERIODS_S = {"backup": 3, "report": 5, "sync-orders": 4}
PORT_BASE = 7400
OFFSETS = (*range(5), 17, 80)
PATIENCE_S = 60.0
"""Nothing in this story takes longer; what does is a failure."""


class OtherwiseError(Exception):
    """Something went otherwise than the story tells."""


# The story ------------------------------------------------------------------------------------


async def tell(seconds: float | None) -> None:
    """Tells the story from beginning to end; without an end where no time is given."""
    with tempfile.TemporaryDirectory(prefix="sexton-demo-") as name:
        folder = Path(name)
        (folder / "shop").mkdir()
        (folder / "backups").mkdir()
        (folder / "shop" / "orders.csv").write_text("order,amount\n1,20\n2,40\n")
        say("Starting store, two queues, two coordinators and a worker on an empty folder ...")
        mesh = await Mesh.start(folder, console=seconds is None)
        try:
            async with mesh.client() as client:
                await show(mesh, client, seconds)
        finally:
            code = await mesh.stop()
        require(code == 0, "the mesh stops cleanly", code)
    say("The mesh has stopped. Nothing is left behind.")


async def show(mesh: Mesh, client: AsyncClient, seconds: float | None) -> None:
    """Shows the runs, and the death of a leader where the story has an end."""
    say(f"sexton is up: api {mesh.api}")
    if mesh.console:
        say(mesh.console)
    leader, token = await mesh.leader(client)
    say(f"{leader} leads, pid {mesh.pid(leader)}. Try this in another terminal:")
    for command in ("jobs list", "runs list", "members"):
        say(f"    SEXTON_DATA={mesh.folder} .venv/bin/sexton {command}")
    say(f"    kill -9 {mesh.pid(leader)}      # the other coordinator takes over in two seconds")
    say("")
    showing = asyncio.create_task(show_runs(client))
    try:
        if seconds is None:
            await asyncio.wait(
                (showing, asyncio.create_task(mesh.ended())), return_when="FIRST_COMPLETED"
            )
            return
        await asyncio.sleep(seconds / 2)
        await replace(mesh, client, leader, token)
        await asyncio.sleep(seconds / 2)
        await judge(client)
    finally:
        showing.cancel()
        with suppress(asyncio.CancelledError):
            await showing


async def replace(mesh: Mesh, client: AsyncClient, leader: str, token: int) -> None:
    """Kills the leader and waits for the next one."""
    loop = asyncio.get_running_loop()
    killed = loop.time()
    os.kill(mesh.pid(leader), signal.SIGKILL)
    say(f"--- {leader} is killed with kill -9 ---")
    successor, later = await mesh.leader(client, after=token)
    say(f"--- {successor} leads {loop.time() - killed:.1f} s later ---")
    say(f"--- its fencing token is {later}; the one before had {token} ---")


async def judge(client: AsyncClient) -> None:
    """Holds the promise against the record: one run for each nominal time, and all succeed."""
    say("")
    for job in PERIODS_S:
        await client.jobs.pause(job)
    async with asyncio.timeout(PATIENCE_S):
        for job, period_s in PERIODS_S.items():
            while True:
                runs = [run async for run in client.runs.list(job)]
                if all(run.ended for run in runs):
                    break
                await asyncio.sleep(0.2)
            check_runs(job, runs, timedelta(seconds=period_s))


def check_runs(job: str, runs: Sequence[Run], period: timedelta) -> None:
    """Raises unless the runs are one for each nominal time between the first and the last."""
    found = Counter(run.nominal_time for run in runs if run.nominal_time is not None)
    require(len(found) > 0, f"{job} has run", runs)
    first, last = min(found), max(found)
    wanted = {first + number * period for number in range((last - first) // period + 1)}
    require(set(found) == wanted, f"{job} has a run for each nominal time", wanted ^ set(found))
    doubled = [time for time, number in found.items() if number != 1]
    require(not doubled, f"{job} has one run for each nominal time", doubled)
    failed = [run for run in runs if run.state is not RunState.SUCCEEDED]
    require(not failed, f"all runs of {job} have succeeded", failed)
    attempts = sum(len(run.attempts) for run in runs)
    say(
        f"{job}: {len(runs)} nominal times from {first:%H:%M:%S} to {last:%H:%M:%S}, "
        f"each with exactly one run; {attempts} attempts; all succeeded."
    )


async def show_runs(client: AsyncClient) -> None:
    """Shows every run that ends, as it ends."""
    async for change in client.runs.watch():
        if change.ended or change.state is RunState.RETRYING:
            # What it returned and wrote is in the run itself, not in what a watch tells of it.
            run = await client.runs.get(change)
            say(line_of(run if run.state is change.state else change))


def line_of(run: Run) -> str:
    """Gives a run in a line."""
    now = datetime.now(UTC)
    nominal = f"{run.nominal_time:%H:%M:%S}" if run.nominal_time else ""
    attempt = run.attempts[-1] if run.attempts else None
    told = run.result_json
    if attempt is not None and not told:
        told = (attempt.output_tail.strip().splitlines() or [""])[-1]
    number = f"attempt {attempt.number}" if attempt is not None else ""
    return f"{now:%H:%M:%S}  {run.job:<12} due {nominal}  {number}  {run.state.value:<10} {told}"


# The mesh -------------------------------------------------------------------------------------


class Mesh:
    """A `sexton up` as its user starts it."""

    def __init__(
        self, process: asyncio.subprocess.Process, folder: Path, api: str, console: str
    ) -> None:
        self.folder = folder
        self.api = api
        self.console = console
        """How a browser is let in; empty where the story ends too soon to look."""
        self._process = process

    @classmethod
    async def start(cls, folder: Path, *, console: bool) -> Mesh:
        """Returns once it serves."""
        base = PORT_BASE
        if taken([base + offset for offset in OFFSETS]):
            base = free_base(base, OFFSETS) or base  # `sexton up` then names what is taken
        path = os.pathsep.join(part for part in (str(HERE), os.environ.get("PYTHONPATH")) if part)
        process = await asyncio.create_subprocess_exec(
            sys.executable, leash.__file__, str(os.getpid()), "sexton_cli.main", "up",
            "--data", str(folder / "mesh"), "--port-base", str(base),
            "--console" if console else "--no-console",
            "--apply", str(HERE / "jobs" / "demo.yaml"), "--app", "demo_tasks",
            stdout=asyncio.subprocess.PIPE, start_new_session=True,
            env=os.environ | {"PYTHONPATH": path, "DEMO_FOLDER": str(folder)},
        )  # fmt: skip
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            async for line in process.stdout:
                if line.startswith(b"sexton is up: api "):
                    api = line.decode().strip().removeprefix("sexton is up: api ")
                    link = (await process.stdout.readline()).decode().strip() if console else ""
                    return cls(process, folder / "mesh", api, link)
                say(line.decode().rstrip())
        raise OtherwiseError(f"sexton up ended with exit code {await process.wait()}")

    def client(self) -> AsyncClient:
        """Connects as a client on this machine does."""
        found = json.loads((self.folder / "mesh.json").read_text())
        return AsyncClient(found["api"], secret_file=found["client_secret_file"])

    async def leader(self, client: AsyncClient, *, after: int = 0) -> tuple[str, int]:
        """Waits until a coordinator leads with a later token; gives its name and its token."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                members = (await client.members()).members
                names = {process["address"]: process["name"] for process in self._processes()}
                for member in members:
                    if member.role is Role.COORDINATOR and member.leading and member.token > after:
                        return names[member.address], member.token
                await asyncio.sleep(0.05)

    def pid(self, name: str) -> int:
        """Gives a process's id."""
        return next(int(each["pid"]) for each in self._processes() if each["name"] == name)

    async def ended(self) -> None:
        """Waits until it ends by itself, which it should not."""
        await self._process.wait()

    async def stop(self) -> int:
        """Ends it, and gives its exit code."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)
        return await self._process.wait()

    def _processes(self) -> list[dict[str, str]]:
        found: list[dict[str, str]] = json.loads((self.folder / "processes.json").read_text())[
            "processes"
        ]
        return found


def say(sentence: str) -> None:
    """Tells a sentence."""
    print(sentence, flush=True)


def require(holds: bool, what: str, found: object) -> None:  # noqa: FBT001 - reads like a sentence
    """Raises unless the story goes as told."""
    if not holds:
        raise OtherwiseError(f"expected that {what}; found {found}")


def main() -> int:
    """Runs the demonstration; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, help="end after so long, and judge the runs")
    seconds = parser.parse_args().seconds
    try:
        asyncio.run(tell(seconds))
    except (OtherwiseError, TimeoutError) as error:
        print(f"demo: {error or 'something took far too long'}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The supervisor's shell: carries out what the machine says, and tells it what happened."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from sexton_cli.up import leash
from sexton_cli.up.logs import LogFile, readable
from sexton_cli.up.machine import Effect, Policy, Say, Send, Spawn, Supervision
from sexton_cli.up.plan import Program

PROCESSES_FILE: Final = "processes.json"
"""In the data folder: which processes there are, rewritten whenever one starts or ends."""
_ROTATE_S: Final = 5.0
_FOLLOW_S: Final = 0.2
_OF_ANOTHER_MESH: Final = ("SEXTON_SECRETS_", "SEXTON_TLS_")
_LEASH: Final = str(Path(leash.__file__))


class Supervisor:
    """Keeps programs running until it is told to stop."""

    def __init__(
        self,
        programs: Sequence[Program],
        folder: Path,
        *,
        say: Callable[[str], None],
        verbose: bool = False,
        policy: Policy | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Takes the folder in which `logs/` and the list of processes are.

        `environment` is added to the supervisor's own, which every process gets.
        """
        self._programs = {program.name: program for program in programs}
        self._machine = Supervision(
            {p.name: p.stage for p in programs},
            policy,
            optional=frozenset(p.name for p in programs if p.optional),
        )
        self._folder = folder
        self._say = say
        self._verbose = verbose
        # What belongs to another mesh, and would replace this one's, stays out.
        self._environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(_OF_ANOTHER_MESH)
        } | dict(environment or {})
        self._logs = {name: LogFile(folder / "logs" / f"{name}.log") for name in self._programs}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._ended: list[tuple[str, int, str, bool]] = []
        self._asked: list[Effect] = []
        self._wake = asyncio.Event()

    @property
    def stopping(self) -> bool:
        """Tells whether everything is being ended."""
        return self._machine.stopping

    def pid(self, name: str) -> int | None:
        """Gives a process's id; None: it does not run now."""
        process = self._running.get(name)
        return process.pid if process is not None else None

    def log(self, name: str) -> LogFile:
        """Gives a process's log."""
        return self._logs[name]

    def stop(self, limit_s: float) -> None:
        """Begins to end everything, the workers' runs within the limit; a second call at once."""
        self._asked += self._machine.stop(_now(), limit_s)
        self._wake.set()

    async def run(self) -> int:
        """Starts everything, keeps it running until stopped, and gives the exit code."""
        (self._folder / "logs").mkdir(mode=0o700, exist_ok=True)
        looking_after = asyncio.create_task(self._look_after_logs())
        try:
            self._carry_out(self._machine.begin(_now()))
            while not self._machine.finished:
                await self._next_event()
                self._carry_out(self._machine.tick(_now()))
        finally:
            looking_after.cancel()
            await asyncio.gather(looking_after, return_exceptions=True)
            for process in self._running.values():  # none, unless by a fault of our own
                process.kill()
                process.wait()
            (self._folder / PROCESSES_FILE).unlink(missing_ok=True)
        self._follow()
        return self._machine.exit_code

    async def _next_event(self) -> None:
        """Waits for an end, a request or the next time, and has the machine judge it."""
        wake = self._machine.next_wake()
        try:
            async with asyncio.timeout(None if wake is None else max(0.0, wake - _now())):
                await self._wake.wait()
        except TimeoutError:
            return
        self._wake.clear()
        asked, self._asked = self._asked, []
        self._carry_out(asked)
        ended, self._ended = self._ended, []
        for name, code, last_line, served in ended:
            effects = self._machine.exited(name, code, last_line, _now(), served=served)
            self._carry_out(effects)

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Say(text):
                    self._say(text)
                case Send(name, number):
                    process = self._running.get(name)
                    if process is not None:
                        process.send_signal(number)
                case Spawn(name):
                    try:
                        self._spawn(self._programs[name])
                    except OSError as error:  # no memory, no processes left
                        self._end(name, 1, f"it can't be started: {error.strerror}")

    def _spawn(self, program: Program) -> None:
        module = f"sexton_{program.role}"
        log = self._logs[program.name].open()
        try:
            process = subprocess.Popen(  # noqa: S603 - our own modules
                [sys.executable, "-I", "-S", _LEASH, str(os.getpid()), module, *program.arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._environment,
                # Ctrl-C and the end of the terminal are for the supervisor alone.
                start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(log)
        self._running[program.name] = process
        # Readable once it has ended. asyncio's own processes lose an exit code where a signal is
        # sent at the moment of the end.
        watched = os.pidfd_open(process.pid)
        asyncio.get_running_loop().add_reader(watched, self._ended_by_itself, program.name, watched)
        self._note()

    def _ended_by_itself(self, name: str, watched: int) -> None:
        asyncio.get_running_loop().remove_reader(watched)
        os.close(watched)
        code = self._running.pop(name).wait()
        log = self._logs[name]
        served = log.said_since_open(f"{self._programs[name].role} ready ")
        self._end(name, code, log.last_line(), served=served)
        self._note()

    def _end(self, name: str, code: int, last_line: str, *, served: bool = False) -> None:
        self._ended.append((name, code, last_line, served))
        self._wake.set()

    def _note(self) -> None:
        """Writes down which processes there are, whole or not at all.

        A full disk, on which a store goes on answering, is no reason to end anything.
        """
        listed = [
            {
                "name": name,
                "role": program.role,
                "address": program.address,
                "pid": self.pid(name),
                "starts": self._machine.starts(name),
            }
            for name, program in self._programs.items()
        ]
        draft = self._folder / f".{PROCESSES_FILE}"
        text = json.dumps({"pid": os.getpid(), "processes": listed}, indent=1) + "\n"
        with contextlib.suppress(OSError):
            draft.write_text(text, encoding="utf-8")
            draft.replace(self._folder / PROCESSES_FILE)

    async def _look_after_logs(self) -> None:
        rotated = _now()
        while True:
            await asyncio.sleep(_FOLLOW_S if self._verbose else _ROTATE_S)
            self._follow()
            if _now() - rotated >= _ROTATE_S:
                rotated = _now()
                for log in self._logs.values():
                    with contextlib.suppress(OSError):  # of a full disk; later it goes again
                        log.rotate()

    def _follow(self) -> None:
        if self._verbose:
            for name, log in self._logs.items():
                for line in log.new_lines():
                    self._say(f"{name}: {readable(line)}")


def _now() -> float:
    return asyncio.get_running_loop().time()

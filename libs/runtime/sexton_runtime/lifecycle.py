"""One lifecycle for everything that runs: parts start in order and stop in reverse.

The order of a service is therefore declared once, at its start: storage, server, leases, claiming
of work, health. Stopping then is what clients need: health says NOT_SERVING, no more work is
claimed, workers are told to drain, leases are released so that a successor acts at once, calls in
flight are finished, and last of all the storage is closed.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from enum import IntEnum
from typing import Protocol

import structlog

_log = structlog.get_logger(__name__)


class Part(Protocol):
    """What a lifecycle starts and stops."""

    async def start(self) -> None:
        """Begins; returns once it works. Raises what makes the whole start fail."""
        ...

    async def stop(self) -> None:
        """Ends; idempotent."""
        ...


class ExitCode(IntEnum):
    """What a process's end tells its supervisor."""

    OK = 0  # asked to stop
    FAILED = 1  # could not start or run; the message says why
    USAGE = 2  # the command line or the configuration can't be used
    RESTART = 75  # stopped itself in order to be started again (EX_TEMPFAIL)


class Lifecycle:
    """Starts, runs and stops the parts of one process.

    `started` is set once all parts run.
    """

    def __init__(self, name: str, parts: Sequence[Part], *, stop_timeout_s: float = 30.0) -> None:
        self.started = asyncio.Event()
        self._name = name
        self._parts = tuple(parts)
        self._stop_timeout_s = stop_timeout_s
        self._running: list[Part] = []
        self._reason = ""
        self._exit_code = ExitCode.OK
        self._stop_requested = asyncio.Event()
        self._stopping: asyncio.Task[None] | None = None
        self._conditions: list[tuple[Callable[[], Awaitable[object]], str, ExitCode]] = []

    def stop_when(
        self, condition: Callable[[], Awaitable[object]], reason: str, exit_code: ExitCode
    ) -> None:
        """Has `run` stop, for this reason and with this code, once the condition's wait ends."""
        self._conditions.append((condition, reason, exit_code))

    def request_stop(self, reason: str, exit_code: ExitCode = ExitCode.OK) -> None:
        """Has `run` stop. The first request counts."""
        if not self._stop_requested.is_set():
            self._reason, self._exit_code = reason, exit_code
            self._stop_requested.set()

    async def start(self) -> None:
        """Starts every part; where one fails, stops the others and raises its error."""
        for part in self._parts:
            try:
                self._running.append(part)
                await part.start()
            except BaseException:
                await self.stop()
                raise
        self.started.set()

    async def run(
        self, *, signals: bool = True, on_started: Callable[[], object] | None = None
    ) -> ExitCode:
        """Starts, waits until there is a reason to stop, stops, and gives the exit code.

        With `signals` the process is this lifecycle's own: SIGTERM and SIGINT are such reasons,
        and a second one ends the process at once.
        """
        if signals:
            self._listen_to_signals()
        if not await self._start_unless_stopped():
            _log.info("The service stops before it works.", action="stop", reason=self._reason)
            return self._exit_code
        _log.info("The service has started.", action="start", service=self._name)
        watching = [asyncio.create_task(self._wait_for(*entry)) for entry in self._conditions]
        try:
            if on_started is not None:
                on_started()
            await self._stop_requested.wait()
            _log.info("The service stops.", action="stop", service=self._name, reason=self._reason)
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)
            await self.stop()
        _log.info("The service has stopped.", action="stopped", service=self._name)
        return self._exit_code

    async def _start_unless_stopped(self) -> bool:
        """Starts, and gives up starting when asked to stop: a part may wait for another service."""
        starting = asyncio.create_task(self.start())
        stopping = asyncio.create_task(self._stop_requested.wait())
        try:
            await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            given_up = starting.cancel()
            await asyncio.gather(starting, stopping, return_exceptions=True)
        if not given_up:
            await starting  # raises what made it fail
        return not given_up

    async def stop(self) -> None:
        """Stops the parts that were started, in reverse. Idempotent; later callers wait too."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop_parts())
        await asyncio.shield(self._stopping)

    async def _stop_parts(self) -> None:
        while self._running:
            part = self._running.pop()
            try:
                async with asyncio.timeout(self._stop_timeout_s):
                    await part.stop()
            except Exception:  # noqa: BLE001 - it must not keep the others from stopping
                _log.exception("A part did not stop.", action="stop", part=type(part).__name__)
                self._exit_code = self._exit_code or ExitCode.FAILED

    async def _wait_for(
        self, condition: Callable[[], Awaitable[object]], reason: str, exit_code: ExitCode
    ) -> None:
        await condition()
        self.request_stop(reason, exit_code)

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: signal.Signals) -> None:
        if self._stop_requested.is_set():
            os._exit(128 + number)
        self.request_stop(number.name)

"""The executor of real workers: each order where its task belongs."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from sexton.task import Isolation, TaskRegistry
from sexton_core.instants import Instant
from sexton_worker.contract import (
    HTTP,
    SHELL,
    Ended,
    Follow,
    HttpWork,
    Listener,
    Order,
    OtherWork,
    PythonWork,
    ShellWork,
    label,
)
from sexton_worker.executors.commands import (
    ProcessResult,
    Unusable,
    command_ended,
    python_command,
    shell_command,
)
from sexton_worker.executors.guard import CommandEnd, Guarded, GuardedCommand, ShimClient
from sexton_worker.executors.http_request import http_request
from sexton_worker.executors.inprocess import InProcessExecutor, Running

if TYPE_CHECKING:
    from sexton_worker.executors.http_calls import HttpExecutor

_CALM_S: Final = 1.0
"""The shim is told so long after an end that nothing runs in this process any more: where short
tasks come one by one it would be told twice for each."""

_log = structlog.get_logger(__name__)


class LocalExecutor:
    """Executes Python tasks in this process or in ones of their own, shell commands and HTTP calls.

    See `sexton_worker.contract.Executor`.
    """

    def __init__(
        self,
        registry: TaskRegistry,
        *,
        app: tuple[str, ...] = (),
        kinds: Sequence[str] = (),
        scratch: Path | None = None,
        mark: str,
        follow: Follow = lambda _order: None,
    ) -> None:
        """`app`: the modules that processes import; `mark`: see `ShimClient`."""
        self._follow = follow
        self._registry = registry
        self._app = app
        self._kinds = tuple(kinds)
        self._scratch_in = scratch
        self._scratch = Path()
        self._shim = ShimClient(mark)
        self._guarded: dict[int, Guarded] = {}
        self._dead = asyncio.Event()
        self._limits: tuple[Instant, Instant] = (0, 0)
        self._listener: Listener | None = None
        self._in_process: InProcessExecutor | None = None
        self._http: HttpExecutor | None = None
        self._watched = False
        """Whether the shim has been told that something runs in this process."""
        self._calming: asyncio.TimerHandle | None = None

    @property
    def tasks(self) -> Sequence[str]:
        """Names of the tasks that are registered."""
        return [task.name for task in self._registry]

    @property
    def kinds(self) -> Sequence[str]:
        """Kinds that are allowed besides Python."""
        return self._kinds

    @property
    def in_process(self) -> int:
        """Tells how many attempts run in this process, and so can't be killed alone."""
        functions = len(self._in_process) if self._in_process is not None else 0
        return functions + (len(self._http) if self._http is not None else 0)

    async def start(self, listener: Listener) -> None:
        """Starts the shim and makes the folder for scratch folders."""
        self._listener = listener
        self._scratch = Path(tempfile.mkdtemp(prefix="sexton-worker-", dir=self._scratch_in))
        self._in_process = InProcessExecutor(self, asyncio.get_running_loop(), self._follow)
        if HTTP in self._kinds:
            from sexton_worker.executors.http_calls import HttpExecutor  # noqa: PLC0415 - 0.2 s

            self._http = HttpExecutor(self, asyncio.get_running_loop())
        self._shim.start(self._scratch)

    async def stop(self) -> None:
        """Kills what can be killed and waits until it is dead. Idempotent."""
        for guarded in list(self._guarded.values()):
            guarded.kill()
        if self._http is not None:
            await self._http.stop()
        while self._guarded:
            self._dead.clear()
            await self._dead.wait()
        if self._calming is not None:
            self._calming.cancel()
        self._shim.stop()
        if self._scratch != Path():  # not started: that would be the folder we are in
            shutil.rmtree(self._scratch, ignore_errors=True)

    def prepare(self, order: Order) -> object:
        """Makes ready what runs in this process; what can't begin is told of when it is to."""
        work = order.work
        task = self._registry.get(work.task) if isinstance(work, PythonWork) else None
        if task is None or task.isolation is Isolation.PROCESS:
            return None
        assert self._in_process is not None
        return self._in_process.prepare(order, task)

    def begin(self, order: Order) -> None:
        """Begins an attempt where it belongs."""
        if isinstance(order.ready, Running):
            self._begin_here(order, order.ready)
            return
        try:
            self._begin(order)
        except Unusable as problem:
            self._refuse(order, "not started", str(problem))
        except OSError as error:
            self._refuse(order, "not started", f"the worker can't start it: {error.strerror}")

    def cancel(self, token: int) -> None:
        """Asks an attempt to end."""
        assert self._in_process is not None
        if self._http is not None and token in self._http:
            self._http.cancel(token)
        elif not self._in_process.cancel(token) and token in self._guarded:
            self._guarded[token].stop()

    def kill(self, token: int) -> None:
        """Kills a command's whole tree; a function in this process is asked once more."""
        assert self._in_process is not None
        if token in self._guarded:
            self._guarded[token].kill()
        elif self._http is not None and token in self._http:
            self._http.cancel(token)
        elif self._in_process.cancel(token):
            order = self._in_process.order(token)
            _log.warning(
                "A task in this process can only be asked to end; isolation='process' allows more.",
                action="kill",
                job=f"{order.namespace}/{order.job}",
                run=order.run_id,
            )

    def extend(self, end_at: Instant, dead_at: Instant) -> None:
        """Tells the shim of an answered heartbeat."""
        self._limits = end_at, dead_at
        self._tell_shim()

    # The listener of what runs in this process

    def ended(self, token: int, ended: Ended) -> None:
        """Passes on that a function has ended."""
        if self._calming is None and not self.in_process:
            self._calming = asyncio.get_running_loop().call_later(_CALM_S, self._calm_down)
        assert self._listener is not None
        self._listener.ended(token, ended)

    def progressed(self, token: int, fraction: float, message: str) -> None:
        """Passes on how far a function is."""
        assert self._listener is not None
        if 0 <= fraction <= 1:
            self._listener.progressed(token, fraction, label(message))

    # Inside

    def _begin(self, order: Order) -> None:
        match order.work:
            case PythonWork() as work:
                self._begin_python(order, work)
            case ShellWork() as work if SHELL in self._kinds:
                self._run(order, shell_command(order, work, self._scratch, os.environ))
            case ShellWork():
                raise Unusable("this worker runs no shell commands; start it with --allow shell")
            case HttpWork() as work if self._http is not None:
                request = http_request(order, work, os.environ)
                self._http.begin(order, work, request, self._follow(order))
                if not self._watched:
                    self._tell_shim()
            case HttpWork():
                raise Unusable("this worker makes no HTTP calls; start it with --allow http")
            case OtherWork(kind):
                raise Unusable(f"this worker can't execute tasks of kind {kind!r}")

    def _begin_python(self, order: Order, work: PythonWork) -> None:
        task = self._registry.get(work.task)
        if task is None:
            known = ", ".join(self.tasks) or "none"
            raise Unusable(f"this worker knows no task {work.task!r}; it knows: {known}")
        if task.isolation is Isolation.PROCESS:
            self._begin_process(order, work)
        else:
            assert self._in_process is not None
            self._begin_here(order, self._in_process.prepare(order, task))

    def _begin_here(self, order: Order, running: Running) -> None:
        assert self._in_process is not None
        now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        self._in_process.begin(running, now + order.timeout)
        if not self._watched:
            self._tell_shim()

    def _begin_process(self, order: Order, work: PythonWork) -> None:
        result = ProcessResult(lambda *said: self.progressed(order.ref.token, *said))
        command = python_command(
            order, work, self._scratch, os.environ, app=self._app, result=result
        )
        self._run(order, command, result)

    def _run(
        self, order: Order, command: GuardedCommand, result: ProcessResult | None = None
    ) -> None:
        token = order.ref.token
        command = command._replace(follow=self._follow(order))

        def on_end(end: CommandEnd) -> None:
            del self._guarded[token]
            self._dead.set()
            ended = command_ended(end) if result is None else result.ended(end)
            assert self._listener is not None
            self._listener.ended(token, ended)

        self._guarded[token] = self._shim.run(command, on_end)

    def _refuse(self, order: Order, kind: str, message: str) -> None:
        assert self._listener is not None
        failure = Ended.failure(kind, message)
        asyncio.get_running_loop().call_soon(self._listener.ended, order.ref.token, failure)

    def _calm_down(self) -> None:
        self._calming = None
        if not self.in_process:
            self._tell_shim()

    def _tell_shim(self) -> None:
        """Lets the shim end this process only while something that it can't kill runs in it."""
        end_at, dead_at = self._limits
        self._watched = self.in_process > 0
        self._shim.extend(end_at, dead_at if self._watched else 0)

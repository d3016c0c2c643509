"""What a simulated worker executes: time that passes, and what a task's own code would note.

A task is a shell command, or a URL, that only this executor understands, as `Behaviour` writes it.
Each execution notes its start and its end in the history, as a task would in a file of its own, and
tries to have an effect on something that is fenced by its token.

The executions live in a process of their own on the worker's machine, as under the real shim: one
that is stopped (SIGSTOP) loses them when its session is no longer to be trusted; one that is killed
takes them with it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

from sexton_sim.history import Recorder, text
from sexton_sim.process import Process
from sexton_worker.contract import Ended, HttpWork, Listener, Order, ShellWork, Work

_SITE = "http://task.test/"
_LOOKS_S = 0.25
"""How often the shim looks at the clock at least: a sleep counts awake time."""


class Behaviour(NamedTuple):
    """What a task does."""

    lasts_s: float
    fails_p: float = 0.0
    """How likely an attempt fails."""
    stubborn: bool = False
    """It does not end when it is asked to."""

    def command(self) -> str:
        """Writes it as a command."""
        return f"lasts {self.lasts_s} fails {self.fails_p} stubborn {int(self.stubborn)}"

    def url(self) -> str:
        """Writes it as a URL."""
        return f"{_SITE}{self.command().replace(' ', '/')}"

    @classmethod
    def of(cls, work: Work) -> Self:
        """Reads what `command` or `url` wrote."""
        if isinstance(work, HttpWork):
            return cls.parse(work.url.removeprefix(_SITE).replace("/", " "))
        return cls.parse(work.command) if isinstance(work, ShellWork) else cls(0)

    @classmethod
    def parse(cls, command: str) -> Self:
        """Reads what `command` wrote."""
        _, lasts, _, fails, _, stubborn = command.split()
        return cls(float(lasts), float(fails), stubborn == "1")


class Fences:
    """Something outside the mesh that remembers the highest token of each run that it has seen."""

    def __init__(self) -> None:
        self._highest: dict[bytes, int] = {}

    def admit(self, handle: bytes, token: int) -> bool:
        """Tells whether the token is the highest so far, and remembers it."""
        if token < self._highest.get(handle, 0):
            return False
        self._highest[handle] = token
        return True


class _Execution(NamedTuple):
    order: Order
    behaviour: Behaviour
    timer: asyncio.TimerHandle


class VirtualExecutor:
    """The `Executor` of a simulated worker; see `sexton_worker.contract`."""

    def __init__(
        self,
        worker: Process,
        recorder: Recorder,
        fences: Fences,
        rng: random.Random,
        *,
        on_effect: Callable[[str], object] = lambda _worker: None,
    ) -> None:
        """`on_effect` is told of every effect, before its attempt is over."""
        self.tasks: Sequence[str] = ()
        self.kinds: Sequence[str] = ("shell", "http")
        self._worker = worker
        self._recorder = recorder
        self._fences = fences
        self._random = rng
        self._on_effect = on_effect
        self._shim = worker.loop.process(f"{worker.name}/shim", worker.machine)
        self._running: dict[int, _Execution] = {}
        self._listener: Listener | None = None
        self._end_at = 0
        worker.on_death(self._worker_died)

    async def start(self, listener: Listener) -> None:
        """Begins to work."""
        self._listener = listener
        self._shim.spawn(self._look())

    async def stop(self) -> None:
        """Kills everything."""
        self._kill_all("stopped")
        self._shim.crash()

    def prepare(self, _order: Order) -> object:
        """Makes nothing ready."""
        return None

    def begin(self, order: Order) -> None:
        """Begins an attempt."""
        behaviour = Behaviour.of(order.work)
        self._note("started", order, number=order.number)
        self._fences.admit(*order.ref)
        timer = self._worker.loop.call_later(
            behaviour.lasts_s, self._finish, order.ref.token, context=self._shim.context.copy()
        )
        self._running[order.ref.token] = _Execution(order, behaviour, timer)

    def cancel(self, token: int) -> None:
        """Asks an attempt to end."""
        if token in self._running and not self._running[token].behaviour.stubborn:
            self._end(token, "cancelled")

    def kill(self, token: int) -> None:
        """Kills an attempt."""
        if token in self._running:
            self._end(token, "killed")

    def extend(self, end_at: int, dead_at: int) -> None:
        """Tells of an answered heartbeat."""
        del dead_at  # nothing runs in the worker itself
        self._end_at = end_at

    # Inside

    async def _look(self) -> None:
        """Kills what a session that is no longer to be trusted left behind."""
        clock = self._shim.clock
        while True:
            left_s = (self._end_at - clock.boot_ns()) / 1e9
            if self._end_at and left_s <= 0:
                self._kill_all("killed by the shim")
                left_s = _LOOKS_S
            await asyncio.sleep(min(left_s, _LOOKS_S) if self._end_at else _LOOKS_S)

    def _finish(self, token: int) -> None:
        order, behaviour, _ = self._running[token]
        if self._random.random() < behaviour.fails_p:
            self._end(token, "failed")
        else:
            self._note("effect", order, accepted=self._fences.admit(*order.ref))
            self._on_effect(self._worker.name)
            if token in self._running:
                self._end(token, "succeeded")

    def _end(self, token: int, how: str) -> None:
        order, _, timer = self._running.pop(token)
        timer.cancel()
        self._note("ended", order, how=how)
        ended = Ended(succeeded=True, result_json="{}")
        if how != "succeeded":
            ended = Ended.failure("exit 3", f"it {how}")
        assert self._listener is not None
        listener, context = self._listener, self._worker.context.copy()
        self._worker.loop.call_soon(listener.ended, token, ended, context=context)

    def _kill_all(self, how: str) -> None:
        for token in list(self._running):
            self._end(token, how)

    def _worker_died(self) -> None:
        for execution in self._running.values():
            self._note("ended", execution.order, how="died with its worker")
        self._running.clear()
        self._shim.crash()

    def _note(self, what: str, order: Order, **facts: object) -> None:
        handle = text(order.ref.handle)
        self._recorder.exec(what, self._worker.name, handle=handle, token=order.ref.token, **facts)

"""Questions that take longer than a page should: asked in the background, shown when answered.

A page waits for a moment, then is shown with what is known so far; where it is looked at, its next
look, a second later, finds more. Nothing is asked twice at the same time, however many look.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, cast

import structlog

from sexton import errors
from sexton_console.mesh.api import REASON_UNIMPLEMENTED
from sexton_runtime.clock import Clock

Answer = TypeVar("Answer")

WAIT_S: Final = 0.1
"""A page waits for so long."""
_MOST: Final = 100
"""Answers that are remembered."""
_IDLE_S: Final = 600.0
"""An answer that nobody has looked at for so long is forgotten."""
_AT_ONCE: Final = 4
"""Questions that are under way; further ones wait for their turn."""
_PATIENCE: Final = 20
"""What took a second is asked again after twenty at the earliest."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Found(Generic[Answer]):
    """What is known of an answer."""

    value: Answer | None
    """The answer, or a part of it; None: nothing yet."""
    complete: bool
    absent: str = ""
    """Why it can't be had; empty: it can."""


@dataclass(slots=True)
class _Errand:
    found: Found[Any]
    asking: asyncio.Task[None] | None = None
    fresh_until_s: float = 0.0
    looked_s: float = 0.0
    outdated: bool = True
    """Whether what is known is no longer good enough to be shown at once."""


class Errands:
    """A part of the console's lifecycle: asks, and remembers what was answered."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._errands: OrderedDict[str, _Errand] = OrderedDict()
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def start(self) -> None:
        """Nothing: the first question is the begin."""

    async def stop(self) -> None:
        """Ends what is asked. Idempotent."""
        errands, self._errands = self._errands, OrderedDict()
        asking = [errand.asking for errand in errands.values() if errand.asking is not None]
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    async def answer(
        self,
        key: str,
        seconds: float,
        ask: Callable[[], AsyncIterator[Answer]],
        *,
        wait_s: float = WAIT_S,
    ) -> Found[Answer]:
        """Gives what is known, which is at most so old once it is complete.

        Args:
            key: what is asked; the same question has the same key.
            seconds: for so long an answer is not asked for again; longer where it took long.
            ask: yields ever more of the answer; what it yields last is the whole.
            wait_s: how long to wait for the whole, where no whole is known.

        """
        errand = self._errands.get(key)
        if errand is None:
            errand = self._errands[key] = _Errand(Found(None, complete=False))
            self._make_room()
        self._errands.move_to_end(key)
        errand.looked_s = self._now_s()
        if errand.asking is None and self._now_s() >= errand.fresh_until_s:
            errand.asking = asyncio.create_task(self._ask(errand, seconds, ask), name=f"ask {key}")
        if errand.asking is not None and errand.outdated:
            await asyncio.wait([errand.asking], timeout=wait_s)
        return cast("Found[Answer]", errand.found)

    async def once(
        self, key: str, seconds: float, ask: Callable[[], Awaitable[Answer]]
    ) -> Found[Answer]:
        """Gives an answer that comes as a whole; see `answer`."""

        async def whole() -> AsyncIterator[Answer]:
            yield await ask()

        return await self.answer(key, seconds, whole)

    def forget(self) -> None:
        """Has everything asked again: something was changed."""
        for errand in self._errands.values():
            errand.fresh_until_s = 0.0
            errand.outdated = True

    async def _ask(
        self, errand: _Errand, seconds: float, ask: Callable[[], AsyncIterator[Any]]
    ) -> None:
        known = errand.found.complete and not errand.found.absent
        value: Any = None
        async with self._turns:
            began_s = self._now_s()
            try:
                async for value in ask():
                    if not known:  # else the old answer is better than a part of the new one
                        errand.found = Found(value, complete=False)
                errand.found = Found(value, complete=True)
            except errors.Unimplemented:
                errand.found = Found(None, complete=True, absent=REASON_UNIMPLEMENTED)
            except errors.SextonError as error:
                errand.found = Found(value, complete=True, absent=f"It can't be had now: {error}")
            except Exception:  # noqa: BLE001 - it must not stay unanswered for ever
                _log.exception("A question failed.", action="ask")
                errand.found = Found(value, complete=True, absent="It can't be had now.")
            took_s = self._now_s() - began_s
        errand.asking = None
        errand.outdated = False
        errand.fresh_until_s = self._now_s() + max(seconds, _PATIENCE * took_s)

    def _make_room(self) -> None:
        """Lets go what nobody looks at any more, and the oldest of too many, asked or not."""
        idle_s = self._now_s() - _IDLE_S
        while len(self._errands) > 1:
            errand = next(iter(self._errands.values()))
            if len(self._errands) <= _MOST and errand.looked_s > idle_s:
                return
            self._errands.popitem(last=False)
            if errand.asking is not None:
                errand.asking.cancel()

    def _now_s(self) -> float:
        return self._clock.monotonic_ns() / 1e9

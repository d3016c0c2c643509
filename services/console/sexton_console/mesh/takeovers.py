"""Who led when: seen from outside, look by look, and kept for a strip of takeovers."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, replace
from typing import Final

import structlog

from sexton import errors
from sexton.v1 import scheduler_pb2 as api
from sexton_console.mesh.api import MeshApi
from sexton_console.words import enum_word
from sexton_runtime import otlp
from sexton_runtime.clock import Clock

EVERY_S: Final = 2.0
KEPT: Final = 200
"""Changes of who leads."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Term:
    """A time for which somebody led, as far as was seen."""

    role: str
    shard: int
    holder: str
    address: str
    token: int
    since_s: float
    until_s: float
    """0: it leads now."""

    @property
    def trace(self) -> str:
        """Gives the id of the trace in which it told how it came to lead."""
        return otlp.takeover_trace(self.holder, self.token).trace_id.hex()


class LeaderWatch:
    """A part of the console's lifecycle: looks who leads."""

    def __init__(self, api_: MeshApi, clock: Clock) -> None:
        self._api = api_
        self._clock = clock
        self._terms: deque[Term] = deque(maxlen=KEPT)
        self._now: dict[tuple[str, int], Term] = {}
        self._running: asyncio.Task[None] | None = None

    def takeovers(self) -> list[Term]:
        """Gives the terms that were seen, the newest first."""
        past = sorted(self._terms, key=lambda term: -term.until_s)
        present = sorted(self._now.values(), key=lambda term: (term.role, term.shard))
        return [*present, *past]

    async def start(self) -> None:
        """Begins to look, in the background."""
        self._running = asyncio.create_task(self._look(), name="leader-watch")

    async def stop(self) -> None:
        """Ends. Idempotent."""
        running, self._running = self._running, None
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def take(self, answer: api.ListMembersResponse, now_s: float) -> None:
        """Takes note of who leads."""
        for member in answer.members:
            if not member.leading or member.role == api.Member.ROLE_STORE:
                continue
            role = enum_word(api.Member.Role, member.role, "ROLE_")
            key = (role, member.shard)
            known = self._now.get(key)
            if known is not None:
                if member.token <= known.token:
                    continue  # the same, or an old answer
                self._terms.append(replace(known, until_s=now_s))
            self._now[key] = Term(
                role, member.shard, member.id, member.address, member.token, now_s, 0.0
            )

    async def _look(self) -> None:
        while True:
            try:
                self.take(await self._api.members(), self._clock.wall_ns() / 1e9)
            except errors.SextonError:
                pass  # the follower says that the mesh does not answer
            except Exception:  # noqa: BLE001 - it goes on: the next answer may be well again
                _log.exception("An answer could not be read.", action="watch_leaders")
            await asyncio.sleep(EVERY_S)

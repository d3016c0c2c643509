"""What pages work with: the mesh, what was counted, and the traces."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request

from sexton_console.mesh.api import MeshApi
from sexton_console.mesh.follower import Follower
from sexton_console.mesh.takeovers import LeaderWatch
from sexton_console.otlp.receiver import Receiver
from sexton_console.traces.service_logs import ServiceLogs
from sexton_console.traces.store import TraceStore
from sexton_console.web.errands import Errands
from sexton_console.web.sessions import Sessions
from sexton_runtime.clock import Clock


@dataclass(slots=True)
class Desk:
    """Everything that a page may ask."""

    api: MeshApi
    follower: Follower
    watch: LeaderWatch
    traces: TraceStore
    logs: ServiceLogs
    receiver: Receiver
    errands: Errands
    sessions: Sessions
    clock: Clock
    hint: str = ""
    """How commands on this machine reach the API and the secret, for what is shown to be copied."""
    memo: dict[str, tuple[float, Any]] = field(default_factory=dict)
    """Answers that several pages share for a moment, with the time until which they do."""

    @property
    def now_s(self) -> float:
        """Gives the wall clock's seconds."""
        return self.clock.wall_ns() / 1e9

    def forget(self) -> None:
        """Has everything read anew: something was changed."""
        self.memo.clear()
        self.errands.forget()


def desk_of(request: Request) -> Desk:
    """Gives the desk of the console that serves a request."""
    desk: Desk = request.app.state.desk
    return desk

"""How a queue replica is configured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from sexton_core.errors import IdError
from sexton_core.ids import check_name
from sexton_core.instants import MILLISECOND
from sexton_queue.sessions import SessionTimes
from sexton_runtime.config import ConfigError

DEFAULT_LISTEN = "127.0.0.1:7700"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """The section `queue`. Times are milliseconds."""

    store: Annotated[str, Field(min_length=1, description="host:port of the store")]
    listen: Annotated[str, Field(description="host:port; port 0 is any free one")] = DEFAULT_LISTEN
    advertise: Annotated[
        str,
        Field(
            description="host:port at which others reach it; empty: as it listens, with this "
            "machine's name where that is at all addresses"
        ),
    ] = ""
    insecure: Annotated[
        bool, Field(description="listen beyond this machine although no secrets are set")
    ] = False
    shard: Annotated[int, Field(ge=0, le=999, description="the queue shard to compete for")] = 0
    lease_ttl_ms: Annotated[
        int, Field(ge=200, le=60_000, description="how long a silent owner stays the owner")
    ] = 2_000
    session_ms: Annotated[
        int, Field(ge=1_000, le=3_600_000, description="how long a silent worker keeps its runs")
    ] = 30_000
    heartbeat_ms: Annotated[
        int, Field(ge=50, le=60_000, description="how often workers are to be heard")
    ] = 1_000
    grace_ms: Annotated[
        int, Field(ge=0, le=60_000, description="how long a broken stream may take to come back")
    ] = 2_000
    max_running: Annotated[
        str, Field(description="bounds on assigned runs by queue, as in `mails=10,reports=2`")
    ] = ""

    def __post_init__(self) -> None:
        """Raises `ConfigError` where two times contradict each other or a bound can't be read."""
        if 4 * self.heartbeat_ms > self.session_ms or self.grace_ms >= self.session_ms:
            raise ConfigError(
                f"queue.session_ms: {self.session_ms} is too short; use at least four heartbeats "
                f"({self.heartbeat_ms} ms each) and more than the grace ({self.grace_ms} ms)"
            )
        self.bounds()

    def times(self) -> SessionTimes:
        """Gives the times of sessions."""
        return SessionTimes(
            session=self.session_ms * MILLISECOND,
            heartbeat=self.heartbeat_ms * MILLISECOND,
            grace=self.grace_ms * MILLISECOND,
        )

    def bounds(self) -> Mapping[str, int]:
        """Gives the bounds on assigned runs by queue."""
        bounds: dict[str, int] = {}
        for part in filter(None, (text.strip() for text in self.max_running.split(","))):
            queue, _, number = part.partition("=")
            try:
                bounds[check_name("queue", queue)] = int(number)
            except (IdError, ValueError):
                raise ConfigError(
                    f"queue.max_running: {part!r} can't be used; give NAME=NUMBER"
                ) from None
            if bounds[queue] < 0:
                raise ConfigError(f"queue.max_running: {part!r} can't be used; give 0 or more")
        return bounds

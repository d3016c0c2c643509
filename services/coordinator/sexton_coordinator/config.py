"""How a coordinator replica is configured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

DEFAULT_LISTEN = "127.0.0.1:7400"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorConfig:
    """The section `coordinator`. Times are milliseconds."""

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
    lease_ttl_ms: Annotated[
        int, Field(ge=200, le=60_000, description="how long a silent leader stays the leader")
    ] = 2_000
    trace_sample: Annotated[
        float | None,
        Field(
            ge=0,
            le=1,
            description="part of the runs whose way is traced, 0 to 1; all that fail are; "
            "not set: all where telemetry has an endpoint, else none",
        ),
    ] = None

"""How the console is configured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

DEFAULT_LISTEN: Final = "127.0.0.1:7480"
DEFAULT_OTLP_LISTEN: Final = "127.0.0.1:7417"


def _parts(given: object) -> object:
    if not isinstance(given, str):
        return given
    return tuple(part.strip() for part in given.split(",") if part.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleConfig:
    """The section `console`."""

    data: Annotated[Path, Field(description="folder of the traces")]
    api: Annotated[
        tuple[str, ...],
        BeforeValidator(_parts),
        Field(min_length=1, description="host:port of the coordinators, by commas"),
    ] = ("127.0.0.1:7400",)
    listen: Annotated[str, Field(description="host:port of the pages; port 0 is any free one")] = (
        DEFAULT_LISTEN
    )
    otlp_listen: Annotated[
        str, Field(description="host:port of the OTLP/gRPC receiver; port 0 is any free one")
    ] = DEFAULT_OTLP_LISTEN
    hosts: Annotated[
        tuple[str, ...],
        BeforeValidator(_parts),
        Field(description="names under which browsers may ask for the pages, by commas"),
    ] = ()
    otlp_open: Annotated[
        bool,
        Field(description="receive telemetry from other machines, whose senders are not known"),
    ] = False
    insecure: Annotated[
        bool, Field(description="serve pages beyond this machine although no secret is set")
    ] = False
    read_only: Annotated[bool, Field(description="show everything and change nothing")] = False
    forward: Annotated[
        str, Field(description="OTLP/gRPC endpoint that gets everything too, http://host:port")
    ] = ""
    max_mib: Annotated[
        int, Field(ge=1, le=1_000_000, description="MiB that traces and logs may take")
    ] = 512
    keep_days: Annotated[
        float, Field(gt=0, le=3_660, description="days for which a trace is kept")
    ] = 3.0
    keep_failed_days: Annotated[
        float,
        Field(gt=0, le=3_660, description="days for which that of a failed or slow run is kept"),
    ] = 30.0

"""How a store is configured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from sexton_store.contract import MIB, EngineConfig
from sexton_store.lmdb_disk import LmdbConfig

GIB = 1024 * MIB
DEFAULT_LISTEN = "127.0.0.1:7600"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """The section `store`. Sizes are bytes."""

    data: Annotated[Path, Field(description="folder of the data; created if it does not exist")]
    listen: Annotated[str, Field(description="host:port; port 0 is any free one")] = DEFAULT_LISTEN
    insecure: Annotated[
        bool, Field(description="listen beyond this machine although no secrets are set")
    ] = False
    history: Annotated[
        Path | None, Field(description="folder for one line per commit, for `sexton verify`")
    ] = None
    coordinator_shards: Annotated[
        int | None, Field(ge=1, le=1000, description="fixed when the data is created; 1")
    ] = None
    queue_shards: Annotated[
        int | None, Field(ge=1, le=1000, description="fixed when the data is created; 1")
    ] = None
    max_map_bytes: Annotated[
        int, Field(ge=16 * MIB, le=1024 * GIB, description="to which the data may grow")
    ] = 16 * GIB
    reserve_bytes: Annotated[
        int, Field(ge=0, le=GIB, description="held on the disk for deletes and settlements")
    ] = 64 * MIB
    verify_up_to_bytes: Annotated[
        int, Field(ge=0, description="data up to this size is checked whole at every start")
    ] = 64 * MIB
    watch_window_events: Annotated[
        int, Field(ge=1_000, le=10_000_000, description="changes kept for watchers that lag")
    ] = 100_000
    watch_window_bytes: Annotated[
        int, Field(ge=MIB, le=16 * GIB, description="bytes of changes kept for watchers that lag")
    ] = 64 * MIB

    def engine(self) -> EngineConfig:
        """Gives the engine's part."""
        return EngineConfig(
            coordinator_shards=self.coordinator_shards,
            queue_shards=self.queue_shards,
            watch_window_events=self.watch_window_events,
            watch_window_bytes=self.watch_window_bytes,
            history=self.history is not None,
        )

    def disk(self) -> LmdbConfig:
        """Gives the disk's part."""
        return LmdbConfig(
            max_map_bytes=self.max_map_bytes,
            reserve_bytes=self.reserve_bytes,
            verify_up_to_bytes=self.verify_up_to_bytes,
        )

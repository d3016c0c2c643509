"""The store as a process: disk, engine, server, and in which order they live and end."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial

import structlog

from sexton.internal.v1.store_pb2_grpc import add_StoreServiceServicer_to_server
from sexton_runtime import semconv
from sexton_runtime.clock import Clock
from sexton_runtime.kv.status import ClockState
from sexton_runtime.lifecycle import ExitCode, Lifecycle
from sexton_runtime.randomness import Randomness
from sexton_runtime.rpc.server import Readiness, RpcServer, Service
from sexton_runtime.secrets import AnySecret, Role
from sexton_runtime.semconv import Instrument
from sexton_runtime.telemetry import Points, Telemetry
from sexton_runtime.transport import Transport
from sexton_runtime.version import software_version
from sexton_store.contract import EngineConfig, StoreEngine
from sexton_store.disk import Disk
from sexton_store.engine import EmbeddedEngine
from sexton_store.rpc import SERVICE, Backups, StoreServicer

SWITCH_INTERVAL_S = 0.0001
"""How long the event loop may keep the interpreter from the writer thread. At Python's default of
5 ms a busy loop makes every call of the writer into LMDB wait that long."""

_log = structlog.get_logger(__name__)


class Store:
    """One store, over whatever disk and transport it is given; `lifecycle` starts and stops it."""

    def __init__(
        self,
        *,
        disk: Disk,
        transport: Transport,
        clock: Clock,
        randomness: Randomness,
        listen: str,
        config: EngineConfig | None = None,
        secrets: Mapping[Role, AnySecret] | None = None,
        insecure: bool = False,
        telemetry: Telemetry | None = None,
        backups: Backups | None = None,
    ) -> None:
        """Raises `ConfigError` where it may not listen there."""
        telemetry = telemetry or Telemetry()
        self.engine: StoreEngine = EmbeddedEngine(disk, clock, randomness, config or EngineConfig())
        servicer = StoreServicer(self.engine, backups, software_version())
        register = partial(add_StoreServiceServicer_to_server, servicer)
        self.server = RpcServer(
            transport=transport,
            listen=listen,
            services=(Service(SERVICE, frozenset({Role.MESH}), register),),
            secrets=secrets or {},
            randomness=randomness,
            telemetry=telemetry,
            guards=(servicer.guard_incarnation,),
            insecure=insecure,
        )
        self.lifecycle = Lifecycle(
            "store",
            (
                _DiskPart(disk),
                self.engine,
                telemetry,  # reads the engine and the disk, also when it stops
                self.server,
                servicer,
                Readiness(self.server.health, (SERVICE,)),
            ),
        )
        self.lifecycle.stop_when(
            self.engine.failed.wait,
            "whether the last commit became durable is not known",
            ExitCode.RESTART,
        )
        _measure(telemetry, self.engine)


def prefer_writer_thread() -> None:
    """Lets the writer thread have the interpreter soon; see `SWITCH_INTERVAL_S`."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)


class _DiskPart:
    """The disk as a part: open before the engine starts, closed after everything else."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    async def start(self) -> None:
        """Nothing: whoever made the disk has opened it."""

    async def stop(self) -> None:
        """Closes the disk."""
        await self._disk.close()


def _measure(telemetry: Telemetry, engine: StoreEngine) -> None:
    def gauge(instrument: Instrument, name: str) -> None:
        def read() -> Points:
            status = engine.status()
            source = status.usage if hasattr(status.usage, name) else status
            return [(float(getattr(source, name)), {})]

        telemetry.gauge(instrument, read)

    gauge(semconv.STORE_REVISION, "revision")
    gauge(semconv.STORE_KEYS, "keys")
    gauge(semconv.STORE_USED, "used_bytes")
    gauge(semconv.STORE_MAP, "map_bytes")
    gauge(semconv.STORE_DISK_FREE, "disk_free_bytes")
    gauge(semconv.STORE_READER_AGE, "oldest_reader_ms")
    gauge(semconv.STORE_FULL, "full")
    gauge(semconv.STORE_WATCHES, "watches")
    gauge(semconv.STORE_LEASES, "leases")

    def disputed() -> Points:
        return [(float(engine.clock().state is ClockState.DISPUTED), {})]

    def events() -> Points:
        counters = asdict(engine.status().counters)
        return [(float(number), {semconv.KIND: kind}) for kind, number in counters.items()]

    telemetry.gauge(semconv.STORE_CLOCK_DISPUTED, disputed)
    telemetry.counter(semconv.STORE_EVENTS, events)

"""The worker as a process: machine, executors, stream, and in which order they live and end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

import structlog

from sexton_core.instants import SECOND
from sexton_runtime import semconv
from sexton_runtime.clock import Clock
from sexton_runtime.lifecycle import ExitCode, Lifecycle, Part
from sexton_runtime.randomness import Randomness
from sexton_runtime.rpc.server import Readiness, RpcServer
from sexton_runtime.secrets import AnySecret, Role
from sexton_runtime.telemetry import Points, Telemetry
from sexton_runtime.transport import Transport
from sexton_runtime.version import software_version
from sexton_worker.config import WorkerConfig
from sexton_worker.contract import Executor
from sexton_worker.machine import Machine
from sexton_worker.pull import PullConfig, Puller

CONNECTED = "queue"
"""The health service that serves while the queue's owner has welcomed this worker."""

_STOP_MARGIN_S = 15.0
"""Beyond drain and grace: for the last messages and for what was killed to be dead."""

_log = structlog.get_logger(__name__)


class Worker:
    """One worker, over whatever executor and transport it is given; `lifecycle` runs it.

    The event loop that runs it is its control part. Executors keep user code out of it.
    """

    def __init__(
        self,
        *,
        config: WorkerConfig,
        executor: Executor,
        transport: Transport,
        clock: Clock,
        randomness: Randomness,
        die: Callable[[str], object],
        secret: AnySecret = "",
        telemetry: Telemetry | None = None,
    ) -> None:
        """`die` ends the process at once, for the reason that it is given."""
        telemetry = telemetry or Telemetry()
        self._server: RpcServer | None = None
        grace = round(config.cancel_grace_s * SECOND)
        self.machine = Machine(slots=config.slots, cancel_grace=grace)
        self.puller = Puller(
            self.machine,
            executor,
            config=PullConfig(
                worker=config.shown_name,
                queues=config.queues,
                addresses=config.queue,
                software_version=software_version(),
                secret=secret,
                drain_timeout=round(config.drain_timeout_s * SECOND),
                stop_grace=grace,
            ),
            transport=transport,
            clock=clock,
            randomness=randomness,
            die=die,
            on_connected=self._tell_health,
        )
        parts: list[Part] = [telemetry, self.puller]
        if config.health_listen:
            self._server = RpcServer(
                transport=transport,
                listen=config.health_listen,
                services=(),
                secrets={Role.WORKER: secret} if secret else {},
                randomness=randomness,
                telemetry=telemetry,
                insecure=True,  # health is told to everybody, and there is nothing else
            )
            parts = [telemetry, self._server, self.puller, Readiness(self._server.health)]
            self._tell_health(False)
        self.lifecycle = Lifecycle(
            "worker",
            parts,
            stop_timeout_s=config.drain_timeout_s + config.cancel_grace_s + _STOP_MARGIN_S,
        )
        self.lifecycle.stop_when(self.puller.failed.wait, "of a fault of its own", ExitCode.RESTART)
        self.lifecycle.stop_when(
            self.puller.drain_asked.wait, "its queue's owner was asked to drain it", ExitCode.OK
        )
        self._measure(telemetry)

    @property
    def health_address(self) -> str:
        """Gives `host:port` of the health service; empty: there is none."""
        return self._server.address if self._server is not None else ""

    def _tell_health(self, connected: bool) -> None:  # noqa: FBT001 - a callback
        if self._server is not None:
            self._server.health.set(CONNECTED, serving=connected)

    def _measure(self, telemetry: Telemetry) -> None:
        def events() -> Points:
            counters = asdict(self.machine.counters)
            return [(float(number), {semconv.KIND: kind}) for kind, number in counters.items()]

        def executing() -> Points:
            return [(float(self.machine.executing), {})]

        telemetry.counter(semconv.WORKER_EVENTS, events)
        telemetry.gauge(semconv.WORKER_EXECUTING, executing)

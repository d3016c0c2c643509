"""The console as a process: its parts, and in which order they live and end."""

from __future__ import annotations

import time
from typing import Final

from starlette.applications import Starlette

from sexton._settings import settings
from sexton_console.config import ConsoleConfig
from sexton_console.mesh.api import TIMEOUT_S, MeshApi
from sexton_console.mesh.follower import Follower
from sexton_console.mesh.takeovers import LeaderWatch
from sexton_console.otlp.receiver import Receiver
from sexton_console.traces.service_logs import ServiceLogs
from sexton_console.traces.store import Bounds, TraceStore
from sexton_console.web.desk import Desk
from sexton_console.web.errands import Errands
from sexton_console.web.guard import allowed_hosts
from sexton_console.web.server import WebServer
from sexton_console.web.sessions import Sessions
from sexton_console.web.site import build_site
from sexton_runtime.clock import Clock
from sexton_runtime.lifecycle import Lifecycle
from sexton_runtime.secrets import AnySecret, Secret

_MIB: Final = 1024 * 1024
_DAY_S: Final = 86_400.0
_PARTS: Final = 8
"""One of them of the room is for what services log, the others for traces."""
_RETRY_FOR_S: Final = 2.5
"""Another coordinator takes the lead within two seconds."""


class Console:
    """One console; `lifecycle` starts and stops it."""

    def __init__(
        self,
        config: ConsoleConfig,
        *,
        client_secret: AnySecret,
        reader_secret: AnySecret,
        clock: Clock,
    ) -> None:
        """With the reader's secret alone it shows everything and changes nothing.

        Raises `ConfigError` where it may not listen there.
        """
        secret = Secret.of(client_secret or reader_secret)
        self.api = MeshApi(
            settings(
                config.api,
                secret=lambda: secret.shown,
                timeout_s=TIMEOUT_S,
                retry_for_s=_RETRY_FOR_S,
            )
        )
        self.traces = TraceStore(
            config.data / "traces.sqlite",
            Bounds(
                max_bytes=config.max_mib * _MIB * (_PARTS - 1) // _PARTS,
                keep_s=config.keep_days * _DAY_S,
                keep_failed_s=config.keep_failed_days * _DAY_S,
            ),
        )
        self.logs = ServiceLogs(
            config.data / "logs.sqlite",
            max_bytes=config.max_mib * _MIB // _PARTS,
            keep_s=config.keep_days * _DAY_S,
        )
        self.receiver = Receiver(
            config.otlp_listen,
            self.traces,
            self.logs,
            forward=config.forward,
            anybody=config.otlp_open,
        )
        self.follower = Follower(self.api, clock)
        watch = LeaderWatch(self.api, clock)
        errands = Errands(clock)
        self.web = WebServer(config.listen, secured=bool(secret), insecure=config.insecure)
        self.web.build = self._site
        self._config = config
        self._desk = Desk(
            api=self.api,
            follower=self.follower,
            watch=watch,
            traces=self.traces,
            logs=self.logs,
            receiver=self.receiver,
            errands=errands,
            sessions=Sessions(
                client_secret, reader_secret, read_only=config.read_only, started_s=time.time()
            ),
            clock=clock,
        )
        self.lifecycle = Lifecycle(
            "console",
            (
                self.traces,
                self.logs,
                self.receiver,
                _Connection(self.api),
                self.follower,
                watch,
                errands,
                self.web,
            ),
        )

    def _site(self) -> Starlette:
        hosts = allowed_hosts(self.web.host, self.web.port, self._config.hosts)
        return build_site(self._desk, hosts=hosts)


class _Connection:
    """The API as a part: nothing to open, everything to close."""

    def __init__(self, api: MeshApi) -> None:
        self._api = api

    async def start(self) -> None:
        """Nothing: the first call connects."""

    async def stop(self) -> None:
        """Closes the connections."""
        await self._api.close()

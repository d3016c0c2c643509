"""The HTTP server as a part of the console's lifecycle."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Final

import uvicorn
from starlette.applications import Starlette

from sexton_runtime.binding import check_listen, parse_address

_STOP_S: Final = 3
"""For requests under way, once it is told to stop."""
_CONNECTIONS: Final = 500


class WebServer:
    """Listens from start to stop. The site is made once the port is known."""

    def __init__(self, listen: str, *, secured: bool, insecure: bool) -> None:
        """Raises `ConfigError` where it may not listen there."""
        check_listen(listen, "console.listen", secured=secured, insecure=insecure)
        self.host, self._wanted_port = parse_address(listen, "console.listen")
        self.port = 0
        self.build: Callable[[], Starlette] | None = None
        self._server: _Server | None = None
        self._site: Starlette | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """Gives `host:port` as bound."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    async def start(self) -> None:
        """Binds and listens. Raises `OSError` where the address is taken."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((self.host, self._wanted_port))
        except OSError as error:
            bound.close()
            raise OSError(f"{self.host}:{self._wanted_port}: {error.strerror}") from None
        self.port = bound.getsockname()[1]
        assert self.build is not None, "the console says what is served"
        self._site = self.build()
        config = uvicorn.Config(
            self._site,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            http="h11",
            ws="none",
            limit_concurrency=_CONNECTIONS,
            timeout_graceful_shutdown=_STOP_S,
        )
        self._server = _Server(config)
        self._serving = asyncio.create_task(self._server.serve([bound]), name="http")
        while not self._server.started and not self._serving.done():  # noqa: ASYNC110 - it has none
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """Ends the live streams, lets requests end, and closes. Idempotent."""
        serving, self._serving = self._serving, None
        if serving is None or self._server is None or self._site is None:
            return
        self._site.state.live.stopping.set()
        self._server.should_exit = True
        await serving


class _Server(uvicorn.Server):
    """Leaves the signals to the console's lifecycle."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

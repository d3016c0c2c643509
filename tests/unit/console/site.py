"""A console's site over the coordinators' own API, on the simulated network: no port."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit

from starlette.applications import Starlette
from unit.coordinator.api.world import World

from sexton._settings import settings
from sexton._wire import AioWire
from sexton_console.mesh.api import MeshApi
from sexton_console.mesh.follower import Follower
from sexton_console.mesh.takeovers import LeaderWatch
from sexton_console.otlp.metrics import Metrics
from sexton_console.otlp.receiver import Received
from sexton_console.traces.model import LogLine, Span
from sexton_console.traces.service_logs import About
from sexton_console.traces.store import Counters, Usage
from sexton_console.web.desk import Desk
from sexton_console.web.errands import Errands
from sexton_console.web.guard import allowed_hosts
from sexton_console.web.sessions import Sessions
from sexton_console.web.site import build_site

CLIENT, READER = "c" * 32, "r" * 32
HOST = "127.0.0.1:7480"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str


class MemoryTraces:
    """The trace store's twin in memory, for a loop whose time is not real."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.found: dict[bytes, list[Span]] = {}
        self.written: dict[bytes, list[LogLine]] = {}

    async def spans(self, trace: bytes) -> list[Span]:
        return self.found.get(trace, [])

    async def lines(self, trace: bytes, *, after: int = 0, limit: int = 10_000) -> list[LogLine]:
        lines = [line for line in self.written.get(trace, []) if line.cursor > after]
        return lines[:limit]

    async def usage(self) -> Usage:
        return Usage(traces=len(self.found), used_bytes=0, max_bytes=10, oldest_ns=None)


class MemoryLogs:
    """The service logs' twin in memory."""

    stored = dropped = used_bytes = 0
    max_bytes = 10

    def __init__(self) -> None:
        self.lines: list[tuple[About | None, LogLine]] = []

    async def newest(
        self, *, service: str = "", severity: int = 0, before: int = 0, limit: int = 100
    ) -> list[LogLine]:
        fits = [line for _, line in self.lines if service in ("", line.service)]
        return [line for line in reversed(fits) if not before or line.cursor < before][:limit]

    async def about(self, what: About, *, limit: int = 200) -> list[LogLine]:
        return [line for about, line in self.lines if about and about.run == what.run]

    async def services(self) -> list[str]:
        return sorted({line.service for _, line in self.lines})


class NoReceiver:
    """What pages ask of a receiver that has received nothing."""

    received = Received()
    metrics = Metrics()
    forwarder = None


class Site:
    """Asks the site as a browser with a login does, or as somebody else."""

    def __init__(self, world: World, *, client: str = CLIENT, read_only: bool = False) -> None:
        wire = AioWire(world.transport.channel)
        self.api = MeshApi(settings("127.0.0.1:7400", secret="", retry_for_s=0.1), wire)
        self.traces = MemoryTraces()
        clock = WorldClock(world)
        self.follower = Follower(self.api, clock)
        self.sessions = Sessions(client, READER if client else "", read_only=read_only)
        untyped: Any = self.traces
        receiver: Any = NoReceiver()
        self.logs = MemoryLogs()
        logs: Any = self.logs
        self.desk = Desk(
            api=self.api, follower=self.follower, watch=LeaderWatch(self.api, clock),
            traces=untyped, logs=logs, receiver=receiver, errands=Errands(clock),
            sessions=self.sessions, clock=clock,
        )  # fmt: skip
        self.app: Starlette = build_site(self.desk, hosts=allowed_hosts("127.0.0.1", 7480, ()))

    async def get(self, url: str, **headers: str) -> Answer:
        """Asks as an operator's browser, unless the headers say otherwise."""
        return await self.ask("GET", url, headers)

    async def post(self, url: str, form: Mapping[str, str], **headers: str) -> Answer:
        return await self.ask("POST", url, headers, urlencode(form).encode())

    async def ask(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b""
    ) -> Answer:
        parts = urlsplit(url)
        given = {"host": HOST, "accept": "text/html", "authorization": f"Bearer {CLIENT}"}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        if body:
            given["content-type"] = "application/x-www-form-urlencoded"
            given.setdefault("content-length", str(len(body)))
        scope = {
            "type": "http", "method": method, "path": parts.path, "raw_path": parts.path.encode(),
            "query_string": parts.query.encode(), "scheme": "http", "root_path": "",
            "server": ("127.0.0.1", 7480), "client": ("127.0.0.1", 1), "http_version": "1.1",
            "headers": [(n.encode(), v.encode("latin-1")) for n, v in given.items() if v],
        }  # fmt: skip
        status, found, data = 0, {}, bytearray()

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            nonlocal status, found
            if message["type"] == "http.response.start":
                status = message["status"]
                found = {n.decode(): v.decode("latin-1") for n, v in message["headers"]}
            else:
                data.extend(message.get("body", b""))

        untyped: Any = (scope, receive, send)
        await self.app(*untyped)
        return Answer(status, found, data.decode())

    async def cookie(self, secret: str = CLIENT) -> str:
        """Logs a browser in; gives its cookie."""
        answer = await self.post("/login", {"secret": secret}, authorization="")
        assert answer.status == 303, answer.text
        return answer.headers["set-cookie"].split(";")[0]


class WorldClock:
    """Mesh time as a wall clock."""

    def __init__(self, world: World) -> None:
        self._world = world

    def wall_ns(self) -> int:
        return self._world.mesh_now()

    boot_ns = monotonic_ns = wall_ns

    def boot_id(self) -> str:
        return "boot"

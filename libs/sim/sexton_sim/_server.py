"""An in-memory server in the shape of `grpc.aio.Server`: handlers, interceptors, stopping."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import grpc
from grpc import aio

from sexton_sim._server_call import ServerCall
from sexton_sim._subchannel import ChannelSettings
from sexton_sim._wire import MAX_METADATA_BYTES, CallDetails, Status, metadata_bytes, too_large
from sexton_sim.network import Endpoint, Network

if TYPE_CHECKING:
    from sexton_sim._connection import Connection, Exchange


class SimServer(aio.Server):
    """A server on the in-memory network; made by `SimTransport`."""

    def __init__(
        self,
        network: Network,
        interceptors: Sequence[aio.ServerInterceptor],
        settings: ChannelSettings,
    ) -> None:
        self.network = network
        self.endpoint = Endpoint.of_caller()
        self.max_message_bytes = settings.max_message_bytes
        self._settings = settings
        self.listening = False
        self._interceptors = tuple(interceptors)
        self._generic: list[grpc.GenericRpcHandler] = []
        self._methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        self._connections: list[Connection] = []
        self._calls: dict[ServerCall, asyncio.Task[None]] = {}
        self._terminated = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        if self.endpoint.process is not None:
            self.endpoint.process.on_death(self._die)

    # Server

    def add_generic_rpc_handlers(
        self, generic_rpc_handlers: Iterable[grpc.GenericRpcHandler]
    ) -> None:
        """Adds handlers that are asked for each method."""
        self._generic.extend(generic_rpc_handlers)

    def add_registered_method_handlers(
        self, service_name: str, method_handlers: Mapping[str, grpc.RpcMethodHandler[Any, Any]]
    ) -> None:
        """Adds a service's handlers by name."""
        for method, handler in method_handlers.items():
            self._methods[f"/{service_name}/{method}"] = handler

    def add_insecure_port(self, address: str) -> int:
        """Binds an address. Raises `RuntimeError` where it is taken."""
        try:
            return self.network.bind(address, self)
        except OSError as error:
            raise RuntimeError(f"Failed to bind to address {address}; {error}") from error

    def add_secure_port(self, address: str, server_credentials: grpc.ServerCredentials) -> int:
        """Refuses: the in-memory network has no TLS."""
        raise NotImplementedError(f"no TLS in a simulation: {address}, {server_credentials!r}")

    async def start(self) -> None:
        """Begins to accept connections."""
        self.listening = True
        await asyncio.sleep(0)

    async def stop(self, grace: float | None) -> None:
        """Refuses new calls at once, cancels those left after `grace` seconds; idempotent."""
        if not self.listening and not self._calls:
            self.network.unbind(self)
            self._terminated.set()
            return
        self.listening = False
        self.network.unbind(self)
        for connection in self._connections:
            connection.go_away()
        if grace and self._calls:
            try:
                async with asyncio.timeout(grace):
                    await self._idle.wait()
            except TimeoutError:
                pass
        for connection in self._connections:
            connection.fail_server()
        while self._calls:
            await self._idle.wait()
        self._connections.clear()
        self._terminated.set()

    async def wait_for_termination(self, timeout: float | None = None) -> bool:
        """Waits for the end of `stop`; tells whether the time ran out first."""
        try:
            async with asyncio.timeout(timeout):
                await self._terminated.wait()
        except TimeoutError:
            return True
        return False

    # What connections tell

    def accept(self, connection: Connection) -> None:
        """Takes a connection."""
        self._connections = [it for it in self._connections if it.server_open]
        self._connections.append(connection)
        self.endpoint.later(self._settings.keepalive_time_s, self._watch, connection)

    def _watch(self, connection: Connection) -> None:
        """Pings the client now and then, whether or not there are calls."""
        connection.ping_client()
        if not connection.server_open:
            return
        settings = self._settings
        if connection.client_silent():
            self.endpoint.later(settings.keepalive_timeout_s, self._ping, connection)
        else:
            self.endpoint.later(settings.keepalive_time_s, self._watch, connection)

    def _ping(self, connection: Connection) -> None:
        if connection.server_open and connection.client_silent():
            connection.fail_server()
        else:
            self._watch(connection)

    def open(self, exchange: Exchange) -> None:
        """Begins a call."""
        if not self.listening or not self.endpoint.alive:
            exchange.refuse()
            return
        head = exchange.head
        refused = too_large("SERVER", len(head.message or b""), self.max_message_bytes)
        size = metadata_bytes(head.metadata)
        if size > MAX_METADATA_BYTES:
            details = f"received metadata size exceeds hard limit ({size} vs. {MAX_METADATA_BYTES})"
            refused = Status(grpc.StatusCode.RESOURCE_EXHAUSTED, details)
        if refused is not None:
            exchange.reply_status(refused)
            return
        call = ServerCall(self, exchange)
        exchange.server = call
        loop = asyncio.get_running_loop()
        self._idle.clear()
        task = loop.create_task(call.run(), context=self.endpoint.context.copy())
        self._calls[call] = task
        call.begin(task)
        task.add_done_callback(functools.partial(self._ended, call), context=self.endpoint.context)

    async def resolve(self, details: CallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Finds the handler of a call through the interceptors."""
        found: grpc.RpcMethodHandler[Any, Any] | None = await _intercept(
            iter(self._interceptors), self._find, details
        )
        return found

    def _find(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler = self._methods.get(details.method)
        if handler is not None:
            return handler
        for generic in self._generic:
            found = generic.service(details)
            if found is not None:
                return found
        return None

    def _ended(self, call: ServerCall, _task: asyncio.Task[None]) -> None:
        self._calls.pop(call, None)
        call.run_callbacks()
        if not self._calls:
            self._idle.set()

    def _die(self) -> None:
        self.listening = False
        self._calls.clear()
        for connection in self._connections:
            connection.fail_server()


async def _intercept(interceptors: Any, find: Any, details: Any) -> Any:
    interceptor = next(interceptors, None)
    if interceptor is None:
        return find(details)
    continuation = functools.partial(_intercept, interceptors, find)
    return await interceptor.intercept_service(continuation, details)

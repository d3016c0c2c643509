"""What nobody is told of: half-open connections, machines without power, frames that come late."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest
from grpc import aio

from sexton_sim.loop import SimLoop
from sexton_sim.network import Network
from sexton_sim.process import Process
from sexton_sim.transport import SimTransport

S = 10**9
ADDRESS = "store:7000"


class Mesh:
    """A server that hears what a client says on one stream, and when the stream ends."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.network = Network(1)
        self.transport = SimTransport(self.network)
        self.heard: list[bytes] = []
        self.ended_ns = 0
        self.server = loop.process("server")
        self.server.spawn(self._serve())
        self.client = loop.process("client")

    def run(self, scenario: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            await asyncio.sleep(0.01)
            await scenario()

        self.loop.run(main())

    def talk(self, process: Process) -> asyncio.Task[grpc.StatusCode]:
        """Says a number every second, until the stream ends; gives how."""
        return process.spawn(self._talk())

    async def _talk(self) -> grpc.StatusCode:
        call: Any = self.transport.channel(ADDRESS).stream_stream("/Test/listen")()
        try:
            for number in range(1_000):
                await call.write(b"%d" % number)
                await asyncio.sleep(1)
        except (aio.AioRpcError, asyncio.InvalidStateError):
            pass
        code: grpc.StatusCode = await call.code()
        return code

    async def _serve(self) -> None:
        async def listen(requests: Any, context: Any) -> Any:
            try:
                async for request in requests:
                    self.heard.append(request)
                    yield b""
            finally:
                self.ended_ns = self.loop.now_ns

        server = self.transport.server()
        handlers = {"listen": grpc.stream_stream_rpc_method_handler(listen)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Test", handlers),))
        self.transport.bind(server, ADDRESS)
        await server.start()
        await server.wait_for_termination()


@pytest.fixture
def mesh(loop: SimLoop) -> Mesh:
    return Mesh(loop)


def test_both_ends_find_out_by_themselves_that_a_connection_is_half_open(mesh: Mesh) -> None:
    async def scenario() -> None:
        talking = mesh.talk(mesh.client)
        await asyncio.sleep(2.5)
        assert mesh.network.connected() == [("client", "server")]
        mesh.network.half_open("client", "server")
        await asyncio.sleep(5)
        assert mesh.heard == [b"0", b"1", b"2"]
        assert not talking.done()
        assert await talking is grpc.StatusCode.UNAVAILABLE
        assert mesh.loop.now_ns < 20 * S
        await asyncio.sleep(20 - mesh.loop.now_ns / S)
        assert 2 * S < mesh.ended_ns < 20 * S

    mesh.run(scenario)


def test_a_server_finds_out_by_itself_that_its_clients_machine_lost_power(mesh: Mesh) -> None:
    async def scenario() -> None:
        mesh.talk(mesh.client)
        await asyncio.sleep(2.5)
        mesh.network.power_off("client")
        mesh.client.crash()
        await asyncio.sleep(5)
        assert mesh.ended_ns == 0
        await asyncio.sleep(12)
        assert mesh.ended_ns > 7 * S

    mesh.run(scenario)


def test_a_client_that_is_back_tells_the_server_that_it_knows_nothing(mesh: Mesh) -> None:
    async def scenario() -> None:
        mesh.talk(mesh.client)
        await asyncio.sleep(9)
        mesh.network.power_off("client")
        mesh.client.crash()
        mesh.network.power_on("client")
        await asyncio.sleep(2)
        assert 9 * S < mesh.ended_ns < 11 * S

    mesh.run(scenario)


def test_a_reply_is_lost_with_its_connection_once(mesh: Mesh) -> None:
    struck: list[int] = []

    async def scenario() -> None:
        mesh.network.break_next("server", "client", lambda: struck.append(len(mesh.heard)))
        assert await mesh.talk(mesh.client) is grpc.StatusCode.UNAVAILABLE
        assert struck == [1]
        talking = mesh.talk(mesh.client)
        await asyncio.sleep(5)
        assert not talking.done()

    mesh.run(scenario)


def test_what_a_client_had_said_before_it_gave_up_may_come_late_and_in_order(
    loop: SimLoop,
) -> None:
    mesh = Mesh(loop)

    async def scenario() -> None:
        clients = [loop.process(f"client-{number}") for number in range(20)]
        for client in clients:
            mesh.talk(client)
        await asyncio.sleep(0.5)
        for client in clients:
            mesh.network.cut(client.name, "server")
        await asyncio.sleep(4)
        for client in clients:
            client.crash()
        mesh.heard.clear()
        mesh.network.heal_all()
        await asyncio.sleep(1)
        late = mesh.network.injected["late_frame"]
        assert 0 < late < 80
        counts = [mesh.heard.count(b"%d" % number) for number in range(1, 5)]
        # The news that the client is gone may find some of it unread.
        assert 20 > counts[0] > 0
        assert counts == sorted(counts, reverse=True)

    mesh.run(scenario)

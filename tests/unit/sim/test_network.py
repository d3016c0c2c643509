"""What the simulated network does to calls: cuts, stalls, resets, ghosts, and dead ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest
from grpc import aio

from sexton_sim.loop import SimLoop
from sexton_sim.network import Event, LinkProfile, Network
from sexton_sim.process import Process
from sexton_sim.transport import SimTransport

S = 10**9
ADDRESS = "store:7000"


class Mesh:
    """A server that counts in one process, a client in another."""

    def __init__(self, loop: SimLoop, profile: LinkProfile | None = None) -> None:
        self.loop = loop
        self.events: list[Event] = []
        self.network = Network(1, profile=profile, observer=self.events.append)
        self.transport = SimTransport(self.network)
        self.served: list[tuple[int, bytes]] = []
        self.cancelled = 0
        self.server = self.start_server()
        self.client = loop.process("client")

    def start_server(self) -> Process:
        process = self.server = self.loop.process("server")
        process.spawn(self._serve())
        return process

    async def call(self, request: bytes = b"x", **options: Any) -> bytes:
        """Makes a call as the client's process."""
        answer: bytes = await self.client.spawn(self._call(request, options))
        return answer

    async def code(self, request: bytes = b"x", **options: Any) -> grpc.StatusCode:
        """Makes a call that must fail; gives the code."""
        with pytest.raises(aio.AioRpcError) as caught:
            await self.call(request, **options)
        return caught.value.code()

    def run(self, scenario: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            await asyncio.sleep(0.01)
            await scenario()

        self.loop.run(main())

    async def _call(self, request: bytes, options: dict[str, Any]) -> bytes:
        if not hasattr(self, "channel"):
            self.channel: Any = self.transport.channel(ADDRESS)
        return await self.channel.unary_unary("/Test/add")(request, **options)

    async def _serve(self) -> None:
        async def add(request: bytes, context: Any) -> bytes:
            self.served.append((self.loop.now_ns, request))
            if request == b"hang":
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    self.cancelled += 1
                    raise
            return b"%d" % len(self.served)

        async def pour(request: bytes, context: Any) -> Any:
            number = 0
            while True:
                yield b"%d" % number
                number += 1
                await asyncio.sleep(1)

        server = self.transport.server()
        handlers = {
            "add": grpc.unary_unary_rpc_method_handler(add),
            "pour": grpc.unary_stream_rpc_method_handler(pour),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Test", handlers),))
        self.transport.bind(server, ADDRESS)
        await server.start()
        await server.wait_for_termination()


@pytest.fixture
def mesh(loop: SimLoop) -> Mesh:
    return Mesh(loop)


def test_a_call_takes_two_ways_of_time(loop: SimLoop) -> None:
    mesh = Mesh(loop, LinkProfile(latency_s=0.25, jitter_s=0))

    async def scenario() -> None:
        await mesh.call()
        before = loop.now_ns
        await mesh.call()
        assert loop.now_ns - before == S // 2

    mesh.run(scenario)


def test_a_cut_way_out_keeps_the_request_until_it_is_mended(mesh: Mesh) -> None:
    async def scenario() -> None:
        await mesh.call()
        mesh.network.cut("client", "server")
        waiting = asyncio.ensure_future(mesh.call(timeout=30))
        await asyncio.sleep(3)
        assert len(mesh.served) == 1
        mesh.network.heal("client", "server")
        assert await waiting == b"2"

    mesh.run(scenario)


def test_a_cut_way_back_lets_the_request_have_its_effect(mesh: Mesh) -> None:
    async def scenario() -> None:
        await mesh.call()
        mesh.network.cut("server", "client")
        assert await mesh.code(timeout=2) is grpc.StatusCode.DEADLINE_EXCEEDED
        assert len(mesh.served) == 2

    mesh.run(scenario)


def test_a_silent_peer_is_found_out_by_keepalive(mesh: Mesh) -> None:
    async def scenario() -> None:
        await mesh.call()
        mesh.network.partition(["client"], ["server"])
        before = mesh.loop.now_ns
        assert await mesh.code(b"hang", timeout=100) is grpc.StatusCode.UNAVAILABLE
        assert mesh.loop.now_ns - before <= 16 * S
        assert await mesh.code(timeout=100) is grpc.StatusCode.UNAVAILABLE  # can't connect
        mesh.network.heal_all()
        assert await mesh.call(timeout=100, wait_for_ready=True)

    mesh.run(scenario)


def test_a_suspended_server_is_silent_and_answers_when_it_goes_on(mesh: Mesh) -> None:
    async def scenario() -> None:
        await mesh.call()
        mesh.server.suspend()
        waiting = asyncio.ensure_future(mesh.call(timeout=30))
        await asyncio.sleep(4)
        assert not waiting.done()
        mesh.server.resume()
        assert await waiting == b"2"

    mesh.run(scenario)


def test_nobody_connects_to_a_suspended_server(mesh: Mesh) -> None:
    async def scenario() -> None:
        mesh.server.suspend()
        before = mesh.loop.now_ns
        assert await mesh.code(timeout=30) is grpc.StatusCode.UNAVAILABLE
        assert mesh.loop.now_ns - before == S

    mesh.run(scenario)


def test_a_killed_server_resets_its_connections_and_refuses_new_ones(mesh: Mesh) -> None:
    async def scenario() -> None:
        await mesh.call()
        waiting = asyncio.ensure_future(mesh.code(b"hang", timeout=30))
        await asyncio.sleep(0.1)
        before = mesh.loop.now_ns
        mesh.server.crash()
        assert await waiting is grpc.StatusCode.UNAVAILABLE
        assert await mesh.code(timeout=30) is grpc.StatusCode.UNAVAILABLE
        assert mesh.loop.now_ns - before < S
        mesh.start_server()
        assert await mesh.call(timeout=30, wait_for_ready=True)
        assert mesh.cancelled == 0

    mesh.run(scenario)


def test_a_server_without_power_says_nothing_until_it_is_back(mesh: Mesh) -> None:
    async def scenario() -> None:
        await mesh.call()
        mesh.network.power_off("server")
        mesh.server.crash()
        waiting = asyncio.ensure_future(mesh.code(b"late", timeout=8))
        await asyncio.sleep(2)
        assert not waiting.done()
        mesh.start_server()
        await asyncio.sleep(0.01)
        assert await mesh.code(b"later", timeout=8) is grpc.StatusCode.UNAVAILABLE
        assert await waiting is grpc.StatusCode.UNAVAILABLE
        assert [request for _, request in mesh.served] == [b"x"]

    mesh.run(scenario)


def test_a_stream_from_a_machine_that_was_off_is_found_out_by_keepalive(mesh: Mesh) -> None:
    async def follow() -> int:
        call = mesh.transport.channel(ADDRESS).unary_stream("/Test/pour")(b"")
        last_ns = 0
        while True:
            try:
                await call.read()
            except aio.AioRpcError:
                return mesh.loop.now_ns - last_ns
            last_ns = mesh.loop.now_ns

    async def scenario() -> None:
        task = mesh.client.spawn(follow())
        await asyncio.sleep(3)
        mesh.network.power_off("server")
        mesh.server.crash()
        await asyncio.sleep(1)
        mesh.start_server()
        assert await task <= 11 * S

    mesh.run(scenario)


def test_a_killed_client_has_its_handlers_cancelled(mesh: Mesh) -> None:
    async def scenario() -> None:
        task = mesh.client.spawn(mesh._call(b"hang", {"timeout": 100}))
        await asyncio.sleep(1)
        mesh.client.crash()
        await asyncio.sleep(1)
        assert mesh.cancelled == 1
        assert not task.done()
        assert not mesh.network.connections

    mesh.run(scenario)


def test_a_reset_breaks_both_ends(mesh: Mesh) -> None:
    async def scenario() -> None:
        waiting = asyncio.ensure_future(mesh.code(b"hang", timeout=30))
        await asyncio.sleep(1)
        mesh.network.reset("client", "server")
        assert await waiting is grpc.StatusCode.UNAVAILABLE
        await asyncio.sleep(1)
        assert mesh.cancelled == 1
        assert await mesh.call(timeout=5) == b"2"

    mesh.run(scenario)


def test_a_stream_breaks_with_its_connection(mesh: Mesh) -> None:
    async def follow() -> list[bytes]:
        call = mesh.transport.channel(ADDRESS).unary_stream("/Test/pour")(b"")
        got: list[bytes] = [await call.read() for _ in range(3)]
        with pytest.raises(aio.AioRpcError) as caught:
            await call.read()
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        return got

    async def scenario() -> None:
        task = mesh.client.spawn(follow())
        await asyncio.sleep(2.5)
        mesh.network.reset("client", "server")
        assert await task == [b"0", b"1", b"2"]

    mesh.run(scenario)


def test_a_request_may_come_twice(loop: SimLoop) -> None:
    mesh = Mesh(loop, LinkProfile(duplicate_p=1.0, ghost_s=(3.0, 4.0)))

    async def scenario() -> None:
        assert await mesh.call(b"once") == b"1"
        await asyncio.sleep(5)
        assert [request for _, request in mesh.served] == [b"once", b"once"]
        assert mesh.served[1][0] - mesh.served[0][0] >= 2 * S
        assert mesh.network.injected["duplicate"] == 1

    mesh.run(scenario)


def test_a_request_that_was_given_up_may_come_as_a_ghost_to_the_next_server(mesh: Mesh) -> None:
    async def scenario() -> None:
        await mesh.call()
        mesh.network.cut("client", "server")
        for number in range(20):
            mesh.client.spawn(mesh._call(b"%d" % number, {"timeout": 1})).add_done_callback(
                lambda task: task.exception()
            )
        await asyncio.sleep(2)
        mesh.server.crash()
        mesh.network.reset("client", "server")
        mesh.start_server()
        await asyncio.sleep(1)
        mesh.network.heal("client", "server")
        await asyncio.sleep(1)
        ghosts = [request for _, request in mesh.served[1:]]
        assert 0 < len(ghosts) < 20
        assert mesh.network.injected["ghost"] == len(ghosts)

    mesh.run(scenario)


def test_a_reply_may_be_lost_after_its_effect(loop: SimLoop) -> None:
    mesh = Mesh(loop, LinkProfile(reset_p=0.3))

    async def scenario() -> None:
        effects_without_answer = 0
        for _ in range(40):
            served = len(mesh.served)
            try:
                await mesh.call(timeout=5, wait_for_ready=True)
            except aio.AioRpcError:
                effects_without_answer += len(mesh.served) - served
        assert effects_without_answer > 3

    mesh.run(scenario)


def test_calls_overtake_each_other_but_a_stream_keeps_its_order(loop: SimLoop) -> None:
    mesh = Mesh(loop, LinkProfile(latency_s=0.001, jitter_s=0.05))

    async def follow() -> list[bytes]:
        call = mesh.transport.channel(ADDRESS).unary_stream("/Test/pour")(b"")
        got = [await call.read() for _ in range(20)]
        call.cancel()
        return got

    async def scenario() -> None:
        await mesh.call()
        calls = [asyncio.ensure_future(mesh.call(b"%02d" % number)) for number in range(20)]
        await asyncio.gather(*calls)
        arrived = [request for _, request in mesh.served[1:]]
        assert sorted(arrived) != arrived
        assert await mesh.client.spawn(follow()) == [b"%d" % number for number in range(20)]

    mesh.run(scenario)


def test_a_wall_clock_jump_moves_what_a_handler_takes_for_its_remaining_time(
    loop: SimLoop,
) -> None:
    mesh = Mesh(loop)
    seen: list[float] = []

    async def scenario() -> None:
        async def look(request: bytes, context: Any) -> bytes:
            seen.append(context.time_remaining())
            mesh.server.machine.jump_wall(3600 * S)
            seen.append(context.time_remaining())
            return b""

        async def serve() -> None:
            server = mesh.transport.server()
            handlers = {"look": grpc.unary_unary_rpc_method_handler(look)}
            server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler("Test", handlers),)
            )
            mesh.transport.bind(server, "store:7001")
            await server.start()
            await server.wait_for_termination()

        async def call() -> None:
            await mesh.transport.channel("store:7001").unary_unary("/Test/look")(b"", timeout=9)

        mesh.server.spawn(serve())
        await asyncio.sleep(0.1)
        await mesh.client.spawn(call())

    mesh.run(scenario)
    assert seen[0] == pytest.approx(9, abs=0.01)
    assert seen[1] == 0


def test_two_runs_of_a_seed_tell_the_observer_the_same() -> None:
    def events() -> list[Event]:
        loop = SimLoop()
        mesh = Mesh(loop, LinkProfile(stall_p=0.2, reset_p=0.1, duplicate_p=0.2))

        async def scenario() -> None:
            for number in range(30):
                try:
                    await mesh.call(b"%d" % number, timeout=2)
                except aio.AioRpcError:
                    await asyncio.sleep(0.5)

        mesh.run(scenario)
        return mesh.events

    first = events()
    assert len(first) > 60
    assert events() == first


def test_the_transport_works_on_an_ordinary_loop_too() -> None:
    async def main() -> None:
        async def echo(request: bytes, context: Any) -> bytes:
            return request

        transport = SimTransport(Network())
        server = transport.server()
        handlers = {"echo": grpc.unary_unary_rpc_method_handler(echo)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Test", handlers),))
        port = transport.bind(server, "127.0.0.1:0")
        await server.start()
        async with transport.channel(f"localhost:{port}") as channel:
            assert await channel.unary_unary("/Test/echo")(b"hello", timeout=5) == b"hello"
        await server.stop(None)

    asyncio.run(main())

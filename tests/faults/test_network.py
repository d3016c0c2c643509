"""The network of the process meshes does to bytes what it says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from faults.network import HOST, Network, Roughness

PATIENCE_S = 10.0


@pytest.fixture
def network() -> Iterator[Network]:
    network = Network()
    yield network
    network.stop()


@pytest.fixture
def server(network: Network) -> Iterator[socket.socket]:
    with socket.create_server((HOST, 0)) as listening:
        network.name(listening.getsockname()[1], "server")
        yield listening


class Pair:
    """A connection from `client` to `server` through the network."""

    def __init__(self, network: Network, server: socket.socket) -> None:
        port = network.forward("client", server.getsockname()[1])
        self.client = socket.create_connection((HOST, port), timeout=PATIENCE_S)
        self.server = server.accept()[0]
        self.server.settimeout(PATIENCE_S)
        self.client.sendall(b"!")
        assert self.server.recv(1) == b"!"  # it is there from end to end

    def close(self) -> None:
        self.client.close()
        self.server.close()


@pytest.fixture
def pair(network: Network, server: socket.socket) -> Iterator[Pair]:
    pair = Pair(network, server)
    yield pair
    pair.close()


def test_bytes_pass_both_ways(pair: Pair) -> None:
    pair.client.sendall(b"ask")
    assert pair.server.recv(10) == b"ask"
    pair.server.sendall(b"answer")
    assert pair.client.recv(10) == b"answer"


def test_a_door_connects_to_whom_it_is_told(network: Network, server: socket.socket) -> None:
    door = network.environment("client")["GRPC_ADDRESS_HTTP_PROXY"].rpartition(":")[2]
    with socket.create_connection((HOST, int(door)), timeout=PATIENCE_S) as client:
        client.sendall(b"CONNECT %s:%d HTTP/1.1\r\n\r\nearly" % (b"x", server.getsockname()[1]))
        with server.accept()[0] as accepted:
            assert client.recv(100) == b"HTTP/1.1 200 Connection established\r\n\r\n"
            assert accepted.recv(10) == b"early"


def test_a_cut_holds_one_direction_back_until_it_is_healed(network: Network, pair: Pair) -> None:
    network.cut("client", "server")
    pair.client.sendall(b"lost")
    pair.server.sendall(b"heard")
    assert pair.client.recv(10) == b"heard"
    pair.server.settimeout(0.05)
    with pytest.raises(TimeoutError):
        pair.server.recv(10)
    network.heal()
    pair.server.settimeout(PATIENCE_S)
    assert pair.server.recv(10) == b"lost"


def test_the_end_of_a_connection_passes_no_cut(network: Network, pair: Pair) -> None:
    network.cut("client", "server")
    pair.client.sendall(b"last")
    pair.client.close()
    pair.server.settimeout(0.05)
    with pytest.raises(TimeoutError):
        pair.server.recv(10)
    network.heal()
    pair.server.settimeout(PATIENCE_S)
    assert pair.server.recv(10) == b"last"
    assert pair.server.recv(10) == b""


def test_nobody_connects_where_answers_are_lost(network: Network, server: socket.socket) -> None:
    network.cut("server", "client")
    server.settimeout(0.05)
    port = network.forward("client", server.getsockname()[1])
    with socket.create_connection((HOST, port), timeout=PATIENCE_S) as client:
        with pytest.raises(TimeoutError):
            server.accept()
        network.heal()
        server.settimeout(PATIENCE_S)
        with server.accept()[0] as accepted:
            accepted.sendall(b"there")
            assert client.recv(10) == b"there"


def test_a_reset_is_seen_at_both_ends(network: Network, pair: Pair) -> None:
    assert network.reset("server") == 1
    for end in (pair.client, pair.server):
        with pytest.raises(ConnectionResetError):
            end.recv(10)


def test_a_rough_network_is_late_and_loses_nothing(network: Network, pair: Pair) -> None:
    network.rough("server", Roughness(delay_ms=2, stalls=0.0, resets=0.0))
    sent = bytes(range(256)) * 4_000
    threading.Thread(target=pair.client.sendall, args=(sent,), daemon=True).start()
    received = b""
    while len(received) < len(sent):
        received += pair.server.recv(65_536)
    assert received == sent
    assert network.counts["delayed"] > 1


def test_resets_come_with_their_probability(network: Network, pair: Pair) -> None:
    network.rough("client", Roughness(delay_ms=0, stalls=0.0, resets=1.0))
    pair.client.sendall(b"x")
    with pytest.raises(ConnectionResetError):
        pair.server.recv(10)
    assert network.counts["reset"] == 1

"""TLS and mTLS by files: who is let in, and files that are replaced while they are used."""
# ruff: noqa: ASYNC240 - tiny local files

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from grpc import aio
from integration.runtime.certificates import Authority

from sexton import errors
from sexton.internal.v1 import store_pb2 as pb
from sexton.internal.v1 import store_pb2_grpc
from sexton.tls import Tls, TlsFiles
from sexton_runtime.config import ConfigError, Sources
from sexton_runtime.randomness import SystemRandomness
from sexton_runtime.rpc.grpc_transport import GrpcTransport
from sexton_runtime.rpc.policy_channel import PolicyChannel
from sexton_runtime.rpc.server import RpcServer, Service
from sexton_runtime.secrets import Role
from sexton_runtime.telemetry import Telemetry
from sexton_runtime.tls import MeshTls, TlsConfig, load_tls


class Named(store_pb2_grpc.StoreServiceServicer):
    """Notes who calls, and tells over a stream when it is told to."""

    def __init__(self) -> None:
        self.callers: list[list[str]] = []
        self.tell = asyncio.Event()

    async def Get(self, request: pb.GetRequest, context: Any) -> pb.GetResponse:
        names = context.auth_context().get("x509_subject_alternative_name", [])
        self.callers.append([name.decode() for name in names])
        return pb.GetResponse(revision=7)

    async def Watch(self, request: pb.WatchRequest, context: Any) -> AsyncIterator[Any]:
        yield pb.WatchResponse(progress_revision=1)
        await self.tell.wait()
        yield pb.WatchResponse(progress_revision=2)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    monkeypatch.setattr("sexton._watched_files.LOOK_EVERY_S", 0.0)
    return Authority(tmp_path / "ours")


async def serve(stack: AsyncExitStack, tls: Tls, *, mutual: bool = False) -> tuple[Named, str]:
    named = Named()
    register = partial(store_pb2_grpc.add_StoreServiceServicer_to_server, named)
    server = RpcServer(
        transport=GrpcTransport(tls=MeshTls(TlsFiles(tls), require_client_cert=mutual)),
        listen="127.0.0.1:0",
        services=(Service("sexton.internal.v1.StoreService", frozenset({Role.MESH}), register),),
        secrets={Role.MESH: "m" * 32},
        randomness=SystemRandomness(),
        telemetry=Telemetry(),
        grace_s=0.0,
    )
    await server.start()
    stack.push_async_callback(server.stop)
    return named, server.address


def stub_of(stack: AsyncExitStack, address: str, tls: Tls | None) -> Any:
    transport = GrpcTransport(tls=MeshTls(TlsFiles(tls)) if tls is not None else None)
    channel = PolicyChannel(transport.channel(address), secret="m" * 32)
    stack.push_async_callback(channel.close)
    return store_pb2_grpc.StoreServiceStub(channel)


async def refused(stub: Any) -> str:
    with pytest.raises(errors.Unavailable) as caught:
        await stub.Get(pb.GetRequest(), timeout=5)
    return str(caught.value)


async def test_only_those_who_know_the_authority_are_spoken_to(stack, authority, tmp_path) -> None:
    _, address = await serve(stack, authority.issue("server", "127.0.0.1"))
    stub = stub_of(stack, address, Tls(ca=authority.ca))
    assert (await stub.Get(pb.GetRequest())).revision == 7
    await refused(stub_of(stack, address, None))
    await refused(stub_of(stack, address, Tls(ca=Authority(tmp_path / "another").ca)))


async def test_the_name_in_the_certificate_is_the_address_or_the_one_that_is_set(
    stack, authority
) -> None:
    _, address = await serve(stack, authority.issue("server", "sexton.example"))
    assert "Hostname Verification" in await refused(stub_of(stack, address, Tls(ca=authority.ca)))
    named = Tls(ca=authority.ca, server_name="sexton.example")
    assert (await stub_of(stack, address, named).Get(pb.GetRequest())).revision == 7


async def test_mutual_tls_lets_in_whom_the_authority_has_signed(stack, authority, tmp_path) -> None:
    server = authority.issue("server", "127.0.0.1")
    named, address = await serve(stack, server, mutual=True)
    await stub_of(stack, address, authority.issue("worker", "worker-1")).Get(pb.GetRequest())
    assert named.callers == [["worker-1"]]
    await refused(stub_of(stack, address, Tls(ca=authority.ca)))
    stranger = Authority(tmp_path / "another").issue("worker", "worker-1")
    await refused(stub_of(stack, address, replace(stranger, ca=authority.ca)))
    assert named.callers == [["worker-1"]]


async def test_what_is_replaced_counts_from_the_next_connection_on_and_breaks_no_stream(
    stack, authority
) -> None:
    named, address = await serve(stack, authority.issue("server", "127.0.0.1"), mutual=True)
    stub = stub_of(stack, address, authority.issue("worker", "before"))
    stream = stub.Watch(pb.WatchRequest())
    assert (await stream.read()).progress_revision == 1
    shown = await serial(address, authority)
    authority.issue("worker", "after")
    authority.issue("server", "127.0.0.1")
    await stub.Get(pb.GetRequest())
    assert named.callers == [["after"]]
    assert await serial(address, authority) != shown
    named.tell.set()
    assert (await stream.read()).progress_revision == 2
    assert await stream.read() is aio.EOF


async def test_files_that_do_not_belong_together_are_not_taken(
    stack, authority, caplog: pytest.LogCaptureFixture
) -> None:
    named, address = await serve(stack, authority.issue("server", "127.0.0.1"), mutual=True)
    worker = authority.issue("worker", "before")
    stub = stub_of(stack, address, worker)
    key = Path(str(worker.key))
    kept = key.read_bytes()
    key.write_text("half of a k")
    with caplog.at_level(logging.WARNING):
        await stub.Get(pb.GetRequest())
        await stub.Get(pb.GetRequest())
    assert [record.message[:36] for record in caplog.records] == [
        "New TLS files can't be used, the one"
    ]
    key.write_bytes(kept)
    key.unlink()
    with caplog.at_level(logging.WARNING):
        await stub.Get(pb.GetRequest())
        await stub.Get(pb.GetRequest())
    assert named.callers == [["before"]] * 4
    assert [record.message[-27:] for record in caplog.records[1:]] == [
        "(No such file or directory)"
    ]


async def serial(address: str, authority: Authority) -> str:
    """Gives the number of the certificate that a server shows."""
    context = ssl.create_default_context(cafile=str(authority.ca))
    # Anybody sees the server's certificate; it is the handshake's end that is refused.
    host, _, port = address.rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    number = writer.get_extra_info("peercert")["serialNumber"]
    writer.close()
    return str(number)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"cert": "server.pem", "key": "server.key"}, "tls.cert: is of no use alone; set tls.ca"),
        ({"ca": "ca.pem"}, "tls.cert: is missing; whoever listens shows one"),
        ({"ca": "ca.pem", "cert": "server.pem"}, "tls: 'one of cert and key'"),
        ({"ca": "none.pem"}, "tls.cert: is missing"),
        ({"ca": "none.pem", "cert": "server.pem", "key": "server.key"}, "No such file"),
        ({"ca": "server.key", "cert": "server.pem", "key": "server.key"}, "certificates in PEM"),
        ({"ca": "ca.pem", "cert": "other.pem", "key": "server.key"}, "that belongs to it"),
        ({"ca": "ca.pem", "cert": "server.key", "key": "server.key"}, "a certificate in PEM"),
    ],
    ids=lambda value: "" if isinstance(value, str) else "+".join(value),
)
def test_what_can_not_be_used_says_what_is_wrong(authority, values, said) -> None:
    authority.issue("server", "127.0.0.1")
    authority.issue("other", "127.0.0.1")
    flags = {f"tls.{name}": str(authority.folder / file) for name, file in values.items()}
    config = Sources(flags=flags, environment={}).load(TlsConfig, "tls")
    with pytest.raises(ConfigError) as caught:
        load_tls(config, serves=True)
    assert said in str(caught.value)


def test_a_mesh_without_authorities_speaks_in_the_clear() -> None:
    assert load_tls(TlsConfig(), serves=True) is None


def test_one_channel_to_several_addresses_needs_one_name(authority) -> None:
    transport = GrpcTransport(tls=MeshTls(TlsFiles(Tls(ca=authority.ca))))
    with pytest.raises(ValueError, match=r"set tls\.server_name"):
        transport.channel("127.0.0.1:1,127.0.0.1:2")

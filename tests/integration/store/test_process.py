"""The store as a process: starting, refusing to start, stopping, and what it keeps."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import crc32c
import pytest
import structlog
from grpc import aio
from integration.store.store_process import Client, refusal

from sexton.internal.v1 import store_pb2 as pb
from sexton_store.__main__ import main

pytestmark = pytest.mark.slow


def put(key: bytes, value: bytes = b"v") -> pb.Txn:
    return pb.Txn(then=[pb.Op(key=key, put=value)])


# Starting and refusing to start


@pytest.fixture
def logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level
    structlog.reset_defaults()


@pytest.mark.usefixtures("logging_as_it_was")
@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        ([], 2, "store.data: is missing; set --data or SEXTON_STORE_DATA"),
        (["--data", "D", "--listen", "0.0.0.0:0"], 2, "there are no secrets to know callers by"),
        (["--data", "D", "--listen", "x"], 2, "listen: 'x' is no address; give host:port"),
        (["--data", "D", "--queue-shards", "0"], 2, "store.queue_shards: '0' from a flag"),
        (["--data", "D", "--secrets-dir", "/proc/x"], 2, "secret /proc/x/mesh: can't be created"),
        (["--config", "/nowhere.toml"], 2, "file /nowhere.toml: can't be read: No such file"),
        (["--frobnicate"], 2, "unrecognized arguments: --frobnicate"),
        (["--data", "/proc/nowhere"], 1, "/proc/nowhere: No such file"),
        (["--data", "/dev/null"], 1, "/dev/null: a store needs a folder"),
    ],
)
def test_what_keeps_it_from_starting_is_said(
    flags, code, words, tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        found = main(flags)
    except SystemExit as exit_:
        found = exit_.code

    stderr = capsys.readouterr().err
    assert found == code
    assert words in stderr
    assert "Traceback" not in stderr
    assert "[Errno" not in stderr
    assert list(tmp_path.iterdir()) == []  # what is refused leaves nothing behind


def test_a_second_store_on_the_port_or_on_the_folder_is_refused(make_store) -> None:
    first = make_store().start()

    on_port = make_store().spawn("--listen", first.address)
    on_folder = first.spawn("--listen", "127.0.0.1:0")

    _, stderr = on_port.communicate(timeout=20)
    assert on_port.returncode == 1
    assert f"sexton_store: can't listen on {first.address}: the address is taken" in stderr
    _, stderr = on_folder.communicate(timeout=20)
    assert on_folder.returncode == 1
    assert f"is in use by process {first.process.pid}" in stderr
    assert first.end()[0] == 0


def test_insecure_mode_says_so_loudly(make_store) -> None:
    store = make_store("--insecure", secured=False).start()

    code, stderr = store.end()

    assert code == 0
    assert "WHOEVER REACHES THIS PROCESS MAY DO EVERYTHING" in stderr


async def test_it_is_configured_by_file_and_variables_too(
    make_store, connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "sexton.toml"
    file.write_text("[store]\nqueue_shards = 3\n[log]\nlevel = 'warning'\n[queue]\nother = 1\n")
    store = make_store("--config", str(file), "--coordinator-shards", "2").start()

    status = await connect(store).call("Status", pb.StatusRequest())

    assert (status.coordinator_shards, status.queue_shards) == (2, 3)
    code, stderr = store.end()
    assert (code, stderr) == (0, "")


# Secrets


@pytest.mark.parametrize(
    ("secret", "status"),
    [("", "UNAUTHENTICATED"), ("w" * 64, "UNAUTHENTICATED"), ("mesh", "UNAUTHENTICATED")],
)
async def test_nobody_but_the_mesh_gets_in(shared, secret: str, status: str) -> None:
    client = Client(shared.address, secret)
    requests = {
        "Get": pb.GetRequest(keys=[b"a"]),
        "Commit": pb.CommitRequest(txns=[put(b"a")]),
        "CommitStream": None,
        "Watch": pb.WatchRequest(),
        "Backup": pb.BackupRequest(),
        "Status": pb.StatusRequest(),
    }
    for method, request in requests.items():
        with pytest.raises(aio.AioRpcError) as raised:
            await client.call(method, request)
        found = refusal(raised.value)
        assert (found.code, found.reason) == (status, status)
        assert shared.secret() not in found.message

    assert await client.healthy()
    await client.channel.close()


def test_the_secret_is_readable_by_its_owner_alone(shared) -> None:
    assert (shared.folder / "secrets" / "mesh").stat().st_mode & 0o777 == 0o600
    assert len(shared.secret()) == 64


# Stopping


async def test_on_sigterm_streams_end_what_was_begun_is_answered_and_the_exit_is_clean(
    make_store, connect
) -> None:
    store = make_store().start()
    client = connect(store)
    watch = client.stub.Watch(pb.WatchRequest(), metadata=client.metadata)
    assert (await watch.read()).progress_revision == 0
    commits = client.stub.CommitStream(metadata=client.metadata)
    await commits.write(pb.CommitStreamRequest(sequence=1, txns=[put(b"a")]))
    assert (await commits.read()).results[0].revision == 1
    assert (await watch.read()).revisions[0].revision == 1

    store.send(signal.SIGTERM)
    for stream in (watch, commits):
        with pytest.raises(aio.AioRpcError) as raised:
            await stream.read()
        assert refusal(raised.value)[:2] == ("UNAVAILABLE", "UNAVAILABLE")
    code, stderr = await asyncio.to_thread(store.ended)

    assert code == 0
    assert "Traceback" not in stderr


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
async def test_what_was_acknowledged_is_there_after_any_end(make_store, connect, end) -> None:
    store = make_store().start()
    client = connect(store)
    revisions = [await client.put(b"key/%d" % number) for number in range(20)]
    before = await client.call("Status", pb.StatusRequest())
    await asyncio.to_thread(store.end, end)

    client = connect(store.start())
    after = await client.call("Status", pb.StatusRequest())
    page = await client.call("Scan", pb.ScanRequest(start=b"key/", end=b"key0"))

    assert revisions == list(range(1, 21))
    assert sorted(kv.mod_revision for kv in page.kvs) == revisions
    assert (after.cluster_id, after.incarnation) == (before.cluster_id, before.incarnation)
    assert after.revision == 20
    assert after.mesh_time_ns > before.mesh_time_ns


async def test_a_watch_from_before_the_restart_is_told_that_it_is_compacted(
    make_store, connect
) -> None:
    store = make_store().start()
    client = connect(store)
    for number in range(3):
        await client.put(b"%d" % number)
    await asyncio.to_thread(store.end)
    client = connect(store.start())

    with pytest.raises(aio.AioRpcError) as raised:
        await client.call("Watch", pb.WatchRequest(start_revision=1))
    found = refusal(raised.value)
    assert found[:2] == ("OUT_OF_RANGE", "COMPACTED")
    assert found.facts == {"oldest": "4"}
    answer = await client.call("Watch", pb.WatchRequest(start_revision=4))
    assert answer.progress_revision == 3


# Suspension


async def test_a_read_after_a_suspension_sees_the_last_commit(make_store, connect) -> None:
    """S19, and the read that was sent while the store was suspended."""
    store = make_store().start()
    client, other = connect(store), connect(store)
    revision = 0
    for _ in range(3):
        revision = await client.put(b"a", b"%d" % revision)
        store.send(signal.SIGSTOP)
        reading = asyncio.ensure_future(other.call("Get", pb.GetRequest(keys=[b"a"])))
        await asyncio.sleep(0.05)
        assert not reading.done()
        store.send(signal.SIGCONT)
        assert (await reading).kvs[0].mod_revision == revision
        assert (await client.call("Get", pb.GetRequest(keys=[b"a"]))).revision == revision


async def test_a_suspended_store_takes_nobody_s_lease_away(make_store, connect) -> None:
    store = make_store().start()
    client = connect(store)
    request = pb.AcquireLeaseRequest(name="l", holder="h", ttl_ms=1_000)
    token = (await client.call("AcquireLease", request)).lease.token

    store.send(signal.SIGSTOP)
    await asyncio.sleep(1.5)
    store.send(signal.SIGCONT)
    refs = [pb.LeaseRef(name="l", token=token)]
    answer = await client.call("RenewLease", pb.RenewLeaseRequest(leases=refs))

    assert answer.renewals[0].renewed


# Backup, telemetry


async def test_a_backup_is_the_whole_file_with_its_checksum(client) -> None:
    for number in range(50):
        await client.put(b"backup/%d" % number, b"x" * 50_000)
    revision = await client.revision()
    stream = client.stub.Backup(pb.BackupRequest(), timeout=20, metadata=client.metadata)
    pieces = [piece async for piece in stream]

    data = b"".join(piece.data for piece in pieces)
    assert pieces[0].data == b""
    assert (pieces[0].revision, pieces[0].total_bytes) == (revision, len(data))
    assert pieces[-1].crc32c == crc32c.crc32c(data)
    assert max(len(piece.data) for piece in pieces) <= 1024 * 1024
    assert len(data) > 50 * 50_000


async def test_one_copy_is_made_at_a_time(client) -> None:
    first = client.stub.Backup(pb.BackupRequest(), timeout=20, metadata=client.metadata)
    second = client.stub.Backup(pb.BackupRequest(), timeout=20, metadata=client.metadata)
    ends = await asyncio.gather(
        *[asyncio.ensure_future(_all(stream)) for stream in (first, second)],
        return_exceptions=True,
    )

    refused = [end for end in ends if isinstance(end, aio.AioRpcError)]
    assert [refusal(error)[:2] for error in refused] == [("RESOURCE_EXHAUSTED", "OVERLOADED")]


async def test_prometheus_shows_the_store(make_store, connect) -> None:
    port = _free_port()
    store = make_store("--telemetry-metrics-listen", f"127.0.0.1:{port}").start()
    client = connect(store)
    await client.put(b"a")

    text = (await asyncio.to_thread(_fetch, f"http://127.0.0.1:{port}/metrics")).decode()

    assert "\nsexton_store_revision{" in text
    assert "\nsexton_store_clock_disputed{" in text
    assert 'sexton_kind="txns"' in text
    assert 'rpc_method="/sexton.internal.v1.StoreService/Commit"' in text


async def test_telemetry_that_nobody_takes_keeps_no_store_from_a_clean_end(make_store) -> None:
    store = make_store("--telemetry-endpoint", f"http://127.0.0.1:{_free_port()}").start()

    code, stderr = await asyncio.to_thread(store.end)

    assert code == 0
    assert "Traceback" not in stderr


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=5) as response:
        return bytes(response.read())


async def _all(stream: object) -> list[object]:
    return [piece async for piece in stream]  # type: ignore[attr-defined]

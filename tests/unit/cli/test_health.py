"""Asking a process for its health, and making secrets before there is one."""

import asyncio
import queue
import threading

import pytest

from sexton._settings import settings
from sexton_runtime.randomness import SeededRandomness
from sexton_runtime.rpc.grpc_transport import GrpcTransport
from sexton_runtime.rpc.server import Readiness, RpcServer
from sexton_runtime.secrets import Role
from sexton_runtime.telemetry import Telemetry


@pytest.fixture(name="address")
def _address():
    """A server that asks for a secret, serves as a whole, and does not lead."""
    listening, loop = queue.Queue(), asyncio.new_event_loop()

    async def serve():
        over = asyncio.Event()
        server = RpcServer(
            transport=GrpcTransport(),
            listen="127.0.0.1:0",
            services=(),
            secrets={Role.MESH: "m" * 32},
            randomness=SeededRandomness(1),
            telemetry=Telemetry(),
        )
        await server.start()
        await Readiness(server.health).start()
        server.health.set("leader", serving=False)
        listening.put((server.address, over))
        await over.wait()
        await server.stop()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    address, over = listening.get(timeout=10)
    yield address
    loop.call_soon_threadsafe(over.set)
    thread.join()
    loop.close()


def test_the_answer_is_the_exit_code_and_needs_no_secret(sexton, address, monkeypatch):
    assert sexton("health", address) == (0, f"{address}: serves\n", "")
    assert sexton("health", address, "--service", "leader") == (
        4,
        "",
        f"sexton: {address} leader: does not serve\n",
    )
    assert sexton("health", address, "--service", "other") == (
        3,
        "",
        f"sexton: {address}: there is no health service 'other'\n",
    )
    monkeypatch.setenv("SEXTON_HEALTH", address)
    monkeypatch.setenv("SEXTON_HEALTH_SERVICE", "leader")
    assert sexton("health")[0] == 4


def test_one_that_does_not_answer_is_told_from_one_that_is_not_named(sexton):
    code, out, err = sexton("health", "127.0.0.1:1", "--timeout", "0.2")
    assert (code, out) == (5, "")
    assert err.startswith("sexton: 127.0.0.1:1: does not answer: ")
    assert sexton("health", "nowhere")[0] == 2
    assert sexton("health")[0] == 2


def test_secrets_are_made_once_and_copied_for_who_needs_one_alone(sexton, tmp_path):
    folder, workers = tmp_path / "secrets", tmp_path / "workers"
    command = ("secrets", folder, "--copy", f"worker={workers}")

    code, out, _ = sexton(*command)
    assert code == 0
    assert out.splitlines() == [
        f"{folder}/mesh: made",
        f"{folder}/worker: made",
        f"{folder}/client: made",
        f"{folder}/reader: made",
        f"{workers}/worker: copied",
    ]
    assert [path.name for path in workers.iterdir()] == ["worker"]
    assert (workers / "worker").read_text() == (folder / "worker").read_text()
    assert (workers / "worker").stat().st_mode & 0o777 == 0o600
    made = (folder / "mesh").read_text()
    assert len(made.strip()) == 64
    assert made not in out

    assert sexton(*command)[1].count(": kept\n") == 5
    assert (folder / "mesh").read_text() == made

    (folder / "worker").unlink()
    assert sexton(*command)[1].endswith(f"{workers}/worker: copied\n")
    assert (workers / "worker").read_text() == (folder / "worker").read_text()


def test_a_secret_is_renewed_with_the_old_one_accepted_and_retired_later(sexton, tmp_path):
    sexton("secrets", tmp_path)
    before = (tmp_path / "client").read_text()
    copy = ("--copy", f"client={tmp_path / 'callers'}")
    _, out, _ = sexton("secrets", tmp_path, "--renew", "client", *copy)
    assert out.splitlines() == [
        f"{tmp_path}/mesh: kept",
        f"{tmp_path}/worker: kept",
        f"{tmp_path}/client: renewed",
        f"{tmp_path}/reader: kept",
        f"{tmp_path}/callers/client: copied",
    ]
    new, old = (tmp_path / "client").read_text().splitlines(keepends=True)
    assert (old, new == before) == (before, False)
    assert (tmp_path / "callers" / "client").read_text() == new + old
    assert settings(secret_file=tmp_path / "client").secret_for("x:1") == new.strip()

    _, out, _ = sexton("secrets", tmp_path, "--retire", "client", *copy)
    assert out.splitlines()[2] == f"{tmp_path}/client: the old ones retired"
    assert (tmp_path / "client").read_text() == new
    assert (tmp_path / "callers" / "client").read_text() == new
    _, out, _ = sexton("secrets", tmp_path, "--renew", "client", "--retire", "client")
    assert out.splitlines()[2] == f"{tmp_path}/client: renewed, the old ones retired"
    assert sexton("secrets", tmp_path, "--renew", "boss")[0] == 2


def test_what_secrets_can_not_do_is_said(sexton, tmp_path):
    code, _, err = sexton("secrets", tmp_path, "--copy", "boss=/tmp")
    assert (code, err) == (
        2,
        "sexton: --copy 'boss': the roles are mesh, worker, client, reader\n",
    )
    (tmp_path / "file").touch()
    code, _, err = sexton("secrets", tmp_path / "file" / "secrets")
    assert code == 4
    assert "can't be created: Not a directory" in err

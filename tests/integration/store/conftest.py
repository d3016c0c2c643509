"""Stores for the tests: one for those of a module that leave it healthy, or one's own."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from integration.store.store_process import Client, StoreProcess


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    """One store for all tests of a module that leave it healthy."""
    store = StoreProcess(tmp_path_factory.mktemp("store")).start()
    yield store
    code, stderr = store.end()
    assert code == 0, stderr
    assert "Traceback" not in stderr
    assert "a fault of our own" not in stderr


@pytest.fixture
async def client(shared: StoreProcess) -> AsyncIterator[Client]:
    client = Client(shared.address, shared.secret())
    yield client
    await client.channel.close()


@pytest.fixture
def make_store(tmp_path: Path) -> Iterator[Callable[..., StoreProcess]]:
    """Makes stores of a test's own; they end with it."""
    made: list[StoreProcess] = []

    def make(*flags: str, secured: bool = True) -> StoreProcess:
        made.append(StoreProcess(tmp_path / f"store-{len(made)}", *flags, secured=secured))
        return made[-1]

    yield make
    for store in made:
        if store.process is not None and store.process.poll() is None:
            store.end(signal.SIGKILL)


@pytest.fixture
async def connect() -> AsyncIterator[Callable[[StoreProcess], Client]]:
    clients: list[Client] = []

    def open_client(store: StoreProcess) -> Client:
        clients.append(Client(store.address, store.secret()))
        return clients[-1]

    yield open_client
    for client in clients:
        await client.channel.close()

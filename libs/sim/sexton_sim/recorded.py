"""A store client whose every call goes into a history. `HeldLease` and watchers run on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from sexton.errors import OutcomeUnknown, SextonError
from sexton_runtime.kv.client import StoreClient
from sexton_runtime.kv.engine import Watching
from sexton_runtime.kv.status import ClockState
from sexton_runtime.kv.types import (
    Acquired,
    Compare,
    Delete,
    KeyValue,
    Lease,
    LeaseRef,
    Limits,
    Outcome,
    Page,
    Put,
    Renewal,
    Snapshot,
    Target,
    Txn,
    TxnResult,
)
from sexton_runtime.kv.watcher import RelistingWatcher, Update
from sexton_sim.history import Recorder, text, txn_entry


class RecordedStore:
    """`StoreClient`, recorded. `unique` transactions write values that no other call writes."""

    def __init__(self, client: StoreClient, recorder: Recorder, process: str) -> None:
        self._client = client
        self._recorder = recorder
        self._process = process

    @property
    def limits(self) -> Limits:
        """Tells the bounds of the store's engine."""
        return self._client.limits

    async def commit(
        self,
        txns: Sequence[Txn],
        *,
        timeout_s: float | None = None,
        only_while: Callable[[], bool] | None = None,
    ) -> tuple[TxnResult, ...]:
        """Commits; each transaction is a call of its own in the history."""
        calls = [self._invoke("commit", txn=txn_entry(txn), unique=_is_unique(txn)) for txn in txns]
        with self._outcome(*calls):
            results = await self._client.commit(txns, timeout_s=timeout_s, only_while=only_while)
        for call, result in zip(calls, results, strict=True):
            self._recorder.ok(call, **_result_entry(result))
        return results

    async def compare_and_set(
        self, key: bytes, expected_mod_revision: int, value: bytes | None
    ) -> tuple[TxnResult, KeyValue]:
        """Writes one key by the unary call, which the network may deliver twice."""
        op = Delete(key) if value is None else Put(key, value)
        txn = Txn((Compare(key, Target.MOD_REVISION, expected_mod_revision),), (op,))
        call = self._invoke("commit", txn=txn_entry(txn), unique=_is_unique(txn))
        with self._outcome(call):
            result, found = await self._client.compare_and_set(key, expected_mod_revision, value)
        self._recorder.ok(call, **_result_entry(result))
        return result, found

    async def get(self, keys: Sequence[bytes], *, keys_only: bool = False) -> Snapshot:
        """Reads keys. Without their values the history can't hold it, and does not."""
        if keys_only:
            return await self._client.get(keys, keys_only=True)
        call = self._invoke("get", keys=[text(key) for key in keys])
        with self._outcome(call):
            snapshot = await self._client.get(keys)
        self._recorder.ok(
            call,
            revision=snapshot.revision,
            kvs=[_kv_entry(kv) for kv in snapshot.kvs],
            mesh_time_ns=snapshot.mesh_time_ns,
        )
        return snapshot

    async def scan(
        self,
        start: bytes = b"",
        end: bytes = b"",
        *,
        limit: int = 0,
        reverse: bool = False,
        keys_only: bool = False,
        page_token: bytes = b"",
        min_version: int = 0,
    ) -> Page:
        """Reads a page."""
        call = self._invoke("scan", prefix=text(start))
        with self._outcome(call):
            page = await self._client.scan(
                start,
                end,
                limit=limit,
                reverse=reverse,
                keys_only=keys_only,
                page_token=page_token,
                min_version=min_version,
            )
        self._recorder.ok(
            call,
            revision=page.revision,
            kvs=[] if keys_only else [_kv_entry(kv) for kv in page.kvs],
            whole=not (page_token or page.next_token or keys_only or reverse),
            mesh_time_ns=page.mesh_time_ns,
        )
        return page

    def watch(self, prefix: bytes, start_revision: int = 0, *, keys_only: bool = False) -> Watching:
        """Watches; what `recorded_updates` wraps is in the history, this alone is not."""
        return self._client.watch(prefix, start_revision, keys_only=keys_only)

    async def acquire_lease(
        self, name: str, holder: str, ttl_ms: int, *, value: bytes = b"", replaces: int = 0
    ) -> Acquired:
        """Asks for a lease."""
        call = self._invoke("acquire", name=name, holder=holder, ttl_ms=ttl_ms, replaces=replaces)
        with self._outcome(call):
            acquired = await self._client.acquire_lease(
                name, holder, ttl_ms, value=value, replaces=replaces
            )
        lease = acquired.lease
        self._recorder.ok(call, granted=acquired.granted, token=lease.token, holder=lease.holder)
        return acquired

    async def renew_leases(self, leases: Sequence[LeaseRef]) -> tuple[Renewal, ...]:
        """Renews."""
        call = self._invoke("renew", leases=[[lease.name, lease.token] for lease in leases])
        with self._outcome(call):
            renewals = await self._client.renew_leases(leases)
        self._recorder.ok(call, renewed=[renewal.renewed for renewal in renewals])
        return renewals

    async def release_lease(self, name: str, token: int) -> int:
        """Gives a lease back."""
        call = self._invoke("release", name=name, token=token)
        with self._outcome(call):
            revision = await self._client.release_lease(name, token)
        self._recorder.ok(call, **({"revision": revision} if revision else {"released": False}))
        return revision

    async def settle_clock(self) -> None:
        """Accepts a disputed wall clock, as an operator would; not in the history."""
        reading = await self._client.clock()
        if reading.state is ClockState.DISPUTED:
            await self._client.accept_clock(reading.dispute)

    async def list_leases(self, prefix: str = "") -> tuple[Lease, ...]:
        """Lists leases; not in the history."""
        return await self._client.list_leases(prefix)

    @asynccontextmanager
    async def recorded_updates(
        self, watcher: RelistingWatcher, prefix: bytes
    ) -> AsyncIterator[AsyncIterator[Update]]:
        """Gives a watcher's updates, each of which goes into the history."""
        call = self._invoke("watch", prefix=text(prefix))
        updates = watcher.updates()

        async def recorded() -> AsyncIterator[Update]:
            async for update in updates:
                self._recorder.ok(call, **_update_entry(update))
                yield update

        try:
            yield recorded()
        finally:
            await updates.aclose()

    def _invoke(self, call: str, **args: Any) -> int:
        return self._recorder.invoke(self._process, call, **args)

    @contextmanager
    def _outcome(self, *calls: int) -> Iterator[None]:
        try:
            yield
        except OutcomeUnknown as error:
            for call in calls:
                self._recorder.unknown(call, error.message)
            raise
        except SextonError as error:
            for call in calls:
                self._recorder.fail(call, f"{type(error).__name__}: {error.message}")
            raise
        except BaseException as error:
            for call in calls:
                self._recorder.unknown(call, type(error).__name__)
            raise


def _is_unique(txn: Txn) -> bool:
    """Tells whether the values tell whose they are: written as client:number by the workload."""
    values = [op.value for op in txn.then if isinstance(op, Put)]
    return bool(values) and all(b"#" in value for value in values)


def _kv_entry(kv: KeyValue) -> list[Any]:
    value = text(kv.value) if kv.create_revision else None
    return [text(kv.key), value, kv.create_revision, kv.mod_revision, kv.version]


def _result_entry(result: TxnResult) -> dict[str, Any]:
    entry: dict[str, Any] = {"outcome": Outcome(result.outcome).name, "revision": result.revision}
    if result.outcome is Outcome.REFUSED:
        entry["failed_compare"] = result.failed_compare
        entry["found_mod_revision"] = result.found_mod_revision
    return entry


def _update_entry(update: Update) -> dict[str, Any]:
    return {
        "events": [
            [event.kind.name, text(event.kv.key), text(event.kv.value), event.kv.mod_revision]
            for event in update.events
        ],
        "revision": update.revision,
        "synced": update.synced,
    }

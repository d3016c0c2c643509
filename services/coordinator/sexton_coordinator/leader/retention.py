"""Removes history that is old enough, by number and by age, a page at a time.

Each kind of record is swept from the newest to the oldest, so that one walk both counts and judges
by age: what comes after the newest `max_runs` of a job, or is older than `max_age`, goes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import structlog

from sexton.internal.v1 import records_pb2 as pb
from sexton_coordinator.jobs_store import JobRef, LoadedJob
from sexton_coordinator.leader.counters import Counters
from sexton_coordinator.leader.ended_runs import EndedRuns
from sexton_coordinator.leader.filling import Filling
from sexton_coordinator.leader.tally import NewestRules
from sexton_coordinator.mesh import Mesh
from sexton_coordinator.requests import KEPT_NS
from sexton_core.instants import DAY, Duration, Instant
from sexton_core.policy import Retention
from sexton_records import keys
from sexton_runtime.kv.held_lease import HeldLease
from sexton_runtime.kv.types import Delete, KeyValue, Page, Txn, prefix_end, unchanged
from sexton_runtime.kv.watcher import LASTING

_PAGE: Final = 500
"""Records looked at in one pass, of each kind."""
_INTERVAL_S: Final = 0.25
"""Time between two passes of a sweep: 2,000 records of each kind per second."""
_REST_S: Final = 10.0
"""Time between two sweeps."""
_DELETES_PER_TXN: Final = 90
BACKFILLS_KEPT_NS: Final[Duration] = 30 * DAY
"""How long a backfill is listed after its end."""
MAX_FORMER: Final = 100
"""Deleted jobs of one name that are kept, of each shard."""

_log = structlog.get_logger(__name__)


class _Rules(NamedTuple):
    max_runs: int
    max_age_ns: Duration
    needed: frozenset[int] = frozenset()
    """Versions that something undecided still needs."""


_DEFAULT: Final = _Rules(Retention().max_runs, Retention().max_age_ns)


class _Sweep:
    """A walk over a prefix, newest first, that goes on where the last pass ended."""

    def __init__(self, prefix: bytes) -> None:
        self.prefix = prefix
        self.token = b""
        self.rules: dict[str, _Rules] = {}
        self._counts: dict[str, int] = {}

    def count(self, uid: str) -> int:
        """Counts a record of a job, and gives its place among the job's, newest first."""
        number = self._counts[uid] = self._counts.get(uid, 0) + 1
        return number

    def turn(self, page: Page) -> None:
        """Goes on to the next page; after the last one everything is counted anew."""
        self.token = page.next_token
        if not self.token:
            self.rules.clear()
            self._counts.clear()


class RetentionPass:
    """The removal of history, for one tenure."""

    def __init__(
        self,
        *,
        mesh: Mesh,
        lease: HeldLease,
        shard: int,
        filling: Filling,
        counters: Counters,
        made: NewestRules,
    ) -> None:
        """`made`: the rules of runs that were made."""
        self._mesh = mesh
        self._lease = lease
        self._shard = shard
        self._filling = filling
        self._counters = counters
        self._ended_runs = EndedRuns(
            mesh=mesh, lease=lease, shard=shard, counters=counters, made=made
        )
        self._decisions = _Sweep(keys.DECISIONS)
        self._versions = _Sweep(keys.VERSIONS)
        self._formers = _Sweep(keys.FORMER)
        self._requests = _Sweep(keys.requests_prefix(shard))
        self._backfills = _Sweep(keys.backfills_prefix(shard))

    async def run(self) -> None:
        """Removes until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._ended_runs.run())
            group.create_task(self._sweep())

    async def _sweep(self) -> None:
        sweeps = (
            self._decisions,
            self._versions,
            self._formers,
            self._requests,
            self._backfills,
        )
        while True:
            swept = not any(sweep.token for sweep in sweeps)
            await asyncio.sleep(_REST_S if swept else _INTERVAL_S)
            try:
                await self.run_once()
            except LASTING:
                raise
            except Exception as error:  # noqa: BLE001 - one bad record must not end the leading
                _log.warning(
                    "History could not be removed; it will be tried again.",
                    action="retain",
                    error=repr(error),
                )
                await asyncio.sleep(_REST_S)

    async def run_once(self) -> int:
        """Looks at one page of each kind; gives how many records were removed."""
        before = self._removed()
        await self._sweep_decisions()
        if self._filling.found:  # else it is not known which versions backfills still run
            await self._sweep_versions()
        await self._sweep_formers()
        await self._sweep_requests()
        await self._sweep_backfills()
        return self._removed() - before

    def _removed(self) -> int:
        counters = self._counters
        return (
            counters.removed_decisions
            + counters.removed_versions
            + counters.removed_former_jobs
            + counters.removed_requests
            + counters.removed_backfills
        )

    # Decisions and versions -------------------------------------------------------------------

    async def _sweep_decisions(self) -> None:
        sweep = self._decisions
        page = await self._page(sweep)
        own = self._own(page)
        await self._learn_from_jobs(sweep, [uid for uid, _ in own])
        now = self._mesh.now()
        gone: list[KeyValue] = []
        for uid, kv in own:
            decided_at = pb.DecisionRecord.FromString(kv.value).decide_time_ns
            if self._is_past(sweep, uid, now - decided_at):
                gone.append(kv)
        sweep.turn(page)
        await self._delete([[Delete(kv.key)] for kv in gone], _DELETES_PER_TXN)
        self._counters.removed_decisions += len(gone)

    async def _sweep_versions(self) -> None:
        sweep = self._versions
        page = await self._page(sweep)
        own = self._own(page)
        await self._learn_from_jobs(sweep, [uid for uid, _ in own])
        now = self._mesh.now()
        gone: list[KeyValue] = []
        for uid, kv in own:
            record = pb.VersionRecord.FromString(kv.value)
            past = self._is_past(sweep, uid, now - record.until_time_ns)
            if past and record.version not in sweep.rules[uid].needed:
                gone.append(kv)
        sweep.turn(page)
        await self._delete([[Delete(kv.key)] for kv in gone], _DELETES_PER_TXN)
        self._counters.removed_versions += len(gone)

    async def _sweep_formers(self) -> None:
        """Removes deleted jobs with their decisions and versions, for which the defaults hold."""
        sweep = self._formers
        page = await self._page(sweep)
        now = self._mesh.now()
        gone: list[KeyValue] = []
        for kv in page.kvs:
            deleted_at, uid = keys.parse_former_key(kv.key)
            if keys.shard_of(uid, self._mesh.coordinator_shards) != self._shard:
                continue
            name = kv.key.rsplit(b"/", 2)[0].decode()
            if sweep.count(name) > MAX_FORMER or now - deleted_at > _DEFAULT.max_age_ns:
                gone.append(kv)
        sweep.turn(page)
        await self._delete([[Delete(kv.key)] for kv in gone], _DELETES_PER_TXN)
        self._counters.removed_former_jobs += len(gone)

    def _is_past(self, sweep: _Sweep, uid: str, age_ns: Duration) -> bool:
        rules = sweep.rules[uid]
        return sweep.count(uid) > rules.max_runs or age_ns > rules.max_age_ns

    def _own(self, page: Page) -> list[tuple[str, KeyValue]]:
        """Returns the records of this shard's jobs, with the job's uid."""
        uids = [(kv.key.split(b"/", 2)[1].decode(), kv) for kv in page.kvs]
        shards = self._mesh.coordinator_shards
        return [(uid, kv) for uid, kv in uids if keys.shard_of(uid, shards) == self._shard]

    async def _learn_from_jobs(self, sweep: _Sweep, uids: Iterable[str]) -> None:
        """Reads the rules of jobs that come up for the first time; deleted ones have defaults."""
        unknown = [uid for uid in dict.fromkeys(uids) if uid not in sweep.rules]
        if not unknown:
            return
        found = await self._mesh.jobs.load(
            [JobRef(uid) for uid in unknown], needed=self._filling.versions()
        )
        for uid, loaded in zip(unknown, found, strict=True):
            if isinstance(loaded, LoadedJob):
                retention = loaded.job.current.retention
                sweep.rules[uid] = _Rules(
                    retention.max_runs, retention.max_age_ns, frozenset(loaded.versions)
                )
            else:
                sweep.rules[uid] = _DEFAULT

    # Requests ---------------------------------------------------------------------------------

    async def _sweep_requests(self) -> None:
        page = await self._page(self._requests)
        now: Instant = self._mesh.now()
        gone = [
            kv
            for kv in page.kvs
            if now - pb.RequestRecord.FromString(kv.value).create_time_ns > KEPT_NS
        ]
        self._requests.turn(page)
        self._counters.removed_requests += await self._delete_as_read(gone)

    # Backfills --------------------------------------------------------------------------------

    async def _sweep_backfills(self) -> None:
        page = await self._page(self._backfills)
        now = self._mesh.now()
        gone = []
        for kv in page.kvs:
            ended_at = pb.BackfillRecord.FromString(kv.value).end_time_ns
            if ended_at and now - ended_at > BACKFILLS_KEPT_NS:
                gone.append(kv)
        self._backfills.turn(page)
        self._counters.removed_backfills += await self._delete_as_read(gone)

    async def _delete_as_read(self, gone: Sequence[KeyValue]) -> int:
        """Deletes what may have been written again since: under the same id, and young."""
        for first in range(0, len(gone), _DELETES_PER_TXN // 2):
            part = gone[first : first + _DELETES_PER_TXN // 2]
            compares = tuple(unchanged(kv) for kv in part)
            txn = Txn(compares, tuple(Delete(kv.key) for kv in part), use_reserve=True)
            await self._lease.commit([txn])
        return len(gone)

    async def _page(self, sweep: _Sweep, most: int = _PAGE) -> Page:
        return await self._mesh.store.scan(
            sweep.prefix,
            prefix_end(sweep.prefix),
            limit=most,
            reverse=True,
            page_token=sweep.token,
        )

    async def _delete(self, groups: Sequence[Sequence[Delete]], per_txn: int) -> None:
        """Deletes records, the keys of each in one transaction."""
        txns = [
            Txn(
                then=tuple(op for group in groups[first : first + per_txn] for op in group),
                use_reserve=True,
            )
            for first in range(0, len(groups), per_txn)
        ]
        if txns:
            await self._lease.commit(txns)

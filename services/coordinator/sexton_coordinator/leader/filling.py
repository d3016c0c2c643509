"""The backfills of a shard that go on, for one tenure: what the leader knows, reads and decides.

Only the leader writes them, so what it has read or committed last is what stands there; a commit
whose outcome is not known is found out about by reading. A backfill's step is decided when a look
at its job finds nothing else to do, so that the schedule's own starts come first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import backfill_pb2 as api
from sexton_coordinator.jobs_store import LoadedJob, get_all
from sexton_coordinator.leader.machine import Filled, Known, Machine
from sexton_coordinator.mesh import Mesh
from sexton_core.ids import RunId, scheduled_run_id
from sexton_core.instants import Instant
from sexton_core.policy import Backfill, BackfillStep, Waiting, advance, upcoming
from sexton_core.words import Overlap, RunState
from sexton_records import keys
from sexton_records.backfills import advanced_record, decode_backfill, ended_record
from sexton_records.runs import STATE_OF
from sexton_runtime.kv.held_lease import HeldLease
from sexton_runtime.kv.types import KeyValue, Outcome, Txn, absent, prefix_end

MAX_AT_ONCE: Final = 20
"""Backfills of one job that go on at once."""

_FINDS: Final = 4
"""Looks, five seconds apart, after which no commit that was sent before can arrive any more."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class _Active:
    """A backfill that goes on.

    doubtful: its record is to be read: what became of a commit is not known.
    succeeded: of the nominal times that come next, those with a run that succeeded, as read for
        the look that goes on; None: not read.
    reloaded: whether its job was read again for want of its version.
    """

    record: pb.BackfillRecord
    revision: int
    doubtful: bool = False
    succeeded: frozenset[Instant] | None = None
    reloaded: bool = False


class Filling:
    """The active backfills of a shard."""

    def __init__(self, *, mesh: Mesh, lease: HeldLease, shard: int, machine: Machine) -> None:
        self.found = False
        """Whether those from before this tenure are known."""
        self._mesh = mesh
        self._lease = lease
        self._shard = shard
        self._machine = machine
        self._active: dict[str, dict[str, _Active]] = {}
        self._finds = 0  # looks that read everything anew: a commit may come late

    def versions(self) -> dict[str, frozenset[int]]:
        """Returns the versions that go on being run, by job."""
        return {
            uid: frozenset(active.record.version for active in backfills.values())
            for uid, backfills in self._active.items()
        }

    def count(self, uid: str) -> int:
        """Tells how many of a job go on."""
        return len(self._active.get(uid, ()))

    # Reading ----------------------------------------------------------------------------------

    async def look(self) -> int:
        """Finds what goes on, has those jobs looked at, and ends what is a deleted job's."""
        if not self.found or self._finds:
            await self._find()
            self._finds = max(self._finds - 1, 0)
        await self._end_orphans()
        for uid in self._active:
            self._machine.look(uid)
        return len(self._active)

    async def read(self, batch: Sequence[Known]) -> None:
        """Reads what the steps of some jobs rest on: doubtful records, and what has succeeded."""
        if not self._active:
            return
        doubtful = [
            (known.uid, backfill_id)
            for known in batch
            for backfill_id, active in self._active.get(known.uid, {}).items()
            if active.doubtful
        ]
        wanted = [keys.backfill_key(self._shard, *of) for of in doubtful]
        for kv in await get_all(self._mesh.store, wanted):
            self._take(kv)
        # What was read for an earlier look may have succeeded since.
        for known in batch:
            for active in self._active.get(known.uid, {}).values():
                active.succeeded = None
        await asyncio.gather(
            *(
                self._look_up(known.loaded, backfill_id, active)
                for known in batch
                if known.loaded is not None and known.uid in self._active
                for backfill_id, active in self._active[known.uid].items()
                if active.record.skip_succeeded and _may_go_on(known.loaded, known.ended, active)
            )
        )

    async def _find(self) -> None:
        prefix = keys.backfills_prefix(self._shard)
        token = b""
        while True:
            page = await self._mesh.store.scan(prefix, prefix_end(prefix), page_token=token)
            for kv in page.kvs:
                self._take(kv)
            token = page.next_token
            if not token:
                break
        self.found = True

    def _take(self, kv: KeyValue) -> None:
        """Takes a record as it was read, unless what is known is newer."""
        uid, backfill_id = keys.parse_backfill_key(kv.key)
        known = self._active.get(uid, {}).get(backfill_id)
        if known is not None and known.revision > kv.mod_revision:
            return
        if not kv.create_revision:
            self._drop(uid, backfill_id)
            return
        self._set(uid, backfill_id, pb.BackfillRecord.FromString(kv.value), kv.mod_revision)

    async def _look_up(self, loaded: LoadedJob, backfill_id: str, active: _Active) -> None:
        """Reads which of the nominal times that come next have a run that succeeded."""
        backfill = decode_backfill(backfill_id, active.record)
        if backfill.version not in loaded.versions:
            return
        name = loaded.name
        times = upcoming(loaded.job, backfill)
        wanted = [
            keys.run_key(name.namespace, name.job, name.uid, scheduled_run_id(name.uid, nominal))
            for nominal in times
        ]
        kvs = await get_all(self._mesh.store, wanted)
        active.succeeded = frozenset(
            nominal for nominal, kv in zip(times, kvs, strict=True) if _succeeded(kv)
        )

    async def _end_orphans(self) -> None:
        """Ends the backfills of jobs that were deleted."""
        uids = list(self._active)
        states = [keys.state_key(self._shard, uid) for uid in uids]
        found = await get_all(self._mesh.store, states, keys_only=True)
        gone = [uid for uid, kv in zip(uids, found, strict=True) if not kv.create_revision]
        if not gone:
            return
        of_gone = [(uid, backfill_id) for uid in gone for backfill_id in self._active[uid]]
        for kv in await get_all(
            self._mesh.store, [keys.backfill_key(self._shard, *of) for of in of_gone]
        ):
            self._take(kv)
        now = self._mesh.now()
        for uid in gone:
            for backfill_id, active in list(self._active.get(uid, {}).items()):
                cancelled = ended_record(active.record, api.BACKFILL_STATE_CANCELLED, now)
                filled = Filled(uid, backfill_id, cancelled, active.revision)
                compares = (absent(keys.state_key(self._shard, uid)), filled.compare(self._shard))
                txn = Txn(compares, (filled.put(self._shard),), use_reserve=True)
                (result,) = await self._lease.commit([txn])
                if result.outcome is Outcome.COMMITTED:
                    self.committed(filled, result.revision)

    # Deciding ---------------------------------------------------------------------------------

    def steps(
        self, known: Known, now: Instant, limit: int
    ) -> Iterator[tuple[BackfillStep | None, Filled | None]]:
        """Yields what a job's backfills come to, oldest first; the first that counts is taken.

        A step without `Filled` writes nothing but may ask for the end of runs.
        """
        loaded = known.loaded
        assert loaded is not None, "it is decided about"
        backfills = self._active.get(known.uid, {})
        ordered = sorted(backfills.items(), key=lambda one: (one[1].record.create_time_ns, one[0]))
        for backfill_id, active in ordered:
            if active.doubtful:
                continue
            backfill = decode_backfill(backfill_id, active.record)
            if backfill.version not in loaded.versions:
                yield None, self._without_version(known, backfill_id, active, now)
                continue
            if active.record.skip_succeeded and active.succeeded is None:
                continue
            step = advance(
                loaded.job,
                loaded.state,
                backfill,
                now,
                ended=known.ended,
                succeeded=active.succeeded or frozenset(),
                limit=limit,
            )
            yield step, self._filled(known.uid, active, step, now)

    def _filled(self, uid: str, active: _Active, step: BackfillStep, now: Instant) -> Filled | None:
        after: Backfill = step.backfill
        record = advanced_record(active.record, after)
        if step.waiting is Waiting.DONE:
            record = ended_record(record, api.BACKFILL_STATE_DONE, now)
        if record == active.record:
            return None
        return Filled(uid, after.id, record, active.revision)

    def _without_version(
        self, known: Known, backfill_id: str, active: _Active, now: Instant
    ) -> Filled | None:
        """Has the job read again with the version, once; where it is gone the backfill ends."""
        if not active.reloaded:
            active.reloaded = known.reread = known.again = True
            return None
        _log.error(
            "A backfill ends: the version of the definition that it ran is gone.",
            action="fill",
            job_uid=known.uid,
            backfill=backfill_id,
        )
        record = ended_record(active.record, api.BACKFILL_STATE_CANCELLED, now)
        return Filled(known.uid, backfill_id, record, active.revision)

    # Committing -------------------------------------------------------------------------------

    def committed(self, filled: Filled, revision: int) -> None:
        """Takes what a commit has made of a backfill."""
        self._set(filled.uid, filled.id, filled.record, revision)

    def doubt(self, filled: Filled, *, may_come_late: bool) -> None:
        """Notes that a commit was refused, or that its outcome is not known.

        What nobody waits for any more may begin by a commit that comes late: it is looked for.
        """
        if may_come_late:
            self._finds = _FINDS
        active = self._active.setdefault(filled.uid, {})
        if filled.id not in active:
            active[filled.id] = _Active(record=filled.record, revision=0)
        active[filled.id].doubtful = True
        self._machine.filling.add(filled.uid)

    def _set(self, uid: str, backfill_id: str, record: pb.BackfillRecord, revision: int) -> None:
        if record.state != api.BACKFILL_STATE_STARTING:
            self._drop(uid, backfill_id)
            return
        before = self._active.setdefault(uid, {}).get(backfill_id)
        active = _Active(record=record, revision=revision)
        if before is not None:
            active.reloaded = before.reloaded
        self._active[uid][backfill_id] = active
        self._machine.filling.add(uid)

    def _drop(self, uid: str, backfill_id: str) -> None:
        backfills = self._active.get(uid, {})
        backfills.pop(backfill_id, None)
        if not backfills:
            self._active.pop(uid, None)
            self._machine.filling.discard(uid)


def _may_go_on(loaded: LoadedJob, ended: Collection[RunId], active: _Active) -> bool:
    """Tells whether it is worth knowing what a backfill would start next."""
    if loaded.state.paused_at is not None:
        return False
    beside = decode_backfill("", active.record).overlap in {Overlap.ALLOW_ALL, Overlap.SKIP}
    return beside or all(handle.run_id in ended for handle in loaded.state.live)


def _succeeded(kv: KeyValue) -> bool:
    if not kv.create_revision:
        return False
    return STATE_OF[pb.RunRecord.FromString(kv.value).state] is RunState.SUCCEEDED

"""Removes ended runs beyond what their jobs keep, reading each as few times as may be.

First everything is counted, from the newest to the oldest, and what is beyond the rules removed on
the way. From then on only new runs are read, a little behind the present, and counted too. Once
enough of them are too many, a round goes over the runs from the oldest on and collects what goes;
it is removed in the order of the runs' keys, so that a job's neighbours go together, a part at a
time. All is counted anew when the outcome of a removal is not known, and now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import structlog
from google.protobuf.message import DecodeError

from sexton.errors import Unavailable
from sexton.internal.v1 import records_pb2 as pb
from sexton_coordinator.jobs_store import get_all
from sexton_coordinator.leader.counters import Counters
from sexton_coordinator.leader.tally import (
    DEFAULT,
    MOST_JOBS,
    MOST_RECENT,
    EndedRun,
    Gone,
    NewestRules,
    Rules,
    Tally,
)
from sexton_coordinator.mesh import Mesh
from sexton_core.instants import SECOND, Duration, Instant
from sexton_core.runs.table import STATES
from sexton_records import keys
from sexton_records.runs import STATE_OF
from sexton_runtime.kv.held_lease import HeldLease
from sexton_runtime.kv.types import Delete, KeyValue, Outcome, Txn
from sexton_runtime.kv.watcher import LASTING

_INTERVAL_S: Final = 0.25
"""Time between two passes while there is much to do, and when there is little."""
_CALM_S: Final = 1.0
_REST_S: Final = 5.0
"""Time between two rounds, and before the first counting."""
_BEHIND_NS: Final[Duration] = 2 * SECOND
"""How far behind the present runs are counted: what is written later than that is not seen."""
_PAGE: Final = 1_000
_LEAST_PAGE: Final = 100
_PAGES_PER_PASS: Final = 4
"""Pages read in one pass at most: 16,000 runs per second, more than any mesh ends."""
_BATCH: Final = 16_000
"""Runs collected before they are removed, of 300 bytes each. The more of a job go together, the
fewer pages of the store's file are written for it."""
_ENOUGH: Final = 12_000
"""Runs beyond their jobs' number for which a round begins without a rest."""
_VAIN_PER_RUN: Final = 4
"""Runs that a round may pass over for each that it removes, before it has to rest longer."""
_VAIN_PER_S: Final = 4_000
"""Runs that rounds may pass over per second, on average: the more it was, the longer they rest."""
_PART: Final = 500
"""Runs removed in one commit: what is urgent waits some milliseconds behind it."""
_PART_FOR: Final = 6_000
"""For each so many runs to be removed, a pass removes a part: 4,000 runs per second take two."""
_MOST_PARTS: Final = 8
_DELETES_PER_TXN: Final = 99
_KEYS_PER_RUN: Final = 3
_RULES_S: Final = 30.0
"""How long a job's rules are known before they are read again, from a new run."""
_RECOUNT_S: Final = 3_600.0
"""How long what was written behind the counting may stay uncounted."""

_DEAD: Final = frozenset(number for number, state in STATE_OF.items() if STATES[state].dead_letter)

_log = structlog.get_logger(__name__)


class EndedRuns:
    """The removal of a shard's ended runs, for one tenure."""

    def __init__(
        self,
        *,
        mesh: Mesh,
        lease: HeldLease,
        shard: int,
        counters: Counters,
        made: NewestRules,
        most_jobs: int = MOST_JOBS,
        most_recent: int = MOST_RECENT,
    ) -> None:
        """Takes the rules of runs that were made, and how much is counted and remembered."""
        self._mesh = mesh
        self._lease = lease
        self._shard = shard
        self._counters = counters
        self._made = made
        self._prefix = keys.ended_prefix(shard)
        self._bounds = most_jobs, most_recent
        self._share, self._shares = 0, 1
        self._begin_anew()

    async def run(self) -> None:
        """Counts and removes until cancelled."""
        wait_s = _REST_S
        while True:
            await asyncio.sleep(wait_s)
            try:
                busy = await self.run_once()
                wait_s = _INTERVAL_S if busy else _CALM_S
            except LASTING:
                raise
            except Exception as error:  # noqa: BLE001 - it must not end the leading
                _log.warning(
                    "Ended runs could not be removed; it will be tried again.",
                    action="retain",
                    error=repr(error),
                )
                wait_s = _REST_S

    async def run_once(self) -> bool:
        """Reads and removes a part; tells whether there is more to do soon."""
        if self._tally.overflowed:
            self._shares *= 2
            self._share = 0
            self._begin_anew()
        elif self._now_s() >= self._recount_at:
            self._share = (self._share + 1) % self._shares
            self._begin_anew()
        if self._counting:
            await self._count_all()
            return True
        found = await self._count_new()
        if not self._victims:
            await self._collect()
        removed = await self._remove_part()
        return removed or self._in_round or found >= _PAGE // 4

    def _begin_anew(self) -> None:
        """Forgets what is known; what is kept is counted from the store."""
        self._tally = Tally(self._share, self._shares, *self._bounds)
        self._counting = True
        self._began_at = self._now_s()
        self._upper = b""  # runs from here on have been counted on the way down; empty: none yet
        self._position = b""  # the newest run that was counted
        self._recount_at = float("inf")
        self._in_round = False
        self._walking = False
        self._walked = b""  # the oldest run of the round that was read
        self._vain = 0
        self._rest_until = 0.0
        self._found: list[Gone] = []
        self._victims: list[Gone] = []

    # Counting ---------------------------------------------------------------------------------

    async def _count_all(self) -> None:
        """Goes on counting, newest first; removes what is beyond the rules."""
        for _ in range(_PAGES_PER_PASS):
            upper = self._upper or keys.ended_until(self._shard, self._mesh.now() - _BEHIND_NS)
            page = await self._mesh.store.scan(self._prefix, upper, limit=_PAGE, reverse=True)
            runs = list(self._read(page.kvs))
            await self._learn(runs[::-1], 0.0)
            now = self._mesh.now()
            gone = [one for run in runs if (one := self._tally.add_oldest(run, now))]
            if page.kvs:
                self._position = self._position or page.kvs[0].key
                self._upper = page.kvs[-1].key
            if not page.next_token:
                self._counting = False
                took_s = self._now_s() - self._began_at
                rest_s = _RECOUNT_S if self._shares == 1 else max(_REST_S, 3 * took_s)
                self._recount_at = self._now_s() + rest_s
            await self._remove(gone)
            if not self._counting or self._tally.overflowed:
                return

    async def _count_new(self) -> int:
        """Counts the runs that ended since; gives how many were found."""
        found = 0
        for _ in range(_PAGES_PER_PASS):
            until = keys.ended_until(self._shard, self._mesh.now() - _BEHIND_NS)
            start = self._position + b"\0" if self._position else self._prefix
            if start >= until:
                break
            page = await self._mesh.store.scan(start, until, limit=_PAGE)
            runs = list(self._read(page.kvs))
            await self._learn(runs, self._now_s() - _RULES_S)
            self._tally.add_newest(runs)
            if page.kvs:
                self._position = page.kvs[-1].key
                found += len(page.kvs)
            if not page.next_token:
                break
        return found

    async def _learn(self, runs: Iterable[EndedRun], since_s: float) -> None:
        """Reads the rules of jobs where they are not known, or old: those of the newest run."""
        newest = self._tally.unread(runs, since_s)
        if not newest:
            return
        read_at = self._now_s()
        unknown: list[EndedRun] = []
        for uid, run in newest.items():
            made = self._made.take(uid.decode())
            if made is None:
                unknown.append(run)
            else:
                self._tally.learn(run, made, read_at)
        found = await get_all(self._mesh.store, [_run_key(run) for run in unknown])
        for run, kv in zip(unknown, found, strict=True):
            template = pb.RunRecord.FromString(kv.value).template
            known = bool(template.retain_runs)
            rules = Rules(template.retain_runs, template.retain_ns) if known else DEFAULT
            self._tally.learn(run, rules, read_at)

    # Rounds -----------------------------------------------------------------------------------

    async def _collect(self) -> None:
        """Begins a round, or goes on with it; what it finds is removed before it goes on."""
        if not self._in_round:
            if not self._is_worthwhile():
                return
            self._tally.begin_round()
            self._in_round, self._walking, self._walked = True, self._tally.older > 0, b""
            self._vain = 0
        for _ in range(_PAGES_PER_PASS):
            if self._walking:
                await self._walk()
            else:
                self._go_over_recent()
                await asyncio.sleep(0)
            if not self._in_round or len(self._found) >= _BATCH:
                # Backwards: parts are taken from the end.
                self._victims, self._found = sorted(self._found, reverse=True), []
                break

    def _is_worthwhile(self) -> bool:
        tally = self._tally
        if tally.excess >= max(_ENOUGH, self._vain // _VAIN_PER_RUN):
            return True
        rested = self._now_s() >= self._rest_until
        return rested and (tally.excess > 0 or tally.due <= self._mesh.now())

    async def _walk(self) -> None:
        """Reads a page of the runs before those that are remembered."""
        tally = self._tally
        start = self._walked + b"\0" if self._walked else self._prefix
        until = tally.first_recent() or self._position + b"\0"
        if start >= until:
            self._walking = False
            return
        limit = min(_PAGE, max(_LEAST_PAGE, tally.excess))
        page = await self._mesh.store.scan(start, until, limit=limit)
        now = self._mesh.now()
        for run in self._read(page.kvs):
            if tally.round_ends(run.end, now):
                self._end_round(run.end)
                return
            gone = tally.judge(run, now)
            if gone is None:
                self._vain += 1
            else:
                self._found.append(gone)
        self._walked = page.kvs[-1].key if page.kvs else self._walked
        self._walking = bool(page.next_token)

    def _go_over_recent(self) -> None:
        now = self._mesh.now()
        gone, ended = self._tally.take_recent(now, _BATCH - len(self._found))
        self._found += gone
        if ended:
            self._end_round(now - _BEHIND_NS)

    def _end_round(self, end: Instant) -> None:
        """Rests the longer, the more was looked at for nothing."""
        self._in_round = False
        self._vain += self._tally.end_round(end)
        self._rest_until = self._now_s() + max(_REST_S, self._vain / _VAIN_PER_S)

    # Removing ---------------------------------------------------------------------------------

    async def _remove_part(self) -> bool:
        """Removes a part of what was collected, in proportion to what there is to remove."""
        left = len(self._victims) + self._tally.excess
        for _ in range(min(_MOST_PARTS, -(-left // _PART_FOR))):
            part = self._victims[: -_PART - 1 : -1]
            if not part:
                return False
            del self._victims[-_PART:]
            await self._remove(part)
        return bool(self._victims)

    async def _remove(self, gone: Sequence[Gone]) -> None:
        """Removes runs, the keys of each in one transaction."""
        if not gone:
            return
        try:
            letters = await self._dead_keys([run for run in gone if run.dead])
            results = await self._lease.commit(_removals(gone, letters))
        except Exception:
            self._begin_anew()  # they are not counted any more, and may be there
            raise
        if any(result.outcome is not Outcome.COMMITTED for result in results):
            self._begin_anew()
            raise Unavailable("the store has refused to remove ended runs")
        self._counters.removed_runs += len(gone)

    async def _dead_keys(self, gone: Sequence[Gone]) -> dict[bytes, bytes]:
        """Finds where dead letters are listed: by their queue, which their record says."""
        letters: dict[bytes, bytes] = {}
        found = await get_all(self._mesh.store, [run.run_key for run in gone])
        for run, kv in zip(gone, found, strict=True):
            queue = pb.RunRecord.FromString(kv.value).template.queue
            if queue:
                queue_shard = keys.shard_of(queue, self._mesh.queue_shards)
                letters[run.key] = keys.dead_key(queue_shard, *keys.parse_ended_key(run.key))
        return letters

    # Reading ----------------------------------------------------------------------------------

    def _read(self, kvs: Iterable[KeyValue]) -> Iterator[EndedRun]:
        """Reads what ended runs' keys and records say; leaves out what can't be read."""
        for kv in kvs:
            key = kv.key
            try:
                record = pb.EndedRecord.FromString(kv.value)
                _, _, end, uid, _ = key.split(b"/")
                dead = record.state in _DEAD
                yield EndedRun(key, int(end), uid, dead, record.namespace, record.job)
            except (DecodeError, ValueError):
                continue

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()


def _removals(gone: Sequence[Gone], letters: Mapping[bytes, bytes]) -> list[Txn]:
    """Makes transactions that remove runs, the keys of each in one."""
    txns: list[Txn] = []
    deletes: list[Delete] = []
    for run in gone:
        if len(deletes) > _DELETES_PER_TXN - _KEYS_PER_RUN:
            txns.append(Txn(then=tuple(deletes), use_reserve=True))
            deletes = []
        deletes += (Delete(run.key), Delete(run.run_key))
        if run.key in letters:
            deletes.append(Delete(letters[run.key]))
    txns.append(Txn(then=tuple(deletes), use_reserve=True))
    return txns


def _run_key(run: EndedRun) -> bytes:
    _, uid, run_id = keys.parse_ended_key(run.key)
    return keys.run_key(run.namespace, run.job, uid, run_id)

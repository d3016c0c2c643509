"""One change of a job: read, compute with the core, commit comparing what was read.

A commit that was refused, because a fire or another change came first, or that came later than
its computation allows, is computed anew from what is then true. One whose answer was lost is found
out about by the mark that each writes into the job's record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from sexton.errors import NoSpace, NotFound, OutcomeUnknown, Overloaded, StaleRevision
from sexton.internal.v1 import records_pb2 as records
from sexton_coordinator.api.checks import Name
from sexton_coordinator.jobs_store import LoadedJob, UnreadableJob, get_all
from sexton_coordinator.mesh import Mesh
from sexton_coordinator.writes import JobName, decision_ops, state_ops
from sexton_core.instants import SECOND, Instant
from sexton_core.policy import AHEAD_NS, ahead_until, not_earlier
from sexton_core.policy.state import Change, DecisionRange
from sexton_core.words import Decision
from sexton_runtime.kv.types import Compare, KeyValue, Op, Outcome, Put, Target, Txn, TxnResult
from sexton_runtime.kv.unknown import Proof, commit_resolved, resolve, written

ATTEMPTS: Final = 12
"""A busy job fires several times a second; each fire refuses what was computed before it."""

_PAUSE_S: Final = 0.002
_LONGEST_PAUSE_S: Final = 0.1
_RESOLVE_S: Final = 10.0
"""How long what became of a commit is asked for; `not_after` decides it within a second or two."""

_MOST_WAITS: Final = 4
"""Times that a change of one job waits for a start that is written: one is enough."""
_AT_ONCE: Final = 50
"""Jobs that are changed at once, each on its own: they mostly wait."""

_MAX_RANGES: Final = 80
"""Decisions in one commit: a transaction has at most 100 operations."""

Answer = TypeVar("Answer")
Wanted = TypeVar("Wanted")
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Generic[Answer]):
    """A commit, how to read that it was applied, and the answer to give with its revision."""

    txn: Txn
    proof: Proof
    answer: Callable[[int], Answer]


class Done(NamedTuple, Generic[Answer]):
    """Nothing is to be written."""

    answer: Answer


class Changer:
    """Carries changes through."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self.recomputed = 0

    async def carry_out(
        self, what: str, compute: Callable[[], Awaitable[Plan[Answer] | Done[Answer]]]
    ) -> Answer:
        """Computes and commits until it is done.

        Raises:
            Overloaded: what it rests on changed under every attempt; nothing happened.
            NoSpace: the store is full; nothing happened.
            OutcomeUnknown: what became of it could not be found out.

        """
        mesh = self._mesh
        pause_s = _PAUSE_S
        for _ in range(ATTEMPTS):
            plan = await compute()
            if isinstance(plan, Done):
                done: Answer = plan.answer
                return done
            result = await commit_resolved(
                mesh.store,
                plan.txn,
                proof=plan.proof,
                randomness=mesh.randomness,
                timeout_s=_RESOLVE_S,
            )
            if result.outcome is Outcome.COMMITTED:
                return plan.answer(result.revision)
            if result.outcome is Outcome.NO_SPACE:
                raise NoSpace
            self.recomputed += 1
            await asyncio.sleep(mesh.randomness.uniform(0, pause_s))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        raise Overloaded(f"{what} changes so fast that {ATTEMPTS} attempts met a change; try again")

    async def commit_all(self, txns: Sequence[tuple[Txn, bytes | Proof]]) -> Sequence[TxnResult]:
        """Commits the transactions of many jobs at once; gives what became of each.

        Each comes with how to read that it was applied: the key that it writes, or a proof.

        Raises:
            OutcomeUnknown: what became of one could not be found out.

        """
        store, randomness = self._mesh.store, self._mesh.randomness
        if not txns:
            return ()
        try:
            return await store.commit([txn for txn, _ in txns])
        except OutcomeUnknown:
            return [
                await resolve(
                    store,
                    txn,
                    proof=proof if isinstance(proof, Proof) else written(txn, proof),
                    randomness=randomness,
                )
                for txn, proof in txns
            ]

    async def load(self, name: Name, revision: int = 0) -> LoadedJob:
        """Reads a job that has to be there, and to which no start is about to come.

        Raises:
            NotFound: it is not.
            StaleRevision: a revision was given, and another is current.

        """

        async def read(names: Sequence[Name]) -> Sequence[LoadedJob | None]:
            return [await self._mesh.jobs.by_name(one.namespace, one.job) for one in names]

        (loaded,) = await self.between_starts([name], read, handles_of)
        if loaded is None:
            raise NotFound("job", str(name))
        if revision and revision != loaded.job_revision:
            raise StaleRevision(f"etag of {name}", revision, loaded.job_revision)
        return loaded

    async def read_states(self, names: Sequence[JobName]) -> Sequence[KeyValue]:
        """Reads the states of jobs to which no start is about to come."""

        async def read(wanted: Sequence[bytes]) -> Sequence[KeyValue]:
            return await get_all(self._mesh.store, wanted)

        return await self.between_starts([name.state_key for name in names], read, _handles_in)

    async def between_starts(
        self,
        wanted: Sequence[Wanted],
        read: Callable[[Sequence[Wanted]], Awaitable[Sequence[Found]]],
        handles: Callable[[Found], Iterable[Instant]],
    ) -> list[Found]:
        """Reads jobs; those whose next start is written already, again once it is due.

        A change before that time would take effect after it (`sexton_core.policy.ahead`); the
        store refuses it (`after_starts`). A replica whose estimate is half a second behind mesh
        time sees no time between two starts of a second, and goes on as if there were. Of several
        jobs there may be no time at which no start is written: they are waited for once, and those
        of which one is written again are refused.

        Args:
            wanted: what names the jobs.
            read: reads them.
            handles: gives the not-before times of a job's live runs.

        """
        mesh = self._mesh
        found = list(await read(wanted))
        for _ in range(_MOST_WAITS if len(wanted) == 1 else 1):
            now = mesh.now()
            due = [until for one in found if (until := ahead_until(handles(one), now))]
            if not due:
                break
            await asyncio.sleep(min(max(due) - now, AHEAD_NS) / SECOND)
            found = list(await read(wanted))
        return found

    async def each(
        self, change: Callable[[Wanted], Awaitable[Answer]], wanted: Sequence[Wanted]
    ) -> list[Answer]:
        """Changes jobs on their own, several at once; the first error ends all."""
        several = asyncio.Semaphore(_AT_ONCE)

        async def one(job: Wanted) -> Answer:
            async with several:
                return await change(job)

        tasks = [asyncio.create_task(one(job)) for job in wanted]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def new_record(self, before: records.JobRecord) -> records.JobRecord:
        """Returns a copy of a job's record to be changed, with a mark of its own."""
        record = records.JobRecord()
        record.CopyFrom(before)
        record.last_request_id = self._mesh.randomness.token_hex(8)
        return record


def handles_of(loaded: LoadedJob | UnreadableJob | None) -> list[Instant]:
    """Returns the not-before times of a job's live runs."""
    if not isinstance(loaded, LoadedJob):
        return []
    return [handle.not_before for handle in loaded.state.live]


def after_starts(txn: Txn, not_before: Iterable[Instant], now: Instant) -> Txn:
    """Returns a change of a job that the store refuses before what is written of it is due.

    Args:
        txn: the change.
        not_before: of the job's live runs, as their handles have it.
        now: the time for which it was computed.

    """
    return txn._replace(not_before_ns=not_earlier(not_before, now))


def _handles_in(state: KeyValue) -> list[Instant]:
    return [handle.not_before_ns for handle in records.StateRecord.FromString(state.value).live]


def change_ops(job: LoadedJob, record: records.JobRecord, change: Change) -> tuple[Op, ...]:
    """Returns what an edit, pause or resume writes, besides former versions."""
    note_timer(record, change.next_due)
    return (
        Put(job.name.job_key, record.SerializeToString()),
        *state_ops(job.name, change.state, change.next_due, job.timer),
        *decision_ops(job.name.uid, fitting(change.ranges)),
    )


def note_timer(record: records.JobRecord, timer: Instant | None) -> None:
    """Notes in a job's record the timer that stands with it."""
    if timer is None:
        record.ClearField("timer_ns")
    else:
        record.timer_ns = timer


def compares(job: LoadedJob) -> tuple[Compare, ...]:
    """Returns what every change of a job compares: its definition and its state."""
    return (
        Compare(job.name.job_key, Target.MOD_REVISION, job.job_revision),
        Compare(job.name.state_key, Target.MOD_REVISION, job.state_revision),
    )


def fitting(ranges: Sequence[DecisionRange]) -> Sequence[DecisionRange]:
    """Returns ranges that fit one commit: where they are too many, all of them as one.

    They are many where a job was edited many times while it was paused. A skipped range may contain
    times that a calendar takes away, so only the versions of its parts are lost.
    """
    if len(ranges) <= _MAX_RANGES:
        return ranges
    skipped = [record for record in ranges if record.decision is Decision.SKIPPED]
    whole = skipped[-1]._replace(
        first=ranges[0].first,
        last=ranges[-1].last,
        times=sum(record.times for record in skipped),
        counted_all=all(record.counted_all for record in skipped),
    )
    return (whole,)

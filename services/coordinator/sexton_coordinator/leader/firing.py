"""Looks at jobs in batches: read what is not known, decide, commit, tell the queues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, Protocol

import structlog

from sexton.errors import InvalidArgument, NoSpace, OutcomeUnknown, SextonError, TooLarge
from sexton.internal.v1 import queue_pb2
from sexton_coordinator.jobs_store import LoadedJob, UnreadableJob, get_all
from sexton_coordinator.leader.asking import Answers, Asking, next_asked
from sexton_coordinator.leader.counters import Counters
from sexton_coordinator.leader.filling import Filling
from sexton_coordinator.leader.machine import (
    UNREADABLE_NS,
    Asked,
    Created,
    Known,
    Machine,
    Trigger,
)
from sexton_coordinator.leader.steps import OversizedError, Planner, Step
from sexton_coordinator.mesh import Mesh
from sexton_core.ids import RunId
from sexton_core.instants import SECOND, Instant
from sexton_records import keys
from sexton_runtime.exporting import is_sampled
from sexton_runtime.kv.held_lease import HeldLease
from sexton_runtime.kv.types import (
    Compare,
    Delete,
    Outcome,
    Target,
    Txn,
    TxnResult,
    absent,
)
from sexton_runtime.kv.watcher import LASTING

_FIRST_BATCH: Final = 16
"""Jobs of the first batch after a pause. Each further one has twice as many: the first of many that
are due together are with a worker before the last are decided."""
BATCH: Final = 256
"""Jobs of one batch at most: about 15 ms of deciding, between which others get their turn."""
_READ_AHEAD: Final = 100
"""Jobs read together before they are due."""
TURN: Final = 32
"""Jobs decided about before others get their turn."""
_BATCHES_AT_ONCE: Final = 2
"""One is being committed while the next is read and decided."""
_COMMIT_BYTES: Final = 1024 * 1024
"""Bytes of one commit call; a single transaction may have as many, and a call takes 3 MiB."""
_LONGEST_SLEEP_S: Final = 1.0
"""The clock is looked at this often: mesh time may be moved forward."""

_log = structlog.get_logger(__name__)


class Queues(Protocol):
    """Tells the owners of queues what is committed. Hints: they may be lost."""

    def push(self, run: Created, revision: int, *, awaited: bool = False) -> None:
        """Tells of a run, for whose end somebody may wait here."""
        ...

    def ask(self, shard: int, end: queue_pb2.EndRequest) -> None:
        """Asks for a run's end."""
        ...


class Firing:
    """The loop that looks at what is due, for one tenure."""

    def __init__(
        self,
        *,
        mesh: Mesh,
        lease: HeldLease,
        shard: int,
        machine: Machine,
        filling: Filling,
        queues: Queues,
        counters: Counters,
        fired: Callable[[str], object],
    ) -> None:
        """`fired` is told of committed runs."""
        self.hungry: Final = asyncio.Event()
        """Set when the horizon is to be loaded again."""
        self._mesh = mesh
        self._lease = lease
        self._shard = shard
        self._machine = machine
        self._filling = filling
        self._queues = queues
        self._counters = counters
        self._fired = fired
        self._planner = Planner(
            coordinator_shards=mesh.coordinator_shards,
            queue_shards=mesh.queue_shards,
            limits=mesh.store.limits,
            traceparent=self._traceparent,
        )
        self._asking = Asking(mesh=mesh, planner=self._planner, filling=filling, counters=counters)
        self._slots = asyncio.Semaphore(_BATCHES_AT_ONCE)
        self._stopping = False
        self._trace_ids: list[str] = []  # each of a trace and a span, not used yet

    @property
    def planner(self) -> Planner:
        """Makes steps, and the keys of handles."""
        return self._planner

    async def run(self) -> None:
        """Looks at what is due until `drain`, or until cancelled."""
        async with asyncio.TaskGroup() as batches:
            most = _FIRST_BATCH
            while not self._stopping:
                await self._slots.acquire()
                batch = [] if self._stopping else self._take(most)
                if batch:
                    batches.create_task(self._run_batch(batch))
                    most = min(2 * most, BATCH)
                else:
                    self._slots.release()
                    await self._sleep()
                    most = _FIRST_BATCH

    async def drain(self) -> None:
        """Takes nothing up any more, and returns once what was sent is answered."""
        self._stopping = True
        self._machine.woken.set()
        for _ in range(_BATCHES_AT_ONCE):
            await self._slots.acquire()

    def _take(self, most: int) -> list[Known]:
        now = self._mesh.now()
        if self._machine.horizon.is_short(now):
            self.hungry.set()
        return self._machine.take(now, most)

    async def _sleep(self) -> None:
        due = self._machine.horizon.next_due()
        pause_s = _LONGEST_SLEEP_S
        if due is not None:
            # A little more than what is left: a timer may fire a clock's tick too soon.
            pause_s = min(pause_s, max(0, due - self._mesh.now()) / SECOND + 1e-5)
        try:
            async with asyncio.timeout(pause_s):
                await self._machine.woken.wait()
        except TimeoutError:
            pass

    async def _run_batch(self, batch: list[Known]) -> None:
        try:
            await self.look(batch)
        finally:
            self._slots.release()

    async def read_ahead(self) -> int:
        """Reads some of the jobs that are due soon; gives how many."""
        batch = self._machine.take_unread(_READ_AHEAD)
        if batch:
            try:
                await self._read(batch)
            except LASTING:
                raise
            except SextonError:
                self._postpone(batch)
        for known in batch:
            if known.in_flight:
                self._machine.finish(known, known.scanned)
        return len(batch)

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[bool]:
        """Waits until one more batch may be looked at; gives whether any may still be."""
        async with self._slots:
            yield not self._stopping

    async def look(self, batch: list[Known]) -> None:
        """Looks at jobs, which are in flight, once; each is finished or postponed."""
        self._counters.looks += len(batch)
        self._asking.prepare(batch)
        try:
            await self._read(batch)
            answers = await self._asking.read(batch)
            await self._filling.read(batch)
        except LASTING:
            raise
        except SextonError:
            self._postpone(batch)
            return
        steps = await self._plan(batch, answers)
        for known, step in steps:
            if step.txn is None:
                self._done(known, step, 0)
        await self.commit([(known, step) for known, step in steps if step.txn is not None])

    # Reading ----------------------------------------------------------------------------------

    async def _read(self, batch: list[Known]) -> None:
        """Reads the jobs that are not known, and the live handles where that is asked for.

        What is not there or can't be read is taken out of the batch: its look has ended, and it
        may be in flight in another batch before this one has ended.
        """
        unread = [known for known in batch if known.loaded is None]
        if unread:
            found = await self._mesh.jobs.load(
                [known.ref for known in unread], self._machine.waiting, self._filling.versions()
            )
            for known, loaded in zip(unread, found, strict=True):
                known.verify = True
                if isinstance(loaded, LoadedJob):
                    self._take_loaded(known, loaded)
                elif isinstance(loaded, UnreadableJob):
                    batch.remove(known)
                    self._unreadable(known, loaded.why)
                else:
                    await self._drop_timer(known, None)
                    batch.remove(known)
                    self._asking.fail_all(known)
                    self._machine.gone(known)
        await self._read_handles(batch)

    def _take_loaded(self, known: Known, loaded: LoadedJob) -> None:
        if known.sent and loaded.state_value == known.sent:
            # What was sent without an answer is committed, and this is its revision.
            self._counters.runs += len(known.sent_runs)
            for run in known.sent_runs:
                self._queues.push(run, loaded.state_revision)
        known.sent, known.sent_runs = b"", ()
        known.loaded = loaded
        known.ended.clear()

    async def _read_handles(self, batch: Sequence[Known]) -> None:
        wanted: list[tuple[Known, RunId, bytes]] = []
        for known in batch:
            if not known.verify or known.loaded is None:
                continue
            known.verify = False
            for handle in known.loaded.state.live:
                if handle.run_id not in known.ended:
                    key = self._planner.handle_key(known.uid, handle)
                    wanted.append((known, handle.run_id, key))
        kvs = await get_all(self._mesh.store, [key for _, _, key in wanted], keys_only=True)
        for (known, run_id, _), kv in zip(wanted, kvs, strict=True):
            if not kv.create_revision:
                known.ended.add(run_id)

    # Deciding ---------------------------------------------------------------------------------

    async def _plan(
        self,
        batch: Sequence[Known],
        answers: Answers,
    ) -> list[tuple[Known, Step]]:
        steps: list[tuple[Known, Step]] = []
        now = self._mesh.now()
        for number, known in enumerate(batch):
            if number % TURN == TURN - 1:
                await asyncio.sleep(0)
                now = self._mesh.now()
            loaded = known.loaded
            assert loaded is not None, "what is in flight was read"
            if known.scanned is not None and known.scanned != loaded.timer:
                await self._drop_timer(known, loaded)
            known.scanned = None
            asked = next_asked(known) if known.asked else None
            if asked is not None and known in answers and answers[known][0] is asked:
                self._asking.answer(known.asked.pop(0), answers[known][1])
                asked = None
            try:
                step = self._decide(known, loaded, asked, now)
            except OversizedError:
                self._counters.oversized += 1
                self._unreadable(known, "what is to be decided does not fit a transaction")
            except Exception as error:  # noqa: BLE001 - one job must not keep the others waiting
                _log.exception("A job can't be decided about.", action="decide", job_uid=known.uid)
                self._unreadable(known, f"{type(error).__name__}: {error}")
            else:
                steps.append((known, step))
        return steps

    def _decide(self, known: Known, loaded: LoadedJob, asked: Asked | None, now: Instant) -> Step:
        """Decides about one job: what is asked for, else what is due, else its backfills.

        Raises:
            OversizedError: it does not fit a transaction.

        """
        filling = known.uid in self._machine.filling
        step = self._planner.plan(loaded, now, known.ended, asked, force=known.force)
        if asked is not None or not filling:
            return step
        if step.txn is not None:
            return step._replace(again=True)
        return (None if step.ends else self._planner.plan_fill(known, self._filling, now)) or step

    # Committing -------------------------------------------------------------------------------

    async def commit(self, steps: Sequence[tuple[Known, Step]]) -> None:
        """Commits what was decided about jobs, which are in flight; each is finished or postponed.

        Every step has a transaction.
        """
        async with asyncio.TaskGroup() as calls:
            for part in _parts(steps):
                calls.create_task(self._commit_part(part))

    async def _commit_part(self, steps: Sequence[tuple[Known, Step]]) -> None:
        for _, step in steps:
            if step.asked is not None:
                step.asked.sent = True
        try:
            results = await self._lease.commit([step.txn for _, step in steps if step.txn])
        except OutcomeUnknown:
            for known, step in steps:
                self._counters.unknown += 1
                self._doubt(step, may_come_late=True)
                if step.asked is not None:
                    step.asked.proof_first = True
                known.sent, known.sent_runs = step.state_value, step.created
                if step.verdict.buffered:
                    self._machine.waiting.add(known.uid)
                self._read_again(known)
        except (InvalidArgument, TooLarge) as error:
            _unsend(steps)
            await self._commit_apart(steps, error)
        except LASTING:
            raise
        except SextonError:  # nothing was sent; where the lease is lost, the tenure is over
            _unsend(steps)
            self._postpone([known for known, _ in steps])
        else:
            for (known, step), result in zip(steps, results, strict=True):
                self._take_result(known, step, result)

    async def _commit_apart(self, steps: Sequence[tuple[Known, Step]], error: SextonError) -> None:
        """Keeps a transaction that the store can't take from holding up its neighbours."""
        if len(steps) == 1:
            self._unreadable(steps[0][0], error.message)
            return
        for step in steps:
            await self._commit_part([step])

    def _take_result(self, known: Known, step: Step, result: TxnResult) -> None:
        if result.outcome is Outcome.COMMITTED:
            self._done(known, step, result.revision)
            return
        self._doubt(step, may_come_late=False)
        unproven = step.asked is not None and not step.asked.proof_first
        if step.asked is not None:
            step.asked.sent = False
            step.asked.proof_first = True
        if result.outcome is Outcome.REFUSED:
            self._counters.refused += 1
            ended = step.requires.get(result.failed_compare)
            if ended is not None and known.loaded is not None and not known.strikes:
                known.strikes += 1
                known.ended.add(ended)
                known.verify = True
                known.again = True
                self._machine.finish(known, self._mesh.now())
            else:
                self._read_again(known)
        elif result.outcome is Outcome.TOO_EARLY:
            self._counters.too_early += 1
            self._machine.postpone(known, self._mesh.now() + known.pause_ns())
        else:
            assert result.outcome is Outcome.NO_SPACE, "no step says when it is too late"
            if unproven:  # it may have had its effect before there was no space
                self._read_again(known)
                return
            if step.asked is not None and known.asked:
                self._asking.answer(known.asked.pop(0), NoSpace())
            self._postpone([known])

    def _done(self, known: Known, step: Step, revision: int) -> None:
        """Takes a step that is committed, or had nothing to commit."""
        verdict, counters = step.verdict, self._counters
        known.strikes = 0
        if step.txn is not None:
            if verdict.runs:
                counters.runs += len(verdict.runs)
                self._fired("first fire")
                newest = step.loaded.versions[verdict.runs[-1].version]
                self._machine.made.note(known.uid, newest.definition.retention)
            counters.decisions += len(verdict.ranges)
            counters.rearmed += known.force or (step.writes_state and not verdict.changed)
            if known.loaded is step.loaded:
                known.loaded = step.after(revision)
            known.force = False
            if verdict.changed and known.ended:
                known.ended.intersection_update([handle.run_id for handle in verdict.state.live])
            awaited = isinstance(step.asked, Trigger)
            for run in step.created:
                self._queues.push(run, revision, awaited=awaited)
            if step.filled is not None:
                self._filling.committed(step.filled, revision)
        known.again = known.again or step.again
        for shard, end in step.ends:
            self._queues.ask(shard, end)
        if verdict.state.buffered:
            self._machine.waiting.add(known.uid)
        else:
            self._machine.waiting.discard(known.uid)
        if step.asked is not None and step.answer is not None:
            if known.asked and known.asked[0] is step.asked:
                known.asked.pop(0)
            if step.created and isinstance(step.asked, Trigger):
                step.asked.revision = revision
            self._asking.answer(step.asked, step.answer)
        self._machine.finish(known, verdict.next_due)

    def _doubt(self, step: Step, *, may_come_late: bool) -> None:
        """Notes that a step's backfill may stand as it was, or as the step would have it."""
        if step.filled is not None:
            self._filling.doubt(step.filled, may_come_late=may_come_late)

    def _read_again(self, known: Known) -> None:
        """Has a job read and decided about again: at once, or after a pause if that goes on."""
        known.loaded = None
        self._machine.postpone(known, self._mesh.now() + known.pause_ns() * (known.strikes > 1))

    def _postpone(self, batch: Sequence[Known]) -> None:
        for known in batch:
            if known.in_flight:
                self._counters.postponed += 1
                self._machine.postpone(known, self._mesh.now() + known.pause_ns())

    def _unreadable(self, known: Known, why: str) -> None:
        self._counters.unreadable += 1
        _log.error(
            "A job can't be looked at; other jobs go on.",
            action="look",
            job_uid=known.uid,
            job=f"{known.ref.namespace}/{known.ref.job}",
            why=why,
        )
        self._asking.fail_all(known)
        known.loaded = None
        self._machine.postpone(known, self._mesh.now() + UNREADABLE_NS)

    async def _drop_timer(self, known: Known, loaded: LoadedJob | None) -> None:
        """Removes a timer that stands for no state."""
        scanned, known.scanned = known.scanned, None
        if scanned is None:
            return
        state_key = keys.state_key(self._shard, known.uid)
        if loaded is None:
            compare = absent(state_key)
        else:
            compare = Compare(state_key, Target.MOD_REVISION, loaded.state_revision)
        delete = Delete(keys.timer_key(self._shard, scanned, known.uid))
        try:
            (result,) = await self._lease.commit(
                [Txn(compares=(compare,), then=(delete,), use_reserve=True)]
            )
        except LASTING:
            raise
        except SextonError:
            return  # it does no harm, and is found again
        self._counters.stale_timers += result.outcome is Outcome.COMMITTED

    def _traceparent(self, run_id: RunId) -> str:
        if not self._trace_ids:  # to ask for a few at a time costs what one does
            drawn = self._mesh.randomness.token_hex(24 * TURN)
            self._trace_ids = [drawn[at : at + 48] for at in range(0, len(drawn), 48)]
        ids = self._trace_ids.pop()
        sampled = is_sampled(run_id, self._mesh.trace_sample)
        return f"00-{ids[:32]}-{ids[32:]}-0{sampled:d}"


def _unsend(steps: Sequence[tuple[Known, Step]]) -> None:
    for _, step in steps:
        if step.asked is not None:
            step.asked.sent = False


def _parts(steps: Sequence[tuple[Known, Step]]) -> list[list[tuple[Known, Step]]]:
    """Cuts steps into commits of bounded size."""
    parts: list[list[tuple[Known, Step]]] = []
    size = _COMMIT_BYTES
    for known, step in steps:
        assert step.txn is not None, "there is something to commit"
        weight = step.size_bytes
        size += weight + 100 * (len(step.txn.compares) + len(step.txn.then))
        if size > _COMMIT_BYTES:
            parts.append([])
            size = weight
        parts[-1].append((known, step))
    return parts

"""What an owner reads: what is assigned, at its takeover; pages of the line; what it is unsure of.

And, in slow rounds, all of `active/`: a push is a hint, and may have been lost. A round begins
early where a leader has opened a stream: the one before it may have pushed nothing of what it
committed last.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import islice
from typing import Final

from google.protobuf.message import DecodeError

from sexton.errors import SextonError, TooLarge
from sexton_core.runs import WITH_WORKER
from sexton_queue.entries import Complete, Now
from sexton_queue.line import Refill
from sexton_queue.machine import Machine
from sexton_queue.records import (
    QueueRecord,
    RunRecord,
    SessionRecord,
    job_of,
)
from sexton_queue.rounds import Rounds, Stretch
from sexton_queue.table import Question, answer_ended
from sexton_records import keys
from sexton_records.runs import STATE_OF, decode_run
from sexton_runtime.kv._backoff import Backoff
from sexton_runtime.kv.client import StoreClient
from sexton_runtime.kv.types import KeyValue, prefix_end
from sexton_runtime.kv.watcher import LASTING
from sexton_runtime.randomness import Randomness

ROUND_S: Final = 5.0
"""A round over the lanes begins this long after the one before, or when that has ended."""
PAGE_PAUSE_S: Final = 0.25
"""Between two pages of a round, at least: a long line costs little, and is told of more slowly."""
PAGE_PAUSES: Final = 20
"""And at least so many times what the page took: on a busy machine a round takes longer."""
MAX_REFILLS: Final = 4
"""Pages of lanes that are asked for at once."""
BATCH: Final = 300
"""Handles that are read by one call; with the keys beside them below what a Get takes."""

_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 1.0


class Reading:
    """Reads for a machine, until its tenure ends."""

    def __init__(
        self,
        machine: Machine,
        store: StoreClient,
        *,
        shard: int,
        coordinator_shards: int,
        randomness: Randomness,
        now: Callable[[], Now],
    ) -> None:
        self._machine = machine
        self._table = machine.table
        self._store = store
        self._shard = shard
        self._shards = coordinator_shards
        self._randomness = randomness
        self._now = now
        self._refills = 0
        self._rereading = False
        self._asking = False
        self._wanted = asyncio.Event()

    # At the takeover

    async def load(self) -> None:
        """Reads which queues are paused, what is assigned, and the workers; finds the lanes."""
        await self._persist(self._load_paused)
        await self._persist(self._load_sessions)
        await self._persist(self._load_running)
        await self._persist(self._find_lanes)

    async def _load_paused(self) -> None:
        """Reads which queues are paused, unless that has changed meanwhile."""
        line = self._table.line
        before = dict(line.paused)
        found = {
            kv.key.rpartition(b"/")[2].decode(): QueueRecord.FromString(kv.value).pause_reason
            async for kv in self._scan(keys.queues_prefix(self._shard))
        }
        if line.paused == before:
            line.paused = found

    async def _load_sessions(self) -> None:
        async for kv in self._scan(keys.sessions_prefix(self._shard)):
            name = kv.key.rpartition(b"/")[2].decode()
            if name not in self._machine.sessions.by_id:
                record = SessionRecord.FromString(kv.value)
                self._machine.roster.load(name, record, self._now())

    async def _load_running(self) -> None:
        """Reads what is assigned: the leader has written it once, an owner at least once more.

        So the runs that only wait cost the store a look at their keys, and this owner nothing;
        those that wait for their next attempt are read and left.
        """
        async for kv in self._scan(keys.active_prefix(self._shard), min_version=2):
            if _is_held(kv):
                self._table.observe([kv], self._now())

    async def _find_lanes(self) -> None:
        prefix = keys.active_prefix(self._shard)
        start, end = prefix, prefix_end(prefix)
        while True:
            page = await self._store.scan(start, end, limit=1, keys_only=True)
            if not page.kvs:
                return
            handle = keys.parse_handle_key(page.kvs[0].key)
            self._table.line.discover(handle.queue, handle.priority)
            lane = keys.active_prefix(self._shard, handle.queue, handle.priority)
            start = prefix_end(lane)

    # While it lasts

    def begin(self, group: asyncio.TaskGroup, done: Callable[[], object]) -> None:
        """Starts reading whatever the machine wants read; `done` is called after each answer."""
        if self._table.stale and not self._rereading:
            self._rereading = True
            group.create_task(self._reread(done))
        if self._table.questions and not self._asking:
            self._asking = True
            group.create_task(self._ask(done))
        if self._refills < MAX_REFILLS:
            for refill in self._table.line.refills(MAX_REFILLS - self._refills):
                self._refills += 1
                group.create_task(self._refill(refill, done))

    def look_again(self) -> None:
        """Has the next round over the lanes begin as soon as the present one has ended."""
        self._wanted.set()

    async def sweep(self, done: Callable[[], object]) -> None:
        """Goes through all of `active/`, slowly and for ever."""
        rounds = Rounds(keys.active_prefix(self._shard))
        while True:
            started_ns = self._now().boot
            self._wanted.clear()
            rounds.begin()
            try:
                await self._load_paused()  # what became of a commit may not be known
            except LASTING:
                raise
            except SextonError:
                pass  # it is read again in the next round
            while stretch := rounds.next(due=self._is_due(started_ns)):
                page_ns = self._now().boot
                try:
                    await self._sweep_page(rounds, stretch)
                except LASTING:
                    raise
                except SextonError:
                    rounds.failed(stretch)
                done()
                took_s = (self._now().boot - page_ns) / 1e9
                await asyncio.sleep(max(PAGE_PAUSE_S, min(PAGE_PAUSES * took_s, ROUND_S)))
            spent_s = (self._now().boot - started_ns) / 1e9
            try:
                async with asyncio.timeout(max(ROUND_S - spent_s, 0)):
                    await self._wanted.wait()
            except TimeoutError:
                pass

    def _is_due(self, started_ns: int) -> bool:
        """Tells whether the round after the one that began then is to begin."""
        return self._wanted.is_set() or self._now().boot - started_ns >= ROUND_S * 1e9

    async def _sweep_page(self, rounds: Rounds, stretch: Stretch) -> None:
        self._table.begin_reading()
        try:
            page = await self._store.scan(stretch.start, stretch.end)
            ready = len(self._table.line.ready)
            self._table.observe(page.kvs, self._now())
            self._machine.counters.found += max(len(self._table.line.ready) - ready, 0)
        finally:
            self._table.end_reading()
        first, last = (page.kvs[0].key, page.kvs[-1].key) if page.kvs else (b"", b"")
        rounds.took(first, last if page.next_token else b"")

    async def _refill(self, refill: Refill, done: Callable[[], object]) -> None:
        self._table.begin_reading()
        try:
            page = await self._store.scan(refill.start, refill.end, limit=refill.limit)
            self._table.refilled(refill, page.kvs, self._now(), more=bool(page.next_token))
        except LASTING:
            raise
        except SextonError:
            self._table.line.not_refilled(refill)
            await asyncio.sleep(_FIRST_PAUSE_S)
        finally:
            self._table.end_reading()
            self._refills -= 1
        done()

    async def _reread(self, done: Callable[[], object]) -> None:
        stale = list(self._table.stale.values())[:BATCH]
        try:
            found = await self._groups(
                [(entry.key, entry.record.origin.run_key) for entry in stale]
            )
            now = self._now()
            for entry, (handle, ended) in zip(stale, found, strict=True):
                self._table.reread(entry.key, handle, ended, now)
        except LASTING:
            raise
        except SextonError:
            await asyncio.sleep(_LONGEST_PAUSE_S)
        finally:
            self._rereading = False
        done()

    async def _ask(self, done: Callable[[], object]) -> None:
        """Finds the runs of which something is asked: in line or, for completions, ended."""
        count = min(len(self._table.questions), BATCH)
        questions = [self._table.questions.popleft() for _ in range(count)]
        try:
            found = await self._groups(
                [(question.key, self._state_key(question.key)) for question in questions]
            )
            ended: dict[bytes, list[Question]] = {}
            for question, (handle, state) in zip(questions, found, strict=True):
                if handle.create_revision:
                    self._table.load(handle, self._now())
                    self._table.ask(question.key, question.ask)
                elif state.create_revision and isinstance(question.ask, Complete):
                    ended.setdefault(self._run_key(question.key, state), []).append(question)
                else:
                    _answer_absent(question)
            if ended:
                for (kv,) in await self._groups([(key,) for key in ended]):
                    _answer_from(kv, ended[kv.key])
        except LASTING:
            raise
        except SextonError:
            self._table.questions.extendleft(reversed(questions))
            await asyncio.sleep(_LONGEST_PAUSE_S)
        finally:
            self._asking = False
        done()

    async def _groups(self, groups: Sequence[tuple[bytes, ...]]) -> list[tuple[KeyValue, ...]]:
        """Reads groups of keys, each from one snapshot; fewer at once where they are too large."""
        try:
            found = iter((await self._store.get([key for group in groups for key in group])).kvs)
        except TooLarge:
            if len(groups) == 1:
                raise
            half = len(groups) // 2
            return [*await self._groups(groups[:half]), *await self._groups(groups[half:])]
        return [tuple(islice(found, len(group))) for group in groups]

    def _state_key(self, handle: bytes) -> bytes:
        uid = keys.parse_handle_key(handle).uid
        return keys.state_key(keys.shard_of(uid, self._shards), uid)

    def _run_key(self, handle: bytes, state: KeyValue) -> bytes:
        parsed = keys.parse_handle_key(handle)
        namespace, job = job_of(state.value)
        return keys.run_key(namespace, job, parsed.uid, parsed.run_id)

    async def _scan(self, prefix: bytes, *, min_version: int = 0) -> AsyncIterator[KeyValue]:
        token = b""
        while True:
            page = await self._store.scan(
                prefix, prefix_end(prefix), page_token=token, min_version=min_version
            )
            for kv in page.kvs:
                yield kv
            token = page.next_token
            if not token:
                return

    async def _persist(self, read: Callable[[], Awaitable[None]]) -> None:
        """Reads until it succeeds; reading twice does no harm."""
        backoff = Backoff(self._randomness, _FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        while True:
            try:
                return await read()
            except LASTING:
                raise
            except SextonError:
                await asyncio.sleep(backoff.next_s())


def _is_held(kv: KeyValue) -> bool:
    """Tells whether a run is with a worker. One that can't be read must not keep others waiting."""
    try:
        return STATE_OF[RunRecord.FromString(kv.value).state] in WITH_WORKER
    except (DecodeError, KeyError):
        return False


def _answer_absent(question: Question) -> None:
    if isinstance(question.ask, Complete):
        question.ask.answer(False, None)
    elif question.ask.answer is not None:
        question.ask.answer(None)


def _answer_from(kv: KeyValue, questions: Sequence[Question]) -> None:
    """Answers completions from the record of a run that has ended."""
    for question in questions:
        if kv.create_revision:
            run = decode_run(RunRecord.FromString(kv.value), kv.mod_revision)
            answer_ended(run, question.ask)
        else:
            _answer_absent(question)

"""Dead letters: which there are, running them again, and taking them off the list.

A run that ended as FAILED, TIMED_OUT or LOST is listed under `dead/` by its queue's owner, in the
commit of its end. It leaves the list by the leader of its job's shard only: in the commit of the
run that repeats it, when it is purged, or with its run when that is not kept any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Final, NamedTuple

from sexton.errors import InvalidArgument, NotFound
from sexton.internal.v1 import coordinator_pb2 as internal
from sexton.internal.v1 import records_pb2 as records
from sexton.internal.v1.coordinator_pb2_grpc import LeaderServiceStub
from sexton.v1 import dead_letter_pb2 as api
from sexton_coordinator.api import checks
from sexton_coordinator.api.checks import Name
from sexton_coordinator.api.cursors import Cursor
from sexton_coordinator.api.peers import ask_holder
from sexton_coordinator.api.run_finding import RunFinder
from sexton_coordinator.api.starting import Starter
from sexton_coordinator.api.tokens import make_token, read_token
from sexton_coordinator.jobs_store import get_all
from sexton_coordinator.mesh import Mesh
from sexton_core.ids import RunId
from sexton_core.instants import MAX_INSTANT, Instant, format_instant
from sexton_core.runs.fingerprint import fingerprint
from sexton_core.runs.table import STATES
from sexton_records import keys
from sexton_records.runs import STATE_OF, run_message
from sexton_runtime.kv.types import prefix_end
from sexton_runtime.rpc.policy_channel import PolicyChannel

CHUNK: Final = 50
MAX_EXAMINED: Final = 2_000
"""Dead letters looked at for one page: where few of them fit, a page has few, or none."""
MAX_ANSWER_BYTES: Final = 2 * 1024 * 1024
MAX_NAMED: Final = 1_000
MAX_REQUEUED: Final = 1_000
MAX_PURGED: Final = 10_000
_AT_ONCE: Final = 16
"""Starts asked for at once, each of another job."""
_DELETED: Final = "its job was deleted"
_PART_OF_TIME: Final = 0.7
"""Of the caller's time; what is not done by then is left for the next call."""


class Dead(NamedTuple):
    """A dead letter. `record`: its run's; read where it is asked for."""

    key: bytes
    end: Instant
    uid: str
    run_id: RunId
    entry: records.EndedRecord
    record: records.RunRecord | None = None
    revision: int = 0

    @property
    def name(self) -> str:
        """Returns the run's resource name."""
        return str(Name(self.entry.namespace, self.entry.job, self.run_id))

    @property
    def run_key(self) -> bytes:
        """Returns where the run's record is."""
        return keys.run_key(self.entry.namespace, self.entry.job, self.uid, self.run_id)

    @property
    def position(self) -> str:
        """Returns its place in the list, without its shard."""
        return f"{self.end:020}/{self.uid}/{self.run_id}"


class Wanted(NamedTuple):
    """Which dead letters are asked for. `before` is exclusive."""

    runs: tuple[Name, ...]
    parent: Name | None
    fingerprint: str
    after: Instant
    before: Instant

    @property
    def everything(self) -> bool:
        """Tells whether nothing was said."""
        bounded = self.after or self.before <= MAX_INSTANT
        return not (self.runs or self.parent or self.fingerprint or bounded)

    def fits(self, dead: Dead) -> bool:
        """Tells whether a dead letter is asked for, its fingerprint aside."""
        parent, entry = self.parent, dead.entry
        return self.after <= dead.end < self.before and (
            parent is None
            or (entry.namespace == parent.namespace and parent.job in {"", entry.job})
        )


class _Time:
    """A caller's time, of which the last part is left for the answer."""

    def __init__(self, timeout_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + timeout_s
        self._enough_at = self._loop.time() + _PART_OF_TIME * timeout_s

    @property
    def left_s(self) -> float:
        """Tells how long a call may take."""
        return max(self._deadline - self._loop.time(), 0.0)

    @property
    def spent(self) -> bool:
        """Tells whether what is left is for the answer."""
        return self._loop.time() > self._enough_at


class DeadLetters:
    """Lists, requeues and purges."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._finder = RunFinder(mesh)
        self._starter = Starter(mesh, self._finder)

    async def page(self, request: api.ListDeadLettersRequest) -> api.ListDeadLettersResponse:
        """Lists dead letters, newest first.

        Raises:
            InvalidArgument: a field can't be used, or the token is of another query.

        """
        wanted = _wanted(request.filter)
        size = checks.page_size(request.page_size)
        query = ("ListDeadLetters", request.filter.SerializeToString(deterministic=True).hex())
        position = ""
        if request.page_token:
            (position,) = read_token(query, request.page_token, (1,))
        response = api.ListDeadLettersResponse()
        examined = size_bytes = 0
        async with aclosing(self._candidates(wanted, position)) as candidates:
            while chunk := await _take(candidates, CHUNK):
                examined += len(chunk)
                fitting = await self._fitting(wanted, chunk)
                gone = await self._gone(fitting)
                for dead in fitting:
                    response.dead_letters.append(_message(dead, job_deleted=dead.uid in gone))
                    size_bytes += response.dead_letters[-1].ByteSize()
                    if len(response.dead_letters) == size or size_bytes > MAX_ANSWER_BYTES:
                        response.next_page_token = make_token(query, [dead.position])
                        return response
                if examined >= MAX_EXAMINED:
                    response.next_page_token = make_token(query, [chunk[-1].position])
                    return response
        return response

    async def requeue(
        self, request: api.RequeueDeadLettersRequest, *, timeout_s: float
    ) -> api.RequeueDeadLettersResponse:
        """Runs dead letters again, oldest first.

        Raises:
            InvalidArgument: a field can't be used, or nothing says which.
            NotLeader, Unavailable, OutcomeUnknown: a leader could not be asked in time; those
                before are requeued, and the same call goes on from there.

        """
        wanted = _wanted_or_all(request.filter, everything=request.all)
        limit = _limit(request.limit, MAX_REQUEUED)
        time = _Time(timeout_s)
        response = api.RequeueDeadLettersResponse()
        requeuing = self._candidates(wanted, "", newest_first=False, also_gone=True)
        async with aclosing(requeuing) as candidates:
            while chunk := await _take(candidates, CHUNK):
                fitting = await self._fitting(wanted, chunk)
                asked = fitting[: limit - len(response.requeued)]
                if request.validate_only:
                    gone = await self._gone(asked)
                    done = [
                        api.Requeued(run=dead.name, reason=_DELETED if dead.uid in gone else "")
                        for dead in asked
                    ]
                else:
                    done = await self._requeue(asked, time)
                response.requeued.extend(done)
                response.more = len(fitting) > len(done)
                if response.more or len(response.requeued) == limit or time.spent:
                    response.more = response.more or bool(await _take(candidates, 1))
                    break
        if not response.more:
            known = {requeued.run for requeued in response.requeued}
            for run in map(str, wanted.runs):
                if run not in known:
                    response.requeued.add(run=run, reason="it is no dead letter of this filter")
        return response

    async def purge(
        self, request: api.PurgeDeadLettersRequest, *, timeout_s: float
    ) -> api.PurgeDeadLettersResponse:
        """Takes dead letters off the list, oldest first.

        Raises:
            InvalidArgument: a field can't be used, or nothing says which.
            NotLeader, Unavailable: a leader could not be asked in time.

        """
        wanted = _wanted_or_all(request.filter, everything=request.all)
        limit = _limit(request.limit, MAX_PURGED)
        time = _Time(timeout_s)
        response = api.PurgeDeadLettersResponse()
        async with aclosing(self._candidates(wanted, "", newest_first=False)) as candidates:
            while chunk := await _take(candidates, MAX_NAMED):
                fitting = await self._fitting(wanted, chunk)
                asked = fitting[: limit - response.purged]
                if not request.validate_only:
                    await self._purge(asked, time)
                response.purged += len(asked)
                response.more = len(fitting) > len(asked)
                if response.more or response.purged == limit or time.spent:
                    response.more = response.more or bool(await _take(candidates, 1))
                    break
        return response

    # Finding ----------------------------------------------------------------------------------

    async def _candidates(
        self, wanted: Wanted, position: str, *, newest_first: bool = True, also_gone: bool = False
    ) -> AsyncGenerator[Dead, None]:
        """Yields dead letters behind a position that fit, fingerprints and records aside.

        `also_gone`: of those that are named also what is off the list, for whoever repeats a call.
        """
        if wanted.runs:
            named = [await self._named(name, also_gone=also_gone) for name in wanted.runs]
            found = [dead for dead in named if dead is not None]
            for dead in sorted(found, key=lambda dead: dead.position, reverse=newest_first):
                if wanted.fits(dead) and (not position or dead.position < position):
                    yield dead
            return
        cursors = [
            self._cursor(shard, wanted, position, newest_first=newest_first)
            for shard in range(self._mesh.queue_shards)
        ]
        heads = [await _next(cursor) for cursor in cursors]
        choose = max if newest_first else min
        while any(heads):
            index, dead = choose(
                ((index, head) for index, head in enumerate(heads) if head is not None),
                key=lambda item: item[1].position,
            )
            if wanted.fits(dead):
                yield dead
            heads[index] = await _next(cursors[index])

    def _cursor(self, shard: int, wanted: Wanted, position: str, *, newest_first: bool) -> Cursor:
        prefix = keys.dead_prefix(shard)
        start = prefix + f"{wanted.after:020}".encode()
        end = prefix + (position or f"{wanted.before:020}").encode()
        return Cursor(
            self._mesh.store,
            start,
            min(end, prefix_end(prefix)),
            reverse=newest_first,
            keys_only=False,
        )

    async def _named(self, name: Name, *, also_gone: bool) -> Dead | None:
        """Returns the dead letter of a run; None: it is none, or (but for `also_gone`) no more."""
        found = await self._finder.find(name)
        if found is None or not STATES[STATE_OF[found.record.state]].dead_letter:
            return None
        record = found.record
        shard = keys.shard_of(record.template.queue, self._mesh.queue_shards)
        uid = record.template.job_uid
        key = keys.dead_key(shard, record.end_time_ns, uid, record.run_id)
        (kv,) = (await self._mesh.store.get([key])).kvs
        if not kv.create_revision and not also_gone:
            return None
        entry = records.EndedRecord.FromString(kv.value)
        entry.namespace, entry.job = name.namespace, name.job
        return Dead(key, record.end_time_ns, uid, record.run_id, entry, record, found.revision)

    async def _with_records(self, chunk: Sequence[Dead]) -> list[Dead]:
        """Reads the runs of dead letters."""
        kvs = await get_all(self._mesh.store, [dead.run_key for dead in chunk])
        return [
            dead._replace(
                record=records.RunRecord.FromString(kv.value) if kv.create_revision else None,
                revision=kv.mod_revision,
            )
            for dead, kv in zip(chunk, kvs, strict=True)
        ]

    async def _fitting(self, wanted: Wanted, chunk: Sequence[Dead]) -> list[Dead]:
        read = await self._with_records(chunk)
        return [d for d in read if d.record is not None and _looks_like(wanted, d.record)]

    async def _gone(self, chunk: Sequence[Dead]) -> set[str]:
        """Returns the uids of the jobs among these that exist no more."""
        uids = list({dead.uid for dead in chunk})
        shards = self._mesh.coordinator_shards
        states = [keys.state_key(keys.shard_of(uid, shards), uid) for uid in uids]
        found = await get_all(self._mesh.store, states, keys_only=True)
        return {uid for uid, kv in zip(uids, found, strict=True) if not kv.create_revision}

    # Acting -----------------------------------------------------------------------------------

    async def _requeue(self, asked: Sequence[Dead], time: _Time) -> list[api.Requeued]:
        """Requeues, those of a job one after the other: in their order they wait in its line.

        Gives what became of those for which there was time, in their order.
        """
        by_job: dict[str, list[Dead]] = {}
        for dead in asked:
            by_job.setdefault(dead.uid, []).append(dead)
        several = asyncio.Semaphore(_AT_ONCE)
        done: dict[bytes, api.Requeued] = {}

        async def of_job(letters: Sequence[Dead]) -> None:
            for dead in letters:
                async with several:
                    if time.spent:
                        return
                    done[dead.key] = await self._requeue_one(dead, time.left_s)

        await asyncio.gather(*map(of_job, by_job.values()))
        return [done[dead.key] for dead in asked if dead.key in done]

    async def _requeue_one(self, dead: Dead, timeout_s: float) -> api.Requeued:
        entry, record = dead.entry, dead.record
        assert record is not None, "its fingerprint was looked at"
        job = await self._finder.current(Name(entry.namespace, entry.job))
        if job is None or job.uid != dead.uid:
            return api.Requeued(run=dead.name, reason=_DELETED)
        request = internal.TriggerRequest(
            namespace=job.namespace,
            job=job.job,
            uid=job.uid,
            retry_of=dead.run_id,
            nominal_ns=record.nominal_ns,
            dead_letter=dead.key,
        )
        try:
            answer = await self._starter.ask_leader(request, timeout_s=timeout_s)
        except NotFound as error:  # deleted, or purged, in this moment
            return api.Requeued(run=dead.name, reason=error.message)
        if answer.run_name:
            return api.Requeued(run=dead.name, new_run=answer.run_name)
        return api.Requeued(run=dead.name, reason=f"{answer.decision}: {answer.reason}")

    async def _purge(self, purged: Sequence[Dead], time: _Time) -> None:
        shards = self._mesh.coordinator_shards
        by_shard: dict[int, list[bytes]] = {}
        for dead in purged:
            by_shard.setdefault(keys.shard_of(dead.uid, shards), []).append(dead.key)
        for shard, dead_letters in by_shard.items():
            request = internal.PurgeDeadRequest(shard=shard, dead_letters=dead_letters)

            async def purge(
                channel: PolicyChannel,
                left_s: float,
                request: internal.PurgeDeadRequest = request,
            ) -> object:
                return await LeaderServiceStub(channel).PurgeDead(request, timeout=left_s)

            lease = keys.coordinator_lease(shard)
            await ask_holder(self._mesh, lease, purge, timeout_s=time.left_s)


async def _next(cursor: Cursor) -> Dead | None:
    kv = await cursor.next()
    if kv is None:
        return None
    end, uid, run_id = keys.parse_ended_key(kv.key)
    return Dead(kv.key, end, uid, run_id, records.EndedRecord.FromString(kv.value))


async def _take(candidates: AsyncGenerator[Dead, None], most: int) -> list[Dead]:
    chunk: list[Dead] = []
    async for dead in candidates:
        chunk.append(dead)
        if len(chunk) == most:
            break
    return chunk


def _wanted(given: api.DeadLetterFilter) -> Wanted:
    """Checks a filter."""
    if len(given.runs) > MAX_NAMED:
        raise InvalidArgument("filter.runs", len(given.runs), f"at most {MAX_NAMED:,} runs")
    runs = tuple(dict.fromkeys(checks.run_name("filter.runs", name) for name in given.runs))
    parent = checks.parent_name("filter.parent", given.parent, jobs=True)
    checks.note("filter.fingerprint", given.fingerprint)
    after, before = 0, MAX_INSTANT + 1
    if given.HasField("after_time"):
        after = checks.instant("filter.after_time", given.after_time)
    if given.HasField("before_time"):
        before = checks.instant("filter.before_time", given.before_time)
        if before <= after:
            expected = f"a time later than {format_instant(after)}"
            raise InvalidArgument("filter.before_time", format_instant(before), expected)
    return Wanted(runs, parent, given.fingerprint, after, before)


def _wanted_or_all(given: api.DeadLetterFilter, *, everything: bool) -> Wanted:
    wanted = _wanted(given)
    if wanted.everything and not everything:
        raise InvalidArgument("filter", "nothing", "something that says which, or `all`")
    return wanted


def _limit(limit: int, most: int) -> int:
    if not 0 <= limit <= most:
        raise InvalidArgument("limit", limit, f"1 to {most:,}, or 0 for {most:,}")
    return limit or most


def _looks_like(wanted: Wanted, record: records.RunRecord) -> bool:
    return wanted.fingerprint in {"", _fingerprint(record)}


def _fingerprint(record: records.RunRecord) -> str:
    template, error = record.template, record.error
    return fingerprint(template.namespace, template.job, error.kind, error.message)


def _message(dead: Dead, *, job_deleted: bool) -> api.DeadLetter:
    assert dead.record is not None, "its fingerprint was looked at"
    return api.DeadLetter(
        run=run_message(dead.record, dead.revision, full=False),
        fingerprint=_fingerprint(dead.record),
        job_deleted=job_deleted,
    )

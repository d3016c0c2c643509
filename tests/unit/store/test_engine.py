"""The engine against slow, failing and full disks, crashes, cancelled callers, and load."""

from __future__ import annotations

import asyncio

import pytest
from unit.store.rig import Gate, Rig, puts, simulated

from sexton.errors import (
    DeadlineExceeded,
    OutcomeUnknown,
    Overloaded,
    Unavailable,
)
from sexton.internal.v1 import cluster_pb2
from sexton_runtime.kv.types import Delete, LeaseRef, Outcome, Put, Txn, absent
from sexton_runtime.randomness import SeededRandomness
from sexton_sim.loop import SimLoop
from sexton_store import cluster as clusters
from sexton_store.cluster import NewerFormatError
from sexton_store.contract import EngineConfig
from sexton_store.disk import DamagedError
from sexton_store.engine import EmbeddedEngine
from sexton_store.history import MemoryHistory, read_lines
from sexton_store.memory_disk import MemoryDisk

# Durability and order of publication


@simulated
async def test_nothing_is_told_before_its_commit_has_returned(rig: Rig) -> None:
    """S23: neither the answer, nor a watcher, nor a read, nor a lease."""
    watching = rig.engine.watch(b"")
    await anext(watching)
    before = rig.revision
    gate = rig.hold_writes()
    calls = [
        rig.begin(rig.engine.commit(puts(b"k"))),
        rig.begin(rig.engine.acquire_lease("l", "me", 1_000)),
        rig.begin(anext(watching)),
    ]
    await gate.reached.wait()
    await asyncio.sleep(1)
    assert [call.done() for call in calls] == [False, False, False]
    assert (await rig.read(b"k")).create_revision == 0
    assert await rig.do(rig.engine.list_leases()) == ()
    assert rig.revision == before
    gate.open()
    await asyncio.wait(calls)
    assert rig.revision == before + 2
    assert (await rig.read(b"k")).create_revision > before


@simulated
async def test_a_read_waits_for_what_its_snapshot_shows_to_be_known(rig: Rig) -> None:
    """Between the disk's commit and its return a snapshot is ahead of what is published."""
    gate = Gate()
    rig.disk.before_return = gate
    commit = rig.begin(rig.engine.commit(puts(b"k")))
    await gate.reached.wait()
    getting, scanning = rig.begin(rig.engine.get([b"k"])), rig.begin(rig.engine.scan())
    await asyncio.sleep(1)
    assert not getting.done()
    assert not scanning.done()
    gate.open()
    (result,) = await commit
    snapshot, page = await getting, await scanning
    assert snapshot.revision == page.revision == result.revision
    assert snapshot.kvs[0].create_revision == page.kvs[0].create_revision == result.revision


@simulated
async def test_reads_go_on_while_a_write_is_slow(rig: Rig) -> None:
    await rig.put(b"k", b"old")
    gate = rig.hold_writes()
    rig.begin(rig.engine.commit([Txn(then=(Put(b"k", b"new"),))]))
    await gate.reached.wait()
    assert (await rig.read(b"k")).value == b"old"


@simulated
async def test_what_was_not_durable_is_lost_and_what_was_is_kept(rig: Rig) -> None:
    """S2."""
    kept = await rig.put(b"acknowledged")
    gate = rig.hold_writes()
    rig.begin(rig.engine.commit(puts(b"lost")))
    await gate.reached.wait()
    await rig.kill()
    assert rig.revision == kept.revision
    gate = Gate()
    rig.disk.before_return = gate
    rig.begin(rig.engine.commit(puts(b"unanswered")))
    await gate.reached.wait()
    await rig.kill()
    page = await rig.do(rig.engine.scan())
    assert [kv.key for kv in page.kvs] == [b"acknowledged", b"unanswered"]
    assert rig.revision == kept.revision + 1


@simulated
async def test_requests_that_gather_behind_a_write_share_the_next_one(rig: Rig) -> None:
    gate = rig.hold_writes()
    calls = [rig.begin(rig.engine.commit(puts(b"k0")))]
    await gate.reached.wait()
    writes = rig.disk.writes
    calls += [rig.begin(rig.engine.commit(puts(b"k%d" % n))) for n in range(1, 50)]
    await asyncio.sleep(0)
    gate.open()
    await asyncio.gather(*calls)
    assert rig.disk.writes == writes + 2


@simulated
async def test_a_step_that_changes_nothing_is_not_written(rig: Rig) -> None:
    await rig.put(b"k")
    writes = rig.disk.writes
    refused = Txn(compares=(absent(b"k"),), then=(Put(b"k", b""),))
    await rig.do(rig.engine.commit([refused, Txn(then=(Delete(b"gone"),))]))
    assert rig.disk.writes == writes


@simulated
async def test_a_key_created_and_deleted_in_one_step_is_seen_by_watchers_only(rig: Rig) -> None:
    watching = rig.engine.watch(b"k")
    await anext(watching)
    await rig.do(rig.engine.commit([*puts(b"k"), Txn(then=(Delete(b"k"),))]))
    batch = await anext(watching)
    assert len(batch.revisions) == 2
    await rig.kill()
    assert (await rig.read(b"k")).create_revision == 0


# Callers that go away


@simulated
async def test_a_cancelled_callers_waiting_batch_is_dropped(rig: Rig) -> None:
    gate = rig.hold_writes()
    first = rig.begin(rig.engine.commit(puts(b"first")))
    await gate.reached.wait()
    dropped = rig.begin(rig.engine.commit(puts(b"dropped")))
    await asyncio.sleep(0)
    dropped.cancel()
    await asyncio.wait([dropped])
    status = rig.engine.status()
    assert (status.waiting_requests, status.waiting_bytes) == (0, 0)
    gate.open()
    await first
    await rig.put(b"last")
    assert (await rig.read(b"dropped")).create_revision == 0
    assert rig.engine.status().counters.dropped == 1


@simulated
async def test_a_cancelled_callers_evaluated_batch_is_carried_through(rig: Rig) -> None:
    gate = rig.hold_writes()
    call = rig.begin(rig.engine.commit(puts(b"k")))
    await gate.reached.wait()
    call.cancel()
    await asyncio.wait([call])
    assert call.cancelled()
    gate.open()
    await rig.put(b"last")
    assert (await rig.read(b"k")).create_revision > 0


@simulated
async def test_a_batch_whose_time_is_up_while_it_waits_is_told_so_at_once(rig: Rig) -> None:
    gate = rig.hold_writes()
    first = rig.begin(rig.engine.commit(puts(b"first")))
    await gate.reached.wait()
    began = rig.loop.now_ns
    with pytest.raises(DeadlineExceeded):
        await rig.do(rig.engine.commit(puts(b"late"), timeout_s=2))
    assert rig.loop.now_ns - began == 2_000_000_000
    assert not first.done()
    gate.open()
    await first
    await rig.put(b"last")
    assert (await rig.read(b"late")).create_revision == 0


@simulated
async def test_a_batch_that_was_begun_in_time_is_answered_however_long_it_takes(
    rig: Rig,
) -> None:
    rig.slow_writes(10)
    (result,) = await rig.do(rig.engine.commit(puts(b"k"), timeout_s=1))
    assert result.outcome is Outcome.COMMITTED


@simulated
async def test_a_suspended_store_applies_nothing_blindly_when_it_wakes(rig: Rig) -> None:
    gate = rig.hold_writes()
    first = rig.begin(rig.engine.commit(puts(b"first"), timeout_s=60))
    await gate.reached.wait()
    late = rig.begin(rig.engine.commit(puts(b"late"), timeout_s=1))
    await asyncio.sleep(0)
    rig.process.suspend()
    gate.open()
    await asyncio.sleep(10)
    rig.process.resume()
    await first
    with pytest.raises(DeadlineExceeded):
        await late
    assert (await rig.read(b"late")).create_revision == 0


# Failing and full disks


@pytest.mark.parametrize("with_effect", [False, True])
def test_an_unknown_outcome_stops_the_store(*, with_effect: bool) -> None:
    @simulated
    async def scenario(rig: Rig) -> None:
        kept = await rig.put(b"kept")
        watching = rig.engine.watch(b"")
        await anext(watching)
        gate = rig.hold_writes()
        rig.disk.fail_next(with_effect=with_effect)
        unknown = rig.begin(rig.engine.commit(puts(b"unknown")))
        await gate.reached.wait()
        waiting = rig.begin(rig.engine.commit(puts(b"waiting")))
        await asyncio.sleep(0)
        gate.open()
        with pytest.raises(OutcomeUnknown):
            await unknown
        with pytest.raises(Unavailable) as refused:
            await waiting
        assert not isinstance(refused.value, OutcomeUnknown)
        assert rig.engine.failed.is_set()
        for call in (
            rig.engine.commit(puts(b"k")),
            rig.engine.get([b"k"]),
            rig.engine.scan(),
            rig.engine.acquire_lease("l", "me", 1_000),
            rig.engine.renew_leases([LeaseRef("l", 1)]),
            rig.engine.list_leases(),
            anext(watching),
            anext(rig.engine.watch(b"")),
        ):
            with pytest.raises(Unavailable):
                await rig.do(call)
        await rig.do(rig.engine.stop())
        await rig.kill()
        assert (await rig.read(b"unknown")).create_revision == (
            kept.revision + 1 if with_effect else 0
        )
        assert (await rig.read(b"waiting")).create_revision == 0
        assert (await rig.put(b"next")).revision == kept.revision + (2 if with_effect else 1)

    scenario()


# Load


@simulated
async def test_a_small_request_does_not_wait_behind_bulk_commits(rig: Rig) -> None:
    rig.slow_writes(1)
    bulk = [
        rig.begin(rig.engine.commit(puts(*(b"b%d/%d" % (n, m) for m in range(1_000)))))
        for n in range(16)
    ]
    await asyncio.sleep(0.5)
    began = rig.loop.now_ns
    await rig.put(b"small")
    assert rig.loop.now_ns - began <= 1_500_000_000
    assert sum(not call.done() for call in bulk) >= 12
    await asyncio.gather(*bulk)


@simulated
async def test_bulk_commits_get_on_under_any_number_of_small_requests(rig: Rig) -> None:
    rig.slow_writes(1)

    async def keep_asking(number: int) -> None:
        while True:
            await rig.engine.commit(puts(*(b"s%d/%d" % (number, n) for n in range(16))))

    asking = [rig.begin(keep_asking(number)) for number in range(300)]
    await asyncio.sleep(0.1)
    began = rig.loop.now_ns
    await rig.do(rig.engine.commit(puts(*(b"b/%d" % n for n in range(1_000)))))
    assert rig.loop.now_ns - began <= 2_000_000_000
    for task in asking:
        task.cancel()


@simulated
async def test_others_run_while_a_long_batch_is_evaluated(rig: Rig) -> None:
    ops = tuple(Put(b"k%d" % n, b"") for n in range(100))
    call = rig.begin(rig.engine.commit([Txn(then=ops)] * 200))
    turns = 0
    while not call.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10


def test_too_much_that_waits_is_refused_but_leases_are_not() -> None:
    loop = SimLoop()

    async def main() -> None:
        config = EngineConfig(max_waiting_requests=3, max_waiting_bytes=100_000)
        rig = Rig(loop, config=config)
        await rig.start()
        gate = rig.hold_writes()
        first = rig.begin(rig.engine.commit(puts(b"k")))
        await gate.reached.wait()
        big = rig.begin(rig.engine.commit(puts(b"big", size=90_000)))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="bytes"):
            await rig.do(rig.engine.commit(puts(b"x", size=20_000)))
        calls = [rig.begin(rig.engine.commit(puts(b"k"))) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="requests"):
            await rig.do(rig.engine.commit(puts(b"k")))
        lease = rig.begin(rig.engine.acquire_lease("l", "me", 1_000))
        await asyncio.sleep(0)
        gate.open()
        await asyncio.gather(first, big, *calls)
        assert (await lease).granted
        assert (await rig.put(b"x")).outcome is Outcome.COMMITTED
        assert (await rig.read(b"x")).value == b""
        assert rig.engine.status().counters.overloaded == 2

    loop.run(main())


# Life


@simulated
async def test_stopping_answers_what_waits_and_refuses_what_comes(rig: Rig) -> None:
    watching = rig.engine.watch(b"")
    await anext(watching)
    gate = rig.hold_writes()
    first = rig.begin(rig.engine.commit(puts(b"first")))
    await gate.reached.wait()
    second = rig.begin(rig.engine.commit(puts(b"second")))
    await asyncio.sleep(0)
    stopping = rig.begin(rig.engine.stop())
    await asyncio.sleep(0)
    with pytest.raises(Unavailable):
        await rig.do(rig.engine.commit(puts(b"k")))
    gate.open()
    await stopping
    assert (await first)[0].revision + 1 == (await second)[0].revision
    with pytest.raises(Unavailable):
        await anext(watching)
    await rig.do(rig.engine.stop())
    with pytest.raises(Unavailable):
        await rig.do(rig.engine.get([b"k"]))


def test_an_engine_that_has_not_started_is_unavailable() -> None:
    loop = SimLoop()

    async def main() -> None:
        engine = EmbeddedEngine(MemoryDisk(), loop.system.clock, SeededRandomness(1))
        with pytest.raises(Unavailable):
            await engine.get([b"k"])
        await engine.stop()

    loop.run(main())


@simulated
async def test_a_store_keeps_its_identity(rig: Rig) -> None:
    before = rig.engine.status()
    assert (before.epoch, before.format_version) == (0, 1)
    await rig.kill()
    after = rig.engine.status()
    assert (after.cluster_id, after.incarnation) == (before.cluster_id, before.incarnation)
    assert rig.engine.incarnation == before.incarnation
    assert len({before.cluster_id, before.incarnation}) == 2


def test_the_shards_are_fixed_when_a_cluster_is_created() -> None:
    loop = SimLoop()

    async def main() -> None:
        rig = Rig(loop, config=EngineConfig(coordinator_shards=3, queue_shards=5))
        await rig.start()
        rig.config = EngineConfig()
        await rig.kill()
        status = rig.engine.status()
        assert (status.coordinator_shards, status.queue_shards) == (3, 5)
        with pytest.raises(ValueError, match="0 queue shards"):
            clusters.create(SeededRandomness(1), coordinator_shards=1, queue_shards=0)

    loop.run(main())


@simulated
async def test_data_of_newer_software_is_refused(rig: Rig) -> None:
    await rig.put(b"k")
    stored = rig.disk.cluster_record()
    assert stored is not None
    record = cluster_pb2.ClusterRecord.FromString(stored)
    record.format_version = clusters.FORMAT_VERSION + 1
    with pytest.raises(NewerFormatError, match="format 2, but this software reads formats up to 1"):
        clusters.decode(record.SerializeToString())
    for broken in (b"\xff", b""):
        with pytest.raises(DamagedError):
            clusters.decode(broken)


@simulated
async def test_an_idle_watcher_hears_of_progress(rig: Rig) -> None:
    watching = rig.engine.watch(b"a/")
    await anext(watching)
    at = await rig.put(b"b/k")
    began = rig.loop.now_ns
    batch = await rig.do(anext(watching))
    assert (batch.revisions, batch.progress_revision) == ((), at.revision)
    assert rig.loop.now_ns - began <= 5_050_000_000


# History


def test_history_tells_what_became_durable_and_nothing_else() -> None:
    loop = SimLoop()

    async def main() -> None:
        history = MemoryHistory()
        rig = Rig(loop, disk=MemoryDisk(history=history), config=EngineConfig(history=True))
        await rig.start()
        first = await rig.put(b"k", b"1")
        refused = Txn(compares=(absent(b"k"),), then=(Put(b"k", b"x"),), orelse=(Delete(b"k"),))
        await rig.do(rig.engine.commit([refused]))
        gate = rig.hold_writes()
        rig.begin(rig.engine.commit(puts(b"lost")))
        await gate.reached.wait()
        await rig.kill()
        lease = (await rig.do(rig.engine.acquire_lease("l", "me", 60_000))).lease
        commits = list(read_lines(history.lines))
        assert [commit.revision for commit in commits] == [1, 2, 3]
        assert commits[0].changes[0].before is None
        assert commits[0].changes[0].after == (b"1", first.revision, first.revision, 1)
        assert commits[1].compares == ()
        assert commits[1].changes[0].before == (b"1", first.revision, first.revision, 1)
        assert commits[1].changes[0].after is None
        assert commits[2].compares == (absent(b"leases/l"),)
        assert lease.token == 3
        stamps = [commit.boot_ns for commit in commits]
        assert stamps == sorted(stamps)
        assert stamps[0] == rig.machine.boot_ns()

    loop.run(main())


@simulated
async def test_what_the_caller_does_to_its_list_does_not_reach_the_store(rig: Rig) -> None:
    txns = puts(b"k")
    call = rig.begin(rig.engine.commit(txns))
    await asyncio.sleep(0)
    txns.append(Txn(then=(Put(b"", b""),)))
    assert len(await call) == 1


@simulated
async def test_a_step_on_its_way_is_answered_also_when_the_store_fails_elsewhere(
    rig: Rig,
) -> None:
    gate = rig.hold_writes()
    rig.disk.fail_next(with_effect=True)
    call = rig.begin(rig.engine.commit(puts(b"k")))
    await gate.reached.wait()
    rig.engine._live.writer.fail((), RuntimeError("the ticker broke"))
    gate.open()
    with pytest.raises(OutcomeUnknown):
        await call
    assert rig.engine.failed.is_set()

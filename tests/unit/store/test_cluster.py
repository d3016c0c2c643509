"""The cluster record, and what a restore makes of it."""

from __future__ import annotations

import pytest

from sexton_runtime.kv.status import ClockState
from sexton_runtime.randomness import SeededRandomness
from sexton_store import cluster as clusters
from sexton_store.mesh_clock import ClockRecord

S = 1_000_000_000
NOW_NS = 1_800_000_000 * S
BY_TIME = 1_800_000_000 * 2**21
CLOCK = ClockRecord("boot", 5, NOW_NS, 7, ClockState.DISPUTED, 3)


@pytest.fixture
def cluster() -> clusters.Cluster:
    return clusters.create(SeededRandomness(1), coordinator_shards=2, queue_shards=3)


def test_a_record_is_read_as_it_was_written(cluster: clusters.Cluster) -> None:
    data = clusters.encode(cluster, 41, CLOCK)
    assert clusters.decode(data) == clusters.ClusterState(cluster, 41, CLOCK)


@pytest.mark.parametrize(
    ("backup", "replaced", "expected"),
    [
        (41, 0, BY_TIME),
        (BY_TIME + 5, 0, BY_TIME + 6),
        (41, BY_TIME + 5, BY_TIME + 6),
        (BY_TIME + 5, BY_TIME + 9, BY_TIME + 10),
    ],
)
def test_a_restored_store_begins_above_every_revision_ever_given_out(
    cluster: clusters.Cluster, backup: int, replaced: int, expected: int
) -> None:
    """S3."""
    data = clusters.restored(
        clusters.encode(cluster, backup, CLOCK),
        replaced_revision=replaced,
        wall_ns=NOW_NS,
        incarnation="another",
    )
    state = clusters.decode(data)
    assert state.revision == expected
    assert (state.cluster.cluster_id, state.cluster.incarnation, state.cluster.epoch) == (
        cluster.cluster_id,
        "another",
        1,
    )


def test_a_restore_is_another_boot_and_settles_no_dispute(cluster: clusters.Cluster) -> None:
    data = clusters.restored(
        clusters.encode(cluster, 1, CLOCK), replaced_revision=0, wall_ns=NOW_NS, incarnation="x"
    )
    assert clusters.decode(data).clock == CLOCK._replace(boot_id="", boot_ns=0)


def test_a_revision_that_would_not_be_exact_everywhere_is_refused(
    cluster: clusters.Cluster,
) -> None:
    backup = clusters.encode(cluster, 1, CLOCK)
    with pytest.raises(ValueError, match="set the wall clock"):
        clusters.restored(backup, replaced_revision=0, wall_ns=2**32 * S, incarnation="x")


@pytest.mark.parametrize("shards", [0, -1, 1_001])
def test_a_cluster_has_1_to_1000_shards(shards: int) -> None:
    with pytest.raises(ValueError, match=f"{shards} coordinator shards"):
        clusters.create(SeededRandomness(1), coordinator_shards=shards, queue_shards=1)


def test_a_leases_record_is_read_as_it_was_written() -> None:
    data = clusters.encode_lease("holder", 1_000, b"\0value")
    assert clusters.decode_lease(data) == ("holder", 1_000, b"\0value")


def test_shards_are_what_they_were_created_with(cluster: clusters.Cluster) -> None:
    cluster.check_shards(None, None)
    cluster.check_shards(2, 3)
    with pytest.raises(clusters.ShardsFixedError, match=r"queue_shards is 4, .* created with 3"):
        cluster.check_shards(None, 4)

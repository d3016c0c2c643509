"""The lease table and the awake clock."""

from __future__ import annotations

import pytest

from sexton_runtime.kv.types import Lease, Renewal
from sexton_store.leases import AwakeClock, LeaseTable

MS = 1_000_000
S = 1_000 * MS
RENEWED, REFUSED = Renewal(True, 1_000), Renewal(False, 0)


@pytest.fixture
def table() -> LeaseTable:
    """One lease `a` of 1 s with token 7, granted at awake time 0."""
    table = LeaseTable()
    table.grant("a", holder="h", token=7, ttl_ms=1_000, value=b"v", awake_ns=0)
    return table


def test_awake_time_counts_what_passes_between_looks() -> None:
    clock = AwakeClock(5 * S)
    assert [clock.look(5 * S + n * 50 * MS) for n in range(4)] == [0, 50 * MS, 100 * MS, 150 * MS]


def test_a_store_that_was_stopped_counts_a_quarter_of_a_second() -> None:
    clock = AwakeClock(0)
    assert clock.look(250 * MS) == 250 * MS
    assert clock.look(3_600 * S) == 500 * MS
    assert clock.look(3_600 * S + MS) == 501 * MS


def test_awake_time_does_not_go_back() -> None:
    clock = AwakeClock(S)
    assert clock.look(S + MS) == MS
    assert clock.look(0) == MS
    assert clock.look(S + 2 * MS) == 2 * MS


def test_a_lease_is_due_at_its_deadline_and_not_before(table: LeaseTable) -> None:
    assert table.due(S - 1) == []
    assert table.due(S) == [("a", 7)]


def test_a_renewal_gives_the_full_time_again(table: LeaseTable) -> None:
    assert table.renew("a", 7, 900 * MS) == RENEWED
    assert table.due(S) == []
    assert table.due(1_900 * MS - 1) == []
    assert table.due(1_900 * MS) == [("a", 7)]


def test_a_late_renewal_is_in_time_until_the_end_is_evaluated(table: LeaseTable) -> None:
    assert table.due(2 * S) == [("a", 7)]
    assert table.renew("a", 7, 2 * S) == RENEWED
    assert table.due(2 * S) == []
    table.end("a", 7)
    assert table.renew("a", 7, 2 * S) == REFUSED


def test_an_end_that_found_no_space_stays_refused_and_due(table: LeaseTable) -> None:
    table.end("a", 7)
    assert table.renew("a", 7, 0) == REFUSED
    assert table.due(S) == [("a", 7)]
    assert table.due(S) == [("a", 7)]
    table.drop("a", 7)
    assert table.due(S) == []


@pytest.mark.parametrize("token", [6, 8])
def test_another_token_renews_ends_and_drops_nothing(table: LeaseTable, token: int) -> None:
    assert table.renew("a", token, 0) == REFUSED
    table.end("a", token)
    table.drop("a", token)
    assert table.renew("a", 7, 0) == RENEWED


def test_the_first_of_many_to_run_out_is_found_although_others_were_renewed() -> None:
    table = LeaseTable()
    for number in range(5):
        table.grant(f"l{number}", holder="h", token=1, ttl_ms=100 + number, value=b"", awake_ns=0)
    for number in (0, 1, 3, 4):
        table.renew(f"l{number}", 1, 90 * MS)
    assert table.due(101 * MS) == []
    assert table.due(102 * MS) == [("l2", 1)]


def test_a_short_lease_granted_later_is_due_before_a_long_one(table: LeaseTable) -> None:
    assert table.due(10 * MS) == []
    table.grant("b", holder="h", token=8, ttl_ms=100, value=b"", awake_ns=10 * MS)
    assert table.due(110 * MS) == [("b", 8)]


def test_what_is_due_comes_in_order_of_name() -> None:
    table = LeaseTable()
    for name in ("c", "a", "b"):
        table.grant(name, holder="h", token=1, ttl_ms=100, value=b"", awake_ns=0)
    assert table.due(S) == [("a", 1), ("b", 1), ("c", 1)]


def test_a_lease_tells_the_time_that_it_has_left(table: LeaseTable) -> None:
    assert table.find("a", 300 * MS) == Lease("a", "h", 7, 1_000, b"v", 700)
    assert table.find("a", 5 * S) == Lease("a", "h", 7, 1_000, b"v", 0)
    assert table.find("b", 0) is None
    assert [lease.remaining_ms for lease in table.list("", 300 * MS)] == [700]

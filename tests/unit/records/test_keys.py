"""Keys sort as their readers rely on, and say what they were made of."""

from hypothesis import given
from hypothesis import strategies as st

from sexton_core.policy.state import Handle
from sexton_records import keys

UID = "abcdefghijklmnopqrstuvwx"
RUN = "t20261129T030000Z-abcdefgh"
INSTANTS = st.integers(0, 2**63 - 1)
HANDLES = st.builds(
    Handle, st.just(RUN), st.sampled_from(["default", "reports"]), st.integers(-100, 100), INSTANTS
)


def test_a_handle_key_reads_as_documented() -> None:
    handle = Handle(RUN, "reports", 5, 1_000)
    key = keys.handle_key(7, UID, handle)
    assert key == (
        b"active/007/reports/095/00000000000000001000/"
        b"abcdefghijklmnopqrstuvwx/t20261129T030000Z-abcdefgh"
    )
    assert keys.parse_handle_key(key) == (7, "reports", 5, 1_000, UID, RUN)
    assert keys.run_id_of(key) == RUN


@given(HANDLES, HANDLES)
def test_within_a_queue_higher_priority_sorts_first_and_then_the_earlier_time(
    first: Handle, second: Handle
) -> None:
    second = second._replace(queue=first.queue)
    ordered = (-first.priority, first.not_before) < (-second.priority, second.not_before)
    same = (first.priority, first.not_before) == (second.priority, second.not_before)
    assert same or ordered == (keys.handle_key(0, UID, first) < keys.handle_key(0, UID, second))


@given(INSTANTS, INSTANTS)
def test_timers_sort_by_time_and_the_due_ones_lie_before_the_bound(due: int, now: int) -> None:
    key = keys.timer_key(3, due, UID)
    assert keys.parse_timer_key(key) == (3, due, UID)
    assert (keys.timers_prefix(3) <= key < keys.timers_until(3, now)) == (due <= now)


def test_a_decision_that_covers_an_instant_is_the_first_one_from_it_on() -> None:
    earlier = keys.decision_key(UID, 100, 50)
    covering = keys.decision_key(UID, 200, 110)
    assert earlier < keys.decisions_from(UID, 150) <= covering


def test_shards_never_move() -> None:
    assert keys.shard_of(UID, 1) == 0
    assert [keys.shard_of(f"job-{n}", 16) for n in range(6)] == SHARDS_OF_SIX_JOBS


SHARDS_OF_SIX_JOBS = [4, 8, 5, 5, 13, 13]


def test_requests_of_other_methods_and_namespaces_are_other_requests() -> None:
    made = {
        keys.request_key(0, namespace, method, request)
        for namespace in ("a", "b")
        for method in ("TriggerJob", "CreateJob")
        for request in ("x", "y")
    }
    assert len(made) == 8

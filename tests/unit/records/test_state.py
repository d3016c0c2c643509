"""Every record gives back what went in."""

from hypothesis import given
from hypothesis import strategies as st

from sexton.internal.v1 import records_pb2 as pb
from sexton_core.policy.state import (
    Buffered,
    Counters,
    DecisionRange,
    Handle,
    JobState,
    Rule,
)
from sexton_core.words import Ask, Decision, Origin, Overlap, Reason
from sexton_records import state as codec

INSTANTS = st.integers(0, 2**63 - 1)
MAYBE = st.none() | INSTANTS
RUNS = st.sampled_from(["t20261129T030000Z-abcdefgh", "m20261129T030000Z-abcdefghijklmnop"])
HANDLES = st.builds(Handle, RUNS, st.just("default"), st.integers(-100, 100), INSTANTS)
BUFFERED = st.builds(
    Buffered,
    RUNS,
    st.sampled_from(Origin),
    INSTANTS,
    INSTANTS,
    st.integers(1, 99),
    st.sampled_from(Overlap),
    st.sampled_from(Ask),
    RUNS,
    INSTANTS,
)
STATES = st.builds(
    JobState,
    cursor=INSTANTS,
    armed=MAYBE,
    rules=st.lists(st.builds(Rule, INSTANTS, st.integers(1, 99)), max_size=3).map(tuple),
    live=st.lists(HANDLES, max_size=3).map(tuple),
    counters=st.builds(Counters, *[st.integers(0, 2**40)] * 5),
    paused_at=MAYBE,
    resumed=MAYBE,
)


@given(STATES, st.lists(BUFFERED, max_size=3).map(tuple), MAYBE)
def test_a_state_survives_the_store(
    state: JobState, waiting: tuple[Buffered, ...], timer: int | None
) -> None:
    names = pb.TimerRecord(namespace="default", job="nightly").SerializeToString()
    record = pb.StateRecord.FromString(names + codec.encode_state(state, timer))
    assert (record.namespace, record.job) == ("default", "nightly")
    assert (record.timer_ns if record.HasField("timer_ns") else None) == timer
    assert codec.decode_state(record, waiting) == state._replace(buffered=waiting)


@given(STATES, MAYBE)
def test_a_state_is_written_as_its_message_would_be(state: JobState, timer: int | None) -> None:
    record = pb.StateRecord(
        cursor_ns=state.cursor,
        armed_ns=state.armed,
        rules=[pb.RuleRecord(after_ns=after, version=version) for after, version in state.rules],
        live=[codec.handle_name(handle) for handle in state.live],
        counters=pb.CountersRecord(**state.counters._asdict()),
        paused_at_ns=state.paused_at,
        resumed_ns=state.resumed,
        timer_ns=timer,
    )
    assert codec.encode_state(state, timer) == record.SerializeToString()
    names = pb.TimerRecord(namespace="default", job="nightly")
    assert codec.encode_timer("default", "nightly") == names.SerializeToString()


def test_a_state_is_written_so_with_the_longest_names_too() -> None:
    run = "b" + "a" * 16 + "-20261129T030000Z"
    handle = Handle(run, "q" * 63, -100, 2**63 - 1)
    state = JobState(cursor=1, armed=None, rules=(), live=(handle,))
    record = pb.StateRecord(cursor_ns=1, live=[codec.handle_name(handle)])
    record.counters.SetInParent()
    assert codec.encode_state(state, None) == record.SerializeToString()


@given(BUFFERED)
def test_a_waiting_start_survives_the_store(start: Buffered) -> None:
    record = pb.BufferedRecord.FromString(codec.encode_buffered(start))
    assert codec.decode_buffered(record) == start


@given(
    st.builds(
        DecisionRange,
        st.sampled_from(sorted(codec.DECISIONS)),
        st.sampled_from(Reason),
        INSTANTS,
        INSTANTS,
        st.integers(1, 2**40),
        st.booleans(),
        st.integers(1, 99),
        INSTANTS,
        st.none() | RUNS,
        st.none() | RUNS,
        st.sampled_from(Origin),
    )
)
def test_a_decision_survives_the_store(decision: DecisionRange) -> None:
    record = pb.DecisionRecord.FromString(codec.encode_decision(decision))
    assert codec.decode_decision(record) == decision


def test_every_word_of_the_vocabulary_has_its_value_on_the_wire() -> None:
    assert set(codec.ORIGINS) == set(Origin)
    assert set(codec.OVERLAPS) == set(Overlap)
    assert set(codec.ASKS) == set(Ask)
    assert set(codec.DECISIONS) == set(Decision) - {Decision.FIRED, Decision.BUFFERED}

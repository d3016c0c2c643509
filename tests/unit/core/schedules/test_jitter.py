"""Jitter: the same for ever, different for every run, never past the next nominal time."""

from hypothesis import given
from hypothesis import strategies as st

from sexton_core.instants import HOUR, MINUTE, SECOND, parse_instant
from sexton_core.schedules import CronTiming, EveryTiming, JobIdentity, ScheduleSpec, build
from sexton_core.schedules.jitter import delay_of

NOW = parse_instant("2026-11-29T03:00:00Z")
UID = "abcdefghijklmnopqrstuvwx"


def test_a_delay_is_the_same_on_every_machine_and_in_every_version():
    assert delay_of(UID, NOW, 30 * MINUTE, None) == 1_181_878_535_107
    assert delay_of(UID, NOW + HOUR, 30 * MINUTE, None) == 1_088_926_951_593
    assert delay_of(UID[::-1], NOW, 30 * MINUTE, None) == 308_678_677_019


@given(
    st.text(max_size=30),
    st.integers(0, 10**19),
    st.integers(0, 10**15),
    st.one_of(st.none(), st.integers(1, 10**13)),
)
def test_a_delay_is_within_its_bound_and_before_the_next_time(uid, nominal, jitter_ns, gap):
    following = None if gap is None else nominal + gap
    delay = delay_of(uid, nominal, jitter_ns, following)
    assert 0 <= delay <= jitter_ns
    assert following is None or nominal + delay < following


def test_runs_never_overtake_each_other_with_jitter_longer_than_the_interval():
    spec = ScheduleSpec(timing=EveryTiming(period_ns=10 * SECOND), jitter_ns=HOUR)
    schedule = build(spec, JobIdentity(namespace="default", name="job", uid=UID))
    nominal = NOW
    for _ in range(200):
        following = schedule.next_after(nominal)
        assert nominal <= schedule.due_at(nominal) < following
        nominal = following


def test_a_thousand_jobs_of_one_minute_are_spread_evenly_over_it():
    spec = ScheduleSpec(timing=CronTiming(expression="0 9 * * *"), jitter_ns=MINUTE)
    nominal = parse_instant("2026-11-30T09:00:00Z")
    quarters = [0, 0, 0, 0]
    for number in range(1_000):
        job = JobIdentity(namespace="default", name=f"j{number}", uid=f"{number}")
        quarters[(build(spec, job).due_at(nominal) - nominal) // (15 * SECOND)] += 1
    assert all(200 < quarter < 300 for quarter in quarters)


def test_without_jitter_a_run_is_due_at_its_nominal_time():
    schedule = build(ScheduleSpec(timing=CronTiming(expression="0 9 * * *")))
    assert schedule.due_at(NOW) == NOW

"""The policies over real schedules: cron, calendars, jitter, DST, unions."""

from datetime import date
from itertools import pairwise

from unit.core.policy.world import UID

from sexton_core.instants import DAY, HOUR, MINUTE, SECOND, format_instant, parse_instant
from sexton_core.policy import (
    CatchUp,
    Definition,
    Job,
    JobState,
    Verdict,
    create,
    decide,
    explain,
    resume,
)
from sexton_core.policy.change import pause
from sexton_core.policy.timeline import Timeline
from sexton_core.schedules import (
    AnySpec,
    CalendarSpec,
    CronTiming,
    EveryTiming,
    JobIdentity,
    ScheduleSpec,
    UnionSpec,
    build,
)
from sexton_core.words import CatchUpPolicy, Decision, Overlap, ResumeMode

IDENTITY = JobIdentity(namespace="default", name="report", uid=UID)


def job_of_spec(spec: AnySpec, catch_up: CatchUp | None = None) -> Job:
    schedule = build(spec, IDENTITY)
    return Job(
        namespace="default",
        name="report",
        uid=UID,
        created_at=0,
        definitions=(
            Definition(
                version=1,
                schedule=schedule,
                unfiltered=schedule.unfiltered,
                jitter_ns=schedule.jitter_ns,
                overlap=Overlap.ALLOW_ALL,
                catch_up=catch_up or CatchUp(),
            ),
        ),
    )


def cron(expression: str, timezone: str = "UTC", **fields: object) -> ScheduleSpec:
    return ScheduleSpec(timing=CronTiming(expression=expression), timezone=timezone, **fields)  # type: ignore[arg-type]


def follow(job: Job, begin: str, end: str) -> tuple[JobState, list[Verdict]]:
    """Decides each start when it is due."""
    state = create(job, parse_instant(begin)).state
    verdicts = [decide(job, state, parse_instant(begin))]
    while (due := verdicts[-1].next_due) is not None and due <= parse_instant(end):
        verdicts.append(decide(job, verdicts[-1].state, due, {h.run_id for h in state.live}))
        state = verdicts[-1].state
    return state, verdicts


def fired(verdicts: list[Verdict]) -> list[str]:
    return [format_instant(run.nominal) for verdict in verdicts for run in verdict.runs]


def test_a_daily_job_runs_once_on_each_day_of_both_changes_of_the_clock() -> None:
    job = job_of_spec(cron("30 2 * * *", "Europe/Berlin"))
    _, spring = follow(job, "2027-03-27T12:00:00Z", "2027-03-29T12:00:00Z")
    assert fired(spring) == ["2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"]
    _, autumn = follow(job, "2027-10-30T12:00:00Z", "2027-11-01T12:00:00Z")
    assert fired(autumn) == ["2027-10-31T00:30:00Z", "2027-11-01T01:30:00Z"]


def test_an_outage_over_a_change_of_the_clock_is_caught_up_by_the_same_rules() -> None:
    catch_up = CatchUp(policy=CatchUpPolicy.ALL, window_ns=DAY)
    job = job_of_spec(cron("0 * * * *", "Europe/Berlin"), catch_up)
    state = create(job, parse_instant("2027-10-30T22:30:00Z")).state
    verdict = decide(job, state, parse_instant("2027-10-31T03:30:00Z"))
    assert fired([verdict]) == [
        f"2027-10-{day}:00:00Z" for day in ("30T23", "31T00", "31T01", "31T02", "31T03")
    ]


def test_jitter_of_the_timeline_is_the_jitter_of_the_schedule() -> None:
    spec = ScheduleSpec(timing=EveryTiming(period_ns=MINUTE), timezone="UTC", jitter_ns=HOUR)
    job = job_of_spec(spec)
    schedule = build(spec, IDENTITY)
    state = create(job, parse_instant("2026-11-29T00:00:00Z")).state
    timeline = Timeline(job, state.rules)
    nominal = state.armed or 0
    for _ in range(100):
        assert timeline.due(nominal) == schedule.due_at(nominal)
        nominal += MINUTE
    _, verdicts = follow(job, "2026-11-29T00:00:00Z", "2026-11-29T01:00:00Z")
    dues = [run.due for verdict in verdicts for run in verdict.runs]
    assert all(earlier < later for earlier, later in pairwise(dues))


def test_an_excluded_day_is_recorded_and_explained_by_the_name_of_its_calendar() -> None:
    closed = CalendarSpec(name="closed", dates=(date(2026, 12, 24),))
    job = job_of_spec(cron("0 3 * * *", "Europe/Berlin", exclude=(closed,)))
    state, verdicts = follow(job, "2026-12-23T00:00:00Z", "2026-12-26T00:00:00Z")
    assert fired(verdicts) == ["2026-12-23T02:00:00Z", "2026-12-25T02:00:00Z"]
    excluded = [record for verdict in verdicts for record in verdict.ranges]
    assert [record.decision for record in excluded] == [Decision.EXCLUDED]
    at = parse_instant("2026-12-24T02:00:00Z")
    answer = explain(job, state, at, parse_instant("2026-12-26T00:00:00Z"))
    assert answer.decision is Decision.EXCLUDED
    assert answer.summary == "2026-12-24T02:00:00Z: the calendar closed excludes it."


def test_a_union_has_one_cursor_and_fires_equal_times_once() -> None:
    union = UnionSpec(parts=(cron("0 9 * * *"), cron("0 */3 * * *")))
    _, verdicts = follow(job_of_spec(union), "2026-11-29T05:00:00Z", "2026-11-29T12:00:00Z")
    assert fired(verdicts) == [f"2026-11-29T{hour}:00:00Z" for hour in ("06", "09", "12")]


def test_a_job_of_every_second_paused_for_ten_years_resumes_at_once() -> None:
    job = job_of_spec(cron("* * * * * *"))
    begin = parse_instant("2026-11-29T00:00:00Z")
    state = pause(job, create(job, begin).state, begin).state
    change = resume(job, state, begin + 3_650 * DAY, ResumeMode.NEXT)
    assert len(change.ranges) == 1
    assert change.ranges[0].last == begin + 3_650 * DAY
    assert change.next_due == begin + 3_650 * DAY + SECOND

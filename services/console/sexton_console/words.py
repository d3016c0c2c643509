"""The words of the wire as pages show them: states, names of resources."""

from __future__ import annotations

from typing import Any, Final

from sexton.v1 import job_pb2, run_pb2

_RUN_STATES: Final = {
    number: name.removeprefix("RUN_STATE_").lower() for name, number in run_pb2.RunState.items()
}
_ATTEMPT_STATES: Final = {
    number: name.removeprefix("ATTEMPT_STATE_").lower()
    for name, number in run_pb2.AttemptState.items()
}
ENDED_STATES: Final = tuple(
    number for number, word in _RUN_STATES.items() if number and not word.endswith("ing")
)
LIVE_STATES: Final = tuple(number for number, word in _RUN_STATES.items() if word.endswith("ing"))
RUN_STATES: Final = tuple(word for number, word in _RUN_STATES.items() if number)


def run_state(number: int) -> str:
    """Gives a run's state as a word; one that only a newer mesh knows is `unknown`."""
    return _RUN_STATES.get(number, "unknown")  # type: ignore[call-overload, no-any-return]


def enum_word(enum: Any, number: int, prefix: str) -> str:
    """Gives any other enum's value as a word; one that only a newer mesh knows is `unknown`."""
    found = enum.DESCRIPTOR.values_by_number.get(number)
    return str(found.name).removeprefix(prefix).lower() if found else "unknown"


def run_state_number(word: str) -> run_pb2.RunState.ValueType | None:
    """Gives the number of a word; None where there is none."""
    return next((number for number, name in _RUN_STATES.items() if name == word), None)


def attempt_state(number: int) -> str:
    """Gives an attempt's state as a word."""
    return _ATTEMPT_STATES.get(number, "unknown")  # type: ignore[call-overload, no-any-return]


def ended(state: str) -> bool:
    """Tells whether a state of a run is final."""
    return not state.endswith("ing")


def run_parts(name: str) -> tuple[str, str, str]:
    """Gives namespace, job and run of a run's resource name."""
    parts = name.split("/")
    return parts[1], parts[3], parts[5]


def job_parts(name: str) -> tuple[str, str]:
    """Gives namespace and job of a job's resource name."""
    parts = name.split("/")
    return parts[1], parts[3]


def job_name(namespace: str, job: str) -> str:
    """Gives a job's resource name."""
    return f"namespaces/{namespace}/jobs/{job}"


def run_name(namespace: str, job: str, run: str) -> str:
    """Gives a run's resource name."""
    return f"{job_name(namespace, job)}/runs/{run}"


def zone_of(spec: job_pb2.JobSpec) -> str:
    """Gives the zone in which a job's times are shown: that of its first schedule."""
    return (spec.schedules[0].time_zone if spec.schedules else "") or "UTC"


def schedule_text(schedule: job_pb2.Schedule) -> str:
    """Gives a schedule in few words, as its author wrote it."""
    kind = schedule.WhichOneof("kind")
    if kind == "cron":
        return f"cron {schedule.cron}"
    if kind == "every":
        return f"every {span(schedule.every.period.ToTimedelta().total_seconds())}"
    if kind == "calendar_interval":
        step = schedule.calendar_interval
        unit = enum_word(job_pb2.CalendarInterval.Unit, step.unit, "UNIT_")
        many = f"{step.count} {unit}s" if step.count != 1 else unit
        return f"every {many} at {step.time_of_day}"
    if kind == "at":
        times = schedule.at.times
        return f"at {times[0]}" if len(times) == 1 else f"at {len(times)} times"
    if kind == "rrule":
        rule = next((x for x in schedule.rrule.splitlines() if x.startswith("RRULE")), "RRULE")
        return rule.removeprefix("RRULE:")
    return "unknown"


def span(seconds: float | None) -> str:
    """Gives a duration as people say it, to two units or three digits; `–` for none."""
    if seconds is None:
        return "–"
    if seconds < 0:
        return f"-{span(-seconds)}"
    if seconds < 0.0005:
        return "0 ms"
    if seconds < 1:
        return f"{seconds * 1_000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.2f} s" if seconds % 1 else f"{seconds:.0f} s"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds % 1 else f"{seconds:.0f} s"
    whole = round(seconds)
    for size, unit, small, lesser in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // small
            return f"{whole // size} {unit}" + (f" {rest} {lesser}" if rest else "")
    return f"{whole} s"

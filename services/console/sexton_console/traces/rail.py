"""The state rail: what a run went through, from its record alone, and who caused each gap.

due -> committed -> pushed -> assigned -> started -> finished -> settled, the later ones once per
attempt. What was written before its time is committed and pushed before it is due; its rail begins
when it is due. Times are nanoseconds since the Unix epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sexton.v1 import run_pb2
from sexton_console.words import attempt_state, ended, run_state

_LATE_NS: Final = 1_000_000_000
"""A decision that comes later than this after its time waited for a leader, or for its gate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """What lies between two moments of a run."""

    name: str
    """`decide`, `push`, `line`, `send`, `execute`, `settle` or `backoff`."""
    cause: str
    """Who or what it was waiting for, in words."""
    start: int
    end: int
    attempt: int
    """0: before the first one."""
    open: bool = False
    """Whether it goes on."""

    @property
    def took_s(self) -> float:
        """Gives its length."""
        return (self.end - self.start) / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A moment of the rail."""

    name: str
    at: int
    attempt: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One attempt."""

    number: int
    state: str
    worker: str
    session: str
    token: int
    handed_out: int
    assigned: int
    """The same, or when the run was due where that is later: its worker kept it until then."""
    started: int
    """0: it did not say that it began."""
    finished: int
    """0: it is not known when it ended."""
    settled: int
    """0: it goes on."""
    error_kind: str = ""
    error_message: str = ""
    error_detail: str = ""
    output_tail: str = ""
    later_worker: bool = False
    """Whether another worker had the attempt before: the run was taken over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rail:
    """A run's way."""

    state: str
    moments: tuple[Moment, ...]
    gaps: tuple[Gap, ...]
    deliveries: tuple[Delivery, ...]
    start: int
    end: int
    left_out: int = 0
    """Attempts between the first and the newest ones that the record does not keep."""


def rail_of(run: run_pb2.Run, now: int, pushed: int = 0) -> Rail:
    """Gives a run's rail; `pushed`: when the queue heard of it, where a span tells."""
    state = run_state(run.state)
    due, created = run.due_time.ToNanoseconds(), run.create_time.ToNanoseconds()
    early = created < due
    moments = [Moment(name="due", at=due), Moment(name="committed", at=created)]
    gaps = [
        Gap(name="decide", cause=_decide_cause(run, created - due), start=due, end=created,
            attempt=0)
    ]  # fmt: skip
    before = created
    if created <= pushed:
        moments.append(Moment(name="pushed", at=pushed))
        gaps.append(
            Gap(name="push", cause="hand-over from the leader to the queue", start=created,
                end=pushed, attempt=0)
        )  # fmt: skip
        before = pushed
    if early:
        gaps, before = [], max(before, due)
    deliveries = _deliveries(run)
    for index, attempt in enumerate(deliveries):
        gaps.append(_waiting(run, before, attempt.assigned, deliveries[:index], attempt.number))
        before = _deliver(attempt, moments, gaps, now)
    over = run.end_time.ToNanoseconds() if run.HasField("end_time") else 0
    if ended(state):
        if not deliveries or over > before:
            gaps.append(_waiting(run, before, over, deliveries, 0))
        moments.append(Moment(name="settled", at=over))
    elif not deliveries or deliveries[-1].settled:
        gaps.append(_waiting(run, before, max(now, before), deliveries, 0, goes_on=True))
    if early:
        moments.sort(key=lambda moment: moment.at)
    known = [moment.at for moment in moments if not early or moment.at >= due]
    known += [gap.end for gap in gaps]
    numbers = [attempt.number for attempt in run.attempts]
    return Rail(
        state=state,
        moments=tuple(moments),
        gaps=tuple(gap for gap in gaps if gap.end > gap.start or gap.open),
        deliveries=deliveries,
        start=min(known),
        end=max(known),
        left_out=numbers[-1] - len(numbers) if numbers else 0,
    )


def _deliveries(run: run_pb2.Run) -> tuple[Delivery, ...]:
    found: list[Delivery] = []
    due = run.due_time.ToNanoseconds()
    for attempt in run.attempts:
        started = attempt.start_time.ToNanoseconds() if attempt.HasField("start_time") else 0
        settled = attempt.end_time.ToNanoseconds() if attempt.HasField("end_time") else 0
        took = attempt.execution_duration.ToNanoseconds()
        handed_out = attempt.assign_time.ToNanoseconds()
        finished = min(started + took, settled) if started and settled and took else 0
        found.append(
            Delivery(
                number=attempt.number,
                state=attempt_state(attempt.state),
                worker=attempt.worker,
                session=attempt.session,
                token=attempt.token,
                handed_out=handed_out,
                assigned=handed_out if attempt.number > 1 else max(handed_out, due),
                started=started,
                finished=finished,
                settled=settled,
                error_kind=attempt.error.kind,
                error_message=attempt.error.message,
                error_detail=attempt.error.detail,
                output_tail=attempt.output_tail,
                later_worker=bool(found) and found[-1].state == "lost",
            )
        )
    return tuple(found)


def _deliver(attempt: Delivery, moments: list[Moment], gaps: list[Gap], now: int) -> int:
    """Adds what an attempt went through; gives when it was over."""
    number, over = attempt.number, attempt.settled or now
    moments.append(Moment(name="assigned", at=attempt.handed_out, attempt=number))
    if not attempt.started:
        cause = f"on its way to {attempt.worker}"
        if attempt.state == "lost":
            cause = f"{attempt.worker} was silent; its session had to end first"
        gaps.append(
            Gap(name="send", cause=cause, start=attempt.assigned, end=over, attempt=number,
                open=not attempt.settled)
        )  # fmt: skip
        return over
    moments.append(Moment(name="started", at=attempt.started, attempt=number))
    gaps.append(
        Gap(name="send", cause=f"on its way to {attempt.worker}", start=attempt.assigned,
            end=attempt.started, attempt=number)
    )  # fmt: skip
    until = attempt.finished or over
    cause = f"the task on {attempt.worker}"
    if attempt.state == "lost":
        cause = f"the task on {attempt.worker}, until its session was lost"
    gaps.append(
        Gap(name="execute", cause=cause, start=attempt.started, end=until, attempt=number,
            open=not attempt.settled)
    )  # fmt: skip
    if attempt.finished:
        moments.append(Moment(name="finished", at=attempt.finished, attempt=number))
        gaps.append(
            Gap(name="settle", cause="the worker's report, and the queue's commit",
                start=attempt.finished, end=over, attempt=number)
        )  # fmt: skip
    return over


def _waiting(
    run: run_pb2.Run, start: int, end: int, before: tuple[Delivery, ...], attempt: int,
    *, goes_on: bool = False,
) -> Gap:  # fmt: skip
    """Gives a time in line: for a slot, or for the end of a pause."""
    until = run.not_before_time.ToNanoseconds()
    failed = bool(before) and before[-1].state in ("failed", "timed_out")
    if failed:
        cause = f"the pause after attempt {before[-1].number}, then a free slot of {run.queue}"
    elif before:
        cause = f"a free slot of queue {run.queue}, once attempt {before[-1].number} was over"
    elif start < until <= end or (goes_on and until > start):
        cause = f"its not-before time, then a free slot of queue {run.queue}"
    else:
        cause = f"a free slot of queue {run.queue}"
    return Gap(
        name="backoff" if failed else "line",
        cause=cause,
        start=start,
        end=end,
        attempt=attempt,
        open=goes_on,
    )


def _decide_cause(run: run_pb2.Run, late: int) -> str:
    if run.origin == run_pb2.RUN_ORIGIN_MANUAL:
        return "the leader, after somebody asked"
    if run.origin == run_pb2.RUN_ORIGIN_BACKFILL:
        return "the backfill's turn"
    if late > _LATE_NS:
        return "a leader: none decided then, or the gate was closed"
    return "the leader's decision and its commit"

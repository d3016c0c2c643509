"""The short way through what is decided most often: one start, on time or late, and nothing else.

Almost every look at a job comes to that. Asked of the plan and the gate, which are made for
everything that may come together, it costs three times as much.
"""

from collections.abc import Collection

from sexton_core.ids import RunId, scheduled_run_id
from sexton_core.instants import Instant
from sexton_core.policy._plan import ON_TIME_NS
from sexton_core.policy.job import Job
from sexton_core.policy.state import Counters, Handle, JobState, NewRun, Verdict, make
from sexton_core.words import Origin, Overlap, Reason


def decide_one_start(
    job: Job, state: JobState, now: Instant, ended: Collection[RunId]
) -> Verdict | None:
    """Decides as `decide_any` does where that is one start; None: that is not known to be so.

    It is so where one version rules, without jitter and calendars, where one nominal time is due
    that is not missed, and where the gate is open: nothing waits, and nothing is live that counts.
    """
    cursor, armed, rules, live, buffered, counters, paused_at, resumed = state
    if armed is None or buffered or paused_at is not None or resumed is not None or len(rules) != 1:
        return None
    after, version = rules[0]
    definition = job.definition(version)
    schedule, overlap = definition.schedule, definition.overlap
    late_ns = now - armed
    if (
        schedule is None
        or definition.jitter_ns
        or definition.unfiltered is not None
        or not cursor < armed > after
        or not 0 <= late_ns <= definition.catch_up.late_after_ns
    ):
        return None
    if live and ended:
        live = tuple([handle for handle in live if handle.run_id not in ended])
    if live and (overlap is not Overlap.ALLOW_ALL or len(live) >= definition.max_live):
        return None
    upcoming = schedule.next_after(armed)
    if upcoming is not None and upcoming <= now:
        return None
    run_id, run = scheduled_run_id(job.uid, armed), definition.run
    reason = Reason.ON_TIME if late_ns <= ON_TIME_NS else Reason.LATE
    handle = make(Handle, (run_id, run.queue, run.priority, armed))
    new = make(NewRun, (handle, Origin.SCHEDULE, armed, armed, version, reason, ""))
    counted = make(Counters, (counters[0] + 1, *counters[1:]))
    after_it = make(JobState, (armed, upcoming, rules, (*live, handle), (), counted, None, None))
    return make(Verdict, (after_it, (new,), (), (), (), (), (), armed, upcoming, True))

"""What becomes of each nominal time: the policies of a job, as pure functions.

Shape
=====
::

    create, edit, pause, resume, delete        decide(job, state, now, ended)      trigger, backfill
                  |                                     |                                  |
                  v                                     v                                  v
               Timeline   one schedule made of versions, each ruling from its edit on
                                                        |
                                                      Plan     late? missed? caught up? -> steps
                                                        |                                  |
                                                        +------------> Gate <--------------+
                                              overlap, buffer, bounds: the only way to a run
                                                        |
                                                     Verdict   what one commit writes and compares

* `Job` holds the versions of a definition and never changes; `JobState` is everything that does.
  `decide` takes both and gives a `Verdict`: new runs, ranges of what does not run, changes of the
  buffer, the new state, and when to look again.
* **The gate is derived.** The state names the runs that may be live. A run counts as live until it
  is known to have ended, and a decision that rests on a live run (skip, wait, drop) names it in
  `Verdict.requires`, for the commit to compare that its handle exists. Ended is for ever, so
  "free" needs no compare. A lagging view costs a second look, never a wrong decision.
* **A nominal time is decided in the commit that moves the cursor over it.** So the decided times
  are those up to the cursor, and runs, ranges and buffered starts tile them: no gap, no overlap,
  nothing twice. A buffered start leaves `buffered/` in the commit that decides it.
* **Bounded.** An outage is a handful of steps per version, whatever its length: what is passed
  over is a range. Starts are single steps, and one verdict has at most `ACTIONS_LIMIT` of them;
  what does not fit is due at once, in the next verdict.
* Decisions are taken in order of nominal time. A start from the buffer comes before all of them.
* What is certain may be decided a moment before it is due (`decide_ahead`).

Preview, simulation, `why` and the coordinator call these functions and no others, so that what was
shown is what happens.
"""

from sexton_core.policy.ahead import AHEAD_NS, ahead_until, decide_ahead, not_earlier
from sexton_core.policy.backfill import (
    Backfill,
    BackfillStep,
    Waiting,
    advance,
    check_total,
    range_times,
    request_backfill,
    upcoming,
)
from sexton_core.policy.change import Deletion, create, delete, edit, pause, resume
from sexton_core.policy.decide import Repeated, decide, due_next, trigger
from sexton_core.policy.job import CatchUp, Definition, Job, Retention
from sexton_core.policy.standing import Evidence, RecordedRun, Standing, standing_of
from sexton_core.policy.state import (
    Admission,
    Buffered,
    Change,
    Counters,
    DecisionRange,
    Handle,
    JobState,
    NewRun,
    Rule,
    Verdict,
)
from sexton_core.policy.why import Explanation, GateReport, explain

__all__ = [
    "AHEAD_NS",
    "Admission",
    "Backfill",
    "BackfillStep",
    "Buffered",
    "CatchUp",
    "Change",
    "Counters",
    "DecisionRange",
    "Definition",
    "Deletion",
    "Evidence",
    "Explanation",
    "GateReport",
    "Handle",
    "Job",
    "JobState",
    "NewRun",
    "RecordedRun",
    "Repeated",
    "Retention",
    "Rule",
    "Standing",
    "Verdict",
    "Waiting",
    "advance",
    "ahead_until",
    "check_total",
    "create",
    "decide",
    "decide_ahead",
    "delete",
    "due_next",
    "edit",
    "explain",
    "not_earlier",
    "pause",
    "range_times",
    "request_backfill",
    "resume",
    "standing_of",
    "trigger",
    "upcoming",
]

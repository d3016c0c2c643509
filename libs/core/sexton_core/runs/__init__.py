"""The life of one run: its states, what moves it, retries and completions.

`table` is the rule (states, events, transitions, timers, retention), `machine` moves a `Run`
through it, `completion` judges what workers report, `retry` says when to try again. The queue's
owner is the only one who applies any of it; each result is one commit that compares its lease and
the run's revision.
"""

from sexton_core.runs.completion import Judgement, Settlement, complete, holds, live_token, report
from sexton_core.runs.machine import HAND_AHEAD_NS, Run, apply, assign, assigned, overdue
from sexton_core.runs.policy import RunPolicy
from sexton_core.runs.retry import Retry, backoff
from sexton_core.runs.table import (
    ENDED,
    LIVE,
    STATES,
    TRANSITIONS,
    WITH_WORKER,
    Timer,
    keep_ns,
)

__all__ = [
    "ENDED",
    "HAND_AHEAD_NS",
    "LIVE",
    "STATES",
    "TRANSITIONS",
    "WITH_WORKER",
    "Judgement",
    "Retry",
    "Run",
    "RunPolicy",
    "Settlement",
    "Timer",
    "apply",
    "assign",
    "assigned",
    "backoff",
    "complete",
    "holds",
    "keep_ns",
    "live_token",
    "overdue",
    "report",
]

"""What the mesh did with jobs and runs, held against the promise: S5 to S17, L1 and L3.

The store's log is the truth: it says what every coordinator and queue has committed, in one order.
It is walked once; each rule looks at every commit. What tasks noted and what people were told is
then held against it.
"""

from __future__ import annotations

from sexton_sim.check.records import MeshLog
from sexton_sim.check.scheduling import SchedulingRules
from sexton_sim.check.settling import SettlingRules
from sexton_sim.check.verdict import Verdict
from sexton_sim.history import History


def check_mesh(history: History, verdict: Verdict, *, healed_ns: int) -> None:
    """Checks what a mesh did. `healed_ns`: from when on nothing was done to it any more."""
    log = MeshLog(history)
    rules = (SchedulingRules(verdict), SettlingRules(verdict))
    for commit in log.commits:
        for rule in rules:
            rule.take(commit)

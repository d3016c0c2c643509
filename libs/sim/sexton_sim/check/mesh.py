"""What the mesh did with jobs and runs, held against the promise: S5 to S17, L1 and L3.

The store's log is the truth: it says what every coordinator and queue has committed, in one order.
It is walked once; each rule looks at every commit. What tasks noted and what people were told is
then held against it.
"""

from __future__ import annotations

from collections.abc import Mapping

from sexton_sim.check.executions import check_executions
from sexton_sim.check.keytable import KeyTable
from sexton_sim.check.lateness import check_lateness
from sexton_sim.check.records import MeshLog
from sexton_sim.check.recovery import MIN_QUIET_NS
from sexton_sim.check.requests import check_requests
from sexton_sim.check.scheduling import SchedulingRules
from sexton_sim.check.settling import SettlingRules
from sexton_sim.check.verdict import Verdict
from sexton_sim.history import History


def check_mesh(
    history: History,
    verdict: Verdict,
    *,
    limits: Mapping[str, int] | None = None,
    quiet: tuple[int, int] | None = None,
) -> None:
    """Checks what a mesh did with jobs and runs.

    `limits` are the bounds on assigned runs by queue. Between the two times of `quiet`, on the
    recorder's clock, nothing was done to the mesh; at its end every job was paused, and every run
    given time to end.
    """
    log = MeshLog(history)
    rebooted = any(note.what == "reboot" for note in history.of("fault"))
    works = (0, 0) if quiet is None else (quiet[0] + MIN_QUIET_NS, quiet[1])
    scheduling = SchedulingRules(verdict, rebooted=rebooted, quiet=works)
    settling = SettlingRules(verdict, limits=limits or {})
    table = KeyTable(verdict)
    for commit in log.commits:
        table.take(commit)
        scheduling.take(commit)
        settling.take(commit)
    check_executions(history, settling.runs, verdict)
    check_requests(history, log, settling.runs, verdict)
    if quiet is None:
        verdict.unknown(
            "whether everything came to its end: nobody says when it was quiet (L1, L3)"
        )
        return
    settling.finish()
    check_lateness(log, verdict, since_ns=works[0], until_ns=works[1])

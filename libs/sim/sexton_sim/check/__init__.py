"""The checker: holds a history against what PROOF promises of the store.

It reads simulated, process and container runs alike; see `sexton_sim.history` for the format.
"""

from __future__ import annotations

from sexton_sim.check.calls import check_calls
from sexton_sim.check.leases import check_leases
from sexton_sim.check.linearize import check_registers
from sexton_sim.check.model import Log
from sexton_sim.check.recovery import check_recovery
from sexton_sim.check.verdict import Verdict, Violation
from sexton_sim.check.watches import check_watches
from sexton_sim.check.writers import WriteRules, check_writers
from sexton_sim.history import History

__all__ = ["Verdict", "Violation", "WriteRules", "check", "check_recovery"]


def check(
    history: History,
    *,
    rules: WriteRules | None = None,
    registers: str = "",
    sampled_keys: int | None = 4,
) -> Verdict:
    """Checks S1 to S5, S18 to S20, S22 and S23.

    `rules` is the key table of whoever wrote. Below `registers`, an order of the calls on the
    `sampled_keys` busiest keys is also searched for without trusting revisions.
    """
    verdict = Verdict()
    log = Log(history, verdict)
    check_calls(history, log, verdict)
    check_leases(history, verdict)
    check_watches(history, log, verdict)
    if rules is not None:
        check_writers(history, log, rules, verdict)
    if registers:
        check_registers(history, registers, verdict, max_keys=sampled_keys)
    return verdict

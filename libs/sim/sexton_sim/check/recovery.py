"""After healing everybody gets on with it: L2, L5 and L6 as far as a store alone shows them."""

from __future__ import annotations

from collections.abc import Sequence

from sexton_sim.check.verdict import Verdict
from sexton_sim.history import History

MIN_QUIET_NS = 12_000_000_000
"""Silent connections, back-offs and leases need so long; after less nothing can be said."""


def check_recovery(
    history: History,
    verdict: Verdict,
    *,
    clients: Sequence[str],
    holders: Sequence[str],
    watchers: Sequence[str],
    quiet: tuple[int, int],
) -> None:
    """Looks for signs of life between `quiet[0]`, when all was healed, and `quiet[1]`."""
    healed_ns, until_ns = quiet
    if until_ns - healed_ns < MIN_QUIET_NS:
        verdict.unknown("whether everybody recovered: the quiet time was too short (L2, L5, L6)")
        return
    served = {
        call.process
        for call in history.calls
        if call.outcome == "ok" and healed_ns < (call.ended_ns or 0) <= until_ns
    }
    for name in clients:
        verdict.checked["L6"] += 1
        if name not in served:
            verdict.violate("L6", f"{name} was not served once after everything was healed")
    told = {
        call.process
        for call in history.calls
        if call.name == "watch"
        and any(healed_ns < at_ns <= until_ns for at_ns, _ in history.watches.get(call.id, ()))
    }
    for name in watchers:
        verdict.checked["L5"] += 1
        if name not in told:
            verdict.violate("L5", f"{name} was told nothing after everything was healed")
    acts = [note for note in history.of("exec") if healed_ns < note.at_ns <= until_ns]
    verdict.checked["L2"] += len(holders)
    if holders and not acts:
        verdict.violate("L2", "nobody acted under a lease after everything was healed")

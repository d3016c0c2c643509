"""Whether people are served again after healing, and what a full disk leaves alone: L6 and L8."""

from __future__ import annotations

from typing import Final

from sexton_records import keys
from sexton_sim.check.describe import describe_call, describe_note
from sexton_sim.check.faults import NEVER_NS, Faults, Span
from sexton_sim.check.records import MeshCommit
from sexton_sim.check.verdict import Verdict
from sexton_sim.history import Call, History

STORE_CALLS: Final = frozenset(
    {"acquire", "renew", "release", "commit", "get", "scan", "watch", "Backup"}
)
"""What is no call of the API."""
_AWAY: Final = ("Unavailable", "DeadlineExceeded", "Overloaded", "Cancelled", "OutcomeUnknown")
_LEAST: Final = 20
"""Calls after healing, below which a share says nothing; and before it, below which there was no
load whose recovery could be seen."""
_SHARE: Final = 0.99
_FAST_NS: Final = 5_000_000_000
_AGAIN_NS: Final = 10_000_000_000


class HealingRules:
    """Looks at calls after healing, and at the log while the disk was full."""

    def __init__(
        self, history: History, faults: Faults, verdict: Verdict, *, since_ns: int, until_ns: int
    ) -> None:
        self._verdict = verdict
        self._since_ns = since_ns
        self._until_ns = until_ns
        self._calls = [call for call in history.calls if call.name not in STORE_CALLS]
        self._full = [span for span in faults.spans if span.kind == "full"]
        self._starts = [
            note.at_ns for note in faults.notes if note.what == "start" and note.target == "store"
        ]
        self._ends = [
            note.at_ns
            for note in history.of("exec")
            if note.what == "ended" and note.facts.get("how") in {"succeeded", "failed"}
        ]
        self._others = [span for span in faults.spans if span.kind not in {"full"} and span.end_ns]
        self._settled: list[int] = []
        self._made: list[int] = []

    def take(self, commit: MeshCommit) -> None:
        """Looks at a commit."""
        if not self._full or not commit.begun_ns:
            return
        if any(changed.after is not None for changed in commit.of(keys.RUNS)):
            self._settled.append(commit.begun_ns)
        if any(changed.before is None for changed in commit.of(keys.ACTIVE)):
            self._made.append(commit.begun_ns)

    def finish(self) -> None:
        """Looks at everything together."""
        self._check_calls()
        for span in self._full:
            if span.end_ns != NEVER_NS:
                self._check_full(span)

    def _check_calls(self) -> None:
        if self._until_ns <= self._since_ns:
            if self._calls:
                self._verdict.unknown(
                    "whether calls succeed soon after healing: nobody says when that was (L6)"
                )
            return
        before = [call for call in self._calls if call.invoked_ns < self._since_ns]
        after = [call for call in self._calls if self._since_ns <= call.invoked_ns < self._until_ns]
        if len(before) < _LEAST or len(after) < _LEAST:
            self._verdict.unknown(
                f"whether calls succeed soon after healing: there were {len(before)} before and "
                f"{len(after)} after it (L6)"
            )
            return
        self._verdict.checked["L6"] += len(after)
        failed = [call for call in after if not _served(call)]
        if len(failed) > (1 - _SHARE) * len(after):
            self._verdict.violate(
                "L6",
                f"{len(failed)} of {len(after)} calls were not served although everything worked",
                [*map(describe_call, failed[:5])],
            )
        elif not _served(after[-1]):
            self._verdict.violate("L6", "the last call was not served", [describe_call(after[-1])])

    def _check_full(self, span: Span) -> None:
        """While the disk is full, runs still end; afterwards starts come back without a restart."""
        if any(
            other.begin_ns <= span.end_ns + _AGAIN_NS and other.end_ns >= span.begin_ns
            for other in self._others
        ):
            return
        ended = [at for at in self._ends if span.begin_ns < at < span.end_ns - _FAST_NS]
        if ended:
            self._verdict.checked["L8"] += 1
            if not any(span.begin_ns < at <= span.end_ns for at in self._settled):
                self._verdict.violate(
                    "L8",
                    f"{len(ended)} executions ended while the disk was full, and none was settled",
                    [describe_note(span.note)],
                )
        slow = [
            call
            for call in self._calls
            if span.begin_ns < call.invoked_ns < span.end_ns - _FAST_NS
            and (call.ended_ns is None or call.ended_ns - call.invoked_ns > _FAST_NS)
        ]
        self._verdict.checked["L8"] += 1
        if slow:
            self._verdict.violate(
                "L8",
                f"{len(slow)} calls hung while the disk was full, instead of failing fast",
                [describe_note(span.note), *map(describe_call, slow[:4])],
            )
        load = [at for at in self._made if at < span.begin_ns]
        until_ns = span.end_ns + _AGAIN_NS
        again = any(span.end_ns <= at <= until_ns for at in self._made)
        restarted = any(span.begin_ns <= at <= until_ns for at in self._starts)
        if len(load) >= _LEAST and (restarted or not again):
            said = "the store had to be started again" if restarted else "no run was made"
            self._verdict.violate(
                "L8", f"{said} after the disk had room again", [describe_note(span.note)]
            )


def _served(call: Call) -> bool:
    """Tells whether somebody answered; to be refused is an answer."""
    error = str(call.result.get("error", ""))
    return call.outcome != "unknown" and not error.startswith(_AWAY)

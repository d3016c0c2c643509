"""What the mesh did with jobs and runs: S5 to S17, S21, S24 to S26, L1 to L8.

The store's log is the truth: it says what every coordinator and queue has committed, in one order.
It is walked once, and nothing of it is kept but what still stands; each rule looks at every commit.
What tasks noted and what people were told is held against it as it goes by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from sexton_sim.check.backfills import BackfillRules
from sexton_sim.check.dead_letters import DeadLetterRules
from sexton_sim.check.executions import ExecutionRules, Times
from sexton_sim.check.explained import ExplainedRules
from sexton_sim.check.faults import Faults
from sexton_sim.check.healing import HealingRules
from sexton_sim.check.indexes import IndexRules
from sexton_sim.check.jobs import Decided, decided_in
from sexton_sim.check.keytable import KeyTable
from sexton_sim.check.lateness import LatenessRules
from sexton_sim.check.losses import LossRules
from sexton_sim.check.model import prefix
from sexton_sim.check.proofs import ProofRules
from sexton_sim.check.records import Decoder, MeshCommit
from sexton_sim.check.recovery import MIN_QUIET_NS
from sexton_sim.check.requests import RequestRules
from sexton_sim.check.scheduling import SchedulingRules, ahead_of
from sexton_sim.check.settling import SettlingRules
from sexton_sim.check.takeovers import TakeoverRules
from sexton_sim.check.verdict import Verdict
from sexton_sim.history import Durable, History


class _Speaker(Protocol):
    def speak(self, verdict: Verdict) -> None: ...


class MeshRules:
    """All rules about jobs and runs."""

    def __init__(
        self,
        history: History,
        verdict: Verdict,
        *,
        limits: Mapping[str, int] | None = None,
        quiet: tuple[int, int] | None = None,
        drained: bool = True,
        whole: bool = True,
        times: Times | None = None,
        faults: Faults | None = None,
    ) -> None:
        """`history` without its commits, which are taken one by one.

        `limits` are the bounds on assigned runs by queue. Between the two times of `quiet`, on the
        recorder's clock, nothing was done to the mesh; at its end, if it was `drained`, every job
        was paused, and every run given time to end. `whole`: the log goes from the mesh's beginning
        to its end.
        """
        self.faults = faults or Faults(history)
        self._verdict = verdict
        self._limits = limits or {}
        self._drained = drained and quiet is not None
        self._rebooted = any(note.what in {"reboot", "restore"} for note in history.of("fault"))
        works = (0, 0) if quiet is None else (quiet[0] + MIN_QUIET_NS, quiet[1])
        self._works = works
        since_ns, until_ns = works
        self._times = times or Times()
        self._executions = ExecutionRules(history, self.faults, verdict, self._times)
        self._executions.whole = whole
        self._requests = RequestRules(history, self.faults, verdict)
        self._requests.whole = whole
        self._proofs = ProofRules(history, verdict, ahead_ns=ahead_of(rebooted=self._rebooted))
        self._lateness = LatenessRules(
            self.faults, verdict, self._times, since_ns=since_ns, until_ns=until_ns
        )
        self._takeovers = TakeoverRules(
            self.faults, verdict, self._times, since_ns=since_ns, until_ns=until_ns
        )
        self._healing = HealingRules(
            history, self.faults, verdict, since_ns=since_ns, until_ns=until_ns
        )
        self._dismissed = {
            str(call.args.get("session")) for call in history.calls if call.name == "DrainWorker"
        }
        self._begin(verdict, late=False)

    def take(self, entry: Durable) -> None:
        """Looks at a commit."""
        self._executions.last = entry.commit.revision
        self._executions.first = self._executions.first or entry.commit.revision
        self._takeovers.take(entry)
        commit = self._decoder.take(entry)
        if commit is not None:
            self._table.take(commit)
            self._requests.take(commit)
            self._healing.take(commit)
            self._lateness.take(commit)
            decided = decided_in(commit)
            self._proofs.take(commit, decided)
            self._follow(commit, decided)

    def begin_late(self) -> None:
        """The log goes on with what is not known: it began late, or left something out."""
        self._requests.late = True
        self._begin(self._verdict, late=True)

    def go_back(self, commits: Iterable[Durable]) -> None:
        """A restore has brought back what these commits, from the first on, had made."""
        self._begin(Verdict(), late=False)
        self._settling.listeners = (self._requests.go_back(),)
        for entry in commits:
            commit = self._decoder.take(entry)
            if commit is not None:
                self._requests.take_again(commit)
                self._follow(commit, decided_in(commit))
        for rules in self._following:
            rules.speak(self._verdict)
        self._listen()

    def finish(self) -> None:
        """Looks at what is left, and at what was never in the log."""
        live = self._settling.live
        self._executions.finish(live.values())
        self._scheduling.finish()
        self._backfills.finish()
        self._requests.finish()
        self._proofs.finish(self._requests.reaches)
        self._takeovers.finish()
        self._healing.finish()
        self._losses.finish()
        if self._drained:
            self._settling.finish()
        elif live:
            self._verdict.unknown(
                f"whether what was in flight when the history ended comes to its end: {len(live)} "
                f"of all runs (L3)"
            )
        else:
            self._settling.finish()
        if self._works[1] <= self._works[0]:
            self._verdict.unknown(
                "whether starts come in time: nobody says when everything worked (L1)"
            )
        self._lateness.finish()

    def _follow(self, commit: MeshCommit, decided: Mapping[str, Decided]) -> None:
        """Takes note of what a commit does to jobs and runs."""
        self._letters.take(commit, decided)
        self._backfills.take(commit)
        self._explained.take(commit, decided)
        self._scheduling.take(commit, decided)
        self._backfills.note_idle(commit)
        self._explained.check_states(commit, decided)
        self._settling.take(commit)
        self._indexes.take(commit)

    def _begin(self, verdict: Verdict, *, late: bool) -> None:
        self._decoder = Decoder()
        self._table = KeyTable(self._verdict)
        self._scheduling = SchedulingRules(verdict, rebooted=self._rebooted, quiet=self._works)
        self._settling = SettlingRules(verdict, limits=self._limits, late=late)
        self._indexes = IndexRules(verdict, late=late)
        self._letters = DeadLetterRules(verdict, self._settling.has_ended, late=late)
        self._backfills = BackfillRules(
            verdict, self._scheduling.jobs, quiet=self._works, late=late
        )
        self._explained = ExplainedRules(
            verdict, self._scheduling.jobs, ahead_ns=self._scheduling.ahead_ns
        )
        self._following: Sequence[_Speaker] = (
            self._scheduling,
            self._settling,
            self._indexes,
            self._letters,
            self._backfills,
            self._explained,
        )
        since_ns, until_ns = self._works
        self._losses = LossRules(
            self.faults,
            self._verdict,
            self._settling.live,
            self._times,
            since_ns=since_ns,
            until_ns=until_ns,
            dismissed=self._dismissed,
        )
        if verdict is self._verdict:
            self._listen()

    def _listen(self) -> None:
        self._settling.listeners = (
            self._executions,
            self._requests,
            self._lateness,
            self._losses,
        )


def check_mesh(
    history: History,
    verdict: Verdict,
    *,
    limits: Mapping[str, int] | None = None,
    quiet: tuple[int, int] | None = None,
    times: Times | None = None,
) -> None:
    """Checks what a mesh did with jobs and runs, from a history in memory; see `MeshRules`."""
    rules = MeshRules(history, verdict, limits=limits, quiet=quiet, times=times)
    restores = rules.faults.restores
    last = 0
    for index, entry in enumerate(history.commits):
        before = entry.commit.revision - 1
        if before != last and before in restores:
            rules.go_back(prefix(history.commits[:index], restores, before))
        rules.take(entry)
        last = entry.commit.revision
    rules.finish()

"""The walks are tested too: each of these faults in the queue must be caught by some of them."""

from collections.abc import Sequence
from typing import Any

import pytest
from unit.queue.test_walks import Walk

from sexton_core.runs import Run
from sexton_core.words import RunState
from sexton_queue import records, roster
from sexton_queue.entries import Lose
from sexton_queue.records import RunRecord
from sexton_queue.roster import Roster
from sexton_queue.sessions import Session
from sexton_queue.streams import Ref, WorkerStream
from sexton_queue.table import RunTable

SEEDS = 300


def grace_for_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(roster, "waits_full_time", lambda _entry: False)


def token_not_copied(patch: pytest.MonkeyPatch) -> None:
    right = records.owner_part

    def owner_part(run: Run, not_before: int) -> RunRecord:
        part = right(run, not_before)
        if run.state in (RunState.CANCELLING, RunState.TERMINATING):
            part.token = 0
        return part

    patch.setattr(records, "owner_part", owner_part)


def unlisted_given_up(patch: pytest.MonkeyPatch) -> None:
    right = Roster._welcome

    def welcome(self: Roster, session: Session, stream: WorkerStream, held: Sequence[Ref]) -> None:
        right(self, session, stream, held)
        for entry in session.unsent.values():
            self.table.ask(entry.key, Lose(session.id, "not listed"))

    patch.setattr(Roster, "_welcome", welcome)


def unlisted_never_sent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Roster, "send_unsent", lambda _self, _now: None)


def unknown_taken_for_refused(patch: pytest.MonkeyPatch) -> None:
    def forget(self: RunTable, entry: Any, **_: Any) -> None:
        entry.busy = False
        self.drop(entry)

    patch.setattr(RunTable, "mark_unknown", forget)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutant",
    [
        grace_for_all,
        token_not_copied,
        unlisted_given_up,
        unlisted_never_sent,
        unknown_taken_for_refused,
    ],
)
def test_a_fault_is_caught(mutant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        _walk_all()


def _walk_all() -> None:
    for seed in range(SEEDS):
        Walk(seed, exclusive=True).go()

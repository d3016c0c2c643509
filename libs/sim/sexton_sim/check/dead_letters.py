"""Runs that repeat others: S24.

A dead letter leaves its list with the one run that repeats it, or with none when it is purged. What
repeats a run says so, and what it repeats has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from sexton.internal.v1 import records_pb2 as pb
from sexton.v1 import run_pb2
from sexton_core.ids import requeued_run_id
from sexton_records import keys
from sexton_sim.check.describe import instant
from sexton_sim.check.jobs import Decided, Start
from sexton_sim.check.records import Changed, MeshCommit
from sexton_sim.check.settling import RunKey
from sexton_sim.check.verdict import Verdict


class _Letter(NamedTuple):
    """One on the list."""

    key: bytes
    uid: str
    run_id: str
    nominal_ns: int

    @property
    def repeat(self) -> RunKey:
        """Gives the one run that may repeat it."""
        ended_at = keys.parse_ended_key(self.key)[0]
        return self.uid, requeued_run_id(self.uid, ended_at, self.run_id)


class DeadLetterRules:
    """Follows the lists of dead letters, and every start that repeats a run."""

    def __init__(
        self, verdict: Verdict, has_ended: Callable[[RunKey], bool], *, late: bool = False
    ) -> None:
        """`has_ended` tells of a run; `late`: what was there before the log is not known."""
        self._verdict = verdict
        self._has_ended = has_ended
        self._late = late
        self._listed: dict[RunKey, _Letter] = {}
        """By the run that would repeat each."""
        self._repeated: dict[RunKey, int] = {}
        """Revision at which each dead letter that was requeued left its list."""

    def speak(self, verdict: Verdict) -> None:
        """Says from now on what it finds."""
        self._verdict = verdict

    def take(self, commit: MeshCommit, decided: Mapping[str, Decided]) -> None:
        """Looks at a commit, before anybody takes note of the runs that end in it."""
        gone: dict[RunKey, _Letter] = {}
        for changed in commit.of(keys.DEAD):
            letter = _letter(changed)
            if changed.before is None:
                self._check_listed(letter, changed.after, commit)
                self._listed[letter.repeat] = letter
            elif changed.after is None:
                self._listed.pop(letter.repeat, None)
                gone[letter.repeat] = letter
        for uid, one in decided.items():
            starts: list[Start] = [*one.runs, *one.buffered]
            for start in starts:
                run = (uid, start.run_id)
                if start.run_id in one.unbuffered:
                    continue
                if run in gone:
                    self._check_repeat(gone.pop(run), start, commit)
                elif run in self._listed:
                    which = self._listed[run].run_id
                    said = f"{start.run_id} repeats dead letter {which}, which stays on its list"
                    self._verdict.violate("S24", said, [commit])
                elif start.retry_of:
                    self._check_retry(uid, start, commit)

    def _check_listed(self, letter: _Letter, record: pb.EndedRecord, commit: MeshCommit) -> None:
        """It is put on the list by its own end, and says of it what that says."""
        self._verdict.checked["S24"] += 1
        ended_at = keys.parse_ended_key(letter.key)[0]
        for changed in commit.of(keys.RUNS):
            run = changed.after
            if run is None or (run.template.job_uid, run.run_id) != (letter.uid, letter.run_id):
                continue
            template = run.template
            told = (record.namespace, record.job, record.state, record.nominal_ns, ended_at)
            true = (template.namespace, template.job, run.state, run.nominal_ns, run.end_time_ns)
            if told != true:
                said = f"dead letter {letter.run_id} is not listed as it ended"
                self._verdict.violate("S24", said, [commit])
            return
        said = f"{letter.run_id} was put on the list of dead letters, and did not end there"
        self._verdict.violate("S24", said, [commit])

    def _check_repeat(self, letter: _Letter, start: Start, commit: MeshCommit) -> None:
        self._verdict.checked["S24"] += 1
        before = self._repeated.setdefault(letter.repeat, commit.revision)
        said = ""
        if before != commit.revision:
            said = f"is repeated by {start.run_id}, and was at revision {before}"
        elif start.retry_of != letter.run_id:
            said = f"is repeated by {start.run_id}, which says that it repeats {start.retry_of!r}"
        elif start.nominal_ns != letter.nominal_ns:
            said = f"is of {instant(letter.nominal_ns)}, its repeat of {instant(start.nominal_ns)}"
        if said:
            self._verdict.violate("S24", f"dead letter {letter.run_id} {said}", [commit])

    def _check_retry(self, uid: str, start: Start, commit: MeshCommit) -> None:
        """Only a person asks for a repeat, and only of what has ended."""
        self._verdict.checked["S24"] += 1
        said = ""
        if start.origin != run_pb2.RUN_ORIGIN_MANUAL:
            said = "nobody asked for it"
        elif not (self._late or self._has_ended((uid, start.retry_of))):
            said = "that has not ended"
        if said:
            self._verdict.violate(
                "S24", f"{start.run_id} repeats {start.retry_of}, and {said}", [commit]
            )


def _letter(changed: Changed) -> _Letter:
    _, uid, run_id = keys.parse_ended_key(changed.key)
    record = changed.after if changed.after is not None else changed.before
    return _Letter(changed.key, uid, run_id, record.nominal_ns)

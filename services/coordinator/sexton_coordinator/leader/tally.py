"""What is known of a shard's ended runs while they are kept: how many of each job, and which go.

Each run is counted once, and the keys of the newest are remembered, so that most of them are never
read again before they go. A count is never higher than what is kept: what was written behind the
counting is missing in it until everything is counted anew. So too much may be kept, never too
little.

Nothing here waits or touches the store.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final, NamedTuple
from zlib import crc32

from sexton_core.instants import Duration, Instant
from sexton_core.policy import Retention
from sexton_core.runs.table import DEAD_LETTER_FACTOR
from sexton_records import keys

MOST_JOBS: Final = 50_000
"""Jobs that are counted at once, of 550 bytes each; of more jobs, a share at a time."""
MOST_RECENT: Final = 50_000
"""Newest runs whose keys are remembered, of 130 bytes each; older ones are found by reading."""
MOST_RULES: Final = 20_000
"""Jobs whose rules are known from a run that was made, of 150 bytes each."""
MOST_LOOKS: Final = 5_000
"""Remembered runs that are looked at before others have their turn: some milliseconds."""
FOREVER: Final[Instant] = 2**63 - 1


class Rules(NamedTuple):
    """How many of a job's ended runs are kept, and how long; of dead letters twice that."""

    max_runs: int
    max_age_ns: Duration


DEFAULT: Final = Rules(Retention().max_runs, Retention().max_age_ns)


class NewestRules:
    """The rules of the newest runs that this leader has made, until they are asked for.

    Without them, a record is read of every job that is due less than twice in `_RULES_S`.
    """

    __slots__ = ("_most", "_rules")

    def __init__(self, most: int = MOST_RULES) -> None:
        self._most = most
        self._rules: OrderedDict[str, Retention] = OrderedDict()

    def note(self, uid: str, retention: Retention) -> None:
        """Notes that a run was made, and what is kept by its version."""
        self._rules[uid] = retention
        if len(self._rules) > self._most:
            self._rules.popitem(last=False)

    def take(self, uid: str) -> Rules | None:
        """Gives the rules of a job's newest run, once; None: they are to be read."""
        retention = self._rules.pop(uid, None)
        return None if retention is None else Rules(retention.max_runs, retention.max_age_ns)


class EndedRun(NamedTuple):
    """An ended run as its key and record say it."""

    key: bytes
    end: Instant
    uid: bytes
    dead: bool
    namespace: str
    job: str


class Gone(NamedTuple):
    """The keys of a run that is to be removed; of a dead letter there is a third, by its queue."""

    run_key: bytes
    key: bytes
    dead: bool


class _Job:
    __slots__ = ("dead", "live", "prefix", "read_at", "uid")

    def __init__(self, uid: bytes, prefix: bytes) -> None:
        self.uid = uid
        self.prefix = prefix
        self.read_at = 0.0
        self.live = _Line(self, dead=False)
        self.dead = _Line(self, dead=True)


class _Line:
    """The runs of a job that are kept alike."""

    __slots__ = ("dead", "job", "keep_ns", "most", "number", "passed_in")

    def __init__(self, job: _Job, *, dead: bool) -> None:
        self.job = job
        self.dead = dead
        self.number = 0
        self.most = 0
        self.keep_ns: Duration = 0
        self.passed_in = 0  # the last round that left one of them: none newer goes in it

    @property
    def beyond(self) -> int:
        return max(0, self.number - self.most)


class Tally:
    """Counts of kept runs by job, and the newest runs' keys.

    A round goes over what was counted, oldest first: `begin_round`, then `judge` of what is read
    and `take_recent`, until `round_ends` says so or nothing is left; then `end_round`.
    """

    def __init__(
        self,
        share: int = 0,
        shares: int = 1,
        most_jobs: int = MOST_JOBS,
        most_recent: int = MOST_RECENT,
    ) -> None:
        """Counts the jobs of one of several shares."""
        self.excess = 0
        """Runs beyond their job's number; during a round those that it will still come to."""
        self.due: Instant = FOREVER
        """No run that is kept is too old before this."""
        self.older = 0
        """Counted runs whose keys are not remembered."""
        self.overflowed = False
        """Whether a job was left out because there are too many."""
        self._share = share
        self._shares = shares
        self._most_jobs = most_jobs
        self._most_recent = most_recent
        self._round = 1
        self._for_later = 0  # runs beyond their job's number, of which this round has passed one
        self._jobs: dict[bytes, _Job] = {}
        self._least_keep_ns: Duration = FOREVER
        self._keys: deque[bytes] = deque()  # oldest first
        self._lines: deque[_Line] = deque()  # whose they are; two lists, for tuples cost as much
        self._passed: deque[tuple[bytes, _Line]] = deque()  # in this round: older than `_keys`

    def covers(self, uid: bytes) -> bool:
        """Tells whether a job is of the share that is counted."""
        return self._shares == 1 or crc32(uid) % self._shares == self._share

    def unread(self, runs: Iterable[EndedRun], since: float) -> dict[bytes, EndedRun]:
        """Gives the last run of each job whose rules were not read since a time."""
        jobs = self._jobs
        found: dict[bytes, EndedRun] = {}
        for run in runs:
            job = jobs.get(run.uid)
            if (job is None or job.read_at < since) and self.covers(run.uid):
                found[run.uid] = run
        return found

    def learn(self, run: EndedRun, rules: Rules, read_at: float) -> None:
        """Takes the rules of a run's job; `read_at` is when they were read, by any clock."""
        job = self._jobs.get(run.uid)
        if job is None:
            if len(self._jobs) >= self._most_jobs:
                self.overflowed = True
                return
            prefix = keys.run_key(run.namespace, run.job, run.uid.decode(), "")
            job = self._jobs[run.uid] = _Job(run.uid, prefix)
        job.read_at = read_at
        for line in (job.live, job.dead):
            factor = DEAD_LETTER_FACTOR if line.dead else 1
            keep_ns = rules.max_age_ns * factor
            if line.number and keep_ns < line.keep_ns:
                self.due = 0  # what was kept for longer may be too old by now
            beyond = line.beyond
            line.most, line.keep_ns = rules.max_runs * factor, keep_ns
            self._note(line, line.beyond - beyond)
        self._least_keep_ns = min(self._least_keep_ns, rules.max_age_ns)

    def add_newest(self, runs: Iterable[EndedRun]) -> None:
        """Counts runs that ended after all that were counted, in the order of their ends."""
        for run in runs:
            job = self._jobs.get(run.uid)
            if job is None:
                continue
            line = job.dead if run.dead else job.live
            line.number += 1
            if line.number > line.most:
                self._note(line, 1)
            self.due = min(self.due, run.end + line.keep_ns)
            self._keys.append(run.key)
            self._lines.append(line)
        self._forget_oldest(len(self._keys) + len(self._passed) - self._most_recent)

    def add_oldest(self, run: EndedRun, now: Instant) -> Gone | None:
        """Counts a run that ended before all that were counted, or gives it: it is to go."""
        job = self._jobs.get(run.uid)
        if job is None:
            return None
        line = job.dead if run.dead else job.live
        if line.number >= line.most or now - run.end > line.keep_ns:
            return _gone(line, run.key)
        line.number += 1
        self.due = min(self.due, run.end + line.keep_ns)
        if self.older or len(self._keys) >= self._most_recent:
            self.older += 1
        else:
            self._keys.appendleft(run.key)
            self._lines.appendleft(line)
        return None

    # A round ----------------------------------------------------------------------------------

    def begin_round(self) -> None:
        """Begins with the oldest run; when the next round is due is found out meanwhile."""
        self.due = FOREVER

    def round_ends(self, end: Instant, now: Instant) -> bool:
        """Tells whether nothing that ended at `end` or later is to go."""
        return not self.excess and now - end <= self._least_keep_ns

    def judge(self, run: EndedRun, now: Instant) -> Gone | None:
        """Gives a run back, if it goes, that is not among the remembered; the oldest first."""
        job = self._jobs.get(run.uid)
        if job is None:
            return None
        line = job.dead if run.dead else job.live
        if not self._goes(line, run.end, now):
            return None
        self.older = max(0, self.older - 1)
        return _gone(line, run.key)

    def first_recent(self) -> bytes:
        """Gives the key of the oldest remembered run; empty: there is none."""
        return self._passed[0][0] if self._passed else self._keys[0] if self._keys else b""

    def take_recent(self, now: Instant, most: int) -> tuple[list[Gone], bool]:
        """Gives what goes of the remembered runs, and whether the round has come to its end."""
        gone: list[Gone] = []
        ended, lines = self._keys, self._lines
        for _ in range(min(MOST_LOOKS, len(ended))):
            key = ended[0]
            end = _end_of(key)
            if self.round_ends(end, now):
                return gone, True
            if len(gone) >= most:
                return gone, False
            ended.popleft()
            line = lines.popleft()
            if self._goes(line, end, now):
                gone.append(_gone(line, key))
            else:
                self._passed.append((key, line))
        return gone, not ended

    def end_round(self, end: Instant) -> int:
        """Ends it; all that ended before `end` was looked at. Gives how many it passed over."""
        passed = len(self._passed)
        while self._passed:
            key, line = self._passed.pop()
            self._keys.appendleft(key)
            self._lines.appendleft(line)
        self._round += 1
        self.excess += self._for_later
        self._for_later = 0
        if self.excess and not self.older:
            self.older = 1  # a run was counted that is not remembered: it is found by reading
        if self._jobs:
            self.due = min(self.due, end + self._least_keep_ns)
        return passed

    def _forget_oldest(self, number: int) -> None:
        """Leaves the oldest remembered runs to be found by reading."""
        if number <= 0:
            return
        self.older += number
        looked_at = min(number, len(self._passed))
        for _ in range(looked_at):
            self._passed.popleft()
        if number > looked_at:  # a round that goes on passes by them
            self.due = min(self.due, _end_of(self._keys[0]) + self._least_keep_ns)
        for _ in range(number - looked_at):
            self._keys.popleft()
            self._lines.popleft()

    def _note(self, line: _Line, more: int) -> None:
        """Notes that more of a line's runs, or fewer, are beyond its job's number."""
        if line.passed_in == self._round:
            self._for_later += more
        else:
            self.excess += more

    def _goes(self, line: _Line, end: Instant, now: Instant) -> bool:
        if now - end <= line.keep_ns and (
            line.number <= line.most or line.passed_in == self._round
        ):
            line.passed_in = self._round
            self.due = min(self.due, end + line.keep_ns)
            return False
        if line.number > line.most:
            self._note(line, -1)
        if line.number:  # else it was never counted
            line.number -= 1
        job = line.job
        if not (job.live.number or job.dead.number):
            self._jobs.pop(job.uid, None)
        return True


def _gone(line: _Line, key: bytes) -> Gone:
    return Gone(line.job.prefix + key[key.rfind(b"/") + 1 :], key, line.dead)


def _end_of(key: bytes) -> Instant:
    """Reads the time out of the key of an ended run."""
    return int(key.split(b"/", 3)[2])

"""Leases: S3, S4 and the holders' side of S5.

A lease ends by a release, by an acquire that replaces it, or by expiry, which is what is left. An
expiry must not come before the lease's full time of the *store's awake time* since the last renewal
that was answered: awake time is real time at the store's rate without what it slept, so real time
between the sending of that renewal and the expiry, on the store's clock, bounds it from above.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sexton_runtime.kv.types import LEASE_PREFIX
from sexton_sim.check.describe import describe_call, describe_note, moment
from sexton_sim.check.verdict import Verdict
from sexton_sim.history import Call, Durable, History, text
from sexton_store.cluster import decode_lease
from sexton_store.history import Change

_COUNTED_NS = 250_000_000
"""What the store may count of a sleep of its own."""
_ROUNDING_NS = 1_000_000
_MARGIN = 0.1
"""A holder acts for 0.8 of its lease's time: good for clocks whose rates differ by a fifth."""
STORE = "store"


class _End(NamedTuple):
    revision: int
    entry: Durable


def check_leases(history: History, verdict: Verdict) -> None:
    """Follows every lease from its creation to its end."""
    rules = LeaseRules(history, verdict)
    for entry in history.commits:
        rules.take(entry)
    rules.finish()


class LeaseRules:
    """Follows every lease from its creation to its end, commit by commit."""

    def __init__(self, history: History, verdict: Verdict, *, whole: bool = True) -> None:
        """`whole`: the log goes from the beginning to the end, and nothing can lie beyond it."""
        self._whole = whole
        self._history = history
        self._verdict = verdict
        self._clock = _StoreClock(history)
        self._ended: dict[tuple[str, int], _End] = {}
        self._ends: set[tuple[str, int, int]] = set()
        self._first, self._last = 0, 0
        self._created: dict[tuple[str, int], str] = {}
        self._last_token: dict[str, int] = {}
        self._calls: dict[str, list[Call]] = {}
        """Calls about each lease, in the order of their invocation."""
        self._silent = 0
        for call in history.calls:
            for name in _leases_of(call):
                self._calls.setdefault(name, []).append(call)

    def take(self, entry: Durable) -> None:
        """Looks at a commit."""
        self._last = entry.commit.revision
        self._first = self._first or self._last
        for change in entry.commit.changes:
            if change.key.startswith(LEASE_PREFIX):
                self._take_change(text(change.key.removeprefix(LEASE_PREFIX)), change, entry)

    def finish(self) -> None:
        """Holds what was answered, and what holders did, against it."""
        if self._silent:
            self._verdict.unknown(
                f"whether {self._silent} leases got their full time: the log proves that each had "
                f"one holder at a time, but renewals leave no line in it (S4)"
            )
        self._check_answers()
        _check_acts(self._history, self._ended, self._verdict)

    def _take_change(self, name: str, change: Change, entry: Durable) -> None:
        verdict = self._verdict
        if change.before is not None:
            token = change.before.create_revision
            # One that a restore has brought back ends again, and nobody holds it any more.
            self._ended.setdefault((name, token), _End(entry.commit.revision, entry))
            self._ends.add((name, token, entry.commit.revision))
            if name in self._calls:
                self._check_end(name, token, change, entry)
            else:
                self._silent += 1
        if change.after is not None:
            token = change.after.create_revision
            verdict.checked["S3"] += 1
            verdict.checked["S4"] += 1
            if change.before is not None:
                said = f"lease {name} (token {change.before.create_revision}) was written over"
                verdict.violate("S4", said, [_told(entry)])
            if token <= self._last_token.get(name, 0):
                before = self._last_token[name]
                said = f"a token of lease {name} did not rise: {token} after {before}"
                verdict.violate("S3", said, [_told(entry)])
            self._last_token[name] = token
            self._created[name, token] = decode_lease(change.after.value)[0]

    def _check_end(self, name: str, token: int, change: Change, entry: Durable) -> None:
        verdict = self._verdict
        verdict.checked["S4"] += 1
        if entry.begun_ns is None:
            verdict.unknown("when leases ended: the log has no times (S4)")
            return
        begun_ns, calls = entry.begun_ns, self._calls[name]
        if _asked_for(name, token, calls, begun_ns):
            return
        assert change.before is not None
        ttl_ns = decode_lease(change.before.value)[1] * 1_000_000
        since_ns, why = self._clock.started_before(begun_ns), "the store's start"
        for call in calls:
            if call.outcome != "ok" or not since_ns < call.invoked_ns < begun_ns:
                continue
            if _extends(call, name, token):
                since_ns, why = call.invoked_ns, f"{call.process}'s {call.name}"
        awake_ns = self._clock.awake_ns(since_ns, begun_ns)
        if awake_ns + _ROUNDING_NS < ttl_ns:
            verdict.violate(
                "S4",
                f"lease {name} (token {token}) expired {awake_ns / 1e9:.3f} s of the store's awake "
                f"time after {why}, before its {ttl_ns / 1e9:.3f} s",
                [
                    f"at {since_ns / 1e9:.3f} s {why} gave it its full time",
                    f"at {begun_ns / 1e9:.3f} s its end was being written",
                    _told(entry),
                ],
            )

    def _reaches(self, revision: int) -> bool:
        return self._whole or self._first <= revision <= self._last

    def _check_answers(self) -> None:
        verdict = self._verdict
        for call in self._history.calls:
            if call.outcome != "ok":
                continue
            if call.name == "acquire" and call.result["granted"]:
                name, token = call.args["name"], call.result["token"]
                if not self._reaches(token):
                    continue
                verdict.checked["S4"] += 1
                if self._created.get((name, token)) != call.args["holder"]:
                    said = f"lease {name} (token {token}) was granted, and the log has no such one"
                    verdict.violate("S4", said, [describe_call(call)])
            elif call.name == "renew":
                for (name, token), renewed in zip(
                    call.args["leases"], call.result["renewed"], strict=True
                ):
                    end = self._ended.get((name, token))
                    if renewed and end is not None and _over(end, call):
                        verdict.violate(
                            "S4",
                            f"lease {name} (token {token}) was renewed after its end",
                            [_told(end.entry), describe_call(call)],
                        )
            elif call.name == "release" and call.result.get("revision"):
                name, token = call.args["name"], call.args["token"]
                if not self._reaches(call.result["revision"]):
                    continue
                if (name, token, call.result["revision"]) not in self._ends:
                    said = f"a release of {name} was answered that the log does not have"
                    verdict.violate("S4", said, [describe_call(call)])


def _leases_of(call: Call) -> Iterable[str]:
    if call.name in {"acquire", "release"}:
        return (call.args["name"],)
    if call.name == "renew":
        return dict.fromkeys(name for name, _ in call.args["leases"])
    return ()


def _told(entry: Durable) -> str:
    """Says what a commit did to leases."""
    told = []
    for change in entry.commit.changes:
        if change.key.startswith(LEASE_PREFIX):
            name = text(change.key)
            if change.before is not None:
                told.append(f"{name} (token {change.before.create_revision}) ended")
            if change.after is not None:
                holder = decode_lease(change.after.value)[0]
                told.append(f"{name} (token {change.after.create_revision}) given to {holder[:12]}")
    at = moment(entry.commit.mesh_time_ns)
    return f"revision {entry.commit.revision} at {at}: {', '.join(told)}"


def _asked_for(name: str, token: int, calls: Iterable[Call], begun_ns: int) -> bool:
    """Tells whether anybody had asked for this end: a release, or an acquire that replaces it."""
    for call in calls:
        if call.invoked_ns > begun_ns or call.args.get("name") != name:
            continue
        released = call.name == "release" and call.args["token"] == token
        replaced = call.name == "acquire" and call.args["replaces"] == token
        if released or replaced:
            return True
    return False


def _extends(call: Call, name: str, token: int) -> bool:
    if call.name == "acquire":
        result = call.result
        return bool(result["granted"]) and (call.args["name"], result["token"]) == (name, token)
    if call.name == "renew":
        return [name, token] in [
            list(lease)
            for lease, renewed in zip(call.args["leases"], call.result["renewed"], strict=True)
            if renewed
        ]
    return False


def _over(end: _End, call: Call) -> bool:
    """Tells whether the end was being made durable, or was, before the renewal was sent."""
    return end.entry.begun_ns is not None and end.entry.begun_ns < call.invoked_ns


def _check_acts(history: History, ended: dict[tuple[str, int], _End], verdict: Verdict) -> None:
    """A holder never believes that it holds a lease which the store has given away."""
    rates = [note.facts["rate"] for note in history.of("clock") if note.what == "rate"]
    if not any(note.what == "act" for note in history.of("exec")):
        return
    if any(abs(rate - 1.0) > _MARGIN for rate in rates):
        verdict.unknown("whether holders stopped in time: clocks ran at other rates (S4)")
        return
    for note in history.of("exec"):
        if note.what != "act":
            continue
        verdict.checked["S4"] += 1
        end = ended.get((note.facts["lease"], note.facts["token"]))
        if end is None or end.entry.begun_ns is None or note.at_ns <= end.entry.begun_ns:
            continue
        verdict.violate(
            "S4",
            f"{note.target} took itself for the holder of {note.facts['lease']} (token "
            f"{note.facts['token']}) after the store had ended it",
            [_told(end.entry), describe_note(note)],
        )


class _StoreClock:
    """The store's awake time between two moments, from above, by what was done to it."""

    def __init__(self, history: History) -> None:
        self._starts: list[int] = [0]
        self._sleeps: list[tuple[int, int]] = []
        self._rates: list[tuple[int, float]] = [(0, 1.0)]
        asleep: int | None = None
        for note in history.notes:
            if note.target != STORE:
                continue
            if note.what == "start":
                self._starts.append(note.at_ns)
            elif note.what in {"suspend", "sleep"} and asleep is None:
                asleep = note.at_ns
            elif note.what in {"resume", "wake", "crash", "reboot"} and asleep is not None:
                self._sleeps.append((asleep, note.at_ns))
                asleep = None
            elif note.what == "rate":
                self._rates.append((note.at_ns, note.facts["rate"]))

    def started_before(self, at_ns: int) -> int:
        return max(start for start in self._starts if start <= at_ns)

    def awake_ns(self, since_ns: int, until_ns: int) -> int:
        fastest = max(
            rate
            for index, (at_ns, rate) in enumerate(self._rates)
            if at_ns <= until_ns
            and (index + 1 == len(self._rates) or self._rates[index + 1][0] >= since_ns)
        )
        total = (until_ns - since_ns) * fastest
        for asleep, awake in self._sleeps:
            slept = (min(awake, until_ns) - max(asleep, since_ns)) * fastest
            if slept > _COUNTED_NS:
                total -= slept - _COUNTED_NS
        return int(total)

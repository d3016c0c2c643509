"""Everything that a call to Sexton raises on purpose.

SextonError
├── InvalidArgument        a field is missing or out of its range
├── NotFound               there is no such thing
├── AlreadyExists          there is one already
├── Conflict               somebody else was faster: read again
│   └── StaleRevision      the revision or etag is not the current one
├── Refused                not now, or not you
│   ├── IllegalState       the state does not allow it
│   ├── Fenced             the caller's lease or token has been replaced
│   └── WrongIncarnation   the caller belongs to another cluster, or to the time before a restore
├── Unauthenticated        no secret was given, or an unknown one
├── PermissionDenied       the secret does not allow this call
├── ResourceExhausted      a bound was met; nothing happened
│   ├── NoSpace            the store or its disk is full
│   ├── TooLarge           a message, key, value or batch is too large
│   ├── Overloaded         too many requests wait already
│   └── SlowWatcher        the watcher read too slowly and was cut
├── OutOfRange             a revision from which nothing can be read
│   ├── Compacted          it has left the window: relist
│   └── FutureRevision     it lies beyond the next one
├── Unavailable            not reachable, or not serving; nothing happened
│   ├── NotLeader          this replica does not lead; nothing happened
│   └── OutcomeUnknown     whether the effect happened is not known
├── DeadlineExceeded       the time was up; a mutation's outcome is unknown
├── Cancelled              the caller cancelled; a mutation's outcome is unknown
├── Internal               a fault of Sexton's own; a mutation's outcome is unknown
└── Unimplemented          the call does not exist there: versions differ

A class's facts travel with it: what a server raised is what its client catches. ``_error_table.py``
says which gRPC code and reason belong to which class.
"""
# ruff: noqa: N818 - the names are those of the gRPC codes and of what happened

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

_SHOWN_CHARACTERS = 80
"""As much of a refused value as a message repeats: enough to recognise it, too little to flood."""


class SextonError(Exception):
    """A call failed.

    `message` is one sentence for people: what was wrong, with the value, and what to do. `facts`
    are for programs; they travel as the metadata of the error's ErrorInfo.
    """

    def __init__(self, message: str = "", facts: Mapping[str, str] | None = None) -> None:
        self.message = message or _first_paragraph(type(self))
        self.facts: dict[str, str] = dict(facts or {})
        super().__init__(self.message)

    @classmethod
    def restore(cls, message: str, facts: Mapping[str, str]) -> Self:
        """Makes the error anew from what came over the wire (or out of a pickle)."""
        error = cls.__new__(cls)
        SextonError.__init__(error, message, facts)
        return error

    def __reduce__(self) -> tuple[object, ...]:
        return type(self).restore, (self.message, self.facts)

    def _number(self, fact: str) -> int:
        text = self.facts.get(fact, "")
        return int(text) if text.isdecimal() else 0


class InvalidArgument(SextonError):
    """A field is missing or out of its range."""

    def __init__(self, field: str, value: object, expected: str) -> None:
        super().__init__(
            f"{field}: {shown(value)} can't be used; expected {expected}", {"field": field}
        )

    @property
    def field(self) -> str:
        """Names the field, as a path in the request; empty where it is not known."""
        return self.facts.get("field", "")


class NotFound(SextonError):
    """There is no such thing."""

    def __init__(self, kind: str, name: str, deleted_at: str = "") -> None:
        """`deleted_at`: since when it is gone, where that is known and its past is kept."""
        gone = f": it was deleted at {deleted_at}, and its past is kept" if deleted_at else ""
        facts = {"kind": kind, "name": name}
        if deleted_at:
            facts["deleted_at"] = deleted_at
        super().__init__(f"there is no {kind} {shown(name)}{gone}", facts)


class AlreadyExists(SextonError):
    """There is one already."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(f"{kind} {shown(name)} exists already", {"kind": kind, "name": name})


class Conflict(SextonError):
    """Somebody else was faster; read again."""


class StaleRevision(Conflict):
    """The revision or etag is not the current one."""

    def __init__(self, kind: str, given: int, current: int) -> None:
        super().__init__(
            f"{kind}: {given} was given but {current} is current; read it again and decide anew",
            {"current": str(current)},
        )

    @property
    def current(self) -> int:
        """Tells the current revision; 0 where it is not known."""
        return self._number("current")


class Refused(SextonError):
    """The state of things does not allow it."""


class IllegalState(Refused):
    """The state does not allow it."""

    def __init__(self, what: str, state: str, allowed: Sequence[str]) -> None:
        super().__init__(
            f"{what} is {state}; this can be done while it is {' or '.join(allowed)}",
            {"state": state, "allowed": ",".join(allowed)},
        )

    @property
    def state(self) -> str:
        """Names the current state."""
        return self.facts.get("state", "")

    @property
    def allowed(self) -> tuple[str, ...]:
        """Names the states in which it would have been done."""
        return tuple(filter(None, self.facts.get("allowed", "").split(",")))


class Fenced(Refused):
    """The caller's lease or token has been replaced: stop acting."""


class WrongIncarnation(Refused):
    """The caller belongs to another cluster, or to the time before a restore."""

    def __init__(self, given: str, incarnation: str) -> None:
        super().__init__(
            f"this is incarnation {incarnation}, the caller belongs to {shown(given)}: the store "
            f"was restored, or is another cluster's; restart the caller",
            {"incarnation": incarnation},
        )

    @property
    def incarnation(self) -> str:
        """Identifies the incarnation that answered."""
        return self.facts.get("incarnation", "")


class Unauthenticated(SextonError):
    """No secret was given, or an unknown one."""


class PermissionDenied(SextonError):
    """The secret does not allow this call."""


class ResourceExhausted(SextonError):
    """A bound was met; nothing happened."""


class NoSpace(ResourceExhausted):
    """The store or its disk is full: free space; deletes and settlements go on working."""


class TooLarge(ResourceExhausted):
    """A message, key, value or batch is too large."""

    def __init__(self, what: str, size: int, limit: int, unit: str = "bytes") -> None:
        super().__init__(
            f"{what}: {size:,} {unit} are too many; at most {limit:,} are taken",
            {"limit": str(limit)},
        )

    @property
    def limit(self) -> int:
        """Tells the largest size that is taken; 0 where it is not known."""
        return self._number("limit")


class Overloaded(ResourceExhausted):
    """Too many requests wait already; try again after a pause."""


class SlowWatcher(ResourceExhausted):
    """The watcher read too slowly and was cut; resume from the last revision that it has seen."""


class OutOfRange(SextonError):
    """A revision from which nothing can be read."""


class Compacted(OutOfRange):
    """The revision has left the window: relist, then watch."""

    def __init__(self, start: int, oldest: int) -> None:
        super().__init__(
            f"revision {start} has left the window, which begins at {oldest}; read the keys again "
            f"and watch from there",
            {"oldest": str(oldest)},
        )

    @property
    def oldest(self) -> int:
        """Tells the oldest revision from which Watch can start; 0 where it is not known."""
        return self._number("oldest")


class FutureRevision(OutOfRange):
    """The revision lies beyond the next one."""

    def __init__(self, start: int, current: int) -> None:
        super().__init__(
            f"revision {start} lies in the future, {current} is current; watch from "
            f"{current + 1} at most, and ask whether this is the right store",
            {"current": str(current)},
        )

    @property
    def current(self) -> int:
        """Tells the current revision; 0 where it is not known."""
        return self._number("current")


class Unavailable(SextonError):
    """The service is starting or stopping, or can't be reached; nothing happened: try again."""


class NotLeader(Unavailable):
    """The replica asked does not lead."""

    def __init__(self, leader: str = "") -> None:
        where = f"ask the leader, {leader}" if leader else "no leader is known; try again"
        super().__init__(f"this replica does not lead; {where}", {"leader": leader})

    @property
    def leader(self) -> str:
        """Gives the leader's address; empty where none is known."""
        return self.facts.get("leader", "")


class OutcomeUnknown(Unavailable):
    """Whether the effect happened is not known; read before trying again."""


class DeadlineExceeded(SextonError):
    """The deadline passed; the outcome of a mutation is unknown."""


class Cancelled(SextonError):
    """The caller cancelled; the outcome of a mutation is unknown."""


class Internal(SextonError):
    """A fault of Sexton's own."""

    def __init__(self, error_id: str) -> None:
        super().__init__(
            f"an internal error occurred; the service's log holds the details under {error_id}",
            {"error_id": error_id},
        )

    @property
    def error_id(self) -> str:
        """Identifies the log line with the details; empty where there is none."""
        return self.facts.get("error_id", "")


class Unimplemented(SextonError):
    """The call does not exist there; the versions of the two sides differ."""


def shown(value: object) -> str:
    """Gives a value as a message shows it: its repr, shortened."""
    text = repr(value)
    if len(text) <= _SHOWN_CHARACTERS:
        return text
    size = len(value if isinstance(value, str) else text)  # without the quotes
    return f"{text[:_SHOWN_CHARACTERS]}... ({size} characters)"


def _first_paragraph(error: type[SextonError]) -> str:
    return (error.__doc__ or error.__name__).split("\n\n", 1)[0].rstrip(".")

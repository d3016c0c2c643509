"""What has been begun, why it is being ended, and what is reported of its end."""

from __future__ import annotations

from enum import Enum
from typing import Final

from sexton_core.instants import SECOND, Instant
from sexton_worker.contract import Ended, Order
from sexton_worker.messages import Completion, EndState


class Asked(Enum):
    """Why an attempt is being ended."""

    NOTHING = "nothing"
    CANCEL = "cancelled"
    TIMEOUT = "timeout"
    TERMINATE = "terminated"
    STOPPING = "the worker stops"
    DEAD = "dead to the mesh"


_make = tuple.__new__
"""Makes a named tuple of all its parts; its own constructor costs twice as much."""
_NOTHING: Final = Asked.NOTHING
_SUCCEEDED: Final = EndState.SUCCEEDED


class Attempt:
    """An attempt that this worker has begun."""

    __slots__ = ("asked", "began_at", "completion", "order", "reason")

    def __init__(self, order: Order, now: Instant) -> None:
        self.order = order
        self.began_at = now
        self.asked = _NOTHING
        self.reason = ""
        self.completion: Completion | None = None


def completion_of(attempt: Attempt, ended: Ended, now: Instant) -> Completion:
    """Gives what is reported of an attempt that has ended."""
    asked = attempt.asked
    order, execution = attempt.order, now - attempt.began_at
    if ended.succeeded and asked is not Asked.TIMEOUT:
        return _make(Completion, (order.ref, _SUCCEEDED, ended, execution))
    state = EndState.FAILED
    if asked is Asked.TIMEOUT:
        state = EndState.TIMED_OUT
        limit = order.timeout / SECOND
        ended = _stopped(ended, "timeout", f"it took longer than {limit:g} s")
    elif asked is Asked.TERMINATE:
        state = EndState.TERMINATED
        ended = _stopped(ended, "terminated", attempt.reason)
    elif asked is Asked.CANCEL:
        state = EndState.CANCELLED
        ended = _stopped(ended, "cancelled", attempt.reason)
    return Completion(order.ref, state, ended, execution)


def _stopped(ended: Ended, kind: str, message: str) -> Ended:
    said = ": ".join(filter(None, (ended.kind, ended.message)))
    if message and said:
        said = f"{message} ({said})"
    return Ended.failure(kind, said or message, ended.detail, ended.output_tail)

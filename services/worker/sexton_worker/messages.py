"""What the machine hears from the queue, and says to the queue and to the executor."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from sexton_core.instants import Duration
from sexton_worker.contract import Ended, Order, Ref


class EndState(Enum):
    """How an attempt ended, as it is reported."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    CANCELLED = "cancelled"
    TERMINATED = "terminated"


class Action(Enum):
    """What the executor is to do with an attempt."""

    BEGIN = "begin"
    CANCEL = "cancel"
    KILL = "kill"


class Command(NamedTuple):
    """Something for the executor to do."""

    action: Action
    order: Order


class Stop(NamedTuple):
    """The queue's request to end an attempt."""

    ref: Ref
    terminate: bool
    reason: str


class Welcome(NamedTuple):
    """The queue's answer to a hello."""

    session: str
    owner_token: int
    session_time: Duration
    heartbeat: Duration
    revoked: Sequence[Ref]


class Completion(NamedTuple):
    """The end of an attempt, until it is acknowledged."""

    ref: Ref
    state: EndState
    ended: Ended
    execution: Duration
    """From its begin: when the order came, or the time until which it was kept."""


class Outgoing(NamedTuple):
    """One message to the queue."""

    credits: int
    heartbeat: int
    started: Sequence[Ref]
    completions: Sequence[Completion]
    returned: Sequence[Ref]
    progress: Sequence[tuple[Ref, float, str]]
    draining: bool
    closing: bool

"""What a change of a job writes, as operations: shared by the leader and the API.

State and timer are always written together, and a transaction never names a key twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sexton_core.instants import Instant
from sexton_core.policy.state import Buffered, DecisionRange, JobState, make
from sexton_core.words import Origin
from sexton_records import keys
from sexton_records.state import encode_buffered, encode_decision, encode_state, encode_timer
from sexton_runtime.kv.types import Delete, Op, Put


@dataclass(frozen=True, slots=True)
class JobName:
    """A job's incarnation, and the coordinator shard that it belongs to.

    state_key: the key of its state.
    timer_value: the record of its timer, which is also what the record of its state begins with.
    """

    namespace: str
    job: str
    uid: str
    shard: int
    state_key: bytes = field(init=False, repr=False)
    timer_value: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Makes what every fire writes."""
        object.__setattr__(self, "state_key", keys.state_key(self.shard, self.uid))
        object.__setattr__(self, "timer_value", encode_timer(self.namespace, self.job))

    @property
    def job_key(self) -> bytes:
        """Returns the key of its definition."""
        return keys.job_key(self.namespace, self.job)


def state_ops(
    name: JobName, state: JobState, timer: Instant | None, previous_timer: Instant | None
) -> list[Op]:
    """Returns what writes a state and its timer, and removes the timer that stood before.

    `previous_timer` is `StateRecord.timer_ns` of the state that is replaced; None: there is none.
    """
    state_value = name.timer_value + encode_state(state, timer)
    ops: list[Op] = [make(Put, (name.state_key, state_value))]
    if timer is not None:
        ops.append(make(Put, (keys.timer_key(name.shard, timer, name.uid), name.timer_value)))
    if previous_timer is not None and previous_timer != timer:
        ops.append(Delete(keys.timer_key(name.shard, previous_timer, name.uid)))
    return ops


def decision_ops(uid: str, ranges: Iterable[DecisionRange]) -> list[Op]:
    """Returns what records why nominal times, or starts from the buffer, were not fired."""
    return [
        Put(
            keys.decision_key(
                uid,
                record.last,
                record.first,
                None if record.origin is Origin.SCHEDULE else record.run_id,
            ),
            encode_decision(record),
        )
        for record in ranges
    ]


def buffered_key(name: JobName, start: Buffered) -> bytes:
    """Returns the key under which a start waits."""
    return keys.buffered_key(name.shard, name.uid, start.buffered_at, start.run_id)


def buffered_ops(
    name: JobName, buffered: Iterable[Buffered], unbuffered: Iterable[Buffered]
) -> list[Op]:
    """Returns what puts starts into the buffer and takes others out of it."""
    return [
        *(Put(buffered_key(name, start), encode_buffered(start)) for start in buffered),
        *(Delete(buffered_key(name, start)) for start in unbuffered),
    ]

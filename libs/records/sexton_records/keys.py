"""The keys of the store, in one place. docs/keys.md says who writes each, and comparing what.

Parts are joined by `/`. Ids, uids and run ids contain none. Times are 20 digits of nanoseconds, so
that keys sort by time. Shards are three digits. Priorities sort highest first.
"""

from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from sexton_core.ids import RunId
from sexton_core.instants import Instant
from sexton_core.policy.state import Handle
from sexton_core.runs.policy import MAX_PRIORITY

JOBS: Final = b"jobs/"
VERSIONS: Final = b"versions/"
STATE: Final = b"state/"
TIMERS: Final = b"timers/"
DECISIONS: Final = b"decisions/"
BUFFERED: Final = b"buffered/"
BACKFILLS: Final = b"backfills/"
DELETED: Final = b"deleted/"
FORMER: Final = b"former/"
ACTIVE: Final = b"active/"
RUNS: Final = b"runs/"
ENDED: Final = b"ended/"
DEAD: Final = b"dead/"
SESSIONS: Final = b"sessions/"
QUEUES: Final = b"queues/"
REQUESTS: Final = b"requests/"

MAX_SHARDS: Final = 1_000
_SHARDS_REMEMBERED: Final = 20_000
"""Names whose shard is remembered: it is asked for several times per run."""
_TIME_DIGITS: Final = 20


class HandleKey(NamedTuple):
    """What a handle's key says."""

    shard: int
    queue: str
    priority: int
    not_before: Instant
    uid: str
    run_id: RunId


class TimerKey(NamedTuple):
    """What a timer's key says."""

    shard: int
    due: Instant
    uid: str


def shard_of(name: str, shards: int) -> int:
    """Returns the shard of a job's uid or a queue's name; the same on every machine, for ever."""
    return _shard_of(name, shards) if shards > 1 else 0


@lru_cache(_SHARDS_REMEMBERED)
def _shard_of(name: str, shards: int) -> int:
    assert 1 <= shards <= MAX_SHARDS, "the cluster record bounds the number of shards"
    digest = blake2b(name.encode(), digest_size=8, person=b"sexton-shard")
    return int.from_bytes(digest.digest()) % shards


def job_key(namespace: str, job: str) -> bytes:
    """Returns the key of a job's current definition."""
    return b"jobs/%s/%s" % (namespace.encode(), job.encode())


def parse_job_key(key: bytes) -> tuple[str, str]:
    """Returns namespace and name."""
    _, namespace, job = key.decode().split("/")
    return namespace, job


def namespace_prefix(namespace: str) -> bytes:
    """Returns what the keys of a namespace's definitions start with."""
    return b"jobs/%s/" % namespace.encode()


def version_key(uid: str, version: int) -> bytes:
    """Returns the key of a definition that ruled before."""
    return b"versions/%s/%010d" % (uid.encode(), version)


def versions_prefix(uid: str) -> bytes:
    """Returns what the keys of a job's former definitions start with, oldest first."""
    return b"versions/%s/" % uid.encode()


def state_key(shard: int, uid: str) -> bytes:
    """Returns the key of a job's state."""
    return b"state/%03d/%s" % (shard, uid.encode())


def state_prefix(shard: int) -> bytes:
    """Returns what the keys of a coordinator shard's states start with."""
    return b"state/%03d/" % shard


def timer_key(shard: int, due: Instant, uid: str) -> bytes:
    """Returns the key of a job's timer."""
    return b"timers/%03d/%020d/%s" % (shard, due, uid.encode())


def timers_prefix(shard: int) -> bytes:
    """Returns what the keys of a coordinator shard's timers start with, earliest first."""
    return b"timers/%03d/" % shard


def timers_until(shard: int, due: Instant) -> bytes:
    """Returns the end (exclusive) of the range of timers that are due up to and including `due`."""
    return b"timers/%03d/%s" % (shard, _time(due + 1))


def parse_timer_key(key: bytes) -> TimerKey:
    """Returns what a timer's key says."""
    _, shard, due, uid = key.decode().split("/")
    return TimerKey(int(shard), int(due), uid)


def decision_key(uid: str, last: Instant, first: Instant, run_id: RunId | None = None) -> bytes:
    """Returns the key of a decided range: found by seeking the first key that ends at or after t.

    Ranges of scheduled times are disjoint, so their last times are unique. A start from the buffer
    that is no nominal time of the schedule has its `run_id` in the key: its time may be one that
    the schedule asks for too, and another start's.
    """
    key = b"decisions/%s/%s/%s" % (uid.encode(), _time(last), _time(first))
    return key if run_id is None else b"%s/%s" % (key, run_id.encode())


def decisions_prefix(uid: str) -> bytes:
    """Returns what the keys of a job's decided ranges start with, in order of their last time."""
    return b"decisions/%s/" % uid.encode()


def decisions_from(uid: str, instant: Instant) -> bytes:
    """Returns the start of the range of decisions that end at or after an instant."""
    return b"decisions/%s/%s" % (uid.encode(), _time(instant))


def buffered_key(shard: int, uid: str, buffered_at: Instant, run_id: RunId) -> bytes:
    """Returns the key of a start that waits; keys of a job sort in the order of waiting."""
    return b"buffered/%03d/%s/%s/%s" % (shard, uid.encode(), _time(buffered_at), run_id.encode())


def buffered_prefix(shard: int, uid: str | None = None) -> bytes:
    """Returns what the keys of the waiting starts of a shard, or of one job, start with."""
    if uid is None:
        return b"buffered/%03d/" % shard
    return b"buffered/%03d/%s/" % (shard, uid.encode())


def parse_buffered_key(key: bytes) -> tuple[str, RunId]:
    """Returns the job's uid and the run's id."""
    _, _, uid, _, run_id = key.decode().split("/")
    return uid, run_id


def backfill_key(shard: int, uid: str, backfill: str) -> bytes:
    """Returns the key of a backfill."""
    return b"backfills/%03d/%s/%s" % (shard, uid.encode(), backfill.encode())


def backfills_prefix(shard: int, uid: str | None = None) -> bytes:
    """Returns what the keys of the backfills of a shard, or of one job, start with."""
    if uid is None:
        return b"backfills/%03d/" % shard
    return b"backfills/%03d/%s/" % (shard, uid.encode())


def parse_backfill_key(key: bytes) -> tuple[str, str]:
    """Returns the job's uid and the backfill's id."""
    _, _, uid, backfill = key.decode().split("/")
    return uid, backfill


def deleted_key(shard: int, uid: str) -> bytes:
    """Returns the key of what remains of a deleted job."""
    return b"deleted/%03d/%s" % (shard, uid.encode())


def deleted_prefix(shard: int) -> bytes:
    """Returns what the keys of a shard's deleted jobs start with."""
    return b"deleted/%03d/" % shard


def handle_key(shard: int, uid: str, handle: Handle) -> bytes:
    """Returns the key of a run in flight: its record, and its place in line."""
    run_id, queue, priority, not_before = handle
    return b"active/%03d/%s/%03d/%020d/%s/%s" % (
        shard,
        queue.encode(),
        MAX_PRIORITY - priority,
        not_before,
        uid.encode(),
        run_id.encode(),
    )


def parse_handle_key(key: bytes) -> HandleKey:
    """Returns what a handle's key says."""
    _, shard, queue, priority, not_before, uid, run_id = key.decode().split("/")
    return HandleKey(int(shard), queue, MAX_PRIORITY - int(priority), int(not_before), uid, run_id)


def run_id_of(handle: bytes) -> RunId:
    """Returns the run's id alone, which a handle's key ends with."""
    return handle[handle.rfind(b"/") + 1 :].decode()


def active_prefix(shard: int, queue: str | None = None, priority: int | None = None) -> bytes:
    """Returns what the keys of a shard's line start with: all, one queue's, one priority's."""
    if queue is None:
        return b"active/%03d/" % shard
    if priority is None:
        return b"active/%03d/%s/" % (shard, queue.encode())
    return b"active/%03d/%s/%03d/" % (shard, queue.encode(), MAX_PRIORITY - priority)


def run_key(namespace: str, job: str, uid: str, run_id: RunId) -> bytes:
    """Returns the key of a run that has ended."""
    return b"runs/%s/%s/%s/%s" % (
        namespace.encode(),
        job.encode(),
        uid.encode(),
        run_id.encode(),
    )


def former_key(namespace: str, job: str, deleted: Instant, uid: str) -> bytes:
    """Returns the key of what is kept of a deleted job."""
    return b"former/%s/%s/%s/%s" % (
        namespace.encode(),
        job.encode(),
        _time(deleted),
        uid.encode(),
    )


def former_prefix(namespace: str, job: str) -> bytes:
    """Returns what the keys of a name's deleted jobs start with, in the order of deletion."""
    return b"former/%s/%s/" % (namespace.encode(), job.encode())


def former_from(namespace: str, job: str, deleted: Instant) -> bytes:
    """Returns where those begin that were deleted at or after an instant."""
    return b"former/%s/%s/%s" % (namespace.encode(), job.encode(), _time(deleted))


def parse_former_key(key: bytes) -> tuple[Instant, str]:
    """Returns when a job was deleted, and its uid."""
    _, _, _, deleted, uid = key.decode().split("/")
    return int(deleted), uid


def runs_prefix(namespace: str, job: str) -> bytes:
    """Returns what the keys of a job's ended runs start with, all incarnations."""
    return b"runs/%s/%s/" % (namespace.encode(), job.encode())


def ended_key(shard: int, end: Instant, uid: str, run_id: RunId) -> bytes:
    """Returns the key by which an ended run is found by time; `shard` is its job's."""
    return b"ended/%03d/%s/%s/%s" % (shard, _time(end), uid.encode(), run_id.encode())


@lru_cache(256)
def ended_at(shard: int, end: Instant) -> bytes:
    """Returns what the keys of a shard's runs that ended at an instant start with: often many."""
    return b"ended/%03d/%s/" % (shard, _time(end))


def ended_prefix(shard: int) -> bytes:
    """Returns what the keys of a shard's ended runs start with, oldest first."""
    return b"ended/%03d/" % shard


def ended_until(shard: int, end: Instant) -> bytes:
    """Returns the end (exclusive) of the range of runs that ended up to and including `end`."""
    return b"ended/%03d/%s" % (shard, _time(end + 1))


def parse_ended_key(key: bytes) -> tuple[Instant, str, RunId]:
    """Returns the time, the job's uid and the run's id; for dead letters too."""
    _, _, end, uid, run_id = key.decode().split("/")
    return int(end), uid, run_id


def dead_key(shard: int, end: Instant, uid: str, run_id: RunId) -> bytes:
    """Returns the key of a dead letter; `shard` is its queue's."""
    return b"dead/%03d/%s/%s/%s" % (shard, _time(end), uid.encode(), run_id.encode())


def dead_prefix(shard: int) -> bytes:
    """Returns what the keys of a shard's dead letters start with, oldest first."""
    return b"dead/%03d/" % shard


def session_key(shard: int, session: str) -> bytes:
    """Returns the key of a worker's session."""
    return b"sessions/%03d/%s" % (shard, session.encode())


def sessions_prefix(shard: int) -> bytes:
    """Returns what the keys of a queue shard's sessions start with."""
    return b"sessions/%03d/" % shard


def queue_key(shard: int, queue: str) -> bytes:
    """Returns the key that says that a queue is paused."""
    return b"queues/%03d/%s" % (shard, queue.encode())


def queues_prefix(shard: int) -> bytes:
    """Returns what the keys of a shard's paused queues start with."""
    return b"queues/%03d/" % shard


def request_key(shard: int, namespace: str, method: str, request_id: str) -> bytes:
    """Returns the key that says that a request has had its effect."""
    digest = blake2b(
        f"{namespace}\0{method}\0{request_id}".encode(), digest_size=20, person=b"sexton-request"
    )
    return b"requests/%03d/%s" % (shard, digest.hexdigest().encode())


def requests_prefix(shard: int) -> bytes:
    """Returns what the keys of a coordinator shard's requests start with."""
    return b"requests/%03d/" % shard


def coordinator_lease(shard: int) -> str:
    """Returns the name of the lease for which coordinators compete."""
    return f"coordinator/{shard:03}"


def queue_lease(shard: int) -> str:
    """Returns the name of the lease for which queue replicas compete."""
    return f"queue/{shard:03}"


def _time(instant: Instant) -> bytes:
    return b"%020d" % instant

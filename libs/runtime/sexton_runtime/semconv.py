"""The names of what is measured and traced, in one place.

`messaging.*` and `rpc.*` follow OpenTelemetry's conventions; no convention exists for schedulers,
so the rest is `sexton.*`. Units are UCUM. Prometheus shows `sexton.store.used` in bytes as
`sexton_store_used_bytes`.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Instrument(NamedTuple):
    """What is counted or gauged."""

    name: str
    unit: str
    description: str


SERVICE_NAME: Final = "service.name"
SERVICE_VERSION: Final = "service.version"
SERVICE_INSTANCE_ID: Final = "service.instance.id"
RPC_SYSTEM: Final = "rpc.system"
RPC_SERVICE: Final = "rpc.service"
RPC_METHOD: Final = "rpc.method"
RPC_CODE: Final = "rpc.grpc.status_code"

RPC_CALLS: Final = Instrument("sexton.rpc.server.calls", "{call}", "Calls that ended, by code.")

STORE_REVISION: Final = Instrument("sexton.store.revision", "{revision}", "Last durable revision.")
STORE_KEYS: Final = Instrument("sexton.store.keys", "{key}", "Keys stored.")
STORE_USED: Final = Instrument("sexton.store.used", "By", "Bytes in use in the map.")
STORE_MAP: Final = Instrument("sexton.store.map", "By", "Bytes of the map now.")
STORE_DISK_FREE: Final = Instrument("sexton.store.disk.free", "By", "Bytes free on the disk.")
STORE_FULL: Final = Instrument("sexton.store.full", "1", "1 while growing writes are refused.")
STORE_WATCHES: Final = Instrument("sexton.store.watches", "{watch}", "Watches open.")
STORE_LEASES: Final = Instrument("sexton.store.leases", "{lease}", "Leases held.")
STORE_READER_AGE: Final = Instrument("sexton.store.reader.age", "ms", "Age of the oldest reader.")
STORE_CLOCK_DISPUTED: Final = Instrument(
    "sexton.store.clock.disputed", "1", "1 while mesh time is disputed."
)
STORE_EVENTS: Final = Instrument(
    "sexton.store.events", "{event}", "What the engine has counted, by kind."
)
KIND: Final = "sexton.kind"

DESTINATION: Final = "messaging.destination.name"
QUEUE_EVENTS: Final = Instrument(
    "sexton.queue.events", "{event}", "What a queue's owner has done, by kind."
)
QUEUE_READY: Final = Instrument("sexton.queue.ready", "{run}", "Runs that could be assigned.")
QUEUE_DELAYED: Final = Instrument("sexton.queue.delayed", "{run}", "Runs that wait for a time.")
QUEUE_RUNNING: Final = Instrument("sexton.queue.running", "{run}", "Runs assigned to workers.")
QUEUE_SESSIONS: Final = Instrument("sexton.queue.sessions", "{session}", "Sessions of workers.")
QUEUE_OWNING: Final = Instrument("sexton.queue.owning", "1", "1 while this replica owns its shard.")

COORDINATOR_SHARDS_LED: Final = Instrument(
    "sexton.coordinator.shards_led", "{shard}", "Shards that this replica leads."
)
COORDINATOR_OVERDUE: Final = Instrument(
    "sexton.coordinator.overdue", "{job}", "Jobs that are due for a minute and not decided."
)
COORDINATOR_EVENTS: Final = Instrument(
    "sexton.coordinator.events", "{event}", "What leading has counted, by kind."
)

WORKER_EVENTS: Final = Instrument(
    "sexton.worker.events", "{event}", "What a worker has done, by kind."
)
WORKER_EXECUTING: Final = Instrument(
    "sexton.worker.executing", "{attempt}", "Attempts that are being executed."
)

# Spans of a run's way. What follows OpenTelemetry's messaging conventions is named by them; the
# state rail, which no convention has, by `sexton.*`. `RAIL` marks the spans that repeat a record.
SCOPE_RUN: Final = "sexton.run"
"""Scope of spans that are all of one trace, the one that holds the others first."""
SPAN_RUN: Final = "sexton.run"
SPAN_FIRE: Final = "sexton.fire"
SPAN_PUSH: Final = "sexton.push"
SPAN_LINE: Final = "sexton.line"
SPAN_ATTEMPT: Final = "sexton.attempt"
SPAN_PROCESS: Final = "process"
"""And the task's name behind it: an attempt as its worker saw it."""
RAIL: Final = "sexton.rail"
NAMESPACE: Final = "sexton.namespace"
JOB: Final = "sexton.job"
JOB_VERSION: Final = "sexton.job.version"
RUN: Final = "sexton.run.id"
RUN_STATE: Final = "sexton.run.state"
RUN_REASON: Final = "sexton.run.reason"
NOMINAL_TIME: Final = "sexton.run.nominal_time"
ATTEMPT: Final = "sexton.attempt"
ATTEMPT_STATE: Final = "sexton.attempt.state"
TOKEN: Final = "sexton.token"  # noqa: S105 - a fencing token is no secret
WORKER: Final = "sexton.worker"
SESSION: Final = "sexton.session"
LEASE: Final = "sexton.lease"
ERROR_TYPE: Final = "error.type"
MESSAGING_SYSTEM: Final = "messaging.system"
MESSAGING_OPERATION: Final = "messaging.operation.type"
MESSAGE_ID: Final = "messaging.message.id"
FAAS_TRIGGER: Final = "faas.trigger"
SCOPE_LOG: Final = "sexton.log"
"""The scope of what services log of themselves; the output of tasks has none."""
LOGGER: Final = "log.logger"
STACK: Final = "exception.stacktrace"
LOG_STREAM: Final = "log.iostream"
"""`stdout` or `stderr`; absent where a task's output is one stream."""

SPANS_DROPPED: Final = Instrument(
    "sexton.telemetry.dropped", "{item}", "Spans and log lines that were not sent, by kind."
)

"""Between a job's definition on the wire and in the core, and what all its runs share.

A definition is checked and written out whole before it is stored (`canonical`): every default
stands in it, so that applying the same file again changes nothing, and a later change of a default
changes no job.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

from google.protobuf.duration_pb2 import Duration as WireDuration

from sexton.internal.v1 import records_pb2
from sexton.v1 import job_pb2 as pb
from sexton_core.errors import PolicyError
from sexton_core.instants import Duration
from sexton_core.policy.job import CatchUp, Definition, Retention
from sexton_core.runs.policy import RunPolicy
from sexton_core.runs.retry import Retry
from sexton_core.schedules import JobIdentity, JobSchedule, ScheduleCache
from sexton_core.words import CatchUpPolicy, Delivery, Overlap
from sexton_records._bytes import message, text
from sexton_records.schedules import decode_schedules, encode_schedules
from sexton_records.state import OVERLAP_OF, OVERLAPS
from sexton_records.tasks import canonical_task
from sexton_records.times import read_duration, wire_duration

Word = TypeVar("Word")
Value = TypeVar("Value", bound=int)

MAX_LABELS: Final = 32
MAX_LABEL_CHARACTERS: Final = 63
MAX_DESCRIPTION: Final = 1_000
_RULES_REMEMBERED: Final = 1_024
"""Of definitions; each takes a KiB or two."""

CATCH_UPS: Final[dict[CatchUpPolicy, pb.CatchUp.Policy.ValueType]] = {
    CatchUpPolicy.NONE: pb.CatchUp.POLICY_NONE,
    CatchUpPolicy.LATEST: pb.CatchUp.POLICY_LATEST,
    CatchUpPolicy.EARLIEST: pb.CatchUp.POLICY_EARLIEST,
    CatchUpPolicy.ALL: pb.CatchUp.POLICY_ALL,
}
_CATCH_UP_OF: Final = {value: word for word, value in CATCH_UPS.items()}
_CATCH_UP_OF[pb.CatchUp.POLICY_UNSPECIFIED] = CatchUpPolicy.LATEST
_OVERLAP_OF: Final = {pb.OVERLAP_POLICY_UNSPECIFIED: Overlap.SKIP, **OVERLAP_OF}
_DELIVERY_OF: Final = {
    pb.DELIVERY_UNSPECIFIED: Delivery.AT_LEAST_ONCE,
    pb.DELIVERY_AT_LEAST_ONCE: Delivery.AT_LEAST_ONCE,
    pb.DELIVERY_AT_MOST_ONCE: Delivery.AT_MOST_ONCE,
}


def decode_definition(
    spec: pb.JobSpec, version: int, job: JobIdentity, cache: ScheduleCache
) -> Definition:
    """Returns what the policies know of a definition; its schedules are shared through the cache.

    Raises:
        FieldError: a field has a value that can't be used.
    """
    schedules = decode_schedules(spec.schedules)
    schedule = None if schedules is None else cache.build(schedules, job)
    rules = _rules_of(_rules_only(spec))
    return Definition(
        version=version,
        schedule=schedule,
        unfiltered=None if schedule is None else schedule.unfiltered,
        jitter_ns=0 if schedule is None else schedule.jitter_ns,
        overlap=rules.overlap,
        max_buffered=spec.max_buffered or 100,
        max_live=spec.max_live or 1_000,
        catch_up=rules.catch_up,
        run=rules.run,
        retention=rules.retention,
    )


class _Rules(NamedTuple):
    """What a definition says besides its schedules, its task and what is for people."""

    overlap: Overlap
    catch_up: CatchUp
    run: RunPolicy
    retention: Retention


def _rules_only(spec: pb.JobSpec) -> bytes:
    """Returns the message of what `_Rules` are read from."""
    rules = pb.JobSpec()
    rules.CopyFrom(spec)
    for field in ("schedules", "task", "labels", "description"):
        rules.ClearField(field)
    return rules.SerializeToString()


@lru_cache(_RULES_REMEMBERED)
def _rules_of(message: bytes) -> _Rules:
    """Reads rules, equal ones once: of the jobs of a file each has its own task, but few others."""
    spec = pb.JobSpec.FromString(message)
    return _Rules(
        overlap=_word(_OVERLAP_OF, "overlap", spec.overlap),
        catch_up=decode_catch_up(spec.catch_up),
        run=decode_run_policy(spec),
        retention=_decode_retention(spec.retention),
    )


def canonical(spec: pb.JobSpec, definition: Definition) -> pb.JobSpec:
    """Returns the definition with everything written out, ready to be stored.

    Raises:
        FieldError: its task, labels or description have a value that can't be used.
    """
    task = canonical_task(spec.task)
    check_description(spec.labels, spec.description)
    schedule = definition.schedule
    return encode_spec(
        definition,
        schedules=encode_schedules(
            schedule.spec if isinstance(schedule, JobSchedule) else decode_schedules(spec.schedules)
        ),
        task=task,
        labels=dict(spec.labels),
        description=spec.description,
    )


def encode_spec(
    definition: Definition,
    *,
    schedules: list[pb.Schedule],
    task: pb.Task,
    labels: dict[str, str],
    description: str,
) -> pb.JobSpec:
    """Returns a definition as it stands on the wire, with every default written out."""
    run, retry, catch_up = definition.run, definition.run.retries, definition.catch_up
    return pb.JobSpec(
        schedules=schedules,
        task=task,
        queue=run.queue,
        priority=run.priority,
        overlap=OVERLAPS[definition.overlap],
        max_buffered=definition.max_buffered,
        max_live=definition.max_live,
        catch_up=pb.CatchUp(
            policy=CATCH_UPS[catch_up.policy],
            window=_optional(catch_up.window_ns),
            max=catch_up.max_starts,
            late_after=wire_duration(catch_up.late_after_ns),
        ),
        retry=pb.Retry(
            max_attempts=retry.max_attempts,
            max_deliveries=run.max_deliveries,
            initial_backoff=wire_duration(retry.initial_backoff_ns),
            multiplier=retry.multiplier,
            max_backoff=wire_duration(retry.max_backoff_ns),
            jitter=retry.jitter,
        ),
        timeout=wire_duration(run.timeout_ns),
        deadline=_optional(run.deadline_ns),
        start_within=_optional(run.start_within_ns),
        delivery=pb.DELIVERY_AT_MOST_ONCE
        if run.delivery is Delivery.AT_MOST_ONCE
        else pb.DELIVERY_AT_LEAST_ONCE,
        exclusive=run.exclusive,
        retention=pb.Retention(
            max_runs=definition.retention.max_runs,
            max_age=wire_duration(definition.retention.max_age_ns),
        ),
        labels=labels,
        description=description,
    )


def check_description(labels: Mapping[str, str], description: str) -> None:
    """Checks what a definition says for people and filters.

    Raises:
        PolicyError: too much, or what can't be printed.
    """
    if len(labels) > MAX_LABELS:
        raise PolicyError("labels", len(labels), f"at most {MAX_LABELS}")
    for key, value in labels.items():
        if not key:
            raise PolicyError("labels", key, "a key with at least one character")
        for said in (key, value):
            if len(said) > MAX_LABEL_CHARACTERS or not said.isprintable():
                raise PolicyError(
                    f"labels.{key}", said, f"at most {MAX_LABEL_CHARACTERS} printable characters"
                )
    if len(description) > MAX_DESCRIPTION or "\0" in description:
        raise PolicyError(
            "description",
            f"{len(description)} characters",
            f"at most {MAX_DESCRIPTION} characters, no NUL",
        )


def run_template(
    namespace: str, job: str, uid: str, spec: pb.JobSpec, definition: Definition
) -> records_pb2.RunTemplate:
    """Returns what all runs of a version share."""
    run, retry = definition.run, definition.run.retries
    return records_pb2.RunTemplate(
        namespace=namespace,
        job=job,
        job_uid=uid,
        version=definition.version,
        task=spec.task,
        queue=run.queue,
        priority=run.priority,
        timeout_ns=run.timeout_ns,
        deadline_ns=run.deadline_ns or 0,
        start_within_ns=run.start_within_ns or 0,
        at_most_once=run.delivery is Delivery.AT_MOST_ONCE,
        exclusive=run.exclusive,
        max_attempts=retry.max_attempts,
        max_deliveries=run.max_deliveries,
        initial_backoff_ns=retry.initial_backoff_ns,
        multiplier=retry.multiplier,
        max_backoff_ns=retry.max_backoff_ns,
        backoff_jitter=retry.jitter,
        retain_runs=definition.retention.max_runs,
        retain_ns=definition.retention.max_age_ns,
    )


def shared_part(spec: pb.JobSpec, definition: Definition) -> bytes:
    """Returns all of a run's template but whose it is: the same for jobs of one definition."""
    return run_template("", "", "", spec, definition).SerializeToString()


def encode_template(namespace: str, job: str, uid: str, shared: bytes) -> bytes:
    """Returns what a run's record begins with: its template, of which `shared_part` is given."""
    return message(1, text(1, namespace) + text(2, job) + text(3, uid) + shared)


def template_policy(template: records_pb2.RunTemplate) -> RunPolicy:
    """Returns the policy that a run's template holds: the inverse of `run_template`."""
    return RunPolicy(
        queue=template.queue,
        priority=template.priority,
        delivery=Delivery.AT_MOST_ONCE if template.at_most_once else Delivery.AT_LEAST_ONCE,
        exclusive=template.exclusive,
        retry=Retry(
            max_attempts=template.max_attempts,
            initial_backoff_ns=template.initial_backoff_ns,
            multiplier=template.multiplier,
            max_backoff_ns=template.max_backoff_ns,
            jitter=template.backoff_jitter,
        ),
        max_deliveries=template.max_deliveries,
        timeout_ns=template.timeout_ns,
        deadline_ns=template.deadline_ns or None,
        start_within_ns=template.start_within_ns or None,
    )


def decode_catch_up(message: pb.CatchUp) -> CatchUp:
    """Returns the catch-up rules, absent fields being their defaults."""
    defaults = CatchUp()
    return CatchUp(
        policy=_word(_CATCH_UP_OF, "catch_up.policy", message.policy),
        window_ns=read_duration("catch_up.window", message.window)
        if message.HasField("window")
        else None,
        max_starts=message.max or defaults.max_starts,
        late_after_ns=_duration(message, "late_after", defaults.late_after_ns),
    )


def decode_run_policy(spec: pb.JobSpec) -> RunPolicy:
    """Returns what the definition says about each of its runs."""
    defaults = RunPolicy()
    delivery = _word(_DELIVERY_OF, "delivery", spec.delivery)
    return RunPolicy(
        queue=spec.queue or defaults.queue,
        priority=spec.priority,
        delivery=delivery,
        exclusive=spec.exclusive,
        retry=_decode_retry(spec.retry, delivery) if spec.HasField("retry") else None,
        max_deliveries=spec.retry.max_deliveries or defaults.max_deliveries,
        timeout_ns=_duration(spec, "timeout", defaults.timeout_ns),
        deadline_ns=read_duration("deadline", spec.deadline) if spec.HasField("deadline") else None,
        start_within_ns=read_duration("start_within", spec.start_within)
        if spec.HasField("start_within")
        else None,
    )


def _decode_retry(message: pb.Retry, delivery: Delivery) -> Retry:
    defaults = Retry(max_attempts=1) if delivery is Delivery.AT_MOST_ONCE else Retry()
    return Retry(
        max_attempts=message.max_attempts or defaults.max_attempts,
        initial_backoff_ns=_duration(message, "initial_backoff", defaults.initial_backoff_ns),
        multiplier=message.multiplier or defaults.multiplier,
        max_backoff_ns=_duration(message, "max_backoff", defaults.max_backoff_ns),
        jitter=message.jitter if message.HasField("jitter") else defaults.jitter,
    )


def _decode_retention(message: pb.Retention) -> Retention:
    defaults = Retention()
    return Retention(
        max_age_ns=_duration(message, "max_age", defaults.max_age_ns),
        max_runs=message.max_runs or defaults.max_runs,
    )


def _word(table: Mapping[Value, Word], field: str, value: Value) -> Word:
    if value not in table:
        raise PolicyError(field, value, "a value that this version knows")
    return table[value]


def _duration(
    message: pb.JobSpec | pb.CatchUp | pb.Retry | pb.Retention, field: str, default: Duration
) -> Duration:
    if not message.HasField(field):  # type: ignore[arg-type]  # each caller names its own field
        return default
    value: WireDuration = getattr(message, field)
    return read_duration(field, value)


def _optional(duration: Duration | None) -> WireDuration | None:
    return None if duration is None else wire_duration(duration)

"""Definitions that many jobs share: decoded, checked and written out once for all of them.

A million jobs have few different definitions, and what is made of one depends on the job only
where its schedule does: by `H`, by a number of runs that is counted from the creation, by jitter.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, TypeAlias

from sexton.internal.v1 import records_pb2
from sexton.v1 import job_pb2 as pb
from sexton_core.policy import Definition
from sexton_core.schedules import JobIdentity, JobSchedule, ScheduleCache, depends_on_job
from sexton_records.spec import canonical, decode_definition, shared_part

_MAX_TEMPLATES: Final = 2_048
_MAX_BYTES: Final = 4 * 1024 * 1024
"""Definitions remembered, by number and by the size of their messages. Each takes some KiB more."""
_MAX_SCHEDULES: Final = 4_096
"""Schedules remembered; one takes 2 to 10 KiB."""

_Key: TypeAlias = tuple[int, bytes]


class Template:
    """What is made of a definition.

    key: its version's number and its message.
    spec: as it was given; not to be changed.
    shared: whether it is that of all jobs with this definition, none of whose answers depends on
        the job.
    """

    __slots__ = ("_runs", "_stored", "_whole", "definition", "key", "shared", "spec")

    def __init__(self, key: _Key, spec: pb.JobSpec, definition: Definition) -> None:
        self.key: Final = key
        self.spec: Final = spec
        self.definition: Final = definition
        self.shared: Final = _is_shared(definition)
        self._whole: pb.JobSpec | None = None
        self._stored = b""
        self._runs = b""

    def whole(self) -> pb.JobSpec:
        """Returns the definition with every default written out; not to be changed.

        Raises:
            FieldError: its task, labels or description have a value that can't be used.

        """
        if self._whole is None:
            self._whole = canonical(self.spec, self.definition)
        return self._whole

    def stored(self) -> bytes:
        """Returns the whole definition as it stands behind whatever else a job's record holds.

        Raises:
            FieldError: as `whole`.

        """
        if not self._stored:
            self._stored = records_pb2.JobRecord(spec=self.whole()).SerializeToString()
        return self._stored

    def of_runs(self) -> bytes:
        """Returns what the templates of all runs say after whose they are."""
        if not self._runs:
            self._runs = shared_part(self.spec, self.definition)
        return self._runs

    def take_whole(self, other: Template) -> None:
        """Takes what another one of the same message has written out."""
        self._whole, self._stored, self._runs = other._whole, other._stored, other._runs


class Templates:
    """Decodes definitions, equal ones once."""

    def __init__(self) -> None:
        self._schedules: Final = ScheduleCache(_MAX_SCHEDULES)
        self._known: OrderedDict[_Key, Template] = OrderedDict()
        self._bytes = 0

    def shared(self, spec: pb.JobSpec, number: int) -> Template | None:
        """Returns what all jobs have whose version `number` has this definition, if it is known."""
        key = number, spec.SerializeToString(deterministic=True)
        known = self._known.get(key)
        if known is None or not known.shared:
            return None
        self._known.move_to_end(key)
        return known

    def decode(self, spec: pb.JobSpec, number: int, job: Callable[[], JobIdentity]) -> Template:
        """Returns what version `number` of a job's definition comes to.

        `job` is asked only where that depends on the job, or was not known.

        Raises:
            FieldError: a field has a value that can't be used.

        """
        key = number, spec.SerializeToString(deterministic=True)
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            if known.shared:
                return known
        template = Template(key, spec, decode_definition(spec, number, job(), self._schedules))
        if known is None:
            self._remember(template)
        else:
            template.take_whole(known)
        return template

    def _remember(self, template: Template) -> None:
        self._known[template.key] = template
        self._bytes += len(template.key[1])
        while len(self._known) > _MAX_TEMPLATES or self._bytes > _MAX_BYTES:
            (_, forgotten), _ = self._known.popitem(last=False)
            self._bytes -= len(forgotten)


def _is_shared(definition: Definition) -> bool:
    schedule = definition.schedule
    if schedule is None:
        return True
    if not isinstance(schedule, JobSchedule) or schedule.jitter_ns:
        return False
    return not depends_on_job(schedule.spec)

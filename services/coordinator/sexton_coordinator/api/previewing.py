"""Computes the next nominal times of a definition, applied or not, with the code that fires."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from sexton.errors import InvalidArgument, NotFound
from sexton.v1 import job_pb2 as pb
from sexton.v1 import scheduler_pb2 as api
from sexton_coordinator.api import checks
from sexton_coordinator.api.checks import Name
from sexton_coordinator.api.definitions import SPEC
from sexton_coordinator.api.showing import warnings
from sexton_coordinator.mesh import Mesh
from sexton_core.instants import Instant, format_instant
from sexton_core.schedules import JobIdentity, JobSchedule, build, warnings_of
from sexton_core.schedules.preview import PreviewRow, preview
from sexton_records.schedules import decode_schedules
from sexton_records.spec import decode_catch_up
from sexton_records.times import timestamp

MAX_TIMES: Final = 1_000
_DEFAULT_TIMES: Final = 20
_TIMES_AT_ONCE: Final = 50
"""Computed in one go, some milliseconds: the leader's lease is renewed on the same loop."""


class _Previewed(NamedTuple):
    """What is previewed; no schedule: the job runs by hand only."""

    schedule: JobSchedule | None
    warnings: list[str]


class Previewer:
    """Previews."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh

    async def preview(self, request: api.PreviewJobRequest) -> api.PreviewJobResponse:
        """Answers with the times, and what deserves a second look.

        Raises:
            InvalidArgument: a field, or the definition, can't be used.
            NotFound: there is no such job, and no definition was given.

        """
        if not 0 <= request.count <= MAX_TIMES:
            expected = f"1 to {MAX_TIMES:,}, or 0 for {_DEFAULT_TIMES}"
            raise InvalidArgument("count", request.count, expected)
        now = self._mesh.now()
        after, until = now, None
        if request.HasField("after_time"):
            after = checks.instant("after_time", request.after_time)
        if request.HasField("until_time"):
            until = checks.instant("until_time", request.until_time)
            if until <= after:
                expected = f"a time later than {format_instant(after)}"
                raise InvalidArgument("until_time", format_instant(until), expected)
        schedule, warned = await self._previewed(request, now)
        response = api.PreviewJobResponse(complete=True, warnings=warned)
        if schedule is None:
            return response
        response.descriptions.extend(part.schedule.explain() for part in schedule.parts)
        left = request.count or _DEFAULT_TIMES
        last = after
        while left:
            most = min(left, _TIMES_AT_ONCE)
            rows = [row for row in preview(schedule, after, most).rows if _is_within(row, until)]
            response.times.extend(map(_message, rows))
            fired = [row.nominal for row in rows if row.excluded_by is None]
            last = fired[-1] if fired else last
            if len(fired) < most:
                break
            after = last
            left -= most
            await asyncio.sleep(0)
        response.complete = schedule.next_after(last) is None
        return response

    async def _previewed(self, request: api.PreviewJobRequest, now: Instant) -> _Previewed:
        if not request.name:
            if not request.HasField("spec"):
                raise InvalidArgument("name", "", f"{checks.JOB_FORM}, or a spec")
            return self._definition(request.spec, None, now)
        name = checks.job_name("name", request.name)
        loaded = await self._mesh.jobs.by_name(name.namespace, name.job)
        if request.HasField("spec"):
            uid = loaded.name.uid if loaded is not None else ""
            return self._definition(request.spec, self._identity(name, uid, now), now)
        if loaded is None:
            raise NotFound("job", request.name)
        definition = loaded.job.current
        found = definition.schedule
        assert found is None or isinstance(found, JobSchedule), "jobs are read with such"
        return _Previewed(found, warnings(definition, now))

    def _identity(self, name: Name, uid: str, now: Instant) -> JobIdentity:
        return JobIdentity(namespace=name.namespace, name=name.job, uid=uid, since=now)

    def _definition(
        self, spec: pb.JobSpec, identity: JobIdentity | None, now: Instant
    ) -> _Previewed:
        with checks.refusing(SPEC):
            catch_up = decode_catch_up(spec.catch_up).warnings()
            asked = decode_schedules(spec.schedules)
            schedule = None if asked is None else build(asked, identity)
        found = [] if schedule is None else warnings_of(schedule, now)
        return _Previewed(schedule, [*(warning.message for warning in found), *catch_up])


def _is_within(row: PreviewRow, until: Instant | None) -> bool:
    return until is None or row.nominal <= until


def _message(row: PreviewRow) -> api.PreviewedTime:
    return api.PreviewedTime(
        nominal_time=timestamp(row.nominal),
        due_time=timestamp(row.due),
        local_time=row.local.isoformat(),
        note="; ".join(row.notes),
        excluded_by=row.excluded_by or "",
        excluded_until_time=None if row.excluded_until is None else timestamp(row.excluded_until),
    )

"""The definitions that a job has had: which one ruled what, and their list."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from sexton.errors import IllegalState, InvalidArgument, NotFound
from sexton.internal.v1 import records_pb2 as records
from sexton.v1 import scheduler_pb2 as api
from sexton_coordinator.api import checks
from sexton_coordinator.api.tokens import make_token, read_token
from sexton_coordinator.jobs_store import LoadedJob
from sexton_coordinator.mesh import Mesh
from sexton_coordinator.writes import JobName
from sexton_core.errors import CoreError
from sexton_core.instants import Instant
from sexton_core.policy import Definition, Job, Rule
from sexton_records import keys
from sexton_records.times import timestamp

MAX_VERSIONS: Final = 500
"""Versions looked back for the one that ruled; what is older is answered from the record alone."""

MAX_PAGE: Final = 100
_DEFAULT_PAGE: Final = 20
_VERSIONS_PER_READ: Final = 50
_MAX_ANSWER_BYTES: Final = 2 * 1024 * 1024
"""A page ends when it has grown to this; a definition has at most 400 KiB."""


class Versions:
    """Reads former definitions."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh

    async def history(self, loaded: LoadedJob, since: Instant) -> tuple[Job, tuple[Rule, ...]]:
        """Returns the job with the versions that ruled from before `since` on, and since when.

        Raises:
            IllegalState: this software can't read one of them.

        """
        name = loaded.name
        rules = [Rule(loaded.record.effective_time_ns, loaded.record.version)]
        definitions = {d.version: d for d in loaded.job.definitions}
        if rules[-1].after >= since:
            async with aclosing(self._newest_first(name.uid, loaded.record.version)) as former:
                async for version in former:
                    if version.after_time_ns >= rules[-1].after:
                        continue  # replaced within the same instant, it never ruled
                    if version.version not in definitions:
                        definitions[version.version] = self._decode(name, version)
                    rules.append(Rule(version.after_time_ns, version.version))
                    if version.after_time_ns < since or len(rules) == MAX_VERSIONS:
                        break
        job = Job(
            namespace=name.namespace,
            name=name.job,
            uid=name.uid,
            created_at=loaded.job.created_at,
            definitions=tuple(definitions[number] for number in sorted(definitions)),
        )
        return job, tuple(reversed(rules))

    async def page(self, request: api.ListJobVersionsRequest) -> api.ListJobVersionsResponse:
        """Lists the versions that are kept, newest first.

        Raises:
            InvalidArgument: a field can't be used, or the token is of another job.
            NotFound: there is no such job.

        """
        name = checks.job_name("name", request.name)
        if not 0 <= request.page_size <= MAX_PAGE:
            expected = f"1 to {MAX_PAGE}, or 0 for {_DEFAULT_PAGE}"
            raise InvalidArgument("page_size", request.page_size, expected)
        size = request.page_size or _DEFAULT_PAGE
        (kv,) = (await self._mesh.store.get([keys.job_key(name.namespace, name.job)])).kvs
        if not kv.create_revision:
            raise NotFound("job", request.name)
        current = records.JobRecord.FromString(kv.value)
        query = ("ListJobVersions", request.name, current.uid)
        response = api.ListJobVersionsResponse()
        before = current.version
        if request.page_token:
            (position,) = read_token(query, request.page_token, (1,))
            before = int(position)
        else:
            response.versions.append(_current(current))
        size_bytes = response.ByteSize()
        async with aclosing(self._newest_first(current.uid, before)) as former:
            async for version in former:
                if len(response.versions) == size or size_bytes > _MAX_ANSWER_BYTES:
                    last = str(response.versions[-1].version)
                    response.next_page_token = make_token(query, [last])
                    break
                shown = _former(version)
                size_bytes += shown.ByteSize()
                response.versions.append(shown)
        return response

    def _decode(self, name: JobName, version: records.VersionRecord) -> Definition:
        try:
            return self._mesh.jobs.decode(
                name, version.spec, version.version, version.after_time_ns
            ).definition
        except CoreError as error:
            raise IllegalState(
                f"version {version.version} of {name.namespace}/{name.job}",
                f"unreadable ({error})",
                ["readable by this version of the software"],
            ) from None

    async def _newest_first(
        self, uid: str, before: int
    ) -> AsyncGenerator[records.VersionRecord, None]:
        """Yields the former versions with a lower number."""
        start, end = keys.versions_prefix(uid), keys.version_key(uid, before)
        token = b""
        while True:
            page = await self._mesh.store.scan(
                start, end, limit=_VERSIONS_PER_READ, reverse=True, page_token=token
            )
            for kv in page.kvs:
                yield records.VersionRecord.FromString(kv.value)
            token = page.next_token
            if not token:
                return


def _current(record: records.JobRecord) -> api.JobVersion:
    return api.JobVersion(
        version=record.version,
        spec=record.spec,
        after_time=timestamp(record.effective_time_ns),
        source=record.source,
    )


def _former(record: records.VersionRecord) -> api.JobVersion:
    return api.JobVersion(
        version=record.version,
        spec=record.spec,
        after_time=timestamp(record.after_time_ns),
        until_time=timestamp(record.until_time_ns),
        source=record.source,
    )

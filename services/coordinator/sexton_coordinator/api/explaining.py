"""Explains any instant of a job, from the record."""

from __future__ import annotations

from typing import Final, NamedTuple

from sexton.errors import NotFound
from sexton.internal.v1 import records_pb2 as records
from sexton.v1 import scheduler_pb2 as api
from sexton_coordinator.api.checks import Name
from sexton_coordinator.api.former import Incarnations
from sexton_coordinator.api.notices import Notices
from sexton_coordinator.api.run_finding import FoundRun, RunFinder
from sexton_coordinator.api.showing import handle_key
from sexton_coordinator.api.versions import Versions
from sexton_coordinator.jobs_store import LoadedJob
from sexton_coordinator.mesh import Mesh
from sexton_core.ids import scheduled_run_id
from sexton_core.instants import SECOND, Instant
from sexton_core.policy import Evidence, Explanation, Job, RecordedRun, explain
from sexton_core.policy.state import DecisionRange, JobState
from sexton_core.runs.table import LIVE, WITH_WORKER
from sexton_core.words import Decision, Origin
from sexton_records import keys
from sexton_records.runs import STATE_OF, run_message
from sexton_records.state import decode_decision
from sexton_records.times import timestamp
from sexton_runtime.kv.types import prefix_end

IN_LINE: Final = LIVE - WITH_WORKER
_ATTEMPTS: Final = 5
_RANGES_PER_PAGE: Final = 100
_MAX_RANGES: Final = 2_000
"""Starts by hand that left the buffer at one time may stand before the range that is looked for."""


class _Evidence(NamedTuple):
    job: Job
    evidence: Evidence
    run: FoundRun | None


class Explainer:
    """Answers why."""

    def __init__(self, mesh: Mesh, finder: RunFinder, notices: Notices) -> None:
        self._mesh = mesh
        self._notices = notices
        self._finder = finder
        self._versions = Versions(mesh)
        self._incarnations = Incarnations(mesh)

    async def explain(self, name: Name, at: Instant) -> api.ExplainJobResponse:
        """Explains an instant; reads again where the job was decided about meanwhile.

        Where the name was another job's then, or its job was deleted, that one is explained.

        Raises:
            NotFound: there is no such job, and none that is still kept.

        """
        attempts = 0
        while True:
            found = await self._incarnations.find(name, at)
            if found is None:
                raise NotFound("job", str(name))
            loaded = found.loaded
            job, evidence, run = await self._evidence(loaded, at)
            (after,) = (await self._mesh.store.get([loaded.name.state_key], keys_only=True)).kvs
            attempts += 1
            if after.mod_revision == loaded.state_revision or attempts == _ATTEMPTS:
                state = await self._with_live_only(loaded)
                now, deleted_at = self._mesh.now(), found.deleted_at
                explanation = explain(job, state, at, now, evidence, deleted_at=deleted_at)
                response = _response(explanation, run)
                await self._add_line(response, run)
                if explanation.forecast and explanation.decision is Decision.FIRED:
                    await self._add_pause(response, job.current.run.queue)
                return response

    async def _add_line(self, response: api.ExplainJobResponse, run: FoundRun | None) -> None:
        """Adds why a run in line is not assigned, where its queue's owner can tell."""
        if run is None or STATE_OF[run.record.state] not in IN_LINE:
            return
        template = run.record.template
        for notice in await self._notices.of_run(template.queue, template.task):
            response.gates.add(name="queue", passed=False, detail=notice)

    async def _add_pause(self, response: api.ExplainJobResponse, queue: str) -> None:
        """Adds to a forecast that the run will wait, for its queue is paused."""
        paused = await self._notices.of_pause(queue)
        if paused:
            detail = f"{paused}; the run waits until it is resumed"
            response.gates.add(name="queue", passed=False, detail=detail)

    async def _with_live_only(self, loaded: LoadedJob) -> JobState:
        """Returns the state without the runs in it that have ended, which a forecast would name."""
        live = loaded.state.live
        if not live:
            return loaded.state
        handles = [handle_key(self._mesh, loaded.name.uid, handle) for handle in live]
        found = (await self._mesh.store.get(handles, keys_only=True)).kvs
        return loaded.state._replace(
            live=tuple(handle for handle, kv in zip(live, found, strict=True) if kv.create_revision)
        )

    async def _evidence(self, loaded: LoadedJob, at: Instant) -> _Evidence:
        run = None
        if at % SECOND == 0:
            run_id = scheduled_run_id(loaded.name.uid, at)
            run = await self._finder.of_incarnation(loaded.name, loaded.state.live, run_id)
        recorded = None
        if run is not None:
            record = run.record
            recorded = RecordedRun(record.run_id, STATE_OF[record.state], record.create_time_ns)
        job, rules = await self._versions.history(loaded, at)
        decided = await self._range(loaded.name.uid, at)
        return _Evidence(job, Evidence(recorded, decided, rules), run)

    async def _range(self, uid: str, at: Instant) -> DecisionRange | None:
        """Returns the recorded range of scheduled times that contains an instant."""
        start, end = keys.decisions_from(uid, at), prefix_end(keys.decisions_prefix(uid))
        seen = 0
        token = b""
        while seen < _MAX_RANGES:
            page = await self._mesh.store.scan(start, end, limit=_RANGES_PER_PAGE, page_token=token)
            for kv in page.kvs:
                decided = decode_decision(records.DecisionRecord.FromString(kv.value))
                if decided.origin is Origin.SCHEDULE:
                    return decided if decided.first <= at else None
            seen += len(page.kvs)
            token = page.next_token
            if not token:
                break
        return None


def _response(explanation: Explanation, run: FoundRun | None) -> api.ExplainJobResponse:
    response = api.ExplainJobResponse(
        summary=explanation.summary,
        gates=[
            api.Gate(name=gate.name, passed=gate.passed, detail=gate.detail)
            for gate in explanation.gates
        ],
        decision=explanation.decision.value if explanation.decision is not None else "",
        forecast=explanation.forecast,
    )
    for target, instant in (
        (response.nominal_time, explanation.nominal),
        (response.previous_time, explanation.previous),
        (response.following_time, explanation.following),
    ):
        if instant is not None:
            target.CopyFrom(timestamp(instant))
    if run is not None:
        response.run.CopyFrom(run_message(run.record, run.revision, full=True))
    return response

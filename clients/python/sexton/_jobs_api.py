"""`client.jobs`: define jobs, and ask about them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp

from sexton import _messages as messages
from sexton._job_questions_api import AsyncJobQuestions, JobRef, SpecLike, message_of
from sexton._spec_messages import OVERLAPS
from sexton._values import job_name, namespace_name, parts_of, text, timestamp
from sexton.errors import InvalidArgument
from sexton.jobs import Applied, Explanation, Job, JobOrder, Overlap, ResumeMode, Triggered
from sexton.v1 import job_pb2, scheduler_pb2

APPLY_TIMEOUT_S: Final = 120.0
"""Of a file with ten thousand jobs, written job by job."""

_PAGE: Final = 500
_NAMES: Final = 1_000
"""Names of one call; it takes no more."""
_PART: Final = 500
"""Jobs of one call, where somebody watches how it goes on."""
_PART_BYTES: Final = 2 * 1024 * 1024
"""Of one call; it takes 3 MiB at most."""
_NAME_BYTES: Final = 100
"""Of a job beside its definition and the name that was given: `namespaces/{namespace}/jobs/`."""


class AsyncJobs(AsyncJobQuestions):
    """The calls about jobs. The examples are of the blocking client.

    Every call has a deadline (`timeout_s`, else the client's) and raises `sexton.errors`. A change
    of a job that is due within half a second is made when it is due, and its call waits so long.
    """

    async def create(
        self,
        name: str,
        spec: SpecLike,
        *,
        request_id: str | None = None,
        dry_run: bool = False,
        timeout_s: float | None = None,
    ) -> Job:
        """Creates a job.

        >>> spec = JobSpec(task=ShellTask("./backup"), schedules=(Cron("0 3 * * *"),))
        >>> client.jobs.create("backup", spec).full_name
        'default/backup'

        Args:
            name: `JOB` or `NAMESPACE/JOB`.
            spec: the definition.
            request_id: unique per intention; None: the client makes one. The call is repeated
                with it where its outcome is unknown.
            dry_run: validates and answers, and writes nothing.
            timeout_s: of the call, repetitions included.

        Raises:
            AlreadyExists: the name is taken.
            InvalidArgument: the definition can't be used; names the field.
        """
        request = scheduler_pb2.CreateJobRequest(
            job=job_pb2.Job(name=self._name(name), spec=message_of(spec)),
            request_id=self._calls.request_id(request_id),
            validate_only=dry_run,
        )
        return messages.job_of((await self._call("CreateJob", request, timeout_s=timeout_s)).job)

    async def get(self, job: JobRef, *, timeout_s: float | None = None) -> Job:
        """Reads a job.

        >>> client.jobs.get("nightly").spec.schedules
        (Cron(expression='0 3 * * *', timezone='Europe/Berlin'),)

        Raises:
            NotFound: there is none of this name.
        """
        request = scheduler_pb2.GetJobRequest(name=self._name(job))
        return messages.job_of((await self._call("GetJob", request, timeout_s=timeout_s)).job)

    async def list(
        self,
        *,
        namespace: str | None = None,
        all_namespaces: bool = False,
        prefix: str = "",
        words: str = "",
        paused: bool | None = None,
        order: JobOrder = JobOrder.NAME,
        names: Iterable[JobRef] | None = None,
        full: bool = False,
        on_progress: Callable[[int], object] | None = None,
        timeout_s: float | None = None,
    ) -> AsyncIterator[Job]:
        """Yields jobs, page by page as they are asked for, however many have to be looked at.

        >>> [job.name for job in client.jobs.list(prefix="night")]
        ['nightly']
        >>> [job.name for job in client.jobs.list(words="NIGHT default", paused=False)]
        ['nightly']

        Args:
            namespace: None: the client's.
            all_namespaces: those of every namespace instead.
            prefix: only jobs whose name starts with this.
            words: separated by blanks; each must occur in `NAMESPACE/JOB`, the queue or the
                description, whatever its case. At most 200 characters.
            paused: True: only paused jobs; False: only active ones.
            order: that of what is due next is not of one moment: a job whose time changes while
                pages are read may be listed twice, or not at all.
            names: only those of these that there are, in this order; `namespace` is of names
                without one. Neither a prefix nor another order goes with it.
            full: with their definitions, which are left out otherwise.
            on_progress: is called after each page with how many jobs have been looked at, whether
                they fit or not.
            timeout_s: of each page.

        Raises:
            InvalidArgument: names what can't be used.
        """
        if paused is not None and not isinstance(paused, bool):
            raise InvalidArgument("paused", paused, "True, False or None")
        parent = namespace_name(namespace or self._namespace)
        request = scheduler_pb2.ListJobsRequest(
            parent="" if all_namespaces or names is not None else parent,
            page_size=_PAGE,
            prefix=text("prefix", prefix),
            words=text("words", words),
            paused=paused,
            order=messages.JOB_ORDERS.message(order),
            view=scheduler_pb2.VIEW_FULL if full else scheduler_pb2.VIEW_BASIC,
        )
        looked_at = 0
        for part in [request] if names is None else _of_names(request, names, parts_of(parent)[0]):
            more = True
            while more:
                page = await self._call("ListJobs", part, timeout_s=timeout_s)
                looked_at += page.scanned
                if on_progress is not None:
                    on_progress(looked_at)
                specs: messages.Specs = {}
                for job in page.jobs:
                    yield messages.job_of(job, specs)
                part.page_token = page.next_page_token
                more = bool(page.next_page_token)

    async def update(
        self,
        job: JobRef,
        spec: SpecLike,
        *,
        fields: Sequence[str] = (),
        dry_run: bool = False,
        timeout_s: float | None = None,
    ) -> Job:
        """Changes a definition from now on: it fires nothing in the past.

        >>> from dataclasses import replace
        >>> job = client.jobs.get("nightly")
        >>> client.jobs.update(job, replace(job.spec, priority=10)).version
        2

        Args:
            job: a job that was read is changed only if nobody has changed it since; a name is
                changed whatever stands there.
            spec: the new definition.
            fields: takes over only these fields of it; empty: all.
            dry_run: validates and answers, and writes nothing.
            timeout_s: of the call, repetitions included.

        Raises:
            Conflict: somebody else has changed it: read it again.
        """
        etag = job.etag if isinstance(job, Job) else ""
        request = scheduler_pb2.UpdateJobRequest(
            job=job_pb2.Job(name=self._name(job), etag=etag, spec=message_of(spec)),
            update_mask=FieldMask(paths=fields),
            validate_only=dry_run,
        )
        answer = await self._call(
            "UpdateJob", request, idempotent=not etag or dry_run, timeout_s=timeout_s
        )
        return messages.job_of(answer.job)

    async def apply(
        self,
        jobs: Mapping[str, SpecLike],
        *,
        source: str = "",
        prune: bool = False,
        prune_namespaces: Sequence[str] = (),
        dry_run: bool = False,
        on_progress: Callable[[int, int], object] | None = None,
        timeout_s: float | None = APPLY_TIMEOUT_S,
    ) -> tuple[Applied, ...]:
        """Creates or updates many jobs; what is the same already stays untouched.

        The whole is validated and refused as one, then written job by job; repeating it is a no-op.
        What is too much for one call goes in several, all of which are validated first.

        >>> spec = JobSpec(task=PythonTask("report", {"team": "sales"}))
        >>> [done.change.value for done in client.jobs.apply({"report": spec}, source="team.py")]
        ['created']

        Args:
            jobs: definitions by name.
            source: the file or tool, recorded with each job.
            prune: deletes the jobs that `source` was the last to apply and that are not among
                these. A job that somebody has changed since this call first looked is left alone.
            prune_namespaces: where to prune; none: in the namespaces of these jobs.
            dry_run: tells what would change, with the times that are gained and lost in the next 30
                days, and writes nothing.
            on_progress: is called with how many are done and how many there are.
            timeout_s: of each call, repetitions included.

        Raises:
            InvalidArgument: one of them can't be used; nothing is written.
        """
        parts = self._parts(jobs, source, _PART if on_progress is not None else len(jobs) or 1)
        first_read = None
        for part in parts if len(parts) > 1 and not dry_run else ():
            part.validate_only = True
            answer = await self._call("ApplyJobs", part, timeout_s=timeout_s)
            first_read = first_read or answer.read_time
        applied: list[Applied] = []
        alike: messages.Alike = {}
        specs: messages.Specs = {}
        for part in parts:
            part.validate_only = dry_run
            if prune and part is parts[-1]:
                _ask_to_prune(parts, prune_namespaces, first_read)
            answer = await self._call("ApplyJobs", part, timeout_s=timeout_s)
            for job, each in zip(part.jobs, answer.jobs, strict=False):  # the pruned come after
                if not each.job.spec.task.WhichOneof("kind"):
                    # A long answer leaves out what was sent.
                    each.job.spec.CopyFrom(job.spec)
            applied += [messages.applied_of(each, alike, specs) for each in answer.jobs]
            if on_progress is not None:
                on_progress(min(len(applied), len(jobs)), len(jobs))
        return tuple(applied)

    def _parts(
        self, jobs: Mapping[str, SpecLike], source: str, most: int
    ) -> Sequence[scheduler_pb2.ApplyJobsRequest]:
        """Gives the calls that apply jobs, at most so many with each; always at least one."""
        parts = [scheduler_pb2.ApplyJobsRequest(source=text("source", source))]
        # Many jobs may be given one and the same definition, which is turned into a message once.
        specs: dict[int, tuple[job_pb2.JobSpec, int]] = {}
        size = 0
        for name, given in jobs.items():
            spec = specs.get(id(given))
            if spec is None:
                message = message_of(given)
                spec = specs[id(given)] = message, message.ByteSize()
            full_name, job_size = self._name(name), spec[1] + len(name) + _NAME_BYTES
            part = parts[-1]
            if part.jobs and (size + job_size > _PART_BYTES or len(part.jobs) >= most):
                part = scheduler_pb2.ApplyJobsRequest(source=source)
                parts.append(part)
                size = 0
            part.jobs.add(name=full_name, spec=spec[0])
            size += job_size
        return parts

    async def delete(self, job: JobRef, *, timeout_s: float | None = None) -> None:
        """Deletes a job: waiting runs end at once, running ones are asked to.

        >>> client.jobs.delete("nightly")

        A job that was read is deleted only as that incarnation: where it is gone, or another one
        has its name, the call has nothing to do. A name deletes whatever stands there.

        Raises:
            NotFound: nothing has this name.
        """
        uid = job.uid if isinstance(job, Job) else ""
        request = scheduler_pb2.DeleteJobRequest(name=self._name(job), uid=uid)
        await self._call("DeleteJob", request, idempotent=bool(uid), timeout_s=timeout_s)

    async def pause(self, job: JobRef, *, reason: str = "", timeout_s: float | None = None) -> Job:
        """Stops new starts.

        >>> client.jobs.pause("nightly", reason="the disk is full").paused
        True
        """
        request = scheduler_pb2.PauseJobRequest(name=self._name(job), reason=text("reason", reason))
        return messages.job_of((await self._call("PauseJob", request, timeout_s=timeout_s)).job)

    async def resume(
        self,
        job: JobRef,
        *,
        mode: ResumeMode = ResumeMode.NEXT,
        timeout_s: float | None = None,
    ) -> Job:
        """Lets a paused job start again.

        >>> client.jobs.resume("nightly").paused
        False

        Args:
            job: the job.
            mode: what becomes of the instants that the pause passed over; nothing else fires.
            timeout_s: of the call, repetitions included.
        """
        request = scheduler_pb2.ResumeJobRequest(
            name=self._name(job), mode=messages.RESUME_MODES.message(mode)
        )
        return messages.job_of((await self._call("ResumeJob", request, timeout_s=timeout_s)).job)

    async def trigger(
        self,
        job: JobRef,
        *,
        request_id: str | None = None,
        overlap: Overlap | None = None,
        timeout_s: float | None = None,
    ) -> Triggered:
        """Starts a run now, through the same gate as every start.

        >>> client.jobs.trigger("nightly").run.state
        <RunState.WAITING: 'waiting'>

        Args:
            job: the job.
            request_id: unique per intention: the run's id is made of it, so that a repetition
                gives the same run. None: the client makes one.
            overlap: overrides the job's overlap policy for this start.
            timeout_s: of the call, repetitions included.
        """
        request = scheduler_pb2.TriggerJobRequest(
            name=self._name(job), request_id=self._calls.request_id(request_id)
        )
        if overlap is not None:
            request.overlap = OVERLAPS.message(overlap)
        answer = await self._call("TriggerJob", request, timeout_s=timeout_s)
        return messages.triggered_of(answer)

    async def explain(
        self, job: JobRef, time: datetime, *, timeout_s: float | None = None
    ) -> Explanation:
        """Explains what became, or will become, of a job at an instant.

        Of a deleted job, too, for 30 days.

        >>> client.jobs.explain("nightly", datetime(2026, 11, 30, 2, 0, tzinfo=UTC)).decision
        'fired'
        """
        request = scheduler_pb2.ExplainJobRequest(
            name=self._name(job), time=timestamp("time", time)
        )
        answer = await self._call("ExplainJob", request, timeout_s=timeout_s)
        return messages.explanation_of(answer)


def _of_names(
    whole: scheduler_pb2.ListJobsRequest, names: Iterable[JobRef], namespace: str
) -> Sequence[scheduler_pb2.ListJobsRequest]:
    """Gives the calls that list these jobs; none where there are no names, which would mean all.

    Raises:
        InvalidArgument: they can't be used, or not with the rest of the request.
    """
    if isinstance(names, str | Job):
        raise InvalidArgument("names", names, "several jobs, such as a list")
    if whole.prefix or whole.order != scheduler_pb2.JOB_ORDER_NAME:
        given = whole.prefix or "next_time"
        raise InvalidArgument("names", given, "neither a prefix nor another order with them")
    full_names = [
        job_name(each.full_name if isinstance(each, Job) else each, namespace) for each in names
    ]
    parts = []
    for begin in range(0, len(full_names), _NAMES):
        part = scheduler_pb2.ListJobsRequest(names=full_names[begin : begin + _NAMES])
        part.MergeFrom(whole)
        parts.append(part)
    return parts


def _ask_to_prune(
    parts: Sequence[scheduler_pb2.ApplyJobsRequest],
    namespaces: Sequence[str],
    first_read: Timestamp | None,
) -> None:
    """Lets the last of the calls prune what is in none of them."""
    last = parts[-1]
    last.prune = True
    last.prune_namespaces.extend(
        namespaces or sorted({parts_of(job.name)[0] for part in parts for job in part.jobs})
    )
    last.prune_keep.extend(job.name for part in parts if part is not last for job in part.jobs)
    if first_read is not None:
        last.prune_read_time.CopyFrom(first_read)

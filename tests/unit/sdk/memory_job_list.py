"""A page of a list of jobs in memory, as the real API gives it."""

from __future__ import annotations

from sexton import errors
from sexton.v1 import scheduler_pb2


def page_of(jobs, request, *, size, most):
    """Gives the jobs of a page, its token, and how many were looked at, which are `most`."""
    if len(request.words) > 200:
        raise errors.InvalidArgument(
            "words", f"{len(request.words)} characters", "at most 200 characters"
        )
    candidates = _ordered(jobs, request)
    start = int(request.page_token or 0)
    found, end = [], start
    while end < len(candidates) and len(found) < size and end - start < most:
        if _fits(candidates[end], request):
            found.append(candidates[end])
        end += 1
    return found, str(end) if end < len(candidates) else "", end - start


def _ordered(jobs, request):
    by_time = request.order == scheduler_pb2.JOB_ORDER_NEXT_TIME
    if request.names:
        if request.parent or request.prefix or by_time:
            expected = "no parent, prefix or order with it"
            raise errors.InvalidArgument("names", request.names[0], expected)
        return [jobs[name] for name in request.names if name in jobs]
    found = [
        job
        for name, job in sorted(jobs.items())
        if name.startswith(f"{request.parent}/jobs/" if request.parent else "")
        and name.rpartition("/")[2].startswith(request.prefix)
    ]
    if by_time:
        timed = [job for job in found if job.HasField("next_time") and not job.paused]
        return sorted(timed, key=lambda job: job.next_time.ToNanoseconds())
    return found


def _fits(job, request):
    if request.HasField("paused") and request.paused != job.paused:
        return False
    namespace, name = job.name.split("/")[1::2]
    said = f"{namespace}/{name} {job.spec.queue} {job.spec.description}".lower()
    return all(word in said for word in request.words.lower().split())

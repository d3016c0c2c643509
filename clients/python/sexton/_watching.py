"""Following runs over streams that break."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Any, Final

from sexton import _messages as messages
from sexton import errors
from sexton._calls import Calls
from sexton._values import timestamp
from sexton._wire import Call
from sexton.runs import Run, RunState
from sexton.v1 import scheduler_pb2, scheduler_pb2_grpc

_STREAM_S: Final = 30.0
"""Life of one stream. It is opened anew then, which reads everything again: what a replica may have
failed to notice is seen after this at the latest."""
_REOPEN_PAUSE_S: Final = 0.2
_OUTAGE_S: Final = 60.0
"""How long a mesh that does not answer is waited for; longer than a restart of any service."""
_OVERLAP: Final = timedelta(seconds=30)
"""Runs may be told in another order than they ended in, by so much at the very most."""
_PAGE: Final = 500


class RunChanges:
    """The changes of a run, or of the runs of a job or namespace, each told once."""

    def __init__(
        self,
        calls: Calls,
        name: str,
        read: Callable[[str], Awaitable[Run]],
        *,
        ended_only: bool = False,
    ) -> None:
        """`read` reads a run by its full name; `ended_only`: of one run its end is enough."""
        self._calls = calls
        self._read = read
        self._call = Call(
            scheduler_pb2_grpc.RunServiceStub,
            "WatchRuns",
            scheduler_pb2.WatchRunsRequest(name=name, ended_only=ended_only),
        )
        self._name = name
        self._live: dict[str, Run] = {}
        self._ended: dict[str, datetime] = {}
        """Ends that were told and may be found again by looking for those that were not."""
        self._begun: datetime | None = None
        self._latest: datetime | None = None
        """Mesh time when the watch began, and of the last thing that was told."""

    async def follow(self, timeout_s: float | None) -> AsyncGenerator[Run, None]:
        """Yields runs as they stand, then each change, until the time is up.

        Raises:
            Unavailable: nobody has answered for a minute.
            NotFound: there is no such run or job.
        """
        wire = self._calls.wire
        heard_s = wire.monotonic_s()
        end_s = None if timeout_s is None else heard_s + timeout_s
        while end_s is None or wire.monotonic_s() < end_s:
            left_s = _STREAM_S if end_s is None else min(_STREAM_S, end_s - wire.monotonic_s())
            missing = set(self._live)
            try:
                again = await self._began_before()
                stream = self._calls.stream(self._call, timeout_s=left_s)
                async with aclosing(stream) as answers:
                    async for answer in answers:
                        heard_s = wire.monotonic_s()
                        for run in self._changed(answer, missing):
                            yield run
                        if answer.synced and missing:
                            for run in await self._ended_meanwhile(missing):
                                yield run
                        if answer.synced and again:
                            again = False
                            for run in await self._come_and_gone():
                                yield run
            except (
                errors.Cancelled,  # a server that stops ends the calls under way so
                errors.DeadlineExceeded,
                errors.Unavailable,
                errors.Overloaded,
                errors.SlowWatcher,
            ):
                if wire.monotonic_s() - heard_s > _OUTAGE_S:
                    raise
            left_s = _REOPEN_PAUSE_S if end_s is None else end_s - wire.monotonic_s()
            await wire.sleep(max(0.0, min(left_s, _REOPEN_PAUSE_S)))

    async def _began_before(self) -> bool:
        """Tells whether runs may have come and gone since the stream before this one ended."""
        if "/runs/" in self._name:
            return False
        if self._begun is not None:
            return True
        call = Call(
            scheduler_pb2_grpc.MeshServiceStub, "ListMembers", scheduler_pb2.ListMembersRequest()
        )
        mesh = messages.mesh_of(await self._calls.unary(call, idempotent=True))
        self._begun = self._latest = mesh.mesh_time
        return False

    async def _come_and_gone(self) -> list[Run]:
        """Reads the ends that no stream has told of: of runs that began and ended between two."""
        assert self._begun is not None
        assert self._latest is not None
        after = max(self._begun, self._latest - _OVERLAP)
        request = scheduler_pb2.ListRunsRequest(
            parent=self._name,
            page_size=_PAGE,
            states=[messages.RUN_STATES.message(state) for state in RunState if state.ended],
            after_time=timestamp("after", after),
        )
        call = Call(scheduler_pb2_grpc.RunServiceStub, "ListRuns", request)
        found: list[Run] = []
        while True:
            page = await self._calls.unary(call, idempotent=True)
            runs = [messages.run_of(message) for message in page.runs]
            found += [run for run in runs if run.full_name not in self._ended]
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
        self._ended = {name: end for name, end in self._ended.items() if end >= after}
        return [run for run in reversed(found) if self._is_new(run)]

    def _changed(self, answer: Any, missing: set[str]) -> list[Run]:
        """Gives what is new in an answer; what it tells of is not missing."""
        runs = [messages.run_of(message) for message in answer.runs]
        missing.difference_update(run.full_name for run in runs)
        return [run for run in runs if self._is_new(run)]

    async def _ended_meanwhile(self, missing: set[str]) -> list[Run]:
        """Reads the runs that a new stream no longer knows: it begins with those in flight."""
        found = []
        while missing:
            name = missing.pop()
            try:
                run = await self._read(name)
            except errors.NotFound:  # its history has gone, too
                self._live.pop(name, None)
                continue
            if self._is_new(run):
                found.append(run)
        return found

    def _is_new(self, run: Run) -> bool:
        if self._live.get(run.full_name) == run:
            return False
        self._note(run)
        if run.ended:
            self._live.pop(run.full_name, None)
        else:
            self._live[run.full_name] = run
        return True

    def _note(self, run: Run) -> None:
        if self._latest is None:
            return  # one run is followed
        time = run.end_time or run.create_time
        if time is not None:
            self._latest = max(self._latest, time)
            if run.ended:
                self._ended[run.full_name] = time

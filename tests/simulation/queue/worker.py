"""A scripted worker: the protocol as a good worker speaks it, executing nothing but time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from grpc import aio
from simulation.queue.mesh import NAMES, QUEUES, Execution, Mesh

from sexton.errors import SextonError
from sexton.v1 import run_pb2, worker_pb2, worker_pb2_grpc
from sexton_runtime.rpc.policy_channel import PolicyChannel

Outcome = Callable[[worker_pb2.Assignment], worker_pb2.Completion]
MARGIN = 0.8


def succeed(_assignment: worker_pb2.Assignment) -> worker_pb2.Completion:
    return worker_pb2.Completion(state=run_pb2.ATTEMPT_STATE_SUCCEEDED, result_json="{}")


def fail(_assignment: worker_pb2.Assignment) -> worker_pb2.Completion:
    return worker_pb2.Completion(
        state=run_pb2.ATTEMPT_STATE_FAILED,
        error=run_pb2.RunError(kind="exit 3", message="it failed"),
        output_tail="the end",
    )


class Worker:
    """One worker's process. `alive` until it is killed or closed."""

    def __init__(
        self,
        mesh: Mesh,
        name: str,
        *,
        queues: tuple[str, ...] = ("default",),
        tasks: tuple[str, ...] = (),
        slots: int = 4,
        lasts_s: float = 0.5,
        outcome: Outcome = succeed,
    ) -> None:
        self.mesh = mesh
        self.name = name
        self.queues = queues
        self.tasks = tasks
        self.slots = slots
        self.lasts_s = lasts_s
        self.outcome = outcome
        self.session = ""
        self.owner_token = 0
        self.executing: dict[tuple[bytes, int], asyncio.Task[None]] = {}
        self.finished: dict[tuple[bytes, int], worker_pb2.Completion] = {}
        self.results: list[worker_pb2.CompletionResult] = []
        self.bare_answers = 0
        """Messages that held answers to completions and nothing else."""
        self.sessions: list[str] = []
        self.begins = True
        """Whether it begins what it is assigned."""
        self.welcomes = 0
        self.drains = 0
        """How often it was asked to drain."""
        self.process = mesh.loop.process(name)
        self._known: set[tuple[bytes, int]] = set()
        self._kept: dict[tuple[bytes, int], asyncio.Task[None]] = {}
        self._call: Any = None
        self._heartbeat = 0
        self._answered_ns = 0
        self._sent_ns: dict[int, int] = {}
        self._executions: dict[tuple[bytes, int], Execution] = {}
        self._closing = False
        self.process.on_death(self._died)
        self.main = self.process.spawn(self._run())

    def kill(self) -> None:
        self.process.crash()

    async def close(self) -> None:
        """Ends its session as a drained worker does."""
        self._closing = True
        for key in list(self.executing):
            self._kill(key)
        if self._call is not None:
            with suppress(SextonError):
                await self._call.write(worker_pb2.PullRequest(closing=True))
                await self._call.read()
        self.main.cancel()

    def break_stream(self) -> None:
        """Loses its connection, as by a router's restart; it connects again by itself."""
        for name in NAMES:
            self.mesh.network.reset(self.name, name)

    async def say(self, request: worker_pb2.PullRequest) -> None:
        """Writes a message on its stream."""
        await self._call.write(request)

    async def give_back(self, assignment: worker_pb2.Assignment) -> None:
        await self._call.write(worker_pb2.PullRequest(returned=[assignment.attempt]))

    # Inside

    def _died(self) -> None:
        for key in list(self._executions):
            self._ended(key)

    def _ended(self, key: tuple[bytes, int]) -> None:
        execution = self._executions.pop(key, None)
        if execution is not None:
            execution.ended = self.mesh.now

    def _kill(self, key: tuple[bytes, int]) -> None:
        task = self.executing.pop(key, None)
        if task is not None:
            task.cancel()
        self._ended(key)

    async def _run(self) -> None:
        turn = 0
        while not self._closing:
            channel = PolicyChannel(self.mesh.transport.channel(QUEUES[turn % len(QUEUES)]))
            turn += 1
            try:
                call = worker_pb2_grpc.WorkerServiceStub(channel).Pull()
                await self._talk(call)
            except SextonError:
                await asyncio.sleep(0.1)
            finally:
                self._call = None
                await channel.close()
            self._check_margin()

    def _check_margin(self) -> None:
        """Ends everything when its session may be lost."""
        now_ns = self.process.clock.boot_ns()
        if self.session and now_ns - self._answered_ns > MARGIN * self._session_ms * 1_000_000:
            for key in list(self.executing):
                self._kill(key)
            self.finished.clear()
            self.session = ""

    async def _talk(self, call: Any) -> None:
        held = [
            worker_pb2.AttemptRef(handle=handle, token=token)
            for handle, token in (*self.executing, *self.finished)
        ]
        hello = worker_pb2.Hello(
            session=self.session,
            worker=self.name,
            queues=self.queues,
            tasks=self.tasks,
            kinds=("shell",),
            slots=self.slots,
            held=held,
            owner_token=self.owner_token,
            keeps=True,
        )
        try:
            async with asyncio.timeout(3):
                await call.write(worker_pb2.PullRequest(hello=hello))
                first = await call.read()
        except TimeoutError:
            call.cancel()
            return
        if first is aio.EOF:
            return
        self._welcomed(first.welcome)
        self._call = call
        self._heartbeat = 0
        listed = {(ref.handle, ref.token) for ref in hello.held}
        free = self.slots - len(self.executing)
        await call.write(
            worker_pb2.PullRequest(
                credits=free,
                completions=[one for key, one in self.finished.items() if key in listed],
            )
        )
        beating = asyncio.create_task(self._beat(call))
        try:
            while (response := await call.read()) is not aio.EOF:
                await self._obey(call, response)
                if response.reconnect:
                    return
        finally:
            beating.cancel()
            call.cancel()
            for kept in self._kept.values():
                kept.cancel()
            self._kept.clear()

    def _welcomed(self, welcome: worker_pb2.Welcome) -> None:
        self.welcomes += 1
        self._session_ms = welcome.session_timeout_ms
        if welcome.session != self.session:
            for key in list(self.executing):
                self._kill(key)
            self.finished.clear()
            self.session = welcome.session
            self.sessions.append(welcome.session)
        for ref in welcome.revoked:
            self._kill((ref.handle, ref.token))
            self.finished.pop((ref.handle, ref.token), None)
        assert welcome.owner_token >= self.owner_token
        self.owner_token = welcome.owner_token
        self._answered_ns = self.process.clock.boot_ns()

    async def _beat(self, call: Any) -> None:
        with suppress(SextonError):
            while True:
                self._heartbeat += 1
                self._sent_ns[self._heartbeat] = self.process.clock.boot_ns()
                await call.write(worker_pb2.PullRequest(heartbeat=self._heartbeat))
                await asyncio.sleep(1)
                if self._margin_passed():
                    call.cancel()

    def _margin_passed(self) -> bool:
        now_ns = self.process.clock.boot_ns()
        return now_ns - self._answered_ns > MARGIN * self._session_ms * 1_000_000

    async def _obey(self, call: Any, response: worker_pb2.PullResponse) -> None:
        self.drains += response.drain
        if response.heartbeat:
            self._answered_ns = self._sent_ns[response.heartbeat]
        for assignment in response.assignments:
            key = (assignment.attempt.handle, assignment.attempt.token)
            if assignment.session != self.session or key in self._known or not self.begins:
                continue
            if assignment.start_in_ns:
                self._kept[key] = asyncio.create_task(self._keep(key, assignment))
            else:
                self._begin(key, assignment)
        self.bare_answers += [field.name for field, _ in response.ListFields()] == ["results"]
        for result in response.results:
            self.results.append(result)
            self.finished.pop((result.attempt.handle, result.attempt.token), None)
        for stop in response.cancellations:
            key = (stop.attempt.handle, stop.attempt.token)
            if key in self._kept:
                self._kept.pop(key).cancel()
                await call.write(worker_pb2.PullRequest(returned=[stop.attempt], credits=1))
            if key in self.executing:
                self._kill(key)
                terminated = stop.mode == run_pb2.CANCEL_MODE_TERMINATE
                await self._report(
                    key,
                    worker_pb2.Completion(
                        attempt=stop.attempt,
                        state=run_pb2.ATTEMPT_STATE_TERMINATED
                        if terminated
                        else run_pb2.ATTEMPT_STATE_CANCELLED,
                    ),
                )

    async def _keep(self, key: tuple[bytes, int], assignment: worker_pb2.Assignment) -> None:
        await asyncio.sleep(assignment.start_in_ns / 1e9)
        del self._kept[key]
        self._begin(key, assignment)

    def _begin(self, key: tuple[bytes, int], assignment: worker_pb2.Assignment) -> None:
        self._known.add(key)
        self.executing[key] = asyncio.create_task(self._execute(assignment))

    async def _execute(self, assignment: worker_pb2.Assignment) -> None:
        key = (assignment.attempt.handle, assignment.attempt.token)
        execution = Execution(
            handle=key[0],
            number=assignment.number,
            token=key[1],
            worker=self.name,
            began=self.mesh.now,
        )
        self.mesh.executions.append(execution)
        self._executions[key] = execution
        await self._write(worker_pb2.PullRequest(started=[assignment.attempt]))
        await asyncio.sleep(self.lasts_s)
        self._ended(key)
        self.executing.pop(key, None)
        completion = self.outcome(assignment)
        completion.attempt.CopyFrom(assignment.attempt)
        completion.execution_ms = int(self.lasts_s * 1_000)
        await self._report(key, completion)

    async def _report(self, key: tuple[bytes, int], completion: worker_pb2.Completion) -> None:
        self.finished[key] = completion
        await self._write(worker_pb2.PullRequest(completions=[completion], credits=1))

    async def _write(self, request: worker_pb2.PullRequest) -> None:
        if self._call is not None:
            with suppress(SextonError):
                await self._call.write(request)

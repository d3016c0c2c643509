"""People who put right what went wrong: retries, dead letters, ranges that are run again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp

from sexton import errors
from sexton.v1 import backfill_pb2 as fill
from sexton.v1 import dead_letter_pb2 as dead
from sexton.v1 import job_pb2 as pb
from sexton.v1 import scheduler_pb2 as api
from sexton_sim.mesh.person import Person
from sexton_sim.mesh.plan import NAMESPACE
from sexton_sim.mesh.users import Api

_REACH_S: Final = (2, 20)
"""How far back a backfill begins: a few runs, which must not be what keeps workers busy."""


class Repairer(Person):
    """One person, who does one thing after the other; asks again where nothing was answered."""

    def __init__(
        self,
        api_: Api,
        *,
        name: str,
        names: Sequence[str],
        now_s: Callable[[], int],
        rng: random.Random,
    ) -> None:
        super().__init__(rng)
        self._api = api_
        self._name = name
        self._names = names
        self._now_s = now_s
        self._requests = 0
        self._backfills: list[str] = []
        self._deeds = (
            (3, self._retry),
            (2, self._requeue),
            (0.5, self._purge),
            (2, self._fill),
            (1, self._stop_filling),
        )

    async def _retry(self) -> None:
        parent = f"namespaces/{NAMESPACE}"
        listed = await self._api.call("ListRuns", api.ListRunsRequest(parent=parent))
        if listed.runs:
            run = self._random.choice(listed.runs)
            request = api.RetryRunRequest(name=run.name, request_id=self._request_id())
            await self._repeated("RetryRun", request)

    async def _requeue(self) -> None:
        request = dead.RequeueDeadLettersRequest(all=True, limit=self._random.choice((1, 5, 100)))
        await self._repeated("RequeueDeadLetters", request)

    async def _purge(self) -> None:
        request = dead.PurgeDeadLettersRequest(all=True, limit=self._random.choice((1, 3)))
        await self._repeated("PurgeDeadLetters", request)

    async def _fill(self) -> None:
        job = f"namespaces/{NAMESPACE}/jobs/{self._random.choice(self._names)}"
        end = self._now_s() - self._random.randint(1, 10)
        request = fill.CreateBackfillRequest(
            parent=job,
            request_id=self._request_id(),
            start_time=Timestamp(seconds=end - self._random.randint(*_REACH_S)),
            end_time=Timestamp(seconds=end),
            order=self._random.choice(fill.BackfillOrder.values()),
            overlap=self._random.choice(
                (pb.OVERLAP_POLICY_UNSPECIFIED, pb.OVERLAP_POLICY_SKIP, pb.OVERLAP_POLICY_ALLOW_ALL)
            ),
            skip_succeeded=self._random.random() < 0.5,
        )
        answer = await self._repeated("CreateBackfill", request)
        self._backfills = [*self._backfills[-5:], answer.backfill.name]

    async def _stop_filling(self) -> None:
        if self._backfills:
            name = self._random.choice(self._backfills)
            await self._api.call("CancelBackfill", fill.CancelBackfillRequest(name=name))

    async def _repeated(self, method: str, request: Any) -> Any:
        """Asks again where it is not known what became of it, and sometimes where it is."""
        answer = None
        while answer is None or self._random.random() < 0.2:
            try:
                answer = await self._api.call(method, request)
            except (errors.OutcomeUnknown, errors.DeadlineExceeded):
                if self._random.random() < 0.3:
                    raise
            await asyncio.sleep(self._random.uniform(0, 0.5))
        return answer

    def _request_id(self) -> str:
        self._requests += 1
        return f"{self._name}-{self._requests}"

"""What waits for the next step: bounded in memory, and gathered so that nobody starves.

Leases come first. Small requests may fill a step, but half of it while bulk ones wait; of those
at least one goes with every step. So a caller with one compare waits for at most one step, however
many full batches others keep outstanding, and bulk gets on under any number of small requests.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from sexton.errors import Overloaded
from sexton_store.contract import EngineConfig
from sexton_store.requests import Lane, Request

_Lane = OrderedDict[Request[Any], None]
"""A queue from whose middle a cancelled request can be taken in constant time."""


class Lanes:
    """The requests that wait."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._lanes: tuple[_Lane, ...] = (OrderedDict(), OrderedDict(), OrderedDict())
        self.requests = 0
        self.weight_bytes = 0

    def __bool__(self) -> bool:
        return any(self._lanes)

    def add(self, request: Request[Any]) -> None:
        """Lets a request wait; raises `Overloaded` where too much does already."""
        config = self._config
        # Leases may go beyond the bound: there are at most so many, and they are small.
        most = config.max_waiting_requests + (config.max_leases if request.lane == 0 else 0)
        if self.requests >= most:
            raise Overloaded(f"{self.requests:,} requests wait already; try again after a pause")
        weight = self.weight_bytes + request.weight_bytes
        if weight > config.max_waiting_bytes and request.lane is not Lane.URGENT:
            raise Overloaded(
                f"{self.weight_bytes:,} bytes of requests wait already; try again after a pause"
            )
        self.requests += 1
        self.weight_bytes = weight
        self._lanes[request.lane][request] = None

    def remove(self, request: Request[Any]) -> bool:
        """Takes a request out that will not be evaluated; False: it has been gathered."""
        lane = self._lanes[request.lane]
        if request not in lane:
            return False
        del lane[request]
        self._forget(request)
        return True

    def gather(self) -> list[Request[Any]]:
        """Takes the requests of the next step, in the order in which they are evaluated."""
        urgent, small, bulk = self._lanes
        txns, weight = self._config.max_step_txns, self._config.max_step_bytes
        gathered: list[Request[Any]] = []
        txns, weight = self._take(urgent, gathered, txns, weight)
        if bulk:
            rest = self._take(small, gathered, txns // 2, weight // 2)
            txns, weight = txns - txns // 2 + rest[0], weight - weight // 2 + rest[1]
            txns, weight = self._take(bulk, gathered, txns, weight)
        self._take(small, gathered, txns, weight)
        return gathered

    def drain(self) -> list[Request[Any]]:
        """Takes everything."""
        rest = [request for lane in self._lanes for request in lane]
        for lane in self._lanes:
            lane.clear()
        self.requests = self.weight_bytes = 0
        return rest

    def _take(
        self, lane: _Lane, into: list[Request[Any]], txns: int, weight: int
    ) -> tuple[int, int]:
        """Moves what fits, and at least one; gives what is left of the bounds."""
        first = True
        while lane:
            request = next(iter(lane))
            if not first and (request.txns > txns or request.weight_bytes > weight):
                break
            first = False
            del lane[request]
            self._forget(request)
            into.append(request)
            txns -= request.txns
            weight -= request.weight_bytes
        return txns, weight

    def _forget(self, request: Request[Any]) -> None:
        self.requests -= 1
        self.weight_bytes -= request.weight_bytes

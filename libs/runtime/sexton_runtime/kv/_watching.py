"""An open watch over the wire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Self

from sexton.errors import Cancelled, OutcomeUnknown, SextonError, Unavailable
from sexton.internal.v1 import store_pb2 as pb
from sexton_runtime.kv._wire import watch_batch_from_wire
from sexton_runtime.kv.mesh_time import MeshTime
from sexton_runtime.kv.types import WatchBatch


class ClientWatch:
    """A `Watching`: opened by its first `__anext__`, cancelled by `aclose` at any time.

    A watch that brings not even progress for `idle_s` is broken: `Unavailable`.
    """

    def __init__(
        self,
        open_call: Callable[[], Any],
        *,
        idle_s: float,
        mesh_time: MeshTime,
        on_error: Callable[[SextonError], None],
    ) -> None:
        self._open_call = open_call
        self._idle_s = idle_s
        self._mesh_time = mesh_time
        self._on_error = on_error
        self._call: Any = None
        self._closed = False

    @property
    def closed(self) -> bool:
        """Tells whether it has ended."""
        return self._closed

    def __aiter__(self) -> Self:
        """Gives itself."""
        return self

    async def __anext__(self) -> WatchBatch:
        """Waits for the next batch."""
        if self.closed:
            raise StopAsyncIteration
        try:
            if self._call is None:
                self._call = self._open_call()
            async with asyncio.timeout(self._idle_s):
                response = await self._call.read()
        except TimeoutError:
            self._end()
            raise Unavailable("the watch has fallen silent") from None
        except SextonError as error:
            if isinstance(error, Cancelled) and self.closed:
                raise StopAsyncIteration from None
            self._end()
            self._on_error(error)
            if isinstance(error, OutcomeUnknown | Cancelled):  # nothing is unknown of a watch
                raise Unavailable(error.message) from None
            raise
        if not isinstance(response, pb.WatchResponse):
            self._end()
            raise Unavailable("the store ended the watch")
        self._mesh_time.observe_at_least(response.mesh_time_ns)
        return watch_batch_from_wire(response)

    async def aclose(self) -> None:
        """Ends it; idempotent."""
        self._end()

    def _end(self) -> None:
        self._closed = True
        if self._call is not None:
            self._call.cancel()

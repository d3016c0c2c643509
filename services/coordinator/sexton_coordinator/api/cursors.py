"""Walks through ranges of keys, reading on only as far as it is asked for."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Final

from sexton_runtime.kv.engine import Engine
from sexton_runtime.kv.types import KeyValue

PAGE: Final = 100


class Cursor:
    """Walks through one range, forwards or backwards."""

    def __init__(
        self, store: Engine, start: bytes, end: bytes, *, reverse: bool, keys_only: bool
    ) -> None:
        self._scan = partial(
            store.scan, start, end, limit=PAGE, reverse=reverse, keys_only=keys_only
        )
        self._waiting: deque[KeyValue] = deque()
        self._token = b""
        self._complete = start >= end

    async def next(self) -> KeyValue | None:
        """Returns the next item; None: there is none."""
        while not self._waiting:
            if self._complete:
                return None
            page = await self._scan(page_token=self._token)
            self._waiting.extend(page.kvs)
            self._token = page.next_token
            self._complete = not page.next_token
        return self._waiting.popleft()

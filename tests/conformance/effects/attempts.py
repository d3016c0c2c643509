"""Attempts of runs, as a worker tells them to their tasks."""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime

from sexton import Context


def attempt(number: int, token: int, *, run: str = "t1") -> Context:
    return Context(
        namespace="default",
        job="book",
        run_id=run,
        nominal_time=datetime(2026, 11, 29, tzinfo=UTC),
        attempt=number,
        token=token,
        traceparent="",
        logger=logging.getLogger("test"),
        _remaining_s=lambda: 60.0,
        _cancelled=threading.Event(),
        _report=lambda *_: None,
    )


FIRST, SECOND = attempt(1, 10), attempt(2, 17)

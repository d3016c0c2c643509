"""What a task's function is told about the run that it executes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """One attempt of one run, as its task's function sees it.

    A function gets it as the parameter that is annotated with this class, or from
    `current_context()`. Safe to use from any thread of the attempt.
    """

    namespace: str
    """The job's namespace."""
    job: str
    """The job's name."""
    run_id: str
    """The run's id, the same for each of its attempts."""
    nominal_time: datetime
    """The instant that the schedule asked for, aware, UTC; of a manual run that of the request."""
    attempt: int
    """Number of this attempt, from 1."""
    token: int
    """The attempt's fencing token. Later attempts have larger ones: a resource that remembers the
    largest token it has seen, and refuses smaller ones, is safe from a replaced attempt."""
    traceparent: str
    """W3C trace context of the run."""
    logger: logging.Logger = field(repr=False)
    """Writes lines that are kept with the run."""
    _remaining_s: Callable[[], float] = field(repr=False)
    _cancelled: threading.Event = field(repr=False)
    _report: Callable[[float, str], None] = field(repr=False)

    @property
    def idempotency_key(self) -> str:
        """The same for every attempt of this run, and for no other run of the mesh."""
        return f"{self.namespace}/{self.job}/{self.run_id}"

    @property
    def remaining(self) -> timedelta:
        """Time left before the attempt is killed; never negative."""
        return timedelta(seconds=max(0.0, self._remaining_s()))

    @property
    def cancelled(self) -> bool:
        """Whether the attempt has been asked to end. Async functions are cancelled as well."""
        return self._cancelled.is_set()

    def wait_cancelled(self, timeout_s: float | None = None) -> bool:
        """Blocks until the attempt is asked to end, at most `timeout_s`; tells whether it was.

        For functions in threads and processes: a pause that a cancellation cuts short.
        """
        return self._cancelled.wait(timeout_s)

    def progress(self, fraction: float, message: str = "") -> None:
        """Tells how far the attempt is, 0 to 1, with at most 200 characters of text."""
        if not 0.0 <= fraction <= 1.0:
            raise ValueError(f"progress: {fraction!r} can't be used; expected 0 to 1")
        self._report(fraction, message[:200])


_current: ContextVar[Callable[[], Context]] = ContextVar("sexton_context")


def current_context() -> Context:
    """Gives the context of the attempt that runs this code.

    Raises:
        LookupError: no attempt does, as in a test that calls the function itself.
    """
    try:
        give = _current.get()
    except LookupError:
        raise LookupError("no Sexton attempt runs here: pass a Context yourself") from None
    return give()


def set_context(give: Callable[[], Context]) -> None:
    """Makes what this gives the current context of the calling thread or task. For workers.

    It is called whenever the context is asked for, from any thread, and always gives the same one.
    """
    _current.set(give)

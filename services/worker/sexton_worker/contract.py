"""What the worker's rooms say to each other: orders, ends, and who executes.

An order is one attempt of one run. An executor begins it when it is told to and says exactly once
that it has ended; by then nothing that it had started is alive. Times are nanoseconds of this
machine's boot time unless they say otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from sexton_core.instants import DAY, Duration, Instant

KIB: Final = 1024
MAX_RESULT_BYTES: Final = 64 * KIB
"""Of a result as JSON in UTF-8."""
MAX_TAIL_BYTES: Final = 16 * KIB
"""Of an attempt's output, the last part, which goes with its completion; also of a traceback."""
MAX_MESSAGE_BYTES: Final = 4 * KIB
"""Of an error's message."""
MAX_LABEL_BYTES: Final = 200
"""Of an error's kind, and of a message about progress."""

_MAX_RETRY_AFTER: Final = 7 * DAY
"""The longest `max_backoff` that a job can have."""

SHELL: Final = "shell"
HTTP: Final = "http"
PYTHON: Final = "python"


class Ref(NamedTuple):
    """One attempt: its run's handle, which means nothing here, and its token."""

    handle: bytes
    token: int


class PythonWork(NamedTuple):
    """Calls a registered function."""

    task: str
    args_json: str
    """An object of keyword arguments; empty: none."""


class FromWorker(NamedTuple):
    """Stands for the value of a variable of the worker's own."""

    name: str


class ShellWork(NamedTuple):
    """Runs a command."""

    command: str
    env: Mapping[str, str | FromWorker]
    cwd: str
    """Empty: the attempt's scratch folder."""


class HttpWork(NamedTuple):
    """Makes a call over HTTP."""

    method: str
    url: str
    headers: Mapping[str, str | FromWorker]
    body: str
    """`$SEXTON_...` in it stands for the run's values."""
    expect: Collection[int]
    """Status codes that are a success; none: 200 to 299."""


class OtherWork(NamedTuple):
    """Is of a kind that this worker does not know."""

    kind: str


Follow: TypeAlias = "Callable[[Order], Callable[[bytes], object] | None]"
"""Gives what takes an order's output as it is written; None: nobody wants it."""

Work: TypeAlias = PythonWork | ShellWork | HttpWork | OtherWork


class Order(NamedTuple):
    """One attempt, as the queue assigns it."""

    ref: Ref
    session: str
    number: int
    """Of the attempt, from 1."""
    namespace: str
    job: str
    run_id: str
    nominal_time: Instant
    """Nanoseconds since the Unix epoch."""
    timeout: Duration
    """From its begin."""
    traceparent: str
    work: Work
    start_in: Duration = 0
    """It is not to begin sooner after its receipt."""
    ready: object = None
    """What its executor has made ready meanwhile, if it is kept until it may begin."""


class Ended(NamedTuple):
    """How an attempt ended, by itself or because it was stopped."""

    succeeded: bool
    result_json: str = ""
    """With success; empty: nothing was returned."""
    kind: str = ""
    """Otherwise: the exception's type, `exit 3`, `signal 9`, ..."""
    message: str = ""
    detail: str = ""
    output_tail: str = ""
    for_good: bool = False
    """Of a failure: no repetition mends it."""
    retry_after: Duration = 0
    """Of a failure: how long it asks to be left alone."""

    @classmethod
    def failure(
        cls,
        kind: str,
        message: str,
        detail: str = "",
        output_tail: str = "",
        *,
        for_good: bool = False,
        retry_after: Duration = 0,
    ) -> Ended:
        """Makes a failure; what is too long is cut, what can't be written is replaced."""
        return cls(
            succeeded=False,
            kind=label(kind),
            message=head(message, MAX_MESSAGE_BYTES),
            detail=tail(detail, MAX_TAIL_BYTES),
            output_tail=output_tail,
            for_good=for_good,
            retry_after=min(max(retry_after, 0), _MAX_RETRY_AFTER),
        )


class Listener(Protocol):
    """Hears what becomes of orders. Called where the control part runs, in its event loop."""

    def ended(self, token: int, ended: Ended) -> None:
        """An attempt has ended and nothing of it is alive. Once for each order."""
        ...

    def progressed(self, token: int, fraction: float, message: str) -> None:
        """An attempt says how far it is."""
        ...


class Executor(Protocol):
    """Executes orders. All methods but `start` and `stop` return at once and raise nothing.

    Real ones have threads and processes; that of the simulation is virtual.
    """

    @property
    def tasks(self) -> Sequence[str]:
        """Names of the Python tasks that it knows."""
        ...

    @property
    def kinds(self) -> Sequence[str]:
        """Kinds that it allows besides Python."""
        ...

    async def start(self, listener: Listener) -> None:
        """Begins to work; the listener is told of everything."""
        ...

    async def stop(self) -> None:
        """Kills what can be killed and ends. Idempotent."""
        ...

    def prepare(self, order: Order) -> object:
        """Gives what can be made ready for an order that is kept for a moment: see `Order.ready`.

        Nothing happens by it: the order may never begin.
        """
        ...

    def begin(self, order: Order) -> None:
        """Begins an attempt. What can't be begun ends as a failure that says why."""
        ...

    def cancel(self, token: int) -> None:
        """Asks an attempt to end. One that has ended, or is not known, is passed over."""
        ...

    def kill(self, token: int) -> None:
        """Ends an attempt by force as far as that is possible; else asks once more."""
        ...

    def extend(self, end_at: Instant, dead_at: Instant) -> None:
        """Tells of an answered heartbeat.

        Without another one everything must be dead from `end_at` on, also when this process is
        suspended. Whoever can ends this process at `dead_at` if something in it runs on.
        """
        ...


def head(text: str, limit: int) -> str:
    """Gives the first part of a text, at most `limit` bytes of UTF-8."""
    data = text.encode("utf-8", "replace")
    return data[:limit].decode("utf-8", "ignore")


def label(text: str) -> str:
    """Gives a text as the queue takes it where it is short: without NUL."""
    return head(text.replace("\0", ""), MAX_LABEL_BYTES)


def tail(text: str, limit: int) -> str:
    """Gives the last part of a text, at most `limit` bytes of UTF-8."""
    data = text.encode("utf-8", "replace")
    return data[-limit:].decode("utf-8", "ignore")

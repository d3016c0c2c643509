"""Calling a task's function: arguments in, context around it, result or failure out.

The same in this process and in one of the task's own.
"""

from __future__ import annotations

import json
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sexton.context import Context, set_context
from sexton.task import Failure, Task
from sexton_core.instants import MICROSECOND, SECOND, Instant
from sexton_worker.contract import MAX_RESULT_BYTES, Ended, Order
from sexton_worker.output import AttemptLogger, Tail

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NOTHING: Final = Ended(succeeded=True)
"""The end of a function that returned nothing and wrote nothing: the same for all."""
_as_json: Final = json.JSONEncoder(
    allow_nan=False, ensure_ascii=False, separators=(",", ":")
).encode
_OWN_FRAMES: Final = 1
"""Of a traceback, those of the worker itself."""


def make_context(
    order: Order, *, until: Instant, kept: Tail, report: Callable[[float, str], None]
) -> Context:
    """Makes what the function is told. `until` is boot time."""
    return Context(
        namespace=order.namespace,
        job=order.job,
        run_id=order.run_id,
        nominal_time=_EPOCH + timedelta(microseconds=order.nominal_time // 1_000),
        attempt=order.number,
        token=order.ref.token,
        traceparent=order.traceparent,
        logger=AttemptLogger(kept),
        _remaining_s=lambda: (until - time.clock_gettime_ns(time.CLOCK_BOOTTIME)) / SECOND,
        _cancelled=threading.Event(),
        _report=report,
    )


def read_arguments(args_json: str) -> dict[str, Any] | UnusableError:
    """Reads a task's arguments; gives the error with which it is to fail where it can't."""
    try:
        given: object = json.loads(args_json) if args_json else {}
    except (ValueError, RecursionError) as error:
        return UnusableError("arguments", f"the arguments are not JSON: {error}")
    if not isinstance(given, dict):
        return UnusableError("arguments", "the arguments are no JSON object")
    return given


def call(
    task: Task,
    arguments: dict[str, Any] | UnusableError,
    context: Callable[[], Context],
    kept: Tail,
) -> Ended:
    """Calls a function and waits for its end. Raises nothing, whatever the function raises.

    `context` gives the attempt's context; most functions never ask for it.
    """
    given: dict[str, Any] = {}
    try:
        set_context(context)
        given = _given(task, arguments, context)
        return _succeed(task.function(**given), kept)
    except BaseException as error:  # noqa: BLE001 - SystemExit too is only the task's own end
        return _fail(_explained(error, task, given), kept)


async def call_async(
    task: Task,
    arguments: dict[str, Any] | UnusableError,
    context: Callable[[], Context],
    kept: Tail,
) -> Ended:
    """Awaits a coroutine function. Raises nothing, whatever the function raises."""
    given: dict[str, Any] = {}
    try:
        set_context(context)
        given = _given(task, arguments, context)
        coroutine: Coroutine[Any, Any, Any] = task.function(**given)
        return _succeed(await coroutine, kept)
    except BaseException as error:  # noqa: BLE001 - SystemExit would end the loop of all tasks
        return _fail(_explained(error, task, given), kept)


class UnusableError(Exception):
    """Arguments or result can't be used; `kind` says which."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def _given(
    task: Task, arguments: dict[str, Any] | UnusableError, context: Callable[[], Context]
) -> dict[str, Any]:
    if isinstance(arguments, UnusableError):
        raise arguments
    if task.context_parameter is not None:
        arguments[task.context_parameter] = context()
    return arguments


def _explained(error: BaseException, task: Task, given: Mapping[str, Any]) -> BaseException:
    """Tells arguments that do not fit from a TypeError of the function's own.

    Looked at afterwards, because it takes longer than many functions do.
    """
    if isinstance(error, TypeError):
        try:
            task.bind(given)
        except TypeError as misfit:
            return UnusableError("arguments", f"{task.name}: {misfit}")
    return error


def _succeed(result: object, kept: Tail) -> Ended:
    if result is None:
        output = kept.text()
        return Ended(succeeded=True, output_tail=output) if output else _NOTHING
    try:
        text = _as_json(result)
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise UnusableError(
            "result", f"what the task returned can't be written as JSON: {error}"
        ) from None
    if size > MAX_RESULT_BYTES:
        raise UnusableError(
            "result",
            f"what the task returned is {size:,} bytes of JSON; at most {MAX_RESULT_BYTES:,} are "
            "kept: store it elsewhere and return where",
        )
    return Ended(succeeded=True, result_json=text, output_tail=kept.text())


def _fail(error: BaseException, kept: Tail) -> Ended:
    if isinstance(error, UnusableError):
        return Ended.failure(error.kind, str(error), "", kept.text())
    asked = error if isinstance(error, Failure) else Failure()
    kind = type(error).__qualname__
    if type(error).__module__ not in ("builtins", "__main__"):
        kind = f"{type(error).__module__}.{kind}"
    try:
        message = str(error)
    except Exception as broken:  # noqa: BLE001 - a task's own __str__
        message = f"its message can't be shown: {type(broken).__name__}"
    frames = error.__traceback__
    for _ in range(_OWN_FRAMES):
        frames = frames.tb_next if frames is not None else None
    try:
        detail = "".join(traceback.format_exception(type(error), error, frames))
    except Exception:  # noqa: BLE001 - as above
        detail = ""
    return Ended.failure(
        kind,
        message,
        detail,
        kept.text(),
        for_good=asked.for_good,
        retry_after=asked.retry_after // timedelta(microseconds=1) * MICROSECOND,
    )

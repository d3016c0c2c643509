"""Functions that jobs may name: `@sexton.task`.

Only what is registered can be run: a job's definition names a task, never a path for a worker to
import.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, TypeVar, overload

from sexton.context import Context

Function = TypeVar("Function", bound=Callable[..., Any])

_NAME = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")


class Failure(Exception):  # noqa: N818 - tasks raise it to say what may follow
    """Fails an attempt, as any exception does, and says what may follow.

    Args:
        message: what went wrong.
        for_good: no repetition mends it: the run ends as FAILED, whatever attempts are left.
        retry_after: how long to leave it alone; heeded up to the job's `max_backoff`, and never
            shorter than its own backoff.
    """

    def __init__(
        self, message: str = "", *, for_good: bool = False, retry_after: timedelta = timedelta(0)
    ) -> None:
        super().__init__(message)
        self.for_good = for_good
        self.retry_after = retry_after


class Isolation(StrEnum):
    """Where a task's function runs, which decides how it can be stopped."""

    ASYNC = "async"
    """In the worker's loop for tasks; a cancellation is an `asyncio.CancelledError`."""
    THREAD = "thread"
    """In a thread; it has to look at `Context.cancelled` itself and can't be killed alone."""
    PROCESS = "process"
    """In a process of its own, which can be killed. Arguments and result pass as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A registered function."""

    name: str
    function: Callable[..., Any]
    isolation: Isolation
    context_parameter: str | None
    """The parameter that is annotated with `Context`; None: it has none."""

    def bind(self, arguments: Mapping[str, Any]) -> None:
        """Checks that the function can be called with these arguments.

        Raises:
            TypeError: one is missing, or the function does not know it.
        """
        given = dict(arguments)
        if self.context_parameter is not None:
            given[self.context_parameter] = None
        inspect.signature(self.function).bind(**given)


class TaskRegistry:
    """The tasks that a worker knows, by name."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task] = {}

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks.values())

    def __len__(self) -> int:
        return len(self._tasks)

    def get(self, name: str) -> Task | None:
        """Gives the task of this name; None: nobody registered one."""
        return self._tasks.get(name)

    @overload
    def task(self, name_or_function: Function) -> Function: ...
    @overload
    def task(
        self, name_or_function: str | None = None, *, isolation: Isolation | str | None = None
    ) -> Callable[[Function], Function]: ...
    def task(
        self,
        name_or_function: Function | str | None = None,
        *,
        isolation: Isolation | str | None = None,
    ) -> Function | Callable[[Function], Function]:
        """Registers a function under a name that jobs can use.

        Without a name it is the function's, with `-` for `_`. Without an isolation a coroutine
        function is async and any other runs in a thread.

        Raises:
            ValueError: the name is not 1 to 63 of a-z, 0-9 and `-`, or another function has it; or
                the isolation does not fit the function.
        """
        if name_or_function is None or isinstance(name_or_function, str):
            name = name_or_function

            def register(function: Function) -> Function:
                self._add(function, name, isolation)
                return function

            return register
        self._add(name_or_function, None, isolation)
        return name_or_function

    def _add(
        self, function: Callable[..., Any], name: str | None, isolation: Isolation | str | None
    ) -> None:
        name = name if name is not None else function.__name__.replace("_", "-").strip("-").lower()
        if _NAME.fullmatch(name) is None:
            raise ValueError(
                f"task name: {name!r} can't be used; expected 1 to 63 of a-z, 0-9 and -, "
                "with a letter first and no - at the end"
            )
        known = self._tasks.get(name)
        if known is not None and _place(known.function) != _place(function):
            raise ValueError(f"task {name!r} is registered already, by {_place(known.function)}")
        self._tasks[name] = Task(
            name=name,
            function=function,
            isolation=_isolation(function, isolation),
            context_parameter=_context_parameter(function),
        )


registry = TaskRegistry()
"""Where `@sexton.task` registers; what a worker started with `--app` serves."""

task = registry.task


def _isolation(function: Callable[..., Any], asked: Isolation | str | None) -> Isolation:
    is_async = inspect.iscoroutinefunction(function)
    if asked is None:
        return Isolation.ASYNC if is_async else Isolation.THREAD
    isolation = Isolation(asked)
    if isolation is Isolation.ASYNC and not is_async:
        raise ValueError(f"{_place(function)} is no coroutine function; isolation can't be async")
    if isolation is Isolation.THREAD and is_async:
        raise ValueError(f"{_place(function)} is a coroutine function; isolation can't be thread")
    return isolation


def _context_parameter(function: Callable[..., Any]) -> str | None:
    annotations = inspect.get_annotations(function, eval_str=False)
    for name, annotation in annotations.items():
        if name != "return" and annotation in (Context, "Context", "sexton.Context"):
            return name
    return None


def _place(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"

"""The clients of a mesh: `AsyncClient`, and `Client`, which blocks."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from functools import wraps
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast, overload

from grpc import aio

from sexton._calls import Calls
from sexton._jobs_api import AsyncJobs
from sexton._operating_api import AsyncBackfills, AsyncDeadLetters, AsyncMesh
from sexton._runs_api import AsyncRuns
from sexton._settings import DEFAULT_RETRY_FOR_S, DEFAULT_TIMEOUT_S, settings
from sexton._wire import AioWire, BlockingWire, Wire, drive, drive_all
from sexton.history import calls_of
from sexton.mesh import Mesh
from sexton.tls import Tls, TlsFiles

P = ParamSpec("P")
R = TypeVar("R")


class _Connection:
    """What both clients are: settings, calls, and the parts that make them."""

    def __init__(
        self,
        wire: Callable[[TlsFiles | None], Wire],
        address: str | Sequence[str] | None,
        *,
        randomness: random.Random | None,
        namespace: str | None,
        secret: str | None,
        secret_file: str | os.PathLike[str] | None,
        timeout_s: float,
        retry_for_s: float,
        history: str | os.PathLike[str] | None,
        tls: Tls | None,
    ) -> None:
        self.settings = settings(
            address,
            namespace=namespace,
            secret=secret,
            secret_file=secret_file,
            timeout_s=timeout_s,
            retry_for_s=retry_for_s,
            tls=tls,
        )
        files = TlsFiles(self.settings.tls) if self.settings.tls is not None else None
        self.calls = Calls(self.settings, wire(files), randomness, calls_of(history))
        self.jobs = AsyncJobs(self.calls, self.settings.namespace)
        self.runs = AsyncRuns(self.calls, self.settings.namespace)
        self.backfills = AsyncBackfills(self.calls, self.settings.namespace)
        self.dead = AsyncDeadLetters(self.calls, self.settings.namespace)
        self.mesh = AsyncMesh(self.calls)


class AsyncClient:
    """A client for asyncio. Without arguments it finds the mesh by itself.

    >>> async with AsyncClient() as client:
    ...     job = await client.jobs.get("nightly")
    ...     names = [run.job async for run in client.runs.list(job)]

    Addresses come from `SEXTON_API` (`HOST:PORT`, several separated by commas), the secret from
    `SEXTON_CLIENT_SECRET` or the file that `SEXTON_CLIENT_SECRET_FILE` names, the namespace from
    `SEXTON_NAMESPACE`; else they are those of a mesh that `sexton up` started on this machine.
    """

    def __init__(
        self,
        address: str | Sequence[str] | None = None,
        *,
        namespace: str | None = None,
        secret: str | None = None,
        secret_file: str | os.PathLike[str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        retry_for_s: float = DEFAULT_RETRY_FOR_S,
        history: str | os.PathLike[str] | None = None,
        tls: Tls | None = None,
        open_channel: Callable[[str], aio.Channel] | None = None,
        randomness: random.Random | None = None,
    ) -> None:
        """Connects to nothing yet.

        Args:
            address: where replicas of the API are; calls go to one that serves.
            namespace: that of names which have none.
            secret: the client secret itself; empty: none.
            secret_file: the file that holds it, looked at again while the client is used.
            timeout_s: deadline of each call that is given none.
            retry_for_s: how long a call that may be repeated is repeated while none serves.
            history: file to which every call is written, for `sexton verify`; None: the one that
                `SEXTON_HISTORY` names, if any.
            tls: how to speak to a mesh that speaks TLS; None: as `SEXTON_TLS_CA` and the variables
                beside it say, in the clear where there are none.
            open_channel: makes the channel to an address, for a network of one's own.
            randomness: makes request ids and spreads repetitions; None: the system's.

        Raises:
            InvalidArgument, Unauthenticated: what was given or found can't be used.
        """
        self._connection = _Connection(
            lambda files: AioWire(open_channel, tls=files),
            address,
            randomness=randomness,
            namespace=namespace,
            secret=secret,
            secret_file=secret_file,
            timeout_s=timeout_s,
            retry_for_s=retry_for_s,
            history=history,
            tls=tls,
        )
        self.jobs = self._connection.jobs
        self.runs = self._connection.runs
        self.backfills = self._connection.backfills
        self.dead = self._connection.dead
        self.mesh = self._connection.mesh

    @property
    def addresses(self) -> tuple[str, ...]:
        """Gives where replicas of the API are looked for."""
        return self._connection.settings.addresses

    @property
    def namespace(self) -> str:
        """Gives that of names which have none."""
        return self._connection.settings.namespace

    async def members(self, *, timeout_s: float | None = None) -> Mesh:
        """Lists who leads, who stands by, who works, and how far their clocks are off."""
        return await self.mesh.members(timeout_s=timeout_s)

    async def close(self) -> None:
        """Closes all connections; a call after that raises RuntimeError. Idempotent."""
        await self._connection.calls.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class _Blocking(Generic[P, R]):
    """A coroutine method of a client's part, as one that blocks, with the same signature."""

    def __init__(self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, part: None, owner: type) -> Self: ...
    @overload
    def __get__(self, part: _Part, owner: type) -> Callable[P, R]: ...
    def __get__(self, part: _Part | None, owner: type) -> Self | Callable[P, R]:
        if part is None:
            return self
        method = cast("Callable[P, Coroutine[Any, Any, R]]", MethodType(self._method, part.target))

        @wraps(method)
        def blocking(*args: P.args, **kwargs: P.kwargs) -> R:
            return drive(method(*args, **kwargs))

        return blocking


class _BlockingIterator(Generic[P, R]):
    """An asynchronous generator method of a client's part, as one that blocks."""

    def __init__(self, method: Callable[Concatenate[Any, P], AsyncIterator[R]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, part: None, owner: type) -> Self: ...
    @overload
    def __get__(self, part: _Part, owner: type) -> Callable[P, Iterator[R]]: ...
    def __get__(self, part: _Part | None, owner: type) -> Self | Callable[P, Iterator[R]]:
        if part is None:
            return self
        method = cast("Callable[P, AsyncIterator[R]]", MethodType(self._method, part.target))

        @wraps(method)
        def blocking(*args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
            return drive_all(method(*args, **kwargs))

        return blocking


class _Part:
    """A part of the blocking client, over the coroutines of the asynchronous one's."""

    def __init__(self, target: Any) -> None:
        self.target = target


class Jobs(_Part):
    """The calls about jobs: those of `AsyncJobs`, blocking."""

    create = _Blocking(AsyncJobs.create)
    get = _Blocking(AsyncJobs.get)
    list = _BlockingIterator(AsyncJobs.list)
    update = _Blocking(AsyncJobs.update)
    apply = _Blocking(AsyncJobs.apply)
    delete = _Blocking(AsyncJobs.delete)
    pause = _Blocking(AsyncJobs.pause)
    resume = _Blocking(AsyncJobs.resume)
    trigger = _Blocking(AsyncJobs.trigger)
    explain = _Blocking(AsyncJobs.explain)
    preview = _Blocking(AsyncJobs.preview)
    versions = _BlockingIterator(AsyncJobs.versions)
    decisions = _BlockingIterator(AsyncJobs.decisions)
    load = _Blocking(AsyncJobs.load)
    backfill = _Blocking(AsyncJobs.backfill)
    plan_backfill = _Blocking(AsyncJobs.plan_backfill)


class Runs(_Part):
    """The calls about runs: those of `AsyncRuns`, blocking."""

    get = _Blocking(AsyncRuns.get)
    list = _BlockingIterator(AsyncRuns.list)
    cancel = _Blocking(AsyncRuns.cancel)
    terminate = _Blocking(AsyncRuns.terminate)
    retry = _Blocking(AsyncRuns.retry)
    wait = _Blocking(AsyncRuns.wait)
    watch = _BlockingIterator(AsyncRuns.watch)


class Backfills(_Part):
    """The calls about backfills: those of `AsyncBackfills`, blocking."""

    get = _Blocking(AsyncBackfills.get)
    list = _BlockingIterator(AsyncBackfills.list)
    cancel = _Blocking(AsyncBackfills.cancel)
    wait = _Blocking(AsyncBackfills.wait)


class DeadLetters(_Part):
    """The calls about dead letters: those of `AsyncDeadLetters`, blocking."""

    list = _BlockingIterator(AsyncDeadLetters.list)
    requeue = _Blocking(AsyncDeadLetters.requeue)
    purge = _Blocking(AsyncDeadLetters.purge)


class MeshCalls(_Part):
    """The calls about what jobs run on: those of `AsyncMesh`, blocking."""

    members = _Blocking(AsyncMesh.members)
    queues = _Blocking(AsyncMesh.queues)
    workers = _Blocking(AsyncMesh.workers)
    pause_queue = _Blocking(AsyncMesh.pause_queue)
    resume_queue = _Blocking(AsyncMesh.resume_queue)
    drain = _Blocking(AsyncMesh.drain)
    store = _Blocking(AsyncMesh.store)


class Client:
    """A client that blocks, usable from several threads. Finds the mesh as `AsyncClient` does.

    >>> with Client() as client:
    ...     run = client.jobs.trigger("nightly").run
    ...     client.runs.get(run).job
    'nightly'
    """

    def __init__(
        self,
        address: str | Sequence[str] | None = None,
        *,
        namespace: str | None = None,
        secret: str | None = None,
        secret_file: str | os.PathLike[str] | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        retry_for_s: float = DEFAULT_RETRY_FOR_S,
        history: str | os.PathLike[str] | None = None,
        tls: Tls | None = None,
    ) -> None:
        """Connects to nothing yet. The arguments are those of `AsyncClient`.

        Raises:
            InvalidArgument, Unauthenticated: what was given or found can't be used.
        """
        self._connection = _Connection(
            lambda files: BlockingWire(tls=files),
            address,
            randomness=None,
            namespace=namespace,
            secret=secret,
            secret_file=secret_file,
            timeout_s=timeout_s,
            retry_for_s=retry_for_s,
            history=history,
            tls=tls,
        )
        self.jobs = Jobs(self._connection.jobs)
        self.runs = Runs(self._connection.runs)
        self.backfills = Backfills(self._connection.backfills)
        self.dead = DeadLetters(self._connection.dead)
        self.mesh = MeshCalls(self._connection.mesh)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Gives where replicas of the API are looked for."""
        return self._connection.settings.addresses

    @property
    def namespace(self) -> str:
        """Gives that of names which have none."""
        return self._connection.settings.namespace

    def members(self, *, timeout_s: float | None = None) -> Mesh:
        """Lists who leads, who stands by, who works, and how far their clocks are off.

        >>> [member.role.value for member in client.members().members]
        ['store', 'coordinator', 'queue', 'worker']
        """
        return self.mesh.members(timeout_s=timeout_s)

    def close(self) -> None:
        """Closes all connections; a call after that raises RuntimeError. Idempotent."""
        drive(self._connection.calls.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

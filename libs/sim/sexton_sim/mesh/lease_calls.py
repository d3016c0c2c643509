"""The lease calls of simulated services, recorded: when a holder asked, and what it was told.

They prove what the store's log alone can't: that a lease got its full time after its last renewal.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final

from grpc import aio

from sexton_runtime.transport import Transport
from sexton_sim.history import Recorder

_SERVICE: Final = "/sexton.internal.v1.StoreService/"


class LeaseNotingTransport:
    """A process's `Transport` whose lease calls to the store go into the history."""

    def __init__(self, inner: Transport, store: str, recorder: Recorder, process: str) -> None:
        self.server = inner.server
        self.bind = inner.bind
        self._inner = inner
        self._store = store
        self._recorder = recorder
        self._process = process

    def channel(self, target: str) -> aio.Channel:
        """Opens a channel; to the store, one that takes notes."""
        channel = self._inner.channel(target)
        if target == self._store:
            wrap = channel.unary_unary
            channel.unary_unary = lambda method, *args, **kwargs: self._noting(  # type: ignore
                method, wrap(method, *args, **kwargs)
            )
        return channel

    def _noting(self, method: str, call: Callable[..., Any]) -> Callable[..., Any]:
        begin = _CALLS.get(method.removeprefix(_SERVICE))
        if begin is None:
            return call

        def invoke(request: Any, **options: Any) -> _Noted:
            name, args = begin(request)
            number = self._recorder.invoke(self._process, name, **args)
            return _Noted(call(request, **options), name, number, self._recorder)

        return invoke


class _Noted:
    """A call in flight; its answer is noted when it is awaited."""

    def __init__(self, call: Any, name: str, number: int, recorder: Recorder) -> None:
        self._call = call
        self._name = name
        self._number = number
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    def __await__(self) -> Generator[Any, None, Any]:
        return self._answer().__await__()

    async def _answer(self) -> Any:
        try:
            answer = await self._call
        except BaseException as error:
            self._recorder.unknown(self._number, type(error).__name__)
            raise
        self._recorder.ok(self._number, **_ANSWERS[self._name](answer))
        return answer


def _acquire(request: Any) -> tuple[str, dict[str, Any]]:
    fields = ("name", "holder", "ttl_ms", "replaces")
    return "acquire", {field: getattr(request, field) for field in fields}


def _renew(request: Any) -> tuple[str, dict[str, Any]]:
    return "renew", {"leases": [[lease.name, lease.token] for lease in request.leases]}


def _release(request: Any) -> tuple[str, dict[str, Any]]:
    return "release", {"name": request.lease.name, "token": request.lease.token}


def _acquired(answer: Any) -> dict[str, Any]:
    lease = answer.lease
    return {"granted": answer.granted, "token": lease.token, "holder": lease.holder}


def _renewed(answer: Any) -> dict[str, Any]:
    return {"renewed": [renewal.renewed for renewal in answer.renewals]}


def _released(answer: Any) -> dict[str, Any]:
    return {"revision": answer.revision} if answer.revision else {"released": False}


_CALLS: Final[dict[str, Callable[[Any], tuple[str, dict[str, Any]]]]] = {
    "AcquireLease": _acquire,
    "RenewLease": _renew,
    "ReleaseLease": _release,
}
_ANSWERS: Final[dict[str, Callable[[Any], dict[str, Any]]]] = {
    "acquire": _acquired,
    "renew": _renewed,
    "release": _released,
}

"""One call of a client: its deadline, the replica that answers it, and when it is made again."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

from sexton import errors
from sexton._settings import Settings
from sexton._values import text
from sexton._wire import Call, Wire
from sexton.history import CallHistory

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0
_SHORTEST_ATTEMPT_S: Final = 1.0
"""A replica that hangs is given at least this, before the next one is asked."""


@dataclass(slots=True)
class _Replicas:
    """The addresses, the one that answered last in front."""

    addresses: tuple[str, ...]
    current: int = 0

    def address(self) -> str:
        return self.addresses[self.current % len(self.addresses)]

    def skip(self, address: str) -> None:
        """Goes on to the next one, unless another call has done so already."""
        if self.address() == address:
            self.current += 1


@dataclass(slots=True)
class _Patience:
    """How long a call is made again: until its deadline, and while it may help."""

    end_s: float
    give_up_s: float
    replicas: int
    randomness: random.Random
    asked: int = 0

    def pause_s(self, now_s: float) -> float | None:
        """Tells how long to wait before the next attempt; None: it is the caller's turn."""
        self.asked += 1
        rounds, rest = divmod(self.asked, self.replicas)
        if rest:
            return 0.0 if now_s < self.end_s else None
        whole = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(rounds - 1, 30))
        pause_s = self.randomness.uniform(whole / 2, whole)
        return pause_s if now_s + pause_s < min(self.end_s, self.give_up_s) else None


@dataclass(slots=True)
class _Fate:
    """Whether some attempt of a call may have had its effect although it was not answered."""

    open: bool = False


class Calls:
    """Makes calls on whichever replica serves.

    An error that says that nothing happened moves a call on to the next replica. One that leaves
    the outcome open does so only where the call is idempotent.
    """

    def __init__(
        self,
        settings: Settings,
        wire: Wire,
        randomness: random.Random | None = None,
        history: CallHistory | None = None,
    ) -> None:
        self._history = history
        self._settings = settings
        self._wire = wire
        self._replicas = _Replicas(settings.addresses)
        # The system's: two processes forked from one would make the same ids from a state.
        self._randomness = randomness or random.SystemRandom()
        self._closed = False

    async def unary(self, call: Call, *, idempotent: bool, timeout_s: float | None = None) -> Any:
        """Makes a call with one answer.

        Raises:
            RuntimeError: the client has been closed.
            SextonError: what the server raised; or, once the time is up, why none answered.
        """
        self._check_open()
        whole_s = self._settings.timeout_s if timeout_s is None else timeout_s
        if self._history is None:
            return await self._repeated(call, whole_s, _Fate(), idempotent=idempotent)
        number, fate = self._history.invoke(call.method, call.request), _Fate()
        try:
            answer = await self._repeated(call, whole_s, fate, idempotent=idempotent)
        except errors.SextonError as error:
            if fate.open or _leaves_open(error):
                self._history.unknown(number, error)
            else:
                self._history.fail(number, error)
            raise
        except BaseException as error:
            self._history.unknown(number, error)
            raise
        self._history.ok(number, answer)
        return answer

    async def _repeated(self, call: Call, whole_s: float, fate: _Fate, *, idempotent: bool) -> Any:
        patience = self._patience(whole_s)
        while True:
            address = self._replicas.address()
            now_s = self._wire.monotonic_s()
            left_s = patience.end_s - now_s
            attempt_s = left_s
            if idempotent and patience.replicas > 1:
                attempt_s = min(left_s, max(left_s / 2, _SHORTEST_ATTEMPT_S))
            try:
                return await self._wire.unary(
                    address, self._admitted(call, address), max(attempt_s, 0.001)
                )
            except errors.SextonError as error:
                fate.open = fate.open or _leaves_open(error)
                if self._closed or not _worth_another(error, idempotent=idempotent):
                    raise
                self._replicas.skip(address)
                pause_s = patience.pause_s(self._wire.monotonic_s())
                if pause_s is None:
                    raise
            await self._wire.sleep(pause_s)

    async def stream(
        self, call: Call, *, timeout_s: float | None = None
    ) -> AsyncGenerator[Any, None]:
        """Makes a call with a stream of answers, once; after a failure another replica is next.

        Raises:
            RuntimeError: the client has been closed.
            SextonError: what the server raised, or how the stream broke.
        """
        self._check_open()
        address = self._replicas.address()
        answered = False
        try:
            stream = self._wire.stream(address, self._admitted(call, address), timeout_s)
            async with aclosing(stream) as answers:
                async for answer in answers:
                    answered = True
                    yield answer
        except (errors.Unavailable, errors.DeadlineExceeded, errors.Cancelled) as error:
            if not answered or not isinstance(error, errors.DeadlineExceeded):
                self._replicas.skip(address)
            raise

    def request_id(self, given: str | None) -> str:
        """Gives the id of a request: the one that was given, or a new one.

        Raises:
            InvalidArgument: an empty one, such as an unset variable of a script: it would be
                another request each time.
        """
        if given is None:
            return f"{self._randomness.getrandbits(128):032x}"
        if given == "":
            expected = "1 to 128 printable characters, unique per intention"
            raise errors.InvalidArgument("request_id", given, expected)
        return text("request_id", given)

    @property
    def wire(self) -> Wire:
        """Gives the clock and the pauses of whoever makes calls in a row."""
        return self._wire

    async def close(self) -> None:
        """Closes all connections; no further call can be made. Idempotent."""
        self._closed = True
        await self._wire.close()
        if self._history is not None:
            self._history.close()

    def _check_open(self) -> None:
        # Else it would silently open connections that nobody closes.
        if self._closed:
            raise RuntimeError("this client has been closed: make another one")

    def _patience(self, whole_s: float) -> _Patience:
        now_s = self._wire.monotonic_s()
        return _Patience(
            end_s=now_s + whole_s,
            give_up_s=now_s + self._settings.retry_for_s,
            replicas=len(self._replicas.addresses),
            randomness=self._randomness,
        )

    def _admitted(self, call: Call, address: str) -> Call:
        secret = self._settings.secret_for(address)
        return call._replace(metadata=(("authorization", f"Bearer {secret}"),)) if secret else call


def _leaves_open(error: errors.SextonError) -> bool:
    """Tells whether a call that ended so may have had its effect, or may have it yet."""
    open_ = errors.OutcomeUnknown | errors.DeadlineExceeded | errors.Cancelled | errors.Internal
    return isinstance(error, open_)


def _worth_another(error: errors.SextonError, *, idempotent: bool) -> bool:
    if isinstance(error, errors.OutcomeUnknown | errors.DeadlineExceeded | errors.Cancelled):
        return idempotent  # a server that stops ends the calls under way as cancelled
    return isinstance(error, errors.Unavailable | errors.Overloaded)

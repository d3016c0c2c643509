"""A channel whose next call goes with the TLS files of that moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import grpc
from grpc import aio

from sexton.tls import Channels, TlsFiles


class RenewedChannel(aio.Channel):
    """A channel over the one that the newest files open; see `sexton.tls.Channels`.

    Stubs make their callables once: each call looks for the channel anew.
    """

    def __init__(
        self,
        target: str,
        open_channel: Callable[[str, TlsFiles | None], aio.Channel],
        tls: TlsFiles,
    ) -> None:
        self._target = target
        self._channels = Channels(open_channel, tls)

    @property
    def _now(self) -> aio.Channel:
        return self._channels.get(self._target)

    def unary_unary(self, *args: Any, **kwargs: Any) -> Any:
        """Gives the callable of a method with one request and one answer."""
        return self._callable("unary_unary", args, kwargs)

    def unary_stream(self, *args: Any, **kwargs: Any) -> Any:
        """Gives the callable of a method with one request and a stream of answers."""
        return self._callable("unary_stream", args, kwargs)

    def stream_unary(self, *args: Any, **kwargs: Any) -> Any:
        """Gives the callable of a method with a stream of requests and one answer."""
        return self._callable("stream_unary", args, kwargs)

    def stream_stream(self, *args: Any, **kwargs: Any) -> Any:
        """Gives the callable of a method with streams both ways."""
        return self._callable("stream_stream", args, kwargs)

    async def close(self, grace: float | None = None) -> None:
        """Closes the channel; calls in flight are cancelled after `grace` seconds."""
        for channel in self._channels.take_all():
            await channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:  # noqa: FBT001
        """Tells how the connection stands."""
        return self._now.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Waits until the connection stands otherwise than last observed."""
        await self._now.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Waits until there is a connection."""
        await self._now.channel_ready()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _callable(self, kind: str, args: Any, kwargs: Any) -> Callable[..., Any]:
        made: tuple[aio.Channel, Callable[..., Any]] | None = None

        def call(*given: Any, **options: Any) -> Any:
            nonlocal made
            now = self._now
            if made is None or made[0] is not now:
                made = now, getattr(now, kind)(*args, **kwargs)
            return made[1](*given, **options)

        return call

"""A call goes over the channel of its moment, by a method that was made once for it."""

from __future__ import annotations

from typing import Any

from sexton._wire import Call, _Methods


class Channel:
    def __init__(self, name: str) -> None:
        self.name = name
        self.stubs = 0


class Stub:
    def __init__(self, channel: Channel) -> None:
        channel.stubs += 1
        self._name = channel.name

    def Ask(self, request: object, *, metadata: object, timeout: float | None) -> Any:
        return self._name, request, timeout


def test_a_stub_is_made_once_for_each_channel_and_method() -> None:
    methods, first, second = _Methods(), Channel("first"), Channel("second")
    call = Call(Stub, "Ask", "what")

    answers = [
        methods.begin("a:1", channel, call, timeout_s)
        for channel, timeout_s in ((first, 1.0), (first, 2.0), (second, None), (second, 3.0))
    ]

    assert answers == [
        ("first", "what", 1.0),
        ("first", "what", 2.0),
        ("second", "what", None),
        ("second", "what", 3.0),
    ]
    assert (first.stubs, second.stubs) == (1, 1)

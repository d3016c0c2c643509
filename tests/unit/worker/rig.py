"""A worker's machine for tests: the time, what it is told, and what it says."""

from __future__ import annotations

from typing import Any

from sexton_core.instants import SECOND
from sexton_worker.contract import Ended, Order, Ref, ShellWork
from sexton_worker.machine import Machine
from sexton_worker.messages import Action, Outgoing, Stop, Welcome

START = 1_000 * SECOND
SUCCESS = Ended(succeeded=True, result_json="1")
FAILURE = Ended.failure("exit 3", "it ended with exit status 3")


def order(
    token: int, session: str = "s1", *, timeout: int = 60 * SECOND, start_in: int = 0
) -> Order:
    return Order(
        ref=ref(token),
        session=session,
        number=1,
        namespace="default",
        job="backup",
        run_id="t20261129T070000Z-abcdefgh",
        nominal_time=0,
        timeout=timeout,
        traceparent="",
        work=ShellWork("true", {}, ""),
        start_in=start_in,
    )


def ref(token: int) -> Ref:
    return Ref(f"handle-{token}".encode(), token)


class Rig:
    """A machine, the time, and what became of both."""

    def __init__(self, *, slots: int = 3) -> None:
        self.machine = Machine(slots=slots, cancel_grace=10 * SECOND)
        self.now = START

    def connect(
        self, session: str = "s1", *, owner: int = 7, revoked: tuple[Ref, ...] = ()
    ) -> list[Ref]:
        held = self.machine.hello(self.now)
        self.machine.welcome(Welcome(session, owner, 30 * SECOND, 1 * SECOND, revoked), self.now)
        return held

    def take(self) -> Outgoing:
        message = self.machine.take(self.now)
        assert message is not None
        return message

    def passes(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)
        self.machine.wake(self.now)

    def assign(self, token: int, **more: Any) -> None:
        self.machine.assigned(order(token, **more), self.now)

    def end(self, token: int, ended: Ended = SUCCESS) -> None:
        self.machine.ended(token, ended, self.now)

    def commands(self) -> list[tuple[Action, int]]:
        commands, self.machine.commands = self.machine.commands, []
        return [(command.action, command.order.ref.token) for command in commands]

    def may_connect(self) -> bool:
        return self.machine.may_connect

    def fatal(self) -> str:
        return self.machine.fatal

    def cancel(self, token: int, *, terminate: bool = False, reason: str = "by hand") -> None:
        self.machine.stop(Stop(ref(token), terminate, reason), self.now)

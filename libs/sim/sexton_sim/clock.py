"""Simulated machines and their clocks.

A machine has the three clocks of `sexton_runtime.clock.Clock`, all derived from the loop's virtual
time. Its `rate` is how fast its quartz runs against virtual time (1.0: exactly); the wall clock
may also jump. Suspending a machine (a laptop's lid) stops its awake time and its processes, while
boot time and wall clock go on; rebooting it starts boot and awake time again under a new boot id.
"""

from __future__ import annotations

from math import ceil
from typing import Protocol

DEFAULT_WALL_NS = 1_796_083_200_000_000_000
"""Wall clock at virtual time 0 unless told otherwise: 2026-12-01T00:00:00Z."""
NEVER_NS = 1 << 62
"""A virtual time that no simulation reaches (146 years)."""
_BOOTED_BEFORE_NS = 100_000_000_000


class VirtualTime(Protocol):
    """What a machine needs of its loop."""

    @property
    def now_ns(self) -> int:
        """Virtual time in nanoseconds since the simulation's start."""
        ...

    def retime(self) -> None:
        """Computes anew when timers fire, after a machine's clock has changed its pace."""
        ...


class Machine:
    """One simulated computer: its clocks, and whether it is awake."""

    __slots__ = (
        "_boot_base_ns",
        "_boots",
        "_monotonic_base_ns",
        "_origin_ns",
        "_time",
        "_wall_base_ns",
        "awake",
        "name",
        "rate",
        "wall_rate",
    )

    def __init__(
        self, time: VirtualTime, name: str, *, wall_ns: int = DEFAULT_WALL_NS, rate: float = 1.0
    ) -> None:
        self.name = name
        self.rate = rate
        self.wall_rate = rate
        self.awake = True
        self._time = time
        self._boots = 1
        self._origin_ns = time.now_ns
        self._monotonic_base_ns = _BOOTED_BEFORE_NS
        self._boot_base_ns = _BOOTED_BEFORE_NS
        self._wall_base_ns = wall_ns

    def monotonic_ns(self) -> int:
        """Awake time; stands still while the machine is suspended."""
        if not self.awake:
            return self._monotonic_base_ns
        return self._monotonic_base_ns + _scaled(self._time.now_ns - self._origin_ns, self.rate)

    def boot_ns(self) -> int:
        """Time since boot, suspension included."""
        return self._boot_base_ns + _scaled(self._time.now_ns - self._origin_ns, self.rate)

    def wall_ns(self) -> int:
        """What this machine believes the time to be."""
        return self._wall_base_ns + _scaled(self._time.now_ns - self._origin_ns, self.wall_rate)

    def boot_id(self) -> str:
        """Identifies the boot: another one after each `reboot`."""
        return f"{self.name}-boot-{self._boots}"

    def due_ns(self, monotonic_ns: int) -> int:
        """Gives the first virtual time at which awake time is at least `monotonic_ns`."""
        if not self.awake:
            return NEVER_NS
        ahead = monotonic_ns - self._monotonic_base_ns
        if self.rate != 1.0:
            ahead = ceil(ahead / self.rate)
            while _scaled(ahead, self.rate) < monotonic_ns - self._monotonic_base_ns:
                ahead += 1
        return self._origin_ns + ahead

    def set_rate(self, rate: float, *, wall_rate: float | None = None) -> None:
        """Lets the clocks run at `rate` (> 0) from now on; the wall clock may differ."""
        if rate <= 0:
            raise ValueError(f"a clock's rate must be above 0, got {rate}")
        self._rebase()
        self.rate = rate
        self.wall_rate = rate if wall_rate is None else wall_rate
        self._time.retime()

    def jump_wall(self, by_ns: int) -> None:
        """Sets the wall clock forward or back."""
        self._wall_base_ns += by_ns

    def suspend(self) -> None:
        """Puts the machine to sleep; idempotent."""
        if self.awake:
            self._rebase()
            self.awake = False
            self._time.retime()

    def resume(self) -> None:
        """Wakes it up; boot time and wall clock have gone on; idempotent."""
        if not self.awake:
            self._rebase()
            self.awake = True
            self._time.retime()

    def reboot(self) -> None:
        """Starts boot and awake time from 0 under a new boot id. Its processes must be dead."""
        self._rebase()
        self.awake = True
        self._boots += 1
        self._monotonic_base_ns = 0
        self._boot_base_ns = 0
        self._time.retime()

    def _rebase(self) -> None:
        monotonic, boot, wall = self.monotonic_ns(), self.boot_ns(), self.wall_ns()
        self._monotonic_base_ns, self._boot_base_ns, self._wall_base_ns = monotonic, boot, wall
        self._origin_ns = self._time.now_ns


class SimClock:
    """The `Clock` of a process on a simulated machine."""

    def __init__(self, machine: Machine) -> None:
        self.wall_ns = machine.wall_ns
        self.boot_ns = machine.boot_ns
        self.monotonic_ns = machine.monotonic_ns
        self.boot_id = machine.boot_id


def _scaled(elapsed_ns: int, rate: float) -> int:
    return elapsed_ns if rate == 1.0 else int(elapsed_ns * rate)

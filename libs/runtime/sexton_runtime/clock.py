"""The three clocks of a process, kept apart, as one Protocol.

`wall` is what people call the time and may jump. `boot` (CLOCK_BOOTTIME) counts real time since
boot, suspension of the machine included: all own deadlines (leases, sessions) run on it.
`monotonic` (CLOCK_MONOTONIC) stands still while the machine is suspended: awake time.

Sleeping and time-outs are asyncio's own (`asyncio.sleep`, `asyncio.timeout`): under simulation the
event loop is virtual and gives each simulated process its own rate.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol


class Clock(Protocol):
    """The clocks of one process, in nanoseconds."""

    def wall_ns(self) -> int:
        """Wall clock since the Unix epoch, UTC. May jump either way."""
        ...

    def boot_ns(self) -> int:
        """Real time since boot, suspension included. Never goes back within one `boot_id`."""
        ...

    def monotonic_ns(self) -> int:
        """Awake time from an arbitrary start. Never goes back."""
        ...

    def boot_id(self) -> str:
        """Identifies this boot of the machine."""
        ...


class SystemClock:
    """The operating system's clocks (Linux)."""

    def __init__(self) -> None:
        self._boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()

    def wall_ns(self) -> int:
        """Reads CLOCK_REALTIME."""
        return time.time_ns()

    def boot_ns(self) -> int:
        """Reads CLOCK_BOOTTIME."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def monotonic_ns(self) -> int:
        """Reads CLOCK_MONOTONIC."""
        return time.monotonic_ns()

    def boot_id(self) -> str:
        """Reads the kernel's boot id once."""
        return self._boot_id

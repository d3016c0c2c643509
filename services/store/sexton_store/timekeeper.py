"""The store's looks at its clocks: mesh time and awake time, each counted at every look."""

from __future__ import annotations

from sexton_runtime.clock import Clock
from sexton_runtime.kv.status import ClockReading
from sexton_store.leases import AwakeClock
from sexton_store.mesh_clock import ClockRecord, MeshClock


class Timekeeper:
    """Mesh time and awake time on one machine's clocks."""

    def __init__(self, clock: Clock, record: ClockRecord | None) -> None:
        self._clock = clock
        self._awake = AwakeClock(clock.monotonic_ns())
        now = clock.boot_id(), clock.boot_ns(), clock.wall_ns()
        self.mesh = MeshClock.create(*now) if record is None else MeshClock.resume(record, *now)

    def mesh_ns(self) -> int:
        """Gives mesh time."""
        return self.mesh.now(self._clock.boot_ns(), self._clock.wall_ns())

    def awake_ns(self) -> int:
        """Gives the awake time since the store's start."""
        return self._awake.look(self._clock.monotonic_ns())

    def boot_ns(self) -> int:
        """Gives the time since the machine's boot."""
        return self._clock.boot_ns()

    def boot_id(self) -> str:
        """Identifies the machine's boot."""
        return self._clock.boot_id()

    def read(self) -> ClockReading:
        """Tells mesh time and how it stands to the wall clock."""
        return self.mesh.read(self._clock.boot_ns(), self._clock.wall_ns())

    def accept(self, dispute: int) -> None:
        """Settles a dispute (see `MeshClock.accept`)."""
        self.mesh.accept(dispute, self._clock.boot_ns(), self._clock.wall_ns())

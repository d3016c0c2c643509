"""Mesh time: the one shared time by which things are due. It never goes back.

It runs on CLOCK_BOOTTIME and looks at the wall clock only to be corrected:

=========  ===============================  =====================================================
state      the wall clock, against mesh     what mesh time does
=========  ===============================  =====================================================
STEADY     within 1 s                       slewed towards it, at 0.5 to 1.5 times its own speed
STEADY     more than 1 s and at most 24 h   follows it at once (a forward step)
           ahead
STEADY     more than 1 s behind, or more    goes on by itself: a dispute is opened -> DISPUTED
           than 24 h ahead
DISPUTED   within 1 s again                 slewed; the dispute has closed by itself -> STEADY
DISPUTED   jumps once more                  goes on by itself; the dispute gets a new number
DISPUTED   accepted, and ahead              follows it at once -> STEADY
DISPUTED   accepted, and behind             -> FOLLOWING
FOLLOWING  behind                           goes at half speed until it is reached -> STEADY
FOLLOWING  jumps back by more than 1 s      goes on by itself: nobody accepted *this* -> DISPUTED
=========  ===============================  =====================================================

A restart goes on from the cluster record (`MeshClock.resume`). Pure: all clocks are arguments.
"""

from __future__ import annotations

from typing import NamedTuple

from sexton.errors import StaleRevision
from sexton_runtime.kv.status import ClockReading, ClockState

SECOND_NS = 1_000_000_000
TOLERANCE_NS = SECOND_NS
"""Differences up to this are slewed; what moves by more between two looks has jumped."""
MAX_STEP_NS = 24 * 3_600 * SECOND_NS
"""Forward steps up to this are followed while the store runs."""
MAX_ABSENCE_NS = 400 * 24 * 3_600 * SECOND_NS
"""After another boot the wall clock is believed this far ahead: no machine is off for longer."""


class ClockRecord(NamedTuple):
    """Mesh time at one moment, as the cluster record keeps it (see ``cluster.proto``)."""

    boot_id: str
    boot_ns: int
    mesh_ns: int
    wall_offset_ns: int
    state: ClockState
    dispute: int


class MeshClock:
    """Mesh time between two looks at the machine's clocks.

    `changed` is set whenever something happened that must become durable before anybody rests on
    it: a step, a dispute opened, closed or accepted. Whoever persists the record resets it.
    """

    __slots__ = (
        "_boot_id",
        "_boot_ns",
        "_dispute",
        "_mesh_ns",
        "_offset_ns",
        "_state",
        "changed",
        "steps",
    )

    def __init__(self, record: ClockRecord) -> None:
        self._boot_id = record.boot_id
        self._boot_ns = record.boot_ns
        self._mesh_ns = record.mesh_ns
        self._offset_ns = record.wall_offset_ns
        self._state = record.state
        self._dispute = record.dispute
        self.changed = False
        self.steps = 0

    @classmethod
    def create(cls, boot_id: str, boot_ns: int, wall_ns: int) -> MeshClock:
        """Begins mesh time with the wall clock as it is."""
        return cls(ClockRecord(boot_id, boot_ns, wall_ns, 0, ClockState.STEADY, 0))

    @classmethod
    def resume(cls, record: ClockRecord, boot_id: str, boot_ns: int, wall_ns: int) -> MeshClock:
        """Goes on after a stop.

        Within one boot as if there had been no stop. After another boot from max(wall, recorded);
        from the recorded time alone where the wall clock lies more than 400 days ahead or a
        dispute was open: a restart settles none.
        """
        clock = cls(record)
        if record.boot_id == boot_id and boot_ns >= record.boot_ns:
            clock.now(boot_ns, wall_ns)
            return clock
        clock._boot_id, clock._boot_ns = boot_id, boot_ns
        ahead = wall_ns - record.mesh_ns
        if record.state is ClockState.DISPUTED:
            clock._open_dispute() if abs(ahead) > TOLERANCE_NS else clock._settle()
        elif 0 <= ahead <= MAX_ABSENCE_NS:
            clock._mesh_ns = wall_ns
            ahead = 0
            clock._settle()
        elif ahead > 0 or ahead < _lowest_offset_ns(record) - TOLERANCE_NS:
            clock._open_dispute()
        clock._offset_ns = ahead
        return clock

    @property
    def disputed(self) -> bool:
        """Tells whether a dispute is open."""
        return self._state is ClockState.DISPUTED

    @property
    def dispute(self) -> int:
        """Gives the number of the last dispute; 0: there was never one."""
        return self._dispute

    def now(self, boot_ns: int, wall_ns: int) -> int:
        """Looks at the clocks and gives mesh time, never less than before."""
        elapsed = max(0, boot_ns - self._boot_ns)
        self._boot_ns = max(boot_ns, self._boot_ns)
        steady = self._mesh_ns + elapsed
        offset = wall_ns - steady  # of the wall clock, had mesh time gone on by itself
        jump = offset - self._offset_ns
        if self._state is ClockState.FOLLOWING:
            slow = steady - elapsed // 2
            if jump < -TOLERANCE_NS:
                self._open_dispute()
            elif wall_ns >= slow:
                self._settle()
                steady = min(steady, wall_ns)
                offset = wall_ns - steady
            else:
                steady = slow
        elif self._state is ClockState.DISPUTED:
            if abs(offset) <= TOLERANCE_NS:
                self._settle()
            elif abs(jump) > TOLERANCE_NS:
                self._open_dispute()
        if self._state is ClockState.STEADY:
            steady = self._correct(steady, offset, elapsed)
        self._mesh_ns = steady
        self._offset_ns = wall_ns - steady
        return steady

    def read(self, boot_ns: int, wall_ns: int) -> ClockReading:
        """Looks at the clocks and tells how mesh time stands to the wall clock."""
        mesh_ns = self.now(boot_ns, wall_ns)
        return ClockReading(
            mesh_time_ns=mesh_ns, wall_time_ns=wall_ns, state=self._state, dispute=self._dispute
        )

    def accept(self, dispute: int, boot_ns: int, wall_ns: int) -> None:
        """Settles a dispute: the wall clock is right.

        Never sets mesh time back: a wall clock that lies behind is waited for at half speed.
        Accepting the last dispute once it is settled changes nothing. Raises `StaleRevision`
        where `dispute` is not the last one.
        """
        mesh_ns = self.now(boot_ns, wall_ns)
        if dispute != self._dispute:
            raise StaleRevision("dispute", dispute, self._dispute)
        if self._state is not ClockState.DISPUTED:
            return
        self.changed = True
        if wall_ns >= mesh_ns:
            self._state = ClockState.STEADY
            self._mesh_ns = wall_ns
            self._offset_ns = 0
        else:
            self._state = ClockState.FOLLOWING

    def record(self) -> ClockRecord:
        """Gives mesh time as of the last look, for the cluster record."""
        return ClockRecord(
            self._boot_id,
            self._boot_ns,
            self._mesh_ns,
            self._offset_ns,
            self._state,
            self._dispute,
        )

    def _correct(self, steady: int, offset: int, elapsed: int) -> int:
        if abs(offset) <= TOLERANCE_NS:
            most = elapsed // 2
            return steady + max(-most, min(most, offset))
        if 0 < offset <= MAX_STEP_NS:
            self.steps += 1
            self.changed = True
            return steady + offset
        self._open_dispute()
        return steady

    def _open_dispute(self) -> None:
        self._state = ClockState.DISPUTED
        self._dispute += 1
        self.changed = True

    def _settle(self) -> None:
        if self._state is not ClockState.STEADY:
            self._state = ClockState.STEADY
            self.changed = True


def _lowest_offset_ns(record: ClockRecord) -> int:
    """Gives how far behind the recorded time an undisputed wall clock may lie after a boot."""
    return min(0, record.wall_offset_ns) if record.state is ClockState.FOLLOWING else 0

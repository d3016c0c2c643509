"""An estimate of mesh time between the store's answers.

Every answer states the mesh time at which it was given: some moment between sending the question
and receiving the answer. Taken as the middle, the error is at most half the round trip. Between
answers the estimate runs on this process's boot clock, so that it stays right over a suspension.

What rests on it is when to wake up, and for how long a worker keeps what it is handed before its
time: `past_ns`, where mesh time is `steady`. Nothing else may rest on it that must never be early:
for that a transaction carries `not_before_ns`, which the store holds against its own clock.
"""

from __future__ import annotations

import asyncio

from sexton.errors import Unavailable
from sexton_runtime.clock import Clock

_AGEING_PER_NS = 0.01
"""By how much an estimate's error is taken to grow: crystals drift by far less, but while the
store slews mesh time it may run up to half as fast, and fresh answers must soon win."""

_MOST_AHEAD_NS = 1_000_000_000
"""So far ahead an earlier answer stands still until mesh time has come up with it. Further ahead it
was wrong: mesh time stood still, unseen, while the store was away."""

_STEADY_AFTER_NS = 5_000_000_000
"""So long after two answers contradicted each other mesh time is taken to go steadily again."""

_EARLIER_NS = 1_000_000_000
"""Answers are compared with one that is up to so much older."""

_LONGEST_SLEEP_S = 1.0
"""The boot clock is looked at this often: asyncio's clock stands still during a suspension."""


class MeshTime:
    """Estimates mesh time (ns since the epoch).

    It does not go back, but where the store proves it wrong by more than a second. Mesh time goes
    on without the store only in this process's mind: a store that is started on another boot while
    its wall clock is disputed goes on where it was.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ns = 0  # mesh time - boot time
        self._half_trip_ns = -1  # of the answer that is in use; -1: none yet
        self._observed_ns = 0  # boot time at which it was received
        self._told_ns = 0
        self._steady_at_ns = 0
        self._earlier = (0, 0, 0)  # offset, half trip and time of an answer of a moment ago
        self._moved = asyncio.Event()

    @property
    def known(self) -> bool:
        """Tells whether any answer has been seen."""
        return self._half_trip_ns >= 0

    @property
    def error_ns(self) -> int:
        """Bounds the estimate's error: half the round trip, growing by 1 % of its age.

        While the store slews mesh time (`ClockState`) the error may be larger.
        """
        self._require_known()
        return self._aged_error_ns(self._clock.boot_ns())

    def now_ns(self) -> int:
        """Estimates mesh time; less than told before only where that was wrong.

        Raises `Unavailable` before the first answer of the store.
        """
        self._require_known()
        estimate_ns = self._clock.boot_ns() + self._offset_ns
        if not estimate_ns < self._told_ns <= estimate_ns + _MOST_AHEAD_NS:
            self._told_ns = estimate_ns
        return self._told_ns

    @property
    def steady(self) -> bool:
        """Tells whether mesh time goes as fast as the boot clock, as far as answers have told.

        They do not while the store slews it: whoever measures mesh time by a clock of its own has
        to know.
        """
        return self._clock.boot_ns() >= self._steady_at_ns

    def past_ns(self) -> int:
        """Tells a time that has come, whichever way the answer in use took longer.

        While the store slews mesh time it may not have.
        """
        return self.now_ns() - self.error_ns

    def observe(self, mesh_time_ns: int, sent_ns: int, received_ns: int) -> None:
        """Takes an answer's mesh time, with the boot times of question and answer."""
        half_trip_ns = max(0, received_ns - sent_ns) // 2
        offset_ns = mesh_time_ns - sent_ns - half_trip_ns
        if self.known:
            error_ns = self._aged_error_ns(received_ns)
            apart_ns = abs(offset_ns - self._offset_ns)
            agrees = apart_ns <= error_ns + half_trip_ns
            self._compare(offset_ns, half_trip_ns, received_ns)
            if agrees and half_trip_ns > error_ns:
                return  # what we have is better; where they disagree, mesh time was moved
        self._take(offset_ns, half_trip_ns, received_ns)

    def observe_at_least(self, mesh_time_ns: int) -> None:
        """Takes a lower bound: a watch's message tells what time it was at some past moment."""
        now_ns = self._clock.boot_ns()
        if self.known and now_ns + self._offset_ns < mesh_time_ns:
            self._take(mesh_time_ns - now_ns, self._half_trip_ns, self._observed_ns)

    async def wait_until(self, mesh_time_ns: int) -> None:
        """Returns once the estimate has reached `mesh_time_ns`; follows it where it is moved."""
        while (left_ns := mesh_time_ns - self.now_ns()) > 0:
            self._moved.clear()
            # A little more than what is left: a timer may fire a clock's tick too soon.
            pause_s = min(left_ns / 1e9 + 1e-5, _LONGEST_SLEEP_S)
            try:
                async with asyncio.timeout(pause_s):
                    await self._moved.wait()
            except TimeoutError:
                continue

    def _compare(self, offset_ns: int, half_trip_ns: int, received_ns: int) -> None:
        """Compares an answer with one of a moment ago: a slew shows in no two that are close."""
        earlier_offset_ns, earlier_half_ns, earlier_ns = self._earlier
        passed_ns = received_ns - earlier_ns
        bound_ns = half_trip_ns + earlier_half_ns + int(passed_ns * _AGEING_PER_NS)
        moved = earlier_ns > 0 and abs(offset_ns - earlier_offset_ns) > bound_ns
        if moved:
            self._steady_at_ns = received_ns + _STEADY_AFTER_NS
        if moved or passed_ns >= _EARLIER_NS:
            self._earlier = (offset_ns, half_trip_ns, received_ns)

    def _take(self, offset_ns: int, half_trip_ns: int, received_ns: int) -> None:
        forward = offset_ns > self._offset_ns
        self._offset_ns = offset_ns
        self._half_trip_ns = half_trip_ns
        self._observed_ns = received_ns
        if forward:
            self._moved.set()

    def _aged_error_ns(self, now_ns: int) -> int:
        return self._half_trip_ns + int((now_ns - self._observed_ns) * _AGEING_PER_NS)

    def _require_known(self) -> None:
        if not self.known:
            raise Unavailable("mesh time is not known yet: the store has not answered so far")

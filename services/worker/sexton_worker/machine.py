"""The worker's machine: its session, what it holds, and what it has to say to the queue.

It has no I/O and no clock: `now` is this machine's boot time in nanoseconds. Whoever drives it
tells it what happened, carries out its `commands`, and sends what `take` gives.

- A token is known from its attempt's begin until its completion has been acknowledged. `hello`
  lists exactly those; what was not begun is forgotten with its stream, and sent again.
- An order may come before its time. It is kept until then, in a slot, and is not begun.
- Credits are free slots that have not been granted yet. A slot is free again with the completion,
  not with its acknowledgement.
- **A session** is trusted for 0.8 of its time after the last answered heartbeat was *sent*. Then
  nothing is begun any more, everything is ended, the stream is closed, and a new session is asked
  for once all of it is dead. What does not end by 0.9 of the time ends this process.
- What is dead to the mesh (revoked, or of a session that has ended) is killed and never reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from sexton_core.instants import MAX_INSTANT, MILLISECOND, SECOND, Duration, Instant
from sexton_worker.attempts import Asked, Attempt, completion_of
from sexton_worker.contract import Ended, Order, Ref
from sexton_worker.counters import Counters
from sexton_worker.messages import (
    Action,
    Command,
    Completion,
    Outgoing,
    Stop,
    Welcome,
)

SHORTEST_SESSION: Final = 1 * SECOND
"""A session's time below this is not believed: heartbeats could not keep it."""

_MESSAGE_BYTES: Final = 1024 * 1024
"""A message takes no further completion beyond this."""
_COMPLETION_BYTES: Final = 200
"""Of a completion beside its texts."""
_SILENT_HEARTBEATS: Final = 4
"""After so many intervals without an answer the owner is looked for elsewhere."""
_KILL_AGAIN: Final = 1 * SECOND
"""What was killed and has not ended is killed again, not more often than this."""
_LATE: Final = 1 * SECOND
"""After a sleep longer than the session: what has been killed is given this to be found dead."""
_MAX_UNANSWERED: Final = 1_000
"""Heartbeats whose sending times are kept."""


_make = tuple.__new__
"""Makes a named tuple of all its parts; its own constructor costs twice as much."""
# Members of an Enum take a function call each in CPython 3.11: those of every run are kept here.
_STOPPING: Final = Asked.STOPPING
_DEAD: Final = Asked.DEAD
_BEGIN: Final = Action.BEGIN


class Machine:
    """Everything that a worker knows and decides."""

    def __init__(
        self, *, slots: int, cancel_grace: Duration, counters: Counters | None = None
    ) -> None:
        self.slots = slots
        self.counters = counters or Counters()
        self.session = ""
        self.owner_token = 0
        self.welcomed = False
        self.draining = False
        self.hang_up = ""
        """Why the stream is to be closed now; empty: it is not."""
        self.fatal = ""
        """Why this process must end at once; empty: it need not."""
        self.commands: list[Command] = []
        self.end_at: Instant = MAX_INSTANT
        """From here on the session is not trusted any more."""
        self.exit_at: Instant = MAX_INSTANT
        """From here on nothing of a session that was lost may be alive."""
        self.attempts: dict[int, Attempt] = {}
        """By token: begun, and not acknowledged yet."""
        self._grace = cancel_grace
        self._session_time: Duration = 0
        self._heartbeat_every: Duration = SECOND
        self._executing = 0
        self._dying = 0
        """Attempts of lost sessions that have not ended: no new work before they have."""
        self._granted = 0
        self._kept: dict[int, Order] = {}
        """By token: what is not to begin yet."""
        self._begins: list[tuple[Instant, int]] = []
        """When what is kept begins, the first one first."""
        self._tells_drain = False
        self._heartbeat = 0
        self._heartbeat_at: Instant = MAX_INSTANT
        self._sent: dict[int, Instant] = {}
        self._hello_at: Instant = 0
        self._silent_at: Instant = MAX_INSTANT
        self._timers: list[tuple[Instant, int]] = []
        self._started: dict[int, Ref] = {}
        self._completions: dict[int, Completion] = {}
        self._returned: list[Ref] = []
        self._progress: dict[int, tuple[Ref, float, str]] = {}

    # What the driver asks

    @property
    def executing(self) -> int:
        """Tells how many attempts have begun and not ended."""
        return self._executing

    @property
    def may_connect(self) -> bool:
        """Tells whether a stream may be opened: not while something of a lost session lives."""
        return bool(self.session) or self._executing == 0

    @property
    def idle(self) -> bool:
        """Tells whether nothing is held and nothing is to be said."""
        return not (self.attempts or self._returned or self._kept)

    @property
    def dead_at(self) -> Instant:
        """Tells when whoever can ends this process if something in it outlives its session."""
        return self.end_at + self._session_time * 3 // 20

    @property
    def heartbeat_every(self) -> Duration:
        """Tells how often a heartbeat is sent."""
        return self._heartbeat_every

    def next_wake(self) -> Instant:
        """Tells when `wake` has something to look at."""
        timer = self._timers[0][0] if self._timers else MAX_INSTANT
        begins = self._begins[0][0] if self._begins else MAX_INSTANT
        return min(self._heartbeat_at, self._silent_at, self.end_at, self.exit_at, timer, begins)

    @property
    def may_wait(self) -> bool:
        """Tells whether nothing is to be said but what has begun: perhaps it ends at once."""
        return self.welcomed and not (
            self._completions or self._returned or self._tells_drain or self._room()
        )

    @property
    def wants_work(self) -> bool:
        """Tells whether so many slots are free, and not granted, that the queue should know."""
        return 2 * self._room() >= self.slots

    # The stream

    def hello(self, now: Instant) -> list[Ref]:
        """Begins a new stream: gives what is held. What had not begun is forgotten."""
        self.disconnected()
        self._hello_at = now
        return [attempt.order.ref for attempt in self.attempts.values()]

    def welcome(self, welcome: Welcome, now: Instant) -> None:
        """Takes the answer to the hello."""
        self.wake(now)
        if self.hang_up:
            return
        if welcome.owner_token < self.owner_token:
            self.counters.older_owners += 1
            self.hang_up = "an older owner answered"
            return
        if welcome.session_time < SHORTEST_SESSION or welcome.heartbeat <= 0:
            self.hang_up = "the owner named times that can't be kept"
            return
        if self._hello_at + self._trusted(welcome.session_time) <= now:
            self.hang_up = "the answer came too late to rely on"
            return
        self.owner_token = welcome.owner_token
        self._session_time = welcome.session_time
        self._heartbeat_every = welcome.heartbeat
        if welcome.session != self.session:
            self._bury(now + welcome.session_time // 10)
            self.session = welcome.session
            self.counters.sessions += 1
            self.end_at = 0
        for ref in welcome.revoked:
            self._revoke(ref)
        self.welcomed = True
        self._hear(now)
        self.end_at = max(self.end_at, self._hello_at + self._trusted(welcome.session_time))
        self._heartbeat, self._heartbeat_at = 0, now
        for attempt in self.attempts.values():
            if attempt.completion is not None:
                self._completions[attempt.order.ref.token] = attempt.completion

    def disconnected(self) -> None:
        """Takes that there is no stream any more; what it still had to say is said on the next."""
        self.welcomed = False
        self.hang_up = ""
        self._granted = 0
        self._heartbeat_at = self._silent_at = MAX_INSTANT
        self._sent.clear()
        self._started.clear()
        self._completions.clear()
        self._returned.clear()
        self._kept.clear()
        self._begins.clear()

    def take(self, now: Instant) -> Outgoing | None:
        """Gives what is to be said now; None: nothing."""
        self.wake(now)
        if not self.welcomed or self.hang_up:
            return None
        heartbeat = self._beat(now)
        room = self._room()
        closing = self.draining and self.idle and not self._completions
        reports = self._started or self._completions or self._returned
        if not (heartbeat or room or closing or reports or self._tells_drain):
            return None
        self._granted += room
        message = Outgoing(
            credits=room,
            heartbeat=heartbeat,
            started=tuple(self._started.values()),
            completions=self._take_completions(),
            returned=tuple(self._returned),
            progress=tuple(self._progress.values()),
            draining=self.draining,
            closing=closing,
        )
        self._tells_drain = False
        self._started.clear()
        self._returned.clear()
        self._progress.clear()
        return message

    @property
    def has_more(self) -> bool:
        """Tells whether `take` would give something at once, a due heartbeat apart."""
        return self.welcomed and bool(
            self._completions or self._started or self._returned or self._room()
        )

    # What the owner says

    def answered(self, heartbeat: int, now: Instant) -> bool:
        """Takes the answer to a heartbeat; tells whether it extends the session."""
        sent = self._sent.pop(heartbeat, None)
        if sent is None or not self.session:
            return False
        self._hear(now)
        for older in [number for number in self._sent if number < heartbeat]:
            del self._sent[older]
        end_at = sent + self._trusted(self._session_time)
        if end_at <= max(self.end_at, now):
            return False
        self.end_at = end_at
        return True

    def assigned(self, order: Order, now: Instant) -> None:
        """Takes an assignment and begins it, unless it must not be begun, or not yet."""
        ref = order.ref
        token = ref.token
        if self._granted:
            self._granted -= 1
        if not self.session or order.session != self.session or now >= self.end_at:
            self.counters.dropped += 1
            return
        if token in self.attempts or token in self._kept:
            self.counters.repeated += 1
            return
        if self.draining or self._dying or self._taken >= self.slots:
            self._give_back(ref)
        elif order.start_in > 0:
            self._kept[token] = order
            heappush(self._begins, (now + order.start_in, token))
        else:
            self._begin(order, now)

    def stop(self, stop: Stop, now: Instant) -> None:
        """Takes a request to end an attempt."""
        kept = self._kept.get(stop.ref.token)
        if kept is not None and kept.ref == stop.ref:
            self._give_back(self._kept.pop(stop.ref.token).ref)  # its run ends with that
            return
        attempt = self.attempts.get(stop.ref.token)
        if attempt is None or attempt.order.ref != stop.ref or attempt.completion is not None:
            return
        asked = Asked.TERMINATE if stop.terminate else Asked.CANCEL
        self._end(attempt, asked, stop.reason, now)

    def acknowledged(self, ref: Ref, *, accepted: bool) -> None:
        """Takes the answer to a completion, whatever it is: the attempt is forgotten."""
        attempt = self.attempts.get(ref.token)
        if attempt is None or attempt.completion is None or attempt.order.ref != ref:
            return
        del self.attempts[ref.token]
        self._completions.pop(ref.token, None)
        if accepted:
            self.counters.completed += 1
        else:
            self.counters.refused += 1

    # What the executor says

    def ended(self, token: int, ended: Ended, now: Instant) -> None:
        """Takes that an attempt has ended."""
        attempt = self.attempts.get(token)
        if attempt is None or attempt.completion is not None:
            return
        self._executing -= 1
        if self._progress:
            self._progress.pop(token, None)
        if attempt.asked is _STOPPING and not ended.succeeded:
            del self.attempts[token]
            self.counters.unreported += 1
            return
        if attempt.asked is _DEAD:
            del self.attempts[token]
            if attempt.order.session != self.session:
                self._dying -= 1
                if not self._dying:
                    self.exit_at = MAX_INSTANT
            return
        attempt.completion = completion_of(attempt, ended, now)
        if self.welcomed:
            self._completions[token] = attempt.completion
            self._started.pop(token, None)  # the completion says so too

    def progressed(self, token: int, fraction: float, message: str) -> None:
        """Takes what an attempt says about itself; it travels with the next message."""
        attempt = self.attempts.get(token)
        if attempt is not None and attempt.completion is None:
            self._progress[token] = (attempt.order.ref, fraction, message)

    # Time and the end

    def wake(self, now: Instant) -> None:
        """Does what is due."""
        if now >= self.end_at:
            self._lose_session(now)
        if now >= self._silent_at:
            self._silent_at = MAX_INSTANT
            self.hang_up = "the owner answers no heartbeats"
        if now >= self.exit_at and self._dying:
            self.fatal = f"attempts of a lost session did not end: {self._dying}"
        while self._begins and self._begins[0][0] <= now:
            order = self._kept.pop(heappop(self._begins)[1], None)
            if order is not None:
                self._begin(order, now)
        while self._timers and self._timers[0][0] <= now:
            _, token = heappop(self._timers)
            attempt = self.attempts.get(token)
            if attempt is None or attempt.completion is not None:
                continue
            if attempt.asked is Asked.NOTHING:
                self.counters.timed_out += 1
                self._end(attempt, Asked.TIMEOUT, "", now)
            else:
                self.commands.append(Command(Action.KILL, attempt.order))
                self._set_timer(now + max(self._grace, _KILL_AGAIN), token)

    def drain(self) -> None:
        """Takes nothing on any more, gives back what has not begun, and says so."""
        self.draining = self._tells_drain = True
        for order in self._kept.values():
            self._give_back(order.ref)
        self._kept.clear()

    def give_up(self, now: Instant) -> None:
        """Ends what still runs, unreported: the session is about to be closed."""
        for attempt in self.attempts.values():
            if attempt.completion is None:
                self._end(attempt, Asked.STOPPING, "", now)

    def abandon(self) -> None:
        """Kills what runs and forgets what is not acknowledged: the session is closed with it."""
        for token, attempt in list(self.attempts.items()):
            if attempt.completion is not None:
                del self.attempts[token]
            else:
                self._kill(attempt)
        self._completions.clear()

    # Inside

    def _trusted(self, session_time: Duration) -> Duration:
        return session_time * 4 // 5

    @property
    def _taken(self) -> int:
        """Tells how many slots are taken."""
        return self._executing + len(self._kept)

    def _room(self) -> int:
        if self.draining or self._dying:
            return 0
        return max(0, self.slots - self._taken - self._granted)

    def _begin(self, order: Order, now: Instant) -> None:
        ref = order.ref
        token = ref.token
        self.attempts[token] = Attempt(order, now)
        self._executing += 1
        self.counters.begun += 1
        self._started[token] = ref
        self._set_timer(now + max(order.timeout, MILLISECOND), token)
        self.commands.append(_make(Command, (_BEGIN, order)))

    def _give_back(self, ref: Ref) -> None:
        self.counters.returned += 1
        self._returned.append(ref)

    def _hear(self, now: Instant) -> None:
        self._silent_at = now + _SILENT_HEARTBEATS * self._heartbeat_every

    def _beat(self, now: Instant) -> int:
        if now < self._heartbeat_at or len(self._sent) >= _MAX_UNANSWERED:
            return 0
        self._heartbeat += 1
        self._heartbeat_at = now + self._heartbeat_every
        self._sent[self._heartbeat] = now
        return self._heartbeat

    def _take_completions(self) -> Sequence[Completion]:
        taken: list[Completion] = []
        budget = _MESSAGE_BYTES
        for completion in self._completions.values():
            taken.append(completion)
            ended = completion.ended
            budget -= _COMPLETION_BYTES + len(ended.result_json) + len(ended.output_tail)
            budget -= len(ended.message) + len(ended.detail)
            if budget <= 0:
                break
        if len(taken) == len(self._completions):
            self._completions.clear()
        else:
            for completion in taken:
                del self._completions[completion.ref.token]
        return taken

    def _lose_session(self, now: Instant) -> None:
        self.counters.sessions_lost += 1
        slept = now > self.end_at + self._session_time // 20
        self._bury(now + _LATE if slept else self.end_at + self._session_time // 10)
        self.session = ""
        self.end_at = MAX_INSTANT
        self.hang_up = "the session was not heard of for 0.8 of its time"

    def _bury(self, exit_at: Instant) -> None:
        """Kills everything of the session and forgets what had ended under it."""
        for token, attempt in list(self.attempts.items()):
            if attempt.completion is not None:
                self.counters.unreported += 1
                del self.attempts[token]
            elif attempt.order.session == self.session:
                self._dying += 1
                self._kill(attempt)
        if self._dying and self.exit_at == MAX_INSTANT:
            self.exit_at = exit_at
        self._completions.clear()
        self._started.clear()
        self._kept.clear()

    def _revoke(self, ref: Ref) -> None:
        attempt = self.attempts.get(ref.token)
        if attempt is None or attempt.asked is Asked.DEAD:
            return
        self.counters.revoked += 1
        if attempt.completion is not None:
            del self.attempts[ref.token]
        else:
            self._kill(attempt)

    def _kill(self, attempt: Attempt) -> None:
        attempt.asked = Asked.DEAD
        self.commands.append(Command(Action.KILL, attempt.order))

    def _end(self, attempt: Attempt, asked: Asked, reason: str, now: Instant) -> None:
        """Asks an attempt to end, or kills it; what was asked first is what is reported."""
        if attempt.asked is Asked.DEAD:
            return
        first = attempt.asked is Asked.NOTHING
        if first or (asked is Asked.TERMINATE and attempt.asked is not Asked.TIMEOUT):
            attempt.asked, attempt.reason = asked, reason
        if first or asked is Asked.TERMINATE:
            action = Action.KILL if asked is Asked.TERMINATE else Action.CANCEL
            self.commands.append(Command(action, attempt.order))
        if first:
            self._set_timer(now + self._grace, attempt.order.ref.token)

    def _set_timer(self, at: Instant, token: int) -> None:
        heappush(self._timers, (at, token))
        if len(self._timers) > 2 * len(self.attempts) + 1_000:
            self._timers = [timer for timer in self._timers if timer[1] in self.attempts]
            heapify(self._timers)

"""The vocabulary: every word that has a fixed set of values, with what each value means."""

from enum import StrEnum


class DstRule(StrEnum):
    """What becomes of a fixed wall time that the clock skips (gap) or shows twice (fold)."""

    # Gap: once, at the end of the gap. Fold: the first pass only. The default.
    VIXIE = "vixie"
    # Gap: none. Fold: both passes.
    LITERAL = "literal"
    # Gap: none. Fold: the first pass only.
    SKIP = "skip"
    # Gap: moved later by the length of the gap. Fold: the first pass only.
    SHIFT = "shift"


class DayRule(StrEnum):
    """How a cron expression joins its day of month with its day of week."""

    # Debian's cron: AND where either field starts with `*` or `?`, else OR. The default.
    DEBIAN = "debian"
    # A day must match both fields.
    AND = "and"
    # A day must match either field.
    OR = "or"


class WarningKind(StrEnum):
    """What a preview warns of. A warning refuses nothing."""

    # No instant is left. A job with such a schedule is refused when it is created.
    NEVER_FIRES = "never_fires"
    # Day of month and day of week are both given; the message tells how they are joined.
    BOTH_DAYS = "both_days"
    # A step leaves nothing but the first value: */90 minutes.
    IDLE_STEP = "idle_step"
    # The clock will skip a time of the schedule.
    CLOCK_GAP = "clock_gap"
    # The clock will show a time of the schedule twice.
    CLOCK_FOLD = "clock_fold"
    # Wall times without a zone: they are read as UTC.
    NO_ZONE = "no_zone"
    # The next nominal time comes before a run of the stated length has ended.
    TOO_OFTEN = "too_often"
    # The jitter is longer than the time to the next nominal time, and is cut off there.
    JITTER_CLIPPED = "jitter_clipped"
    # Many jobs are due in the same round minute.
    HERD = "herd"


class Decision(StrEnum):
    """What was concluded about one nominal time. Exactly one of these, for ever, except BUFFERED.

    The leader decides; what it decides is one commit with the cursor that passes the nominal time,
    so that a crash leaves either both or neither.
    """

    # A run was made for it: the run is the decision, its id a pure function of the nominal time.
    FIRED = "fired"
    # Nobody was in the way of time, but the job's own rules kept it from starting: another run
    # was live (overlap), or the job was paused and resumed with `next`.
    SKIPPED = "skipped"
    # Its time went by while nothing decided (crash, sleep, overload), or while it was buffered,
    # and the catch-up rules did not bring it back.
    MISSED = "missed"
    # A bound was reached: a full buffer, `max_live`, or a newer start that took its place.
    DROPPED = "dropped"
    # The schedule asks for it, a calendar takes it away.
    EXCLUDED = "excluded"
    # Durable and pending: starts when the runs before it have ended. The leader makes it FIRED,
    # MISSED or DROPPED; a crash leaves it as it is, and the next leader goes on with it.
    BUFFERED = "buffered"


class Reason(StrEnum):
    """Why a decision is what it is. Each belongs to one decision, named in its comment."""

    # FIRED within a second of its due time.
    ON_TIME = "on_time"
    # FIRED within `late_after` of its due time: a takeover, or a busy leader.
    LATE = "late"
    # FIRED by the catch-up policy, after an outage or a resume with `catch_up`.
    CAUGHT_UP = "caught_up"
    # FIRED by a resume with `now`: the newest nominal time of the pause.
    RESUMED = "resumed"
    # FIRED out of the buffer, when the runs before it had ended.
    WAITED = "waited"
    # FIRED for a person: a manual trigger. No nominal time of the schedule is decided by it.
    MANUAL = "manual"
    # FIRED for a backfill. No nominal time of the schedule is decided by it.
    BACKFILL = "backfill"

    # SKIPPED: another run of the job was live, and `overlap` says skip.
    OVERLAP = "overlap"
    # SKIPPED: the job was paused, and resumed without asking for what had been passed over.
    PAUSED = "paused"

    # MISSED: the catch-up policy is `none`.
    NO_CATCH_UP = "no_catch_up"
    # MISSED: the catch-up policy took another nominal time instead (a newer one under `latest`,
    # an older one under `earliest`), or more were undecided than `max` allows.
    PASSED_OVER = "passed_over"
    # MISSED: older than the catch-up window, when it was decided or when the buffer came to it.
    OUTSIDE_WINDOW = "outside_window"

    # DROPPED: the buffer was full.
    BUFFER_FULL = "buffer_full"
    # DROPPED: `max_live` runs of the job were live.
    MAX_LIVE = "max_live"
    # DROPPED: it waited for a run to be cancelled or terminated, and a newer start came along.
    SUPERSEDED = "superseded"
    # DROPPED: it was in the buffer when the job was deleted.
    DELETED = "deleted"

    # EXCLUDED: by one of the schedule's calendars.
    CALENDAR = "calendar"

    # BUFFERED: waits until the runs before it have ended.
    WAITS = "waits"


class Overlap(StrEnum):
    """What a start does while another run of the same job is live. As Temporal defines them."""

    # It is skipped. The default.
    SKIP = "skip"
    # It waits; one at most, a second one is dropped.
    BUFFER_ONE = "buffer_one"
    # It waits in line behind the others, up to the job's buffer limit.
    BUFFER_ALL = "buffer_all"
    # It asks the live runs to cancel, and starts when they have ended.
    CANCEL_OTHER = "cancel_other"
    # It has the live runs terminated, and starts when they have ended.
    TERMINATE_OTHER = "terminate_other"
    # It starts beside them, up to `max_live`.
    ALLOW_ALL = "allow_all"


class Ask(StrEnum):
    """What a buffered start asks of the runs that it waits for."""

    # Nothing: they end by themselves.
    NOTHING = "nothing"
    # A cancel request, repeated by the leader until they have ended.
    CANCEL = "cancel"
    # A terminate request, repeated likewise.
    TERMINATE = "terminate"


class CatchUpPolicy(StrEnum):
    """Which nominal times start after all, that were not decided within `late_after`."""

    # None of them.
    NONE = "none"
    # The newest of all undecided ones; none of them where that one is merely late. The default.
    LATEST = "latest"
    # The oldest one inside the window.
    EARLIEST = "earliest"
    # All inside the window, up to `max`, the newest; in order of time.
    ALL = "all"


class ResumeMode(StrEnum):
    """What becomes of the nominal times that a pause passed over."""

    # They are skipped; the next one is the next in time. The default.
    NEXT = "next"
    # The newest of them starts at once, the others are skipped.
    NOW = "now"
    # They are caught up, as after an outage.
    CATCH_UP = "catch_up"


class BackfillOrder(StrEnum):
    """The order in which a backfill starts its runs."""

    OLDEST_FIRST = "oldest_first"
    NEWEST_FIRST = "newest_first"


class Origin(StrEnum):
    """What asked for a run; the first letter of its id says the same."""

    # A nominal time of the job's schedule: `t...`.
    SCHEDULE = "schedule"
    # A person or program, by a trigger or a retry by hand: `m...`.
    MANUAL = "manual"
    # A backfill: `b...`.
    BACKFILL = "backfill"


class Delivery(StrEnum):
    """What a lost worker means for the run that it had."""

    # It is delivered again until it ends: its effect may happen more than once. The default.
    AT_LEAST_ONCE = "at_least_once"
    # At most one attempt ever starts: a lost one ends the run as LOST, its effect unknown.
    AT_MOST_ONCE = "at_most_once"


class RunState(StrEnum):
    """Where a run is. Words in -ING can be left; a participle is for ever.

    The handle in `active/` exists exactly as long as the state can be left.
    """

    # In line, from the coordinator's commit on, perhaps with a not-before in the future.
    # The queue's owner assigns it, or ends it as EXPIRED. A crash leaves it in line.
    WAITING = "waiting"
    # In line again after a failed attempt, until its backoff is over. The owner assigns it.
    # A crash leaves it in line: the not-before is part of the commit that failed the attempt.
    RETRYING = "retrying"
    # Committed as assigned, then sent; the token is this commit's revision. The worker completes it
    # or gives it back; the owner takes it away when the worker's session has ended. A crash of the
    # owner leaves it with the worker, which reports to the next owner.
    RUNNING = "running"
    # RUNNING with a cancel request. Left as RUNNING is, but never into the line again.
    CANCELLING = "cancelling"
    # RUNNING with the order to be killed. Left when its death is reported or the session has ended.
    TERMINATING = "terminating"

    # An attempt reported success, with the live token.
    SUCCEEDED = "succeeded"
    # Attempts or deliveries are used up, or the failure is not to be retried. A dead letter.
    FAILED = "failed"
    # The last attempt ran into its timeout, or the run into its deadline. A dead letter.
    TIMED_OUT = "timed_out"
    # Ended by a cancel request, before or while it ran.
    CANCELLED = "cancelled"
    # Killed by order; where it ran, it is dead or its worker's session is.
    TERMINATED = "terminated"
    # `start_within` went by before any attempt started.
    EXPIRED = "expired"
    # `at_most_once`, and the worker was lost: the effect is unknown. A dead letter.
    LOST = "lost"


class RunEvent(StrEnum):
    """What moves a run. Who causes it stands in the comment."""

    # The owner commits the run as RUNNING for a worker's session.
    ASSIGN = "assign"
    # The worker says that the attempt has begun.
    START = "start"
    # The worker completes: success, failure, its timeout, or stopped on request.
    SUCCEED = "succeed"
    FAIL = "fail"
    # A failure that no repetition mends, by the worker's word: attempts that are left are not used.
    FAIL_FOR_GOOD = "fail_for_good"
    TIME_OUT = "time_out"
    STOP = "stop"
    # The worker returns it unbegun (drain, full).
    GIVE_BACK = "give_back"
    # The owner saw the worker's session end.
    LOSE = "lose"
    # A person, a program or an overlap policy asks for its end.
    CANCEL = "cancel"
    TERMINATE = "terminate"
    # The owner's timers: `start_within`, and the run's deadline.
    EXPIRE = "expire"
    DEADLINE = "deadline"

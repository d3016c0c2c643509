"""Everything that the pure core raises on purpose.

CoreError
├── FieldError                 (also a ValueError) a field says what it must not
│   ├── ScheduleError          ... of a schedule
│   │   ├── UnknownZoneError   the time zone is not in the IANA data
│   │   └── NeverFiresError    the schedule is well formed and has no instant at all
│   ├── PolicyError            ... of a job's policies, or of a request to change a job
│   └── IdError                ... that should hold an id
└── TransitionError            what is asked for can't happen in the present state
    ├── IllegalTransition      ... of a run
    └── IllegalChange          ... of a job
"""

_SHOWN_CHARACTERS = 80
"""As much of a refused value as a message repeats: enough to recognise it, too little to flood."""


class CoreError(Exception):
    """Something in the domain was refused."""


class FieldError(CoreError, ValueError):
    """A field has a value that can't be accepted.

    The message names the field, the value and what would be right.
    """

    def __init__(self, field: str, value: object, expected: str) -> None:
        self.field = field
        self.value = value
        self.expected = expected
        super().__init__(f"{field}: {_shown(value)} can't be used; expected {expected}")


class ScheduleError(FieldError):
    """A field of a schedule has a value that can't be accepted."""


class UnknownZoneError(ScheduleError):
    """The time zone is not a name in the IANA data that is in force."""


class NeverFiresError(ScheduleError):
    """The schedule can be read, but no instant satisfies it."""


class PolicyError(FieldError):
    """A policy of a job, or a request to change a job, has a value that can't be accepted."""


class IdError(FieldError):
    """A text is not the id that it should be."""


class TransitionError(CoreError):
    """What is asked for can't happen in the present state.

    The message names the current state and the allowed ones.
    """

    def __init__(self, subject: str, asked: str, current: str, allowed: str) -> None:
        self.subject = subject
        self.asked = asked
        self.current = current
        self.allowed = allowed
        super().__init__(f"{subject} is {current}: {asked} is possible only when {allowed}")


class IllegalTransition(TransitionError):  # noqa: N818
    """A run can't take this event in its state."""


class IllegalChange(TransitionError):  # noqa: N818
    """A job can't be changed in this way in its state."""


def _shown(value: object) -> str:
    text = "nothing" if value is None else repr(value)
    if len(text) <= _SHOWN_CHARACTERS:
        return text
    size = len(value if isinstance(value, str) else text)  # without the quotes
    return f"{text[:_SHOWN_CHARACTERS]}... ({size} characters)"

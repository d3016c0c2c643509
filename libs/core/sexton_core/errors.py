"""Everything that the pure core raises on purpose.

CoreError
└── ScheduleError          (also a ValueError) a field of a schedule says what it must not
    ├── UnknownZoneError   the time zone is not in the IANA data
    └── NeverFiresError    the schedule is well formed and has no instant at all
"""

_SHOWN_CHARACTERS = 80
"""As much of a refused value as a message repeats: enough to recognise it, too little to flood."""


class CoreError(Exception):
    """Something in the domain was refused."""


class ScheduleError(CoreError, ValueError):
    """A field of a schedule has a value that can't be accepted.

    The message names the field, the value and what would be right.
    """

    def __init__(self, field: str, value: object, expected: str) -> None:
        self.field = field
        self.value = value
        self.expected = expected
        super().__init__(f"{field}: {_shown(value)} can't be used; expected {expected}")


class UnknownZoneError(ScheduleError):
    """The time zone is not a name in the IANA data that is in force."""


class NeverFiresError(ScheduleError):
    """The schedule can be read, but no instant satisfies it."""


def _shown(value: object) -> str:
    text = repr(value)
    if len(text) <= _SHOWN_CHARACTERS:
        return text
    return f"{text[:_SHOWN_CHARACTERS]}... ({len(text)} characters)"

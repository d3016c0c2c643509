"""Ranges of the fields that people write, refused with the field, the value and what is right."""

import math

from sexton_core.errors import PolicyError
from sexton_core.instants import Duration, format_duration


def check_range(field: str, value: int, lowest: int, highest: int) -> None:
    """Refuses what is not a whole number from `lowest` to `highest`.

    Raises:
        PolicyError: it is not.

    """
    if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
        raise PolicyError(field, value, f"a whole number from {lowest:,} to {highest:,}")


def check_number(field: str, value: float, lowest: float, highest: float) -> None:
    """Refuses what is not a finite number from `lowest` to `highest`.

    Raises:
        PolicyError: it is not.

    """
    if isinstance(value, bool) or not math.isfinite(value) or not lowest <= value <= highest:
        raise PolicyError(field, value, f"a number from {lowest:g} to {highest:g}")


def check_duration(field: str, value_ns: Duration, shortest: Duration, longest: Duration) -> None:
    """Refuses what is not a duration from `shortest` to `longest`.

    Raises:
        PolicyError: it is not; the message shows durations as people write them.

    """
    if (
        not isinstance(value_ns, int)
        or isinstance(value_ns, bool)
        or not shortest <= value_ns <= longest
    ):
        shown = format_duration(value_ns) if type(value_ns) is int else value_ns
        raise PolicyError(
            field, shown, f"from {format_duration(shortest)} to {format_duration(longest)}"
        )

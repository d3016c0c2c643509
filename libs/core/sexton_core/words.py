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

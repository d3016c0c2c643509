"""Jitter: a delay that is different for every run and the same whenever it is asked for."""

from hashlib import blake2b
from typing import Final

from sexton_core.instants import DAY, Duration, Instant

MAX_JITTER: Final[Duration] = 366 * DAY
"""More than a year is a mistake."""


def delay_of(
    uid: str, nominal: Instant, jitter_ns: Duration, following: Instant | None
) -> Duration:
    """Returns by how much the run of `nominal` is due after it.

    It is taken from a strong hash of the job and the time, evenly from [0, jitter_ns], and clipped
    so that the run is due before `following`, the job's next nominal time: runs never overtake
    each other. A later process, another replica and a preview all find the same delay.

    Args:
        uid: of the job's incarnation.
        nominal: the nominal time.
        jitter_ns: the most; 0 for none.
        following: the next nominal time; None where there is none.
    """
    assert jitter_ns >= 0, "jitter only delays"
    choices = jitter_ns + 1
    if following is not None:
        choices = min(choices, following - nominal)
    if choices <= 1:
        return 0
    digest = blake2b(f"{uid}/{nominal}".encode(), digest_size=16, person=b"sexton-jitter").digest()
    return int.from_bytes(digest) % choices

"""Which failures look alike: so that a hundred dead letters of one cause are one line."""

import re
from hashlib import blake2b
from typing import Final

from sexton_core.ids import base32

_LONGEST: Final = 500
"""Characters of a message that count: what comes after is detail."""

_VARYING: Final = re.compile(
    r"""
    [0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}   # a UUID
    | \b\w*\d\w*\b                                                # whatever holds a digit
    """,
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)


def fingerprint(namespace: str, job: str, kind: str, message: str) -> str:
    """Returns a mark that is equal for failures of a job that look alike.

    That is: of the same kind, with the same message where numbers, and words with digits in them
    (ids, times, addresses), count as equal.
    """
    alike = " ".join(_VARYING.sub("#", message[:_LONGEST]).split())
    text = "\0".join((namespace, job, kind, alike))
    return base32(blake2b(text.encode("utf-8", "replace"), digest_size=10).digest())

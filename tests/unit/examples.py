"""How many examples hypothesis draws: few at each change, many in CI.

Examples are drawn anew in each run, so the few of many runs add up.
"""

from __future__ import annotations

import os
from typing import Final

_FACTOR: Final = int(os.environ.get("SEXTON_EXAMPLES", "1"))


def examples(few: int) -> int:
    """Gives how many are drawn where `few` are without `SEXTON_EXAMPLES`, a factor."""
    return few * _FACTOR

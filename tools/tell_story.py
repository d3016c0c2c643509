"""Tells the story anew, and puts what it tells into docs/story.md.

To be run when a change of the services changes what the demonstrations print; look at the
difference before it is committed.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "story.md"
BLOCK = re.compile(r"^```console\n\$ sexton (demo.*?)\n.*?^```$", re.MULTILINE | re.DOTALL)


def told(found: re.Match[str]) -> str:
    """Gives a block with what its command prints now."""
    command = [sys.executable, "-m", "sexton_cli.main", *found[1].split()]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603
    return f"```console\n$ sexton {found[1]}\n{printed}```"


if __name__ == "__main__":
    PAGE.write_text(BLOCK.sub(told, PAGE.read_text()))

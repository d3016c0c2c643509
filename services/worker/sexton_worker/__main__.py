"""`python -m sexton_worker --queue HOST:PORT`: runs a worker until it is told to stop.

SIGTERM and SIGINT drain it; a second one ends it at once. Exit codes: 0 stopped as asked; 1 could
not start; 2 wrong flags or configuration; 75 stopped itself: start it again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from sexton_worker.mark import mark_process


def main(arguments: Sequence[str] | None = None, *, program: str = "sexton_worker") -> int:
    """Runs a worker with a command line's flags; gives the exit code."""
    import sexton_runtime.rpc.polling  # noqa: F401, PLC0415 - before anything imports gRPC
    from sexton_worker.process import run  # noqa: PLC0415 - a process that is marked starts anew

    return run(arguments, program=program)


if __name__ == "__main__":
    mark_process()
    sys.exit(main())

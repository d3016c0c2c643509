"""`python leash.py PARENT MODULE ...`: becomes `python -m MODULE ...`, bound to its parent's life.

The kernel kills the process when the one that started it ends, however that comes about (`kill -9`
included). The request outlives `exec`, so the program itself needs no part in it and shows in `ps`
under its own name. A pipe that children watch would need their help, and a child that hangs or is
suspended gives none.

It runs with `-I -S` and imports little, because every start of a process goes through it.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Asks to be killed with the parent, makes sure that there still is one, and goes on."""
    parent, *arguments = sys.argv[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    # It may have ended before it was asked; nobody would tell.
    if os.getppid() != int(parent):
        sys.exit("the process that started this one has ended")
    os.execv(sys.executable, [sys.executable, "-m", *arguments])  # noqa: S606 - on purpose


if __name__ == "__main__":
    main()

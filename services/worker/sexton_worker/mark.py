"""The mark by which processes are known that a worker has started, whoever their parent is now."""

from __future__ import annotations

import os
import secrets
import sys

MARK = "SEXTON_WORKER_MARK"
"""Variable that a worker, and what it starts by itself, carries in its environment."""


def mark_process() -> str:
    """Gives the mark of this process, as it stands in the environment: `NAME=VALUE`.

    The kernel shows the environment with which a program was started, and a forked process has that
    of its parent; so a process without a mark starts itself again, as the same process, with one.
    """
    mark = os.environ.get(MARK, "")
    if not mark.endswith(f":{os.getpid()}"):
        os.environ[MARK] = f"{secrets.token_hex(16)}:{os.getpid()}"
        # The handlers of gRPC would run in whatever a task forks, and end it now and then.
        os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - itself
    return f"{MARK}={mark}"

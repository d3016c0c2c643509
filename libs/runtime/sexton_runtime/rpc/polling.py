"""How gRPC waits for the network. Imported by a service before anything that imports gRPC.

By itself gRPC reads in threads of its own (its "event engine"), which hand on what has come to the
thread that waits for the event loop. Without them that thread reads by itself: a message wakes one
thread fewer at each end, a tenth of what a run on an idle mesh takes and costs. Under load it makes
no difference.
"""

from __future__ import annotations

import os
from typing import Final

VARIABLE: Final = "GRPC_EXPERIMENTS"
"""Where it is set from outside, that stands."""

READ_WHERE_WAITED: Final = "-event_engine_client,-event_engine_listener"


def import_grpc() -> None:
    """Imports gRPC, which looks at the variable then; what this process starts is not told."""
    if VARIABLE in os.environ:
        return
    os.environ[VARIABLE] = READ_WHERE_WAITED
    try:
        import grpc  # noqa: F401, PLC0415 - on purpose
    finally:
        del os.environ[VARIABLE]


import_grpc()

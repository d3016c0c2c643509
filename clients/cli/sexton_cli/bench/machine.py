"""What figures were measured on: they mean little without."""

from __future__ import annotations

import os
import platform

from sexton_runtime.version import software_version


def here() -> str:
    """Names the versions and the machine, in a line."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"sexton {software_version()}, {python} ({platform.python_compiler()}), "
        f"{usable} cores {platform.machine()}, {platform.system()} {platform.release()}"
    )

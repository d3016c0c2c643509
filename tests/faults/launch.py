"""`python -m faults.launch FILE MODULE ...`: runs a module whose wall clock a test can shift.

FILE holds the shift in nanoseconds, eight bytes, native; it is looked at with every reading, so a
clock can jump while the module runs. Shifted is `time.time_ns`, by which services read the wall
clock (`sexton_runtime.clock`). Other clocks, programs that it starts and `time.time` are left
alone: gRPC compares that one with deadlines that its core, which can't be shifted, has set.
"""

from __future__ import annotations

import mmap
import runpy
import struct
import sys
import time
from pathlib import Path
from typing import Final

_SHIFT: Final = struct.Struct("=q")


def set_shift(path: Path, offset_s: float) -> None:
    """Shifts the clock of whoever looks at this file."""
    with path.open("r+b" if path.exists() else "w+b") as file:
        # In one piece, as it is read.
        file.write(_SHIFT.pack(int(offset_s * 1e9)))


def shift_wall_clock(path: Path) -> None:
    """Makes this process's wall clock follow the file."""
    with path.open("rb") as file:
        shift = memoryview(mmap.mmap(file.fileno(), _SHIFT.size, prot=mmap.PROT_READ)).cast("q")
    read_ns = time.time_ns

    def time_ns() -> int:
        return read_ns() + shift[0]

    time.time_ns = time_ns


def main() -> None:
    """Becomes the module."""
    path, module, *arguments = sys.argv[1:]
    shift_wall_clock(Path(path))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()

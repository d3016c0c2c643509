"""What tracing costs: the same throughput with all runs traced, with none, and without any set up.

The three take turns, so that the ratios are of one sitting.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sexton_cli.bench import throughput
from sexton_cli.bench.figures import Figures, median_of, ratio
from sexton_cli.bench.mesh import Shape

_SHAPES: Final = {
    "off": Shape(),
    "none_sampled": Shape(console=True, settings={"SEXTON_COORDINATOR_TRACE_SAMPLE": "0"}),
    "all_sampled": Shape(console=True),
}


async def measure(jobs: int, seconds: int, folder: Path | None, repeat: int) -> Figures:
    """Measures all three so many times; ratios are to the mesh without telemetry.

    The processor time of the mesh is that of its services without the console, which receives
    the traces and usually is another machine's.
    """
    found: dict[str, list[Figures]] = {name: [] for name in _SHAPES}
    for _ in range(repeat):
        for name, shape in _SHAPES.items():
            found[name].append(await throughput.measure(jobs, seconds, folder, shape))
    rows = []
    for name, runs in found.items():
        middle = median_of(runs)
        cpu = middle["cpu_us_per_run"]
        rows.append(
            {
                "tracing": name,
                "runs_per_s": middle["runs_per_s"],
                "mesh_cpu_us_per_run": cpu["all"] - cpu.get("console", 0),
                "console_cpu_us_per_run": cpu.get("console", 0),
            }
        )
    off = rows[0]
    for row in rows:
        row["runs_per_s_to_off"] = ratio(row["runs_per_s"], off["runs_per_s"])
        row["mesh_cpu_to_off"] = ratio(row["mesh_cpu_us_per_run"], off["mesh_cpu_us_per_run"])
    return {"repeated": repeat, "rows": rows}

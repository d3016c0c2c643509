"""What can be done to every world that has a store and members."""

from __future__ import annotations

from typing import Final

from sexton_sim.faults import clocks, disk, links, processes
from sexton_sim.faults.injector import Deeds

DEEDS: Final[Deeds] = {**processes.DEEDS, **links.DEEDS, **disk.DEEDS, **clocks.DEEDS}

"""What is done to a simulated mesh: as data (`plan`), and how (`injector`, and the deeds)."""

from sexton_sim.faults.injector import Deed, Deeds, Injector
from sexton_sim.faults.plan import NO_FAULTS, Fault, FaultPlan, draw_schedule, kinds_of, swarm
from sexton_sim.faults.traps import Traps

__all__ = [
    "NO_FAULTS",
    "Deed",
    "Deeds",
    "Fault",
    "FaultPlan",
    "Injector",
    "Traps",
    "draw_schedule",
    "kinds_of",
    "swarm",
]

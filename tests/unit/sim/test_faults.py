"""Faults as data: what is drawn, what is counted, what is found to be enough."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import replace

from sexton_sim.faults import NO_FAULTS, FaultPlan, Traps, draw_schedule, kinds_of, swarm
from sexton_sim.faults.everywhere import DEEDS
from sexton_sim.mesh import faults as mesh
from sexton_sim.shrink import shrink


def test_there_is_a_deed_for_each_kind_of_fault_and_no_other() -> None:
    assert list(DEEDS) == list(dict.fromkeys(DEEDS))
    assert set(DEEDS) == set(kinds_of(FaultPlan))
    assert set(mesh.DEEDS) == set(kinds_of(mesh.MeshFaults))


def test_a_schedule_is_drawn_from_the_seed_alone() -> None:
    plan = FaultPlan(mean_pause_s=0.5)
    first = list(draw_schedule(plan, 7, 60.0))
    assert list(draw_schedule(plan, 7, 60.0)) == first
    assert list(draw_schedule(plan, 8, 60.0)) != first
    assert [fault.number for fault in first] == list(range(1, len(first) + 1))
    assert 58.0 < sum(fault.after_s for fault in first) < 60.0


def test_faults_that_come_alone_leave_the_mesh_its_time_between_them() -> None:
    first, *others = draw_schedule(FaultPlan(mean_pause_s=1.0, calm_s=14.0), 7, 300.0)
    assert first.after_s < 14.0
    assert len(others) > 10
    assert all(fault.after_s > 14.0 for fault in others)


def test_a_longer_schedule_begins_as_a_shorter_one() -> None:
    plan = FaultPlan(mean_pause_s=0.5)
    shorter = list(draw_schedule(plan, 7, 30.0))
    assert list(draw_schedule(plan, 7, 60.0))[: len(shorter)] == shorter


def test_kinds_of_no_weight_never_come() -> None:
    none = dict.fromkeys(kinds_of(FaultPlan), 0.0)
    plan = replace(FaultPlan(mean_pause_s=0.5), **{**none, "reset": 1.0})
    assert {fault.kind for fault in draw_schedule(plan, 1, 60.0)} == {"reset"}
    assert list(draw_schedule(NO_FAULTS, 1, 60.0)) == []


def test_a_drawn_plan_has_at_least_one_kind() -> None:
    for seed in range(200):
        plan = swarm(random.Random(seed), mesh.MeshFaults)
        assert any(getattr(plan, kind) for kind in kinds_of(plan))


def test_a_trap_springs_once_and_knows_who_passed() -> None:
    traps, struck = Traps(), []
    traps.set("here", struck.append)
    assert not traps.passed("there", "nobody")
    assert traps.passed("here", "worker-1")
    assert not traps.passed("here", "worker-2")
    assert struck == ["worker-1"]


def test_shrinking_keeps_what_is_needed_together() -> None:
    def rules_of(kept: Collection[int]) -> list[str]:
        return ["S8"] if {3, 17} <= set(kept) else ["L1"] if 5 in kept else []

    assert shrink(rules_of, set(range(1, 30))) in ({3, 17}, {5})
    assert shrink(lambda kept: ["S8"] if {3, 17} <= set(kept) else [], set(range(1, 30))) == {3, 17}
    assert shrink(lambda _kept: [], {1, 2}) == {1, 2}

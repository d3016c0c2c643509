"""Faults in what is done before a start is due: written, waited for, handed out, kept."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from simulation.mesh.mutant_plans import SMALL, Mutant, often

from sexton.v1 import job_pb2
from sexton_coordinator.api import changes, editing
from sexton_coordinator.api.changes import Changer
from sexton_coordinator.leader import machine, steps
from sexton_core.policy import ahead
from sexton_core.runs import machine as run_machine
from sexton_core.words import RunEvent
from sexton_sim.mesh.executor import Behaviour
from sexton_worker import pull

_SOON = 2_000_000_000


def frequent(rng: random.Random) -> job_pb2.JobSpec:
    """A job whose next start is nearly always near, and whose policy may end the one before."""
    return job_pb2.JobSpec(
        schedules=[job_pb2.Schedule(every=job_pb2.Every(period=Duration(seconds=2)))],
        task=job_pb2.Task(shell=job_pb2.ShellTask(command=Behaviour(lasts_s=0.1).command())),
        overlap=rng.choice((job_pb2.OVERLAP_POLICY_ALLOW_ALL, job_pb2.OVERLAP_POLICY_CANCEL_OTHER)),
    )


def _changes_wait_for_nothing(patch: pytest.MonkeyPatch) -> None:
    async def read(_self: Changer, wanted: Any, read: Any, _handles: Any) -> list[Any]:
        return list(await read(wanted))

    patch.setattr(Changer, "between_starts", read)
    for module in (changes, editing):
        patch.setattr(module, "after_starts", lambda txn, _not_before, _now: txn)


def _written_too_early(patch: pytest.MonkeyPatch) -> None:
    for module in (ahead, machine, steps):
        patch.setattr(module, "AHEAD_NS", _SOON)


def _written_whatever_it_ends(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ahead, "ASKS", {})


def _what_is_kept_begins_at_once(patch: pytest.MonkeyPatch) -> None:
    right = pull.wire.order_from_wire
    patch.setattr(pull.wire, "order_from_wire", lambda said: right(said)._replace(start_in=0))


def _handed_out_too_early(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(run_machine, "HAND_AHEAD_NS", _SOON)


def _what_comes_back_is_due(patch: pytest.MonkeyPatch) -> None:
    right = run_machine._next_attempt

    def at_once(run: Any, event: Any, now: int, retry_after: int) -> int:
        if event in (RunEvent.LOSE, RunEvent.GIVE_BACK):
            return now
        return right(run, event, now, retry_after)

    patch.setattr(run_machine, "_next_attempt", at_once)


_FREQUENT = replace(SMALL, spec=frequent)

AHEAD = (
    Mutant(
        name="a change does not wait for a start that is written",
        patch=_changes_wait_for_nothing,
        rules=frozenset({"S7"}),
        plan=_FREQUENT,
    ),
    Mutant(
        name="a start is written long before it is due",
        patch=_written_too_early,
        rules=frozenset({"S7"}),
    ),
    Mutant(
        name="a start that ends what is live is written before it is due",
        patch=_written_whatever_it_ends,
        rules=frozenset({"S7"}),
        plan=_FREQUENT,
    ),
    Mutant(
        name="a worker begins at once what it is to keep",
        patch=_what_is_kept_begins_at_once,
        rules=frozenset({"S17"}),
    ),
    Mutant(
        name="a run is handed out long before its time",
        patch=_handed_out_too_early,
        rules=frozenset({"S17"}),
    ),
    Mutant(
        name="a run that comes back unbegun is due",
        patch=_what_comes_back_is_due,
        rules=frozenset({"S17"}),
        plan=replace(_FREQUENT, duration_s=20, faults=often(stop_member=1.0, rolling_restart=1.0)),
        seeds=10,
    ),
)

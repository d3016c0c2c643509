"""A load that never stops, and the judgement of what its jobs wrote."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from functools import partial

from integration.mesh.mesh_process import Line, MeshProcess, second, wait_for

from sexton import CatchUp, CatchUpPolicy, Every, JobSpec, Overlap

JOBS = tuple(f"every-second-{policy.value}" for policy in CatchUpPolicy)


class SteadyLoad:
    """One job per catch-up policy, each asked for once a second."""

    def __init__(self, mesh: MeshProcess) -> None:
        self._mesh = mesh

    def start(self) -> SteadyLoad:
        """Creates the jobs and waits until each has run."""
        for job, policy in zip(JOBS, CatchUpPolicy, strict=True):
            spec = JobSpec(
                task=self._mesh.witness(job),
                schedules=(Every(timedelta(seconds=1)),),
                overlap=Overlap.ALLOW_ALL,
                catch_up=CatchUp(policy=policy),
            )
            self._mesh.create(job, spec)
        self.go_on()
        return self

    def go_on(self) -> None:
        """Waits until each job has run for a further nominal time."""
        for job in JOBS:
            newest = max((second(line.nominal) for line in self._mesh.lines(job)), default=0)

            def further(job: str = job, newest: int = newest) -> bool:
                ended = [line for line in self._mesh.lines(job) if line.event == "end"]
                return any(second(line.nominal) > newest for line in ended)

            wait_for(further, f"{job} has run once more")

    def check(self) -> None:
        """Judges each job: no nominal time is missing, none has a second run."""
        self.go_on()
        for job in JOBS:
            check_lines(wait_for(partial(self._without_gap, job), f"{job} has no gap"))

    def _without_gap(self, job: str) -> list[Line]:
        """Gives what a job has written; nothing while a later run was quicker than one before."""
        lines = self._mesh.lines(job)
        return [] if missing(lines) else lines


def missing(lines: list[Line]) -> list[int]:
    """Gives the nominal times between the first and the last for which nothing was written."""
    times = {second(line.nominal) for line in lines}
    return sorted(set(range(min(times), max(times))) - times)


def check_lines(lines: list[Line]) -> None:
    """Judges what one job's runs wrote: one run for each nominal time, no attempt twice."""
    assert not missing(lines)
    by_time: dict[int, list[Line]] = defaultdict(list)
    for line in lines:
        by_time[second(line.nominal)].append(line)
    for written in by_time.values():
        assert len({line.run for line in written}) == 1, written
        starts = [line for line in written if line.event == "start"]
        attempts = [line.attempt for line in starts]
        assert attempts == sorted(set(attempts)), starts
        tokens = [line.token for line in starts]
        assert tokens == sorted(set(tokens)), starts

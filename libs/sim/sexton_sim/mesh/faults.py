"""What is done to a mesh, besides what is done to every world.

The points at which processes are killed are where something has been done and somebody has yet to
hear of it: a commit that is durable and not answered, a run that is RUNNING and not sent, a
settlement without its notice, an effect that nobody has reported.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast

from sexton_sim.faults import Deed, Deeds, FaultPlan, Injector, Traps
from sexton_sim.faults.everywhere import DEEDS as EVERYWHERE
from sexton_sim.simulation import Host


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshFaults(FaultPlan):
    """Besides what is done to every world."""

    stop_member: float = 2.0
    """SIGTERM, and a start a little later."""
    stop_acting: float = 1.0
    """The same of a leader or owner."""
    crash_worker: float = 1.0
    rolling_restart: float = 0.5
    """SIGTERM for everybody, one after the other."""
    crash_pair: float = 1.0
    """Two at once, whoever they are."""
    sever: float = 1.0
    """All links of one process, one way."""
    restore_backup: float = 0.5
    """Of the store: a backup made a while ago, or once more the one restored last."""

    crash_leader_before_commit: float = 0.7
    crash_leader_before_push: float = 0.7
    """Its run is committed, and the queue has not been told."""
    crash_new_leader: float = 0.5
    """As soon as it has the lease."""
    crash_owner_before_commit: float = 0.7
    crash_owner_before_send: float = 0.7
    """The run is RUNNING, and its worker has not been told."""
    crash_owner_before_notice: float = 0.7
    """The run's end is committed, and neither worker nor leader have been told."""
    crash_owner_after_notice: float = 0.7
    crash_new_owner: float = 0.5
    crash_api_before_answer: float = 0.5
    """A change of a job is durable, and whoever asked has not been told."""
    crash_worker_after_effect: float = 0.7
    """The job has had its effect, and its end has not been reported."""
    crash_worker_and_owner: float = 0.7
    """At the same point, both."""


class Mesh(Protocol):
    """A mesh, as far as faults strike it."""

    members: Sequence[Host]
    """Everybody but the store."""
    traps: Traps

    def acting(self, role: str) -> list[Host]:
        """Lists the processes of a role that lead, or own, a shard."""

    def request_stop(self, name: str) -> bool:
        """Sends SIGTERM; tells whether there was somebody who could take it."""

    def restore_backup(self, rng: random.Random) -> bool:
        """Kills the store and puts a backup in its place; tells whether there was any."""


class CrashPoint(NamedTuple):
    """Where to strike, and whom; `who` is the process that passes."""

    point: str
    victims: Callable[[Mesh, str], Sequence[Host]]


def _leaders(world: Mesh, _who: str) -> Sequence[Host]:
    return world.acting("coordinator")


def _owners(world: Mesh, _who: str) -> Sequence[Host]:
    return world.acting("queue")


def _coordinators(world: Mesh, _who: str) -> Sequence[Host]:
    return [host for host in world.members if host.name.startswith("coordinator")]


def _queues(world: Mesh, _who: str) -> Sequence[Host]:
    return [host for host in world.members if host.name.startswith("queue")]


def _passing(world: Mesh, who: str) -> Sequence[Host]:
    return [host for host in world.members if host.name == who]


def _passing_and_owners(world: Mesh, who: str) -> Sequence[Host]:
    return [*_passing(world, who), *world.acting("queue")]


CRASH_POINTS = {
    "crash_leader_before_commit": CrashPoint("before fire", _leaders),
    "crash_leader_before_push": CrashPoint("after fire", _leaders),
    "crash_new_leader": CrashPoint("after leader's lease", _coordinators),
    "crash_owner_before_commit": CrashPoint("before assignment", _owners),
    "crash_owner_before_send": CrashPoint("after assignment", _owners),
    "crash_owner_before_notice": CrashPoint("after settlement", _owners),
    "crash_owner_after_notice": CrashPoint("notice", _passing),
    "crash_new_owner": CrashPoint("after owner's lease", _queues),
    "crash_api_before_answer": CrashPoint("after definition", _coordinators),
    "crash_worker_after_effect": CrashPoint("effect", _passing),
    "crash_worker_and_owner": CrashPoint("effect", _passing_and_owners),
}


def _crash_at(kind: str) -> Deed:
    def deed(it: Injector, _rng: random.Random) -> None:
        world, point = _mesh(it), CRASH_POINTS[kind]

        def strike(who: str) -> None:
            victims = point.victims(world, who)
            if victims:
                it.note(kind)
            for host in victims:
                host.crash()

        world.traps.set(point.point, strike)

    return deed


def _stop_member(it: Injector, rng: random.Random) -> None:
    _stop(it, rng.choice(it.world.hosts), "stop_member")


def _stop(it: Injector, host: Host, kind: str) -> None:
    if _mesh(it).request_stop(host.name):
        it.note(kind)
        it.world.recorder.fault("stop", host.name)


def _stop_acting(it: Injector, rng: random.Random) -> None:
    acting = [*_leaders(_mesh(it), ""), *_owners(_mesh(it), "")]
    if acting:
        _stop(it, rng.choice(acting), "stop_acting")


def _crash_worker(it: Injector, rng: random.Random) -> None:
    workers = [host for host in _mesh(it).members if host.name.startswith("worker")]
    host = rng.choice(workers)
    it.note("crash_worker")
    it.at_some_await(host, rng, host.crash)


def _rolling_restart(it: Injector, rng: random.Random) -> None:
    hosts = list(it.world.hosts)
    rng.shuffle(hosts)
    at_s = 0.0
    for host in hosts:
        at_s += rng.uniform(0.2, 2.5)
        it.soon(at_s, lambda host=host: _stop(it, host, "rolling_restart"))  # type: ignore[misc]


def _crash_pair(it: Injector, rng: random.Random) -> None:
    it.note("crash_pair")
    for host in rng.sample(it.world.hosts, 2):
        it.at_some_await(host, rng, host.crash)


def _sever(it: Injector, rng: random.Random) -> None:
    it.note("sever")
    one = rng.choice(it.world.hosts)
    links = [(one.name, other.name) for other in it.world.hosts if other is not one]
    if rng.random() < 0.5:
        links = [(target, source) for source, target in links]
    it.cut(links)
    rng.shuffle(links)
    it.later(rng.uniform(0.5, 8), lambda: it.mend(links))


def _restore_backup(it: Injector, rng: random.Random) -> None:
    if _mesh(it).restore_backup(rng):
        it.note("restore_backup")


def _mesh(it: Injector) -> Mesh:
    return cast("Mesh", it.world)


DEEDS: Deeds = {
    **EVERYWHERE,
    "stop_member": _stop_member,
    "stop_acting": _stop_acting,
    "crash_worker": _crash_worker,
    "rolling_restart": _rolling_restart,
    "crash_pair": _crash_pair,
    "sever": _sever,
    "restore_backup": _restore_backup,
    **{kind: _crash_at(kind) for kind in CRASH_POINTS},
}
